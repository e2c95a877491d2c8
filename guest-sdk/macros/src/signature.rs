//! The rule for a job's signature: `fn name(ctx: &Context, input: T) -> Result<O, Failure>`, and nothing more. Every
//! breach is reported at once, each at its own place, since an author who fixes them one build at a time gives up.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Error, FnArg, ItemFn, ReturnType, Safety, Signature, Type};

pub fn check(arguments: &TokenStream, function: &ItemFn) -> Result<(), Error> {
    let mut errors = Errors(None);
    if !arguments.is_empty() {
        errors.add(
            arguments,
            "#[job] takes no arguments; a job that reads or returns plain bytes says so with the type `Raw`",
        );
    }
    qualifiers(&function.sig, &mut errors);
    parameters(&function.sig, &mut errors);
    if matches!(function.sig.output, ReturnType::Default) {
        errors.add(
            &function.sig.ident,
            "a job returns `Result<Output, Failure>`; for one without a result, return `Result<(), Failure>`",
        );
    }
    errors.0.map_or(Ok(()), Err)
}

fn qualifiers(signature: &Signature, errors: &mut Errors) {
    if let Some(asyncness) = &signature.asyncness {
        errors.add(asyncness, "a job is not async: it has its worker's thread to itself until it returns");
    }
    if let Safety::Unsafe(unsafety) = &signature.safety {
        errors.add(unsafety, "a job is not unsafe: whoever runs it makes no promises to it");
    }
    if let Some(abi) = &signature.abi {
        errors.add(abi, "a job is an ordinary Rust function; leave the ABI out");
    }
    let generics = &signature.generics;
    if !generics.params.is_empty() {
        errors.add(generics, "a job is not generic: name the type of its input");
    }
    if let Some(clause) = &generics.where_clause {
        errors.add(clause, "a job has no where clause: name the type of its input");
    }
}

fn parameters(signature: &Signature, errors: &mut Errors) {
    let mut typed = Vec::new();
    for parameter in &signature.inputs {
        match parameter {
            FnArg::Receiver(receiver) => errors.add(receiver, "a job is a free function; it has no `self`"),
            FnArg::Typed(parameter) => typed.push(parameter),
        }
    }
    if typed.len() != 2 {
        let wanted = "a job takes two parameters, `ctx: &Context` and its input";
        let found = format!("{wanted}; this one has {}", typed.len());
        // A missing parameter has no place of its own, a superfluous one has.
        match typed.get(2) {
            Some(superfluous) => errors.add(superfluous, found),
            None => errors.add(&signature.ident, found),
        }
    }
    if let Some(context) = typed.first().filter(|parameter| !is_context(&parameter.ty)) {
        errors.add(&context.ty, "the first parameter of a job is `&Context`");
    }
    if let Some(input) = typed.get(1) {
        check_input(&input.ty, errors);
    }
}

fn is_context(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else { return false };
    reference.mutability.is_none() && last_segment(&reference.elem).is_some_and(|segment| segment.ident == "Context")
}

fn check_input(ty: &Type, errors: &mut Errors) {
    match ty {
        Type::Reference(_) => {
            errors.add(
                ty,
                "a job owns its input: take `String` or your own type for JSON, `Raw` for the payload's bytes",
            );
        }
        Type::ImplTrait(_) => errors.add(ty, "a job is not generic: name the type of its input"),
        _ if is_bytes(ty) => {
            errors.add(ty, "`Vec<u8>` would be read from a JSON array of numbers; take `Raw` for the payload's bytes")
        }
        _ => (),
    }
}

fn is_bytes(ty: &Type) -> bool {
    last_segment(ty).is_some_and(|segment| {
        segment.ident == "Vec" && segment.arguments.to_token_stream().to_string().replace(' ', "") == "<u8>"
    })
}

fn last_segment(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

/// All errors of one signature as one.
struct Errors(Option<Error>);

impl Errors {
    fn add(&mut self, place: impl ToTokens, message: impl std::fmt::Display) {
        let error = Error::new_spanned(place, message);
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }
}
