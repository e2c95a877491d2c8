use leasehold_guest::prelude::*;

#[job]
fn generic<'a, T: Deserialize<'a>>(_ctx: &Context, _input: T) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
