use leasehold_guest::prelude::*;

#[job]
struct Thumbnail;

fn main() {}
