use leasehold_guest::prelude::*;

#[job]
fn silent(_ctx: &Context, _input: u32) {}

fn main() {}
