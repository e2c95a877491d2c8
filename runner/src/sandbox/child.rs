//! The compiler in a process of its own, from both sides. The worker starts the `leasehold` command of its own build, sends
//! the module to its standard input and reads one frame from its standard output: what was found out, then the machine
//! code. The process puts the limits on itself before it reads a byte; it has no environment, and it ends with the thread
//! that waits for it.

use std::io::{self, Read, Write};
use std::num::NonZero;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::{Resource, Rlimit, Signal, getppid, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::compile::{Code, CompilerProcess, Facts, Wasm, invalid};
use super::engine;
use super::failure::is_hosts_fault;
use super::module::PrepareError;
use super::survey::MODULE_BYTES;

/// The most that a compiler may answer, in bytes. A whole SpiderMonkey makes 42 MB.
const ANSWER_BYTES: u64 = 512 << 20;
/// The most that it may answer besides the machine code, in bytes: ten thousand names of exports.
const HEADER_BYTES: usize = 16 << 20;
/// How much of its last words is kept, in bytes.
const STDERR_BYTES: u64 = 16 << 10;
/// Threads of one compiler. More make a module ready sooner, and take more of the machine from running jobs and more
/// address space for their stacks.
const THREADS: usize = 4;
/// How a process that has closed its output is looked at, until it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How nice it is to running jobs; 19 is the most.
const NICENESS: i32 = 10;

/// What the process is told.
#[derive(Debug, Clone, Copy)]
pub struct CompileTask {
    /// CPU time it may take.
    pub cpu_seconds: u64,
    /// Address space it may take.
    pub memory_bytes: u64,
    /// The most memory that a run may have.
    pub run_memory_bytes: u64,
    /// Whether it is for an engine without a pool.
    pub on_demand: bool,
    /// The process that waits for the answer.
    pub parent: u32,
}

/// What a compiler answers, and what is kept of it.
pub(super) struct Frame<'a> {
    pub facts: Facts,
    pub problem: Option<PrepareError>,
    code: &'a [u8],
}

#[derive(Serialize, Deserialize)]
struct Header {
    facts: Facts,
    problem: Option<PrepareError>,
}

impl<'a> Frame<'a> {
    pub fn parse(bytes: &'a [u8]) -> anyhow::Result<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>().context("it is empty")?;
        let length = usize::try_from(u32::from_le_bytes(*length))?;
        ensure!(length <= HEADER_BYTES, "a header of {length} bytes exceeds the limit of {HEADER_BYTES} bytes");
        let (header, code) = rest.split_at_checked(length).context("it is cut off")?;
        let Header { facts, problem } = serde_json::from_slice(header).context("reading its header")?;
        Ok(Self { facts, problem, code })
    }

    fn build(header: &Header, code: &[u8]) -> anyhow::Result<Vec<u8>> {
        let header = serde_json::to_vec(header).context("writing the header")?;
        let length = u32::try_from(header.len()).context("the header is too long")?;
        Ok([&length.to_le_bytes(), header.as_slice(), code].concat())
    }

    /// Makes the machine code ready to run. wasmtime checks that it was made by the same version with the same settings; it
    /// cannot check the code itself.
    pub fn load(&self, engine: &Engine) -> anyhow::Result<Code> {
        // SAFETY: these bytes were made by `Engine::precompile_*` in a process of this very build, which had nothing else
        // to read than the module, and nobody can have changed them since: they came through a pipe, or from the cache,
        // which gives out only what carries the code of authentication that it was stored with.
        let code = unsafe {
            if self.facts.is_component {
                Component::deserialize(engine, self.code).map(Code::Component)
            } else {
                wasmtime::Module::deserialize(engine, self.code).map(Code::Program)
            }
        };
        code.map_err(anyhow::Error::from).context("loading machine code")
    }
}

/// Has a module compiled, and answers the bytes of a frame. Blocks until the process has ended.
pub(super) fn compile(
    process: &CompilerProcess,
    module: &[u8],
    run_memory_bytes: u64,
    on_demand: bool,
) -> Result<Vec<u8>, PrepareError> {
    let host = |what: &str, error: &dyn std::fmt::Display| PrepareError::Host(format!("{what} the compiler: {error}"));
    let limits = &process.limits;
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
    let mut command = Command::new(&process.program);
    command.arg("compile").env_clear().current_dir("/").process_group(0);
    command.args(["--cpu-seconds", &limits.cpu_seconds.to_string()]);
    command.args(["--memory-bytes", &limits.memory_bytes.to_string()]);
    command.args(["--run-memory-bytes", &run_memory_bytes.to_string()]);
    command.args(["--parent", &std::process::id().to_string()]);
    if on_demand {
        command.arg("--on-demand");
    }
    // Each thread would reserve an arena of 64 MiB of the address space that it is limited to.
    command.env("RAYON_NUM_THREADS", threads.to_string()).env("MALLOC_ARENA_MAX", "2");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| host("starting", &error))?;
    let ended = converse(&mut child, module, limits.wall);
    // Whatever went wrong, no process stays behind; one that has ended is beyond this.
    let _ = child.kill();
    let _ = child.wait();
    let Ended { status, answer, last_words } = ended.map_err(|error| host("talking to", &error))?;
    let Some(status) = status else {
        let wall = limits.wall.as_secs();
        return Err(PrepareError::Host(format!(
            "compiling was not done after {wall} s, the limit, of which it got less than {} s of CPU time; \
             the machine is too busy",
            limits.cpu_seconds
        )));
    };
    // Such a one is not read to its end, and dies of that.
    if answer.len() as u64 > ANSWER_BYTES {
        return Err(PrepareError::CompiledTooLarge { limit: ANSWER_BYTES });
    }
    if status.success() {
        return Ok(answer);
    }
    Err(died(status, &String::from_utf8_lossy(&last_words), process))
}

