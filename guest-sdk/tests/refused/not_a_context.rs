use leasehold_guest::prelude::*;

mod by_value {
    use super::*;
    #[job]
    fn by_value(_ctx: Context, _input: ()) -> Result<(), Failure> {
        Ok(())
    }
}

mod mutable {
    use super::*;
    #[job]
    fn mutable(_ctx: &mut Context, _input: ()) -> Result<(), Failure> {
        Ok(())
    }
}

mod swapped {
    use super::*;
    #[job]
    fn swapped(_input: u32, _ctx: &Context) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
