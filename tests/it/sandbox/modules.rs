//! What may be uploaded, and what the verdict says of the rest.

use leasehold::job::ModuleKind;
use leasehold::sandbox::PrepareError;
use leasehold_tests::guests::{SANDBOX, command, core, embed_world};

fn refusal(bytes: &[u8]) -> PrepareError {
    match SANDBOX.prepare(bytes) {
        Ok(_) => panic!("it must not prepare"),
        Err(error) => error,
    }
}

#[test]
fn bytes_that_are_no_module_are_named_for_what_they_are() {
    assert_eq!(refusal(b""), PrepareError::Empty);
    assert_eq!(refusal(b"(module)"), PrepareError::Text);
    assert_eq!(refusal(b"\n ;; a comment\n(component)"), PrepareError::Text);
    assert_eq!(refusal(b"\x89PNG\r\n"), PrepareError::NotWasm("\\x89PNG".into()));
    assert_eq!(refusal(b"\0as"), PrepareError::NotWasm("\\x00as".into()));
    let mut torn = core("echo");
    torn.truncate(torn.len() / 2);
    assert!(matches!(refusal(&torn), PrepareError::Invalid(_)), "{:?}", refusal(&torn));
}

#[test]
fn a_guest_is_made_into_a_component_and_inspected() {
    let bytes = core("echo");
    let inspection = SANDBOX.inspect(&bytes);
    assert_eq!(inspection.problem, None);
    assert_eq!(inspection.kind, Some(ModuleKind::Component));
    assert_eq!(inspection.size_bytes, bytes.len() as u64);
    assert_eq!(inspection.exports, ["leasehold:job/handler@1.0.0"]);
    assert!(inspection.imports.iter().any(|name| name == "leasehold:job/host@1.0.0"), "{:?}", inspection.imports);
    assert!(inspection.componentized_bytes.is_some_and(|size| size > inspection.size_bytes / 2));
    assert!(inspection.compiled_bytes.is_some_and(|size| size > 0));
    assert_eq!(inspection.minimum_memory_bytes, 64 << 10);
}

#[test]
fn all_missing_imports_of_a_component_are_listed_at_once() {
    let component = wat::parse_str(
        r#"(component
            (import "acme:kv/store@0.1.0" (instance (export "get" (func)) (export "set" (func))))
            (import "wasi:http/outgoing-handler@0.2.6" (instance (export "handle" (func))))
            (import "leasehold:job/host@1.4.0" (instance (export "teleport" (func)) (export "cancel-requested" (func (result bool)))))
            (import "wasi:cli/exit@0.2.3" (instance (export "exit" (func (param "status" (result))))))
            (import "plain" (func))
            (core module $m (func (export "run") (result i32) (i32.const 0)))
            (core instance $i (instantiate $m))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance $command (export "run" (func $run)))
            (export "wasi:cli/run@0.2.0" (instance $command))
        )"#,
    )
    .expect("the component parses");
    let PrepareError::MissingImports(missing) = refusal(&component) else { panic!("{:?}", refusal(&component)) };
    let names: Vec<_> = missing.iter().map(|import| import.name.as_str()).collect();
    assert_eq!(
        names,
        ["acme:kv/store@0.1.0", "wasi:http/outgoing-handler@0.2.6", "leasehold:job/host@1.4.0#teleport", "plain"]
    );
    assert_eq!(SANDBOX.inspect(&component).missing, missing);
}

#[test]
fn all_missing_imports_of_a_command_are_listed_at_once() {
    let module = wat::parse_str(
        r#"(module
            (import "env" "frob" (func))
            (import "wasi_unstable" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
            (import "leasehold:job/host@1.0.0" "log" (func (param i32 i32 i32)))
            (memory (export "memory") 1)
            (func (export "_start")))"#,
    )
    .expect("the module parses");
    let PrepareError::MissingImports(missing) = refusal(&module) else { panic!("{:?}", refusal(&module)) };
    let names: Vec<_> = missing.iter().map(|import| import.name.as_str()).collect();
    assert_eq!(names, ["env::frob", "wasi_unstable::fd_write", "leasehold:job/host@1.0.0::log"]);
}

#[test]
fn a_module_without_an_entry_gets_advice() {
    let library = wat::parse_str("(module (func (export \"add\")))").expect("it parses");
    assert!(refusal(&library).to_string().contains("_start"), "{}", refusal(&library));
    let stripped = wat::parse_str("(module (func (export \"leasehold:job/handler@1.0.0#run\")))").expect("it parses");
    assert!(refusal(&stripped).to_string().contains("do not strip"), "{}", refusal(&stripped));
    let empty = wat::parse_str("(component)").expect("it parses");
    assert!(refusal(&empty).to_string().contains("leasehold:job/handler@1"), "{}", refusal(&empty));
}

#[test]
fn a_module_for_another_world_says_what_it_lacks() {
    let mut module = wat::parse_str("(module (memory (export \"memory\") 1))").expect("it parses");
    embed_world(&mut module);
    assert!(matches!(refusal(&module), PrepareError::NotComponentizable(_)), "{:?}", refusal(&module));
}

