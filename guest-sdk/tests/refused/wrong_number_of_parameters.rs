use leasehold_guest::prelude::*;

mod none {
    use super::*;
    #[job]
    fn none() -> Result<(), Failure> {
        Ok(())
    }
}

mod one {
    use super::*;
    #[job]
    fn one(_ctx: &Context) -> Result<(), Failure> {
        Ok(())
    }
}

mod three {
    use super::*;
    #[job]
    fn three(_ctx: &Context, _a: u32, _b: u32) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
