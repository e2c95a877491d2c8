//! With what a crate is built for wasm. rustup's own target is what users have; where there is none, Debian's compiler
//! builds the standard library from Debian's sources, as scripts/build-jobs does. A library belongs to its compiler, so
//! then all is built by Debian's; the linkers alone are those of the toolchain in use.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tokio::process::Command;

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
/// Debian's C library for wasm.
const DEBIAN_LIBC: &str = "/usr/lib/wasm32-wasi";

/// What a crate is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A component, of a library crate.
    Component,
    /// A WASI program, of a binary crate. The only target whose exit codes reach the worker.
    Command,
}

impl Target {
    pub const ALL: [Self; 2] = [Self::Component, Self::Command];

    pub fn triple(self) -> &'static str {
        match self {
            Self::Component => "wasm32-wasip2",
            Self::Command => "wasm32-wasip1",
        }
    }
}

/// Variables that make `cargo build --target` work in a folder: none with rustup's target.
pub async fn environment(target: Target, folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let triple = target.triple();
    let libraries = rustc(folder, &["--print", "target-libdir", "--target", triple]).await?;
    if Path::new(&libraries).is_dir() {
        return Ok(Vec::new());
    }
    debian(target, folder).await?.with_context(|| {
        format!("there is no Rust standard library for {triple}; run: rustup target add {triple} (or put built .wasm files into the jobs folder)")
    })
}

/// None where Debian's packages are not installed.
async fn debian(target: Target, folder: &Path) -> anyhow::Result<Option<Vec<(String, String)>>> {
    let own = Command::new(DEBIAN_RUSTC).args(["--print", "sysroot"]).output().await;
    let Ok(own) = own else { return Ok(None) };
    let sources = Path::new(String::from_utf8_lossy(&own.stdout).trim()).join("lib/rustlib/src/rust/library/std");
    let linkers = linkers(folder).await?;
    let component_linker = linkers.join("wasm-component-ld");
    if !sources.is_dir() || !Path::new(DEBIAN_LIBC).is_dir() || !component_linker.is_file() {
        return Ok(None);
    }
    let (linker, flags) = match target {
        Target::Command => (linkers.join("rust-lld"), format!("-L {DEBIAN_LIBC}")),
        Target::Component => {
            let wasm_ld = linkers.join("gcc-ld/wasm-ld");
            (component_linker, format!("-L {DEBIAN_LIBC} -C link-arg=--wasm-ld-path={}", wasm_ld.display()))
        }
    };
    let triple = target.triple().to_uppercase().replace('-', "_");
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Ok(Some(vec![
        variable("RUSTC", DEBIAN_RUSTC),
        variable("RUSTC_BOOTSTRAP", "1"),
        variable("CARGO_UNSTABLE_BUILD_STD", "std,panic_abort"),
        (format!("CARGO_TARGET_{triple}_LINKER"), linker.display().to_string()),
        (format!("CARGO_TARGET_{triple}_RUSTFLAGS"), flags),
    ]))
}

/// Where the toolchain in use keeps the linkers that it ships.
async fn linkers(folder: &Path) -> anyhow::Result<PathBuf> {
    let sysroot = rustc(folder, &["--print", "sysroot"]).await?;
    let version = rustc(folder, &["-vV"]).await?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(Path::new(&sysroot).join("lib/rustlib").join(host).join("bin"))
}

/// In the crate's folder, since a file there can name a toolchain.
async fn rustc(folder: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("rustc").args(args).current_dir(folder).output().await;
    let output = output.context("running rustc; Rust is installed with rustup (https://rustup.rs)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "rustc {} failed: {}", args.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
