//! What `#[job]` leaves behind: the function as it was written, a check of its types on every target, and on wasm the
//! export. All of the work is library code; only what must name the function stands here.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Ident, ItemFn};

use crate::signature;

pub fn job(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let misplaced = syn::Error::new(error.span(), format!("#[job] goes on a function: {error}"));
            return [item, misplaced.to_compile_error()].into_iter().collect();
        }
    };
    // The function stays even when it is refused, so that one mistake does not show as many.
    match signature::check(&arguments, &function) {
        Ok(()) => [function.to_token_stream(), export(&function)].into_iter().collect(),
        Err(errors) => [function.to_token_stream(), errors.to_compile_error()].into_iter().collect(),
    }
}

fn export(function: &ItemFn) -> TokenStream {
    let name = &function.sig.ident;
    // A second job in the same module collides with this name, which says what is wrong. One in another module meets
    // the linker's rule that a symbol is exported once.
    let only_one = Ident::new("a_crate_has_only_one_job", name.span());
    // A mismatch of types is reported where the author wrote the signature.
    let typed = quote_spanned!(name.span()=> #name);
    let body = Span::mixed_site();
    quote_spanned! {body=>
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        enum #only_one {}

        #[doc(hidden)]
        const _: () = {
            const _: fn(&::leasehold_guest::Context, ::std::vec::Vec<::core::primitive::u8>) -> ::leasehold_guest::__private::Answer =
                |context, payload| ::leasehold_guest::__private::handle(#typed, context, payload);

            #[cfg(target_family = "wasm")]
            struct __LeaseholdJob;

            #[cfg(target_family = "wasm")]
            impl ::leasehold_guest::__private::Guest for __LeaseholdJob {
                fn run(
                    job: ::leasehold_guest::__private::Job,
                    payload: ::std::vec::Vec<::core::primitive::u8>,
                ) -> ::leasehold_guest::__private::GuestAnswer {
                    ::leasehold_guest::__private::run(#name, job, payload)
                }
            }

            // The bindings' own macro writes these names as they are.
            #[cfg(target_family = "wasm")]
            #[allow(unused_imports)]
            use ::core::primitive::{i32, i64, u8, usize};

            #[cfg(target_family = "wasm")]
            ::leasehold_guest::__private::export!(__LeaseholdJob with_types_in ::leasehold_guest::__private::bindings);
        };
    }
}
