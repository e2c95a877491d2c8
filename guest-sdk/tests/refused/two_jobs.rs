use leasehold_guest::prelude::*;

#[job]
fn first(_ctx: &Context, _input: u32) -> Result<(), Failure> {
    Ok(())
}

#[job]
fn second(_ctx: &Context, _input: u32) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
