//! Who compiles modules for a command, and `leasehold compile`, which is the one that does. People do not call it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use super::parse;
use crate::sandbox::{self, CodeCacheConfig, CompileLimits, CompileTask, Compiler, CompilerProcess};

/// The directory's name where the user's caches are.
const CACHE: &str = "leasehold";

/// How modules are compiled: each in a process of its own.
#[derive(Debug, Clone, clap::Args)]
pub struct CompilerArgs {
    /// Where compiled modules are kept; open to nobody but this user. Default: leasehold in $XDG_CACHE_HOME or ~/.cache
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// How much of them is kept
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "2GiB")]
    pub cache_size: u64,
    /// CPU time that compiling a module may take
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "2m")]
    pub compile_cpu: Duration,
    /// Memory that compiling a module may take
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "2GiB")]
    pub compile_memory: u64,
    #[arg(long, hide = true, env = "XDG_CACHE_HOME", hide_env = true)]
    xdg_cache_home: Option<PathBuf>,
    #[arg(long, hide = true, env = "HOME", hide_env = true)]
    home: Option<PathBuf>,
}

impl CompilerArgs {
    pub fn compiler(&self) -> anyhow::Result<Compiler> {
        let cpu_seconds = self.compile_cpu.as_secs() + u64::from(self.compile_cpu.subsec_nanos() > 0);
        let cache = self.dir().map(|dir| CodeCacheConfig { dir, max_bytes: self.cache_size });
        if cache.is_none() {
            tracing::warn!("compiled modules are not kept: neither --cache-dir nor HOME says where");
        }
        let limits = CompileLimits::new(cpu_seconds, self.compile_memory);
        Ok(Compiler::Process(CompilerProcess { program: this_program()?, limits, cache }))
    }

    fn dir(&self) -> Option<PathBuf> {
        // As the specification of these variables says, a path that is not absolute is none.
        let absolute = |path: &Option<PathBuf>| path.clone().filter(|path| path.is_absolute());
        let users = || absolute(&self.xdg_cache_home).or_else(|| Some(absolute(&self.home)?.join(".cache")));
        self.cache_dir.clone().or_else(|| Some(users()?.join(CACHE)))
    }
}

/// The file that this process runs, even when another one has taken its place on the disk: it compiles for this process.
fn this_program() -> anyhow::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe().context("finding this program") }
}

/// Compile one module: wasm on standard input, machine code on standard output.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    #[arg(long)]
    cpu_seconds: u64,
    #[arg(long)]
    memory_bytes: u64,
    #[arg(long)]
    run_memory_bytes: u64,
    #[arg(long)]
    on_demand: bool,
    #[arg(long)]
    parent: u32,
}

/// Without a runtime and without a log: it computes, answers and ends.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Args { cpu_seconds, memory_bytes, run_memory_bytes, on_demand, parent } = *args;
    sandbox::run_child(&CompileTask { cpu_seconds, memory_bytes, run_memory_bytes, on_demand, parent })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        compiler: CompilerArgs,
    }

    fn dir(flags: &[&str]) -> Option<PathBuf> {
        let mut args = Only::parse_from([&["x"], flags].concat()).compiler;
        if !flags.contains(&"--xdg-cache-home") {
            args.xdg_cache_home = None;
        }
        args.dir()
    }

    #[test]
    fn the_cache_lies_where_one_says_or_among_the_users_caches() {
        let home = ["--home", "/home/me"];
        assert_eq!(dir(&home), Some("/home/me/.cache/leasehold".into()));
        assert_eq!(dir(&[&home[..], &["--xdg-cache-home", "/c"]].concat()), Some("/c/leasehold".into()));
        assert_eq!(dir(&[&home[..], &["--xdg-cache-home", "c"]].concat()), Some("/home/me/.cache/leasehold".into()));
        assert_eq!(dir(&[&home[..], &["--cache-dir", "mine"]].concat()), Some("mine".into()));
        assert_eq!(dir(&["--home", "me"]), None);
    }
}
