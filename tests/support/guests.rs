//! Edge guests: a few lines of WAT each (tests/wat), made into what a customer would upload.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use leasehold::job::{JobId, Limits};
use leasehold::outcome::{Failure, Outcome, Run};
use leasehold::sandbox::{JobInput, Prepared, RunControl, Sandbox, SandboxConfig};
use wit_component::StringEncoding;
use wit_parser::Resolve;

/// One sandbox for all tests of a process, as a worker has one. More slots than tests run at once.
pub static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    Sandbox::new(&SandboxConfig { slots: 64, memory_bytes: 256 << 20, ..SandboxConfig::default() })
        .expect("the sandbox starts")
});

/// Limits that an edge guest meets quickly.
pub const LIMITS: Limits = Limits {
    fuel: 10_000_000_000,
    memory_bytes: 4 << 20,
    timeout: Duration::from_secs(20),
    result_bytes: 64 << 10,
    log_bytes: 4 << 10,
    follow_ups: 0,
};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn wat_file(name: &str) -> String {
    let path = repository().join("tests/wat").join(format!("{name}.wat"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()))
}

/// A core module of the component guest `name` with its component metadata, as a Rust guest's build leaves it.
pub fn core(name: &str) -> Vec<u8> {
    core_from(&wat_file(name))
}

/// The same from a guest's text.
pub fn core_from(guest: &str) -> Vec<u8> {
    core_with_realloc(guest, None)
}

/// The same, with a function of the guest's own for its allocator.
pub fn core_with_realloc(guest: &str, realloc: Option<&str>) -> Vec<u8> {
    let (imports, rest): (Vec<_>, Vec<_>) = guest.lines().partition(|line| line.starts_with("(import"));
    let mut text = wat_file("prelude").replace(";;IMPORTS", &imports.join("\n")).replace(";;GUEST", &rest.join("\n"));
    if let Some(realloc) = realloc {
        let (own, export) = ("(func $alloc (export \"cabi_realloc\")", "(export \"cabi_realloc\"");
        assert!(text.contains(own), "the prelude's allocator is not where it was");
        text = text.replace(own, &format!("{export} (func {realloc})) (func $alloc"));
    }
    let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    embed_world(&mut module);
    module
}

/// Adds the metadata that says which world the module is made for.
pub fn embed_world(module: &mut Vec<u8>) {
    let mut resolve = Resolve::default();
    resolve.push_path(repository().join("guest-sdk/wit")).expect("the contract parses");
    let (package, _) = resolve.push_path(repository().join("tests/wat/world.wit")).expect("the world parses");
    let world = resolve.select_world(&[package], Some("guest")).expect("the world is there");
    wit_component::embed_component_metadata(module, &resolve, world, StringEncoding::UTF8).expect("metadata encodes");
}

/// A WASI program whose `_start` is the given WAT.
pub fn command(start: &str) -> Vec<u8> {
    let text = wat_file("command").replace(";;START", start);
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub fn prepare(bytes: &[u8]) -> Prepared {
    SANDBOX.prepare(bytes).unwrap_or_else(|error| panic!("{error}"))
}

/// The `leasehold` command, built as the tests were.
pub fn leasehold() -> Command {
    Command::new(crate::binary::built())
}

/// What a test's job is told about itself.
pub fn job(payload: &[u8]) -> JobInput<'_> {
    JobInput {
        id: JobId(7),
        tenant: "acme",
        module: "guest",
        queue: "default",
        attempt: 1,
        max_attempts: 3,
        payload,
        deterministic: None,
    }
}

/// Prepares and runs a module once, with nobody stopping it.
pub async fn run(module: &[u8], payload: &[u8], limits: &Limits) -> Run {
    SANDBOX.run(&prepare(module), job(payload), limits, &RunControl::new()).await
}

/// The failure of a run that must have failed.
#[track_caller]
pub fn failure(run: &Run) -> &Failure {
    match &run.outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("expected a failure, got {other:?}; log: {}", run.log.to_text()),
    }
}

/// The result of a run that must have ended well.
#[track_caller]
pub fn result(run: &Run) -> &[u8] {
    match &run.outcome {
        Outcome::Done { result } => result,
        other => panic!("expected a result, got {other:?}; log: {}", run.log.to_text()),
    }
}

/// A component that sleeps for as long as its payload says and then returns it. For jobs of a known length; what must come
/// while one runs has to come in time.
pub fn nap() -> Vec<u8> {
    core_from(
        r#"(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
        (func $run (param $at i32) (param $len i32) (result i32)
          (i32.store (i32.const 2064) (i32.const 1))               ;; the monotonic clock
          (i64.store (i32.const 2072) (i64.load (local.get $at)))  ;; nanoseconds
          (drop (call $poll (i32.const 2048) (i32.const 2112) (i32.const 1) (i32.const 2176)))
          (call $ok (local.get $at) (local.get $len)))"#,
    )
}

/// The arguments that enqueue a nap of the module "nap".
pub fn nap_of(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).expect("a nap");
    format!("'nap', '\\x{}'::bytea", hex::encode(nanos.to_le_bytes()))
}
