//! `leasehold new`: what it makes must build, pass its tests natively and in the sandbox, and pass its cases.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use leasehold_tests::binary::Files;
use leasehold_tests::guests::leasehold;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// cargo as an author would call it, in the made crate, sharing what the jobs' builds have compiled already.
fn cargo(dir: &Path, args: &[&str]) -> Output {
    let bin = PathBuf::from(leasehold().get_program());
    let path = std::env::join_paths(
        [bin.parent().expect("it lies in a folder").to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut cargo = Command::new("cargo");
    // What the outer cargo says is not meant for the inner one.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_")) {
        if name != "CARGO_HOME" && !name.to_string_lossy().starts_with("CARGO_NET") {
            cargo.env_remove(name);
        }
    }
    cargo.args(args).current_dir(dir).env("PATH", path.expect("a path"));
    cargo
        .env("CARGO_TARGET_DIR", repository().join("jobs/target"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo starts")
}

#[track_caller]
fn succeeds(output: &Output, says: &str) {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains(says), "it does not say {says:?}: {stdout}\n{stderr}");
}

fn has_target(target: &str) -> bool {
    let output =
        Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output().expect("rustc starts");
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
}

/// One test, since each of its builds takes seconds: three of a small crate, whose dependencies the jobs share with it.
#[test]
fn a_new_crate_builds_passes_its_tests_in_both_worlds_and_its_cases() {
    let files = Files::new();
    let dir = PathBuf::from(files.path("made"));
    let made = leasehold().args(["new", "try-me", "--dir"]).arg(&dir).output().expect("leasehold starts");
    succeeds(&made, "leasehold module push try-me target/wasm32-wasip2/release/try_me.wasm");
    // The versions that the jobs were built with, so that nothing is built or downloaded anew.
    std::fs::copy(repository().join("jobs/Cargo.lock"), dir.join("Cargo.lock")).expect("it is our folder");

    succeeds(&cargo(&dir, &["test", "--quiet"]), "2 passed; 0 failed");
    let built = Command::new(repository().join("scripts/build-jobs"))
        .arg("--manifest-path")
        .arg(dir.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", repository().join("jobs/target"))
        .output()
        .expect("scripts/build-jobs runs");
    succeeds(&built, "try_me.wasm");
    let wasm = String::from_utf8(built.stdout).expect("a path");
    let tested = leasehold().arg("test").arg(wasm.trim()).current_dir(&dir).output().expect("leasehold starts");
    succeeds(&tested, "2 passed, 0 failed");
    if has_target("wasm32-wasip1") {
        // A real libtest, started by cargo through the runner of the made crate, which lists and filters as ever.
        let in_sandbox = cargo(&dir, &["test", "--quiet", "--target", "wasm32-wasip1", "--", "greeting"]);
        succeeds(&in_sandbox, "1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        let broken =
            std::fs::read_to_string(dir.join("src/lib.rs")).expect("it is there").replace("hello, {name}", "{name}");
        std::fs::write(dir.join("src/lib.rs"), broken).expect("it is our folder");
        let failed = cargo(&dir, &["test", "--quiet", "--target", "wasm32-wasip1"]);
        assert!(!failed.status.success(), "a test that fails must not pass: {failed:?}");
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(said.contains("was ended: trap") && said.contains("-- --nocapture"), "{said}");
        let failed = cargo(&dir, &["test", "--quiet", "--target", "wasm32-wasip1", "--", "--nocapture"]);
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(!failed.status.success() && said.contains("panicked at src/lib.rs:"), "{said}");
    } else {
        eprintln!(
            "skipped: cargo test in the sandbox wants the target wasm32-wasip1 (rustup target add wasm32-wasip1)"
        );
    }
}

#[test]
fn what_cannot_be_made_is_refused_and_nothing_is_overwritten() {
    let files = Files::new();
    let taken = files.write("taken", b"mine");
    let new = |args: &[&str]| leasehold().arg("new").args(args).output().expect("leasehold starts");
    for (args, says) in [
        (&["Hello"][..], "small letters, digits, - and _, a letter first"),
        (&["match"], "call it match-job"),
        (&["fine", "--dir", &taken], "is there already; name another folder with --dir"),
        (&["fine", "--dir", &files.path("")], "is there already"),
        (&["fine", "--dir", &files.path("new"), "--sdk", "/nowhere"], "nor a version like 0.1"),
    ] {
        let output = new(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    assert_eq!(std::fs::read(taken).expect("it is there"), b"mine");
}
