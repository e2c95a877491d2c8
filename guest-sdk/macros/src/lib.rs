//! The `#[job]` macro. It is documented where it is re-exported, in `leasehold-guest`, so that its examples compile.

use proc_macro::TokenStream;

mod expand;
mod signature;

#[proc_macro_attribute]
pub fn job(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::job(arguments.into(), item.into()).into()
}
