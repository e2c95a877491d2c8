//! The macro's code must not care what the author's names mean.

use std::path::Path;
use std::process::Command;

use leasehold_guest::testing::{self, MockContext, json};

#[path = "hygiene/src/lib.rs"]
mod shadowed;

#[test]
fn a_job_works_natively_among_names_that_mean_something_else() {
    assert_eq!(testing::run(shadowed::run_it, &MockContext::new(), json!("hello")), Ok(json!("hello")));
}

#[test]
fn a_job_builds_for_wasm_among_names_that_mean_something_else() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let build = Command::new(sdk.join("../scripts/build-jobs"))
        .arg("--manifest-path")
        .arg(sdk.join("tests/hygiene/Cargo.toml"))
        .env("CARGO_TARGET_DIR", sdk.join("../jobs/target"))
        .output()
        .expect("scripts/build-jobs runs");
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let built = String::from_utf8(build.stdout).expect("a path");
    let component = std::fs::read(built.trim()).expect("the path leads to the module");
    let export = b"leasehold:job/handler@1.0.0";
    assert!(component.windows(export.len()).any(|window| window == export), "the module does not export the job");
}
