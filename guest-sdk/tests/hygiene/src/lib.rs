//! Everything that the macro's code could be tempted to use is shadowed here, and unsafe code is forbidden as many
//! crates forbid it. That this compiles, natively and for wasm, is the test.

#![allow(dead_code, non_camel_case_types)]
#![forbid(unsafe_code)]

struct Ok;
struct Err;
struct Some;
struct None;
struct String;
struct Vec;
struct Result;
struct Option;
struct Box;
struct Job;
struct Guest;
struct Failure;
struct u8;
struct u64;
struct i32;
struct i64;
struct usize;

trait From {}
trait Into {}
trait Fn {}

mod core {}
mod std {}
mod alloc {}
mod leasehold_guest {}
mod wit_bindgen {}

fn handle() {}
fn run() {}
fn export_run() {}

#[::leasehold_guest::job]
pub fn run_it(
    context: &::leasehold_guest::Context,
    payload: ::std::string::String,
) -> ::core::result::Result<::std::string::String, ::leasehold_guest::Failure> {
    ::leasehold_guest::info!("attempt {}", context.attempt());
    ::core::result::Result::Ok(payload)
}
