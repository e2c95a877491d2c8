use leasehold_guest::prelude::*;

#[job(raw)]
async unsafe extern "C" fn nothing<T>(_ctx: &mut Context, _input: &T, _extra: u8)
where
    T: Clone,
{
}

fn main() {}
