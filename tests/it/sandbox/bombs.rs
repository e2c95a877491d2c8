//! Small modules that would keep a compiler busy for minutes or cost it gigabytes, each refused before it is compiled, with
//! both numbers, and cousins of theirs that are nothing to object to.

use leasehold::sandbox::PrepareError;
use leasehold_tests::guests::{SANDBOX, prepare};

/// A program whose `_start` has this body, with these fields of the module before it.
fn program(fields: &str, body: &str) -> Vec<u8> {
    let text = format!("(module {fields} (func (export \"_start\") {body}))");
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn assert_refused(bytes: &[u8], refused: &str, more_than: u64) {
    let Err(error) = SANDBOX.prepare(bytes) else { panic!("{refused}: it must not prepare") };
    let PrepareError::TooComplex { what, found, limit } = &error else { panic!("{refused}: {error}") };
    assert_eq!(*what, refused);
    assert_eq!(*limit, more_than, "{refused}");
    assert!(found > limit, "{error}");
    assert_eq!(error.to_string(), format!("the module has {found} {refused}; the limit is {limit}"));
}

fn locals(count: usize) -> String {
    format!("(local {})", "i32 ".repeat(count))
}

/// A block of a type that takes and gives so many values, and the values.
fn values(count: usize) -> (String, String) {
    let types = "i64 ".repeat(count);
    (format!("(type $t (func (param {types}) (result {types})))"), "i64.const 1 ".repeat(count))
}

#[test]
fn deep_nesting_is_refused() {
    let loops = |depth: usize| {
        program("", &format!("(local i32) {} {}", "loop ".repeat(depth), "local.get 0 br_if 0 end ".repeat(depth)))
    };
    assert_refused(&loops(2_000), "loops inside each other", 100);
    assert_refused(&loops(101), "loops inside each other", 100);
    prepare(&loops(100));
    let ifs = |depth: usize| program("", &format!("{} {}", "i32.const 1 if ".repeat(depth), "end ".repeat(depth)));
    assert_refused(&ifs(4_097), "blocks inside each other", 4_096);
    prepare(&ifs(1_000));
    // One after the other they are as many as one likes.
    prepare(&program("", &"loop end ".repeat(1_000)));
}

#[test]
fn locals_that_are_carried_through_loops_and_branches_are_refused() {
    let sequential = format!("{} {}", locals(50), "loop local.get 0 br_if 0 end ".repeat(5_000));
    assert_refused(&program("", &sequential), "locals times loops in one function", 131_072);
    let nested = format!("{} {} {}", locals(1_400), "loop ".repeat(99), "end ".repeat(99));
    assert_refused(&program("", &nested), "locals times loops in one function", 131_072);
    let function = format!("(func {} {})", locals(1_000), "(loop)".repeat(131));
    assert_refused(&program(&function.repeat(9), ""), "locals times loops", 1 << 20);
    // Parameters are locals.
    let (params, loops) = ("i32 ".repeat(500), "(loop)".repeat(300));
    let takes = format!("(func (param {params}) {loops})");
    assert_refused(&program(&takes, ""), "locals times loops in one function", 131_072);

    let branches: String = (0..10_000)
        .map(|n| format!("local.get {0} i32.const {n} i32.add local.tee {0} br_if {1} ", n % 100, n % 1_000))
        .collect();
    let across = format!("{} {} {branches} {}", locals(100), "block ".repeat(1_000), "end ".repeat(1_000));
    assert_refused(&program("", &across), "locals times branches in one function", 524_288);
    let function = format!("(func {} (block {}))", locals(100), "(br_if 0 (local.get 0))".repeat(5_000));
    assert_refused(&program(&function.repeat(17), ""), "locals times branches", 8 << 20);
}

#[test]
fn values_in_heaps_are_refused() {
    let (ty, push) = values(16);
    let gives = format!("{ty} (func $f (type $t) {})", (0..16).map(|n| format!("local.get {n} ")).collect::<String>());
    let calls = |count: usize| program(&gives, &format!("{push} {} {}", "call $f ".repeat(count), "drop ".repeat(16)));
    assert_refused(&calls(2_049), "values passed in calls of one function", 65_536);
    prepare(&calls(100));
    let indirect = format!("{push} {} {}", "i32.const 0 call_indirect (type $t) ".repeat(2_049), "drop ".repeat(16));
    let table = format!("{ty} (table 1 funcref)");
    assert_refused(&program(&table, &indirect), "values passed in calls of one function", 65_536);
    let caller = format!("(func {push} {} {})", "call $f ".repeat(2_000), "drop ".repeat(16));
    assert_refused(&program(&format!("{gives} {}", caller.repeat(17)), ""), "values passed in calls", 1 << 20);

    let (ty, push) = values(1_000);
    let blocks = |kind: &str, count: usize| {
        let open = format!("{kind} (type $t) ").repeat(count);
        program(&ty, &format!("{push} {open} {} {}", "end ".repeat(count), "drop ".repeat(1_000)))
    };
    assert_refused(&blocks("block", 1_000), "values passed to blocks in one function", 16_384);
    assert_refused(&blocks("loop", 9), "values passed to blocks in one function", 16_384);
}

#[test]
fn tables_and_segments_are_counted_all_together() {
    let tables = "(table 100000 funcref) ".repeat(3);
    assert_refused(&program(&tables, ""), "elements in all tables", 262_144);
    let elements = |count: usize, items: &str| {
        format!("(table 1 funcref) (func $f) {}", format!("(elem (i32.const 0) {items})").repeat(count))
    };
    let functions = format!("func {}", "$f ".repeat(1_000));
    assert_refused(&program(&elements(263, &functions), ""), "items of element segments", 262_144);
    let expressions = format!("funcref {}", "(ref.func $f) ".repeat(1_000));
    assert_refused(&program(&elements(17, &expressions), ""), "expressions in element segments", 16_384);
    assert_refused(&program(&elements(16_385, "func $f"), ""), "element segments", 16_384);
    let passive = format!("(func $f) {}", "(elem func $f)".repeat(4_097));
    assert_refused(&program(&passive, ""), "passive segments", 4_096);
    let passive = format!("(memory 1) {}", "(data \"x\")".repeat(4_097));
    assert_refused(&program(&passive, ""), "passive segments", 4_096);
    let data = format!("(memory 1) {}", "(data (i32.const 0) \"x\")".repeat(65_537));
    assert_refused(&program(&data, ""), "data segments", 65_536);
    // As many as tools that take a snapshot of a started program write.
    let data = format!("(memory 1) {}", "(data (i32.const 0) \"x\")".repeat(10_000));
    prepare(&program(&data, ""));
    let globals = "(global i32 (i32.const 0))".repeat(65_537);
    assert_refused(&program(&globals, ""), "global variables", 65_536);
    let types: String = (0..65_537).map(|_| "(type (func))").collect();
    assert_refused(&program(&types, ""), "types", 65_536);
}

#[test]
fn images_that_are_mostly_empty_are_counted_all_together() {
    let sparse = "(core module (memory 256) (data (i32.const 0) \"x\") (data (i32.const 16000000) \"x\"))";
    let component = |count: usize| wat::parse_str(format!("(component {})", sparse.repeat(count))).expect("it parses");
    assert_refused(&component(5), "bytes between the first and the last data", 64 << 20);
    let few = SANDBOX.prepare(&component(2)).err();
    assert!(matches!(few, Some(PrepareError::NoEntry(_))), "{few:?}");
}