/// Why a compiler ended without an answer.
fn died(status: ExitStatus, last_words: &str, process: &CompilerProcess) -> PrepareError {
    let limits = &process.limits;
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return PrepareError::CompileTime { limit_seconds: limits.cpu_seconds };
    }
    // What Rust says before it aborts.
    let asked = last_words.split_once("memory allocation of ").and_then(|(_, rest)| rest.split(' ').next());
    if let Some(asked) = asked.and_then(|asked| asked.parse().ok()) {
        return PrepareError::CompileMemory { asked: Some(asked), limit: limits.memory_bytes };
    }
    let last_line = last_words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let last_line = super::compile::shown(last_line);
    match status.signal() {
        // Nobody but the kernel, out of memory, or an operator would.
        Some(signal) if signal == Signal::KILL.as_raw() || signal == Signal::TERM.as_raw() => {
            PrepareError::Host(format!("the compiler was killed ({status})"))
        }
        Some(_) => PrepareError::Compiler(format!("it died ({status}): {last_line}")),
        None => PrepareError::Host(format!("{} ended with {status}: {last_line}", process.program.display())),
    }
}

struct Ended {
    /// None when its time was over before it ended.
    status: Option<ExitStatus>,
    answer: Vec<u8>,
    last_words: Vec<u8>,
}

/// Writes and reads at once, since either side may be full, and keeps an eye on the clock.
fn converse(child: &mut Child, module: &[u8], wall: Duration) -> io::Result<Ended> {
    let deadline = Instant::now() + wall;
    let pipe = || io::Error::other("it has no pipe");
    let mut stdin = child.stdin.take().ok_or_else(pipe)?;
    let stdout = child.stdout.take().ok_or_else(pipe)?;
    let stderr = child.stderr.take().ok_or_else(pipe)?;
    thread::scope(|scope| {
        // One that has died reads no more, and says why in another way.
        scope.spawn(move || stdin.write_all(module));
        let last_words = scope.spawn(move || {
            let mut words = Vec::new();
            let read = stderr.take(STDERR_BYTES).read_to_end(&mut words);
            read.map(|_| words)
        });
        let (done, is_done) = mpsc::channel();
        let answer = scope.spawn(move || {
            let mut answer = Vec::new();
            let read = stdout.take(ANSWER_BYTES + 1).read_to_end(&mut answer);
            let _ = done.send(());
            read.map(|_| answer)
        });
        let status = match is_done.recv_timeout(wall) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => until_ended(child, deadline),
        };
        // Closes the other ends of the pipes, and so ends the threads.
        let killed = child.kill();
        let joined =
            |read: thread::Result<io::Result<Vec<u8>>>| read.map_err(|_| io::Error::other("a reader panicked"))?;
        killed?;
        Ok(Ended { status: status?, answer: joined(answer.join())?, last_words: joined(last_words.join())? })
    })
}

fn until_ended(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() >= deadline => return Ok(None),
            None => thread::sleep(LOOK_EVERY),
        }
    }
}

/// The whole life of the process: limits, a module in, a frame out.
pub fn run_child(task: &CompileTask) -> anyhow::Result<()> {
    limit_myself(task).context("limiting the compiler")?;
    let mut module = Vec::new();
    io::stdin().lock().take(MODULE_BYTES + 1).read_to_end(&mut module).context("reading the module")?;
    let engine = engine::for_compiling(task.run_memory_bytes, task.on_demand)?;
    let mut facts = Facts::default();
    let compiled = catch_unwind(AssertUnwindSafe(|| {
        let wasm = Wasm::translate(&module, task.run_memory_bytes, &mut facts)?;
        let started = Instant::now();
        let code = wasm.precompile(&engine);
        facts.compile_time = started.elapsed();
        code.map_err(|error| match is_hosts_fault(&error) {
            // What the system refuses us here is what our limit keeps us from.
            true => PrepareError::CompileMemory { asked: None, limit: task.memory_bytes },
            false => invalid(error),
        })
    }));
    let (problem, code) = match compiled {
        Ok(Ok(code)) => (None, code),
        Ok(Err(problem)) => (Some(problem), Vec::new()),
        Err(_panic) => (Some(PrepareError::Compiler("it panicked".to_owned())), Vec::new()),
    };
    facts.compile_peak_bytes = peak_bytes();
    let frame = Frame::build(&Header { facts, problem }, &code)?;
    io::stdout().lock().write_all(&frame).context("answering")
}

/// The most memory that this process has held so far; None where the system does not say.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn limit_myself(task: &CompileTask) -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    ensure!(parent == task.parent, "process {}, which wanted the answer, is gone", task.parent);
    // What we were started under may be less, and cannot be raised.
    let limit = |resource, current: u64, maximum: u64| {
        let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        setrlimit(resource, Rlimit { current: Some(current.min(most)), maximum: Some(maximum.min(most)) })
    };
    // At the first limit it is told, and dies of it; at the second it would be killed without a word.
    limit(Resource::Cpu, task.cpu_seconds, task.cpu_seconds + 1)?;
    limit(Resource::As, task.memory_bytes, task.memory_bytes)?;
    limit(Resource::Core, 0, 0)?;
    // It writes to pipes alone.
    limit(Resource::Fsize, 0, 0)?;
    rustix::process::setpriority_process(None, NICENESS)?;
    Ok(())
}
