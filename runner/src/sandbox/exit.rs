//! How a program exits: with any code, as on any system. wasmtime's own `proc_exit` takes a code beyond 125 for a mistake, so
//! that `exit(255)`, and a C library's `abort`, would look like a broken interface.

use wasmtime::Linker;
use wasmtime_wasi::I32Exit;

use super::state::State;

/// Replaces WASI 0.1's `proc_exit`.
pub(super) fn add_to_program_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.func_wrap("wasi_snapshot_preview1", "proc_exit", |code: i32| -> wasmtime::Result<()> {
        Err(I32Exit(code).into())
    })?;
    linker.allow_shadowing(false);
    Ok(())
}
