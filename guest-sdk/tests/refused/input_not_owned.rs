use leasehold_guest::prelude::*;

mod text {
    use super::*;
    #[job]
    fn text(_ctx: &Context, _input: &str) -> Result<(), Failure> {
        Ok(())
    }
}

mod bytes {
    use super::*;
    #[job]
    fn bytes(_ctx: &Context, _input: Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }
}

mod anything {
    use super::*;
    #[job]
    fn anything(_ctx: &Context, _input: impl Clone) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
