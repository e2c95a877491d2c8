//! `leasehold module check`: what an upload would come to, said before anybody's job fails of it.

use leasehold::sandbox::Inspection;
use leasehold_tests::TestDb;
use leasehold_tests::binary::{Files, run};
use leasehold_tests::guests::{SANDBOX, core, core_from};
use serde_json::json;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::bench::says;

fn inspect(bytes: &[u8]) -> Inspection {
    SANDBOX.inspect(bytes)
}

/// A component that imports a `leasehold:job/host` with these functions, and calls none of them.
fn importing(functions: &str, core_imports: &str) -> Vec<u8> {
    let wit = format!(
        "package test:guest;
         world guest {{ import leasehold:job/host@1.0.0; export wasi:cli/run@0.2.0; }}
         package leasehold:job@1.0.0 {{ interface host {{ {functions} }} }}
         package wasi:cli@0.2.0 {{ interface run {{ run: func() -> result; }} }}"
    );
    let mut resolve = Resolve::default();
    let package = resolve.push_str("guest.wit", &wit).unwrap_or_else(|error| panic!("{error:#}"));
    let world = resolve.select_world(&[package], Some("guest")).expect("the world is there");
    let text = format!(
        "(module {core_imports} (memory (export \"memory\") 1)
           (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) unreachable)
           (func (export \"wasi:cli/run@0.2.0#run\") (result i32) i32.const 0))"
    );
    let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("metadata encodes");
    ComponentEncoder::default().module(&module).expect("a module").encode().expect("a component")
}

#[test]
fn all_imports_that_are_missing_are_named_with_what_may_have_been_meant() {
    let text = r#"(module
        (import "wasi_snapshot_preview1" "fd_wirte" (func (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_read" (func (param i32 i64) (result i32)))
        (import "env" "launch" (func))
        (func (export "_start")))"#;
    let found = inspect(&wat::parse_str(text).expect("it is WAT"));
    let problem = found.problem.expect("it cannot run").to_string();
    says(
        &problem,
        &[
            "wasi_snapshot_preview1::fd_wirte (did you mean wasi_snapshot_preview1::fd_write?)",
            "wasi_snapshot_preview1::fd_read (of another type than this worker's: it wants (type (func (param i32 i64) (result i32)))",
            "env::launch",
        ],
    );
    assert_eq!(found.missing.len(), 3);
}

#[test]
fn all_imports_of_a_component_that_have_another_type_are_named() {
    let cancel = r#"(import "leasehold:job/host@1.0.0" "cancel-requested" (func (param i32)))"#;
    let mistyped = format!(r#"{cancel} (import "leasehold:job/host@1.0.0" "enqeue" (func))"#);
    let found = inspect(&importing("cancel-requested: func() -> string; enqeue: func();", &mistyped));
    let problem = found.problem.expect("it cannot run").to_string();
    says(&problem, &["leasehold:job/host@1.0.0#enqeue (did you mean enqueue?)"]);
    let of_another_type = format!(r#"{cancel} (import "leasehold:job/host@1.0.0" "log" (func (param i32 i32)))"#);
    let found = inspect(&importing("cancel-requested: func() -> string; log: func(line: string);", &of_another_type));
    let problem = found.problem.expect("it cannot run").to_string();
    says(
        &problem,
        &["#cancel-requested (of another type than this worker's: ", "#log (of another type than this worker's: "],
    );
    assert_eq!(found.missing.len(), 2, "{problem}");
}

#[test]
fn what_people_take_for_wasm_is_told_for_what_it_is() {
    let mut tar = vec![0; 512];
    tar[257..262].copy_from_slice(b"ustar");
    for (bytes, parts) in [
        (
            &b"\x7fELF\x02\x01\x01\0and the rest"[..],
            &["a native program (ELF) of 20 bytes", "--target wasm32-wasip2"][..],
        ),
        (b"MZ\x90\0", &["a native program (PE)"]),
        (b"PK\x03\x04....", &["an archive (zip) of 8 bytes", "the .wasm file inside"]),
        (b"\x1f\x8b\x08\0", &["compressed (gzip)"]),
        (&tar, &["an archive (tar) of 512 bytes"]),
    ] {
        let problem = inspect(bytes).problem.expect("it cannot run");
        assert!(problem.is_no_module(), "{problem:?}");
        says(&problem.to_string(), parts);
    }
    let large = [b"\0asm\x01\0\0\0".as_slice(), &vec![0; 33 << 20]].concat();
    let problem = inspect(&large).problem.expect("it cannot run").to_string();
    says(&problem, &["module of 34603016 bytes exceeds the limit of 33554432 bytes"]);
}

#[tokio::test]
async fn the_command_says_what_a_module_is_what_it_needs_and_what_a_run_takes() {
    let files = Files::new();
    let guest = core_from(
        r#"(import "leasehold:job/host@1.0.0" "enqueue" (func $enqueue (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32)))
        (table 7 funcref)
        (func $run (param $at i32) (param $len i32) (result i32) (call $ok (local.get $at) (local.get $len)))"#,
    );
    let module = files.write("guest.wasm", &guest);
    let verdict = run("", &["module", "check", &module, "--trial", "[1]", "--json"]).await.json();
    assert_eq!((&verdict["kind"], &verdict["world"]), (&json!("component"), &json!("leasehold:job/handler@1.0.0")));
    assert_eq!(
        verdict["needs"],
        json!([{ "capability": "follow_ups", "import": "leasehold:job/host@1.0.0#enqueue", "flag": "--follow-ups N", "granted": false }])
    );
    assert_eq!((&verdict["minimum_memory_bytes"], &verdict["problem"]), (&json!(65_536), &json!(null)));
    assert!(verdict["minimum_table_elements"].as_u64().is_some_and(|elements| elements >= 7), "{verdict}");
    assert!(verdict["compile_peak_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{verdict}");
    assert_eq!((&verdict["trial"]["outcome"], &verdict["trial"]["result"]), (&json!("done"), &json!([1])));
    let text = run("", &["module", "check", &module, "--trial", "[1]", "--follow-ups", "1"]).await.ok().stdout;
    says(
        &text,
        &[
            "  kind         component",
            "follow_ups (leasehold:job/host@1.0.0#enqueue): granted",
            "  trial        done",
            "--fuel ",
        ],
    );

    let broken = files.write(
        "broken.wasm",
        &wat::parse_str("(module (import \"env\" \"f\" (func)) (func (export \"_start\")))").expect("WAT"),
    );
    let refused = run("", &["module", "check", &broken]).await;
    assert_eq!(refused.code, 1);
    says(&refused.stdout, &["  missing      env::f"]);
    says(&refused.stderr, &["cannot run as a job: the module imports what this worker does not offer: env::f"]);
}

#[tokio::test]
async fn a_trial_that_does_not_end_well_keeps_a_module_from_being_uploaded() {
    let db = TestDb::new().await;
    let files = Files::new();
    let dead = files.write("dead.wasm", &core("dead"));
    let refused = run(db.url(), &["module", "push", "dead", &dead, "--trial", "1"]).await;
    assert_eq!(refused.code, 1);
    says(&refused.stderr, &["nothing was uploaded: the trial did not end well: dead (guest_dead: bad"]);
    assert_eq!(db.value::<i64>("select count(*) from leasehold.modules").await, 0);
    let echo = files.write("echo.wasm", &core("echo"));
    let pushed = run(db.url(), &["module", "push", "echo", &echo, "--trial", "1"]).await.ok();
    says(&pushed.stdout, &["uploaded version 1 of module echo\n", "  trial        done"]);
}

#[test]
fn a_hostile_list_of_imports_is_judged_at_once() {
    let long = "x".repeat(90_000);
    let imports: String =
        (0..5_000).map(|n| format!("(import \"wasi_snapshot_preview1\" \"fd_wirte{n}\" (func))")).collect();
    let text =
        format!("(module {imports} (import \"wasi_snapshot_preview1\" \"{long}\" (func)) (func (export \"_start\")))");
    let module = wat::parse_str(&text).expect("it is WAT");
    let started = std::time::Instant::now();
    let found = inspect(&module);
    assert_eq!(found.missing.len(), 5_001);
    // Near misses are looked for among the first of them, and not for such a name.
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "it took {:?}", started.elapsed());
    assert!(found.problem.expect("it cannot run").to_string().len() < 20_000);
}