#[test]
fn more_memory_from_the_start_than_any_run_may_have_is_refused() {
    let module = wat::parse_str("(module (memory 60000) (func (export \"_start\")))").expect("it parses");
    assert_eq!(refusal(&module), PrepareError::TooMuchMemory { minimum: 60_000 << 16, limit: 256 << 20 });
}

#[test]
fn what_would_keep_the_compiler_busy_is_refused_before_it_starts() {
    let many = format!("(module {} (func (export \"_start\")))", "(func)".repeat(65_536));
    let many = wat::parse_str(many).expect("it parses");
    assert!(matches!(refusal(&many), PrepareError::TooComplex { found: 65_537, .. }), "{:?}", refusal(&many));
    let targets = " 0".repeat(20_000);
    let tables = format!("(block (br_table {targets} (i32.const 0)))");
    let function = |body: &str| format!("(func {body})");
    let module = |functions: &str| {
        wat::parse_str(format!("(module {functions} (func (export \"_start\")))")).expect("it parses")
    };
    for (functions, refused) in [
        (function(&tables.repeat(2)), "branch table targets in one function"),
        (function(&tables).repeat(14), "branch table targets"),
        (
            function(&format!("(local {}) {}", "i32 ".repeat(2_000), "(block)".repeat(1_000))),
            "locals times blocks in one function",
        ),
        (
            function(&format!("(local {}) {}", "i32 ".repeat(1_000), "(block)".repeat(1_000))).repeat(9),
            "locals times blocks",
        ),
        (function(&"(drop (i64.const 0x7fffffffffffffff))".repeat(100_000)), "bytes of code in one function"),
    ] {
        let error = refusal(&module(&functions));
        assert!(matches!(&error, PrepareError::TooComplex { what, .. } if what == refused), "{refused}: {error}");
    }
}

#[test]
fn components_that_double_with_each_level_are_refused_before_they_are_laid_out() {
    let doubling = |levels: u32| {
        let mut text = String::from("(component (component $c0 (core module $m) (core instance (instantiate $m)))");
        for level in 1..levels {
            text += &format!(
                "(component $c{level} (alias outer 1 $c{} (component $inner))
                    (instance (instantiate $inner)) (instance (instantiate $inner)))",
                level - 1
            );
        }
        text += &format!("(instance (instantiate $c{})))", levels - 1);
        refusal(&wat::parse_str(text).expect("it parses"))
    };
    assert!(matches!(doubling(40), PrepareError::TooComplex { what, .. } if what == "instances"), "{:?}", doubling(40));
    // A few levels are nothing to object to; it only has no entry.
    assert!(matches!(doubling(4), PrepareError::NoEntry(_)), "{:?}", doubling(4));
}

#[test]
fn more_debug_information_than_can_be_read_at_each_trap_is_refused() {
    let zeros = "\\00".repeat(9 << 20);
    let module = format!("(module (@custom \".debug_info\" \"{zeros}\") (func (export \"_start\")))");
    let refused = refusal(&wat::parse_str(module).expect("it parses"));
    assert_eq!(refused, PrepareError::DebugInfo { found: 9 << 20, limit: 8 << 20 });
}

#[test]
fn a_command_is_a_command() {
    let inspection = SANDBOX.inspect(&command(""));
    assert_eq!((inspection.kind, inspection.problem), (Some(ModuleKind::Command), None));
    assert!(inspection.imports.contains(&"wasi_snapshot_preview1::fd_write".to_owned()));
}

/// A component that exports a handler of the given version whose `run` has the given type.
fn handler(version: &str, core: &str, run: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
            (core module $m (func (export "run") {core} unreachable))
            (core instance $i (instantiate $m))
            (func $run {run} (canon lift (core func $i "run")))
            (instance $handler (export "run" (func $run)))
            (export "leasehold:job/handler@{version}" (instance $handler)))"#
    );
    wat::parse_str(text).expect("the component parses")
}

#[test]
fn a_handler_of_another_version_or_type_is_refused_at_upload() {
    let newer = refusal(&handler("2.0.0", "(result i32)", "(result u32)")).to_string();
    assert!(newer.contains("leasehold:job/handler@2.0.0") && newer.contains("version 1.0.0"), "{newer}");
    let other = refusal(&handler("1.0.0", "(param i32) (result i32)", "(param \"n\" u32) (result u32)")).to_string();
    assert!(other.contains("func(u32) -> u32") && other.contains("snooze(u64)"), "{other}");
}

#[test]
fn no_torn_or_flipped_module_ends_the_worker() {
    let module = core("says");
    // A fixed walk through the module, so that a failure repeats: each byte of a stride flipped in turn, and cut there.
    for (at, bit) in (8..module.len()).step_by(29).zip((0..8).cycle()) {
        let mut flipped = module.clone();
        flipped[at] ^= 1 << bit;
        let _ = SANDBOX.inspect(&flipped);
        assert!(SANDBOX.prepare(&module[..at]).is_err(), "cut at {at}");
    }
}
