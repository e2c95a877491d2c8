//! Whether an exported `run` has the type that the contract gives it. wasmtime checks this only when a module is
//! instantiated, which for an upload is too late.

use wasmtime::component::Type;
use wasmtime::component::types::ComponentFunc;

/// `leasehold:job/handler#run`, as `text` writes it.
pub(super) const RUN: &str = "func(record{id: u64, tenant: string, module: string, queue: string, attempt: u32, \
    max-attempts: u32, timeout-ms: u64}, list<u8>) -> result<list<u8>, variant{retry(record{message: string, \
    delay-ms: option<u64>}), dead(string), snooze(u64)}>";

/// A function's type with all its parts spelled out; types are compared by structure, so their names do not matter.
pub(super) fn text(func: &ComponentFunc) -> String {
    let params: Vec<_> = func.params().map(|(_name, ty)| type_text(&ty)).collect();
    let results: Vec<_> = func.results().map(|ty| type_text(&ty)).collect();
    format!("func({}) -> {}", params.join(", "), results.join(", "))
}

/// Types cannot contain themselves and wasmtime bounds their nesting, so this recursion ends.
fn type_text(ty: &Type) -> String {
    let payload = |ty: Option<Type>| ty.map_or_else(|| "_".to_owned(), |ty| type_text(&ty));
    match ty {
        Type::Bool => "bool".into(),
        Type::S8 => "s8".into(),
        Type::U8 => "u8".into(),
        Type::S16 => "s16".into(),
        Type::U16 => "u16".into(),
        Type::S32 => "s32".into(),
        Type::U32 => "u32".into(),
        Type::S64 => "s64".into(),
        Type::U64 => "u64".into(),
        Type::Float32 => "f32".into(),
        Type::Float64 => "f64".into(),
        Type::Char => "char".into(),
        Type::String => "string".into(),
        Type::List(list) => format!("list<{}>", type_text(&list.ty())),
        Type::Option(option) => format!("option<{}>", type_text(&option.ty())),
        Type::Result(result) => format!("result<{}, {}>", payload(result.ok()), payload(result.err())),
        Type::Record(record) => {
            let fields: Vec<_> =
                record.fields().map(|field| format!("{}: {}", field.name, type_text(&field.ty))).collect();
            format!("record{{{}}}", fields.join(", "))
        }
        Type::Variant(variant) => {
            let cases: Vec<_> = variant
                .cases()
                .map(|case| match case.ty {
                    Some(ty) => format!("{}({})", case.name, type_text(&ty)),
                    None => case.name.to_owned(),
                })
                .collect();
            format!("variant{{{}}}", cases.join(", "))
        }
        Type::Tuple(tuple) => {
            let types: Vec<_> = tuple.types().map(|ty| type_text(&ty)).collect();
            format!("tuple<{}>", types.join(", "))
        }
        Type::Enum(cases) => format!("enum{{{}}}", cases.names().collect::<Vec<_>>().join(", ")),
        Type::Flags(flags) => format!("flags{{{}}}", flags.names().collect::<Vec<_>>().join(", ")),
        // The contract has none of these, so it is enough to tell them apart from what it has.
        other => format!("{other:?}").chars().take_while(|c| c.is_alphanumeric()).collect(),
    }
}
