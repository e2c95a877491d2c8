use leasehold_guest::prelude::*;

struct Thumbnailer;

impl Thumbnailer {
    #[job]
    fn run(&self, _ctx: &Context, _input: u32) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
