//! Hostile modules whose shape repeats: written by a program, so that they need not be read.

use leasehold::job::{Limits, ModuleKind};
use leasehold_tests::guests::LIMITS;

use super::corpus::Case;
use crate::fuzz::write_number;

/// What a program for WASI 0.2 ends with.
const PROGRAM: &str = r#"
    (core module $m (func (export "run") (result i32) (i32.const 0)))
    (core instance $i (instantiate $m))
    (func $run (result (result)) (canon lift (core func $i "run")))
    (instance $command (export "run" (func $run)))
    (export "wasi:cli/run@0.2.0" (instance $command))"#;

pub fn made() -> Vec<Case> {
    vec![
        refused("components_in_components", nested(300), "modules and components inside"),
        refused("a_thousand_modules", component(&"(core module)".repeat(1_000)), "modules and components inside"),
        refused("two_to_the_twentieth_instances", component(&doubled(20)), "instances"),
        refused("types_in_types", component(&list_of_lists(150)), "nest"),
        refused("a_type_of_four_billion_fields", component(&tuples_of_tuples(32)), "type size"),
        refused("ten_thousand_imports", component(&imports(10_001)), "imports"),
        refused("nested_loops", program(&format!("{}{}", "loop ".repeat(2_000), "end ".repeat(2_000))), "loops inside"),
        refused(
            "a_function_of_megabytes",
            program(&"i32.const 1 drop ".repeat(400_000)),
            "bytes of code in one function",
        ),
        refused("a_hundred_thousand_functions", wat(&format!("(module {})", "(func)".repeat(100_000))), "functions"),
        refused("debug_information_without_end", debug_information(9 << 20), "debug information"),
        refused("a_forged_precompiled_component", forged(), "machine code compiled by wasmtime"),
        refused("a_forged_precompiled_module_behind_wasm", [b"\0asm\x01\0\0\0", &forged()[..]].concat(), "not valid"),
        refused("a_module_that_says_it_is_longer", torn(), "not valid"),
        refused("nothing_but_a_header", b"\0asm\x01\0\0\0".to_vec(), "no entry"),
        refused("a_script", b"#!/bin/sh\nrm -rf /\n".to_vec(), "not wasm"),
        refused(
            "a_name_of_100_kb",
            program_with(&format!("(import \"env\" \"{}\" (func))", "\\1b[2J".repeat(20_000)), ""),
            "env",
        ),
        // Nothing to object to: many names for one thing cost their own bytes and no more.
        Case { state: "done".into(), failure_kind: None, ..refused("many_aliases", component(&aliases(5_000)), "") },
        traps_deep_in_long_names(),
    ]
}

/// One that an upload refuses, and that a worker refuses if it comes there all the same.
fn refused(name: &str, bytes: Vec<u8>, says: &str) -> Case {
    Case {
        name: name.into(),
        kind: ModuleKind::Command,
        bytes,
        limits: LIMITS,
        state: "dead".into(),
        failure_kind: Some("link".into()),
        says: vec![says.into()],
    }
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

fn component(fields: &str) -> Vec<u8> {
    wat(&format!("(component {fields} {PROGRAM})"))
}

fn program(body: &str) -> Vec<u8> {
    program_with("", body)
}

fn program_with(fields: &str, body: &str) -> Vec<u8> {
    wat(&format!("(module {fields} (func (export \"_start\") {body}))"))
}

/// Written byte by byte, since text as deep as that is refused by whoever reads text.
fn nested(depth: usize) -> Vec<u8> {
    let header = b"\0asm\x0d\0\x01\0";
    (0..depth).fold(header.to_vec(), |inner, _| {
        let mut outer = header.to_vec();
        outer.push(4); // a component
        write_number(&mut outer, inner.len());
        outer.extend(inner);
        outer
    })
}

/// Each component makes two instances of the one before it.
fn doubled(levels: usize) -> String {
    let mut fields = "(component $c0 (core module $m) (core instance (instantiate $m)))".to_owned();
    for level in 1..=levels {
        let inner = std::mem::take(&mut fields);
        let below = level - 1;
        fields = format!(
            "(component $c{level} {inner} (instance (instantiate $c{below})) (instance (instantiate $c{below})))"
        );
    }
    format!("{fields} (instance (instantiate $c{levels}))")
}

fn list_of_lists(depth: usize) -> String {
    let mut types = "(type $t0 (list u8))".to_owned();
    for level in 1..=depth {
        types.push_str(&format!("(type $t{level} (list $t{}))", level - 1));
    }
    types
}

fn tuples_of_tuples(levels: usize) -> String {
    let mut types = "(type $t0 (tuple u8 u8))".to_owned();
    for level in 1..=levels {
        types.push_str(&format!("(type $t{level} (tuple $t{0} $t{0}))", level - 1));
    }
    types
}

fn imports(count: usize) -> String {
    (0..count).map(|n| format!("(import \"f{n}\" (func))")).collect()
}

/// One instance exported from another, and so on.
fn aliases(count: usize) -> String {
    let mut fields = "(core module $a (func (export \"f\"))) (core instance $a (instantiate $a))".to_owned();
    for _ in 0..count {
        fields.push_str("(alias core export $a \"f\" (core func))");
    }
    fields
}

fn debug_information(bytes: usize) -> Vec<u8> {
    wat(&format!("(module (@custom \".debug_info\" \"{}\") (func (export \"_start\")))", "\\00".repeat(bytes)))
}

/// What wasmtime takes for its own machine code: an ELF file of its own kind of system.
fn forged() -> Vec<u8> {
    let mut elf = b"\x7fELF\x02\x01\x01\xc8\0\0\0\0\0\0\0\0\x01\0\xf7\0\x01\0\0\0".to_vec();
    elf.extend([0; 24]); // entry, program headers, section headers
    elf.extend(b"\x02\0\0\0\x40\0\0\0\0\0\x40\0\0\0\0\0"); // flags: a component
    elf
}

/// A section that claims four gigabytes.
fn torn() -> Vec<u8> {
    [b"\0asm\x01\0\0\0\x0a\xff\xff\xff\xff\x0f".as_slice(), &[0; 64]].concat()
}

/// The backtrace of a deep recursion whose functions have names of 50 KB.
fn traps_deep_in_long_names() -> Case {
    let name = "x".repeat(50_000);
    let text = format!(
        "(module (func $\"{name}\" (param i32) (if (i32.eqz (local.get 0)) (then unreachable))
            (call $\"{name}\" (i32.sub (local.get 0) (i32.const 1))))
          (func (export \"_start\") (call $\"{name}\" (i32.const 40))))"
    );
    Case {
        state: "queued".into(),
        failure_kind: Some("trap".into()),
        limits: Limits { memory_bytes: 1 << 20, ..LIMITS },
        ..refused("traps_deep_in_long_names", wat(&text), "unreachable")
    }
}
