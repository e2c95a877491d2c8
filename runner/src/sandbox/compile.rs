//! From a module's bytes to machine code: validated, made into a component where needed, compiled. This is the one thing a
//! tenant's bytes make us do that neither fuel nor epoch bounds, so a worker has it done by a process of its own, under
//! limits that the kernel keeps, and remembers the result (`CodeCache`). Linking, which follows, is cheap and done here.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmtime::component::Component;
use wasmtime::{Engine, Module};
use wit_component::ComponentEncoder;

use super::child::{self, Frame};
use super::code_cache::{self, CodeCacheConfig};
use super::failure::is_hosts_fault;
use super::imports::NAME_BYTES;
use super::module::PrepareError;
use super::survey::{MODULE_BYTES, Survey, survey};
use super::{Allocation, Sandbox};
use crate::job::Digest;
use crate::outcome::clip_text;

/// How much of what wasmtime or the encoder says about a module is kept, in bytes: it may quote the module's own names.
const REASON_BYTES: usize = 4 << 10;

/// Who compiles modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compiler {
    /// This process, for modules that it trusts not to take all its time and memory: somebody's own file, a test's.
    InProcess,
    /// A process of its own for each module, under limits.
    Process(CompilerProcess),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerProcess {
    /// The `leasehold` command of this very build: its subcommand `compile` makes machine code that we then run as it is.
    pub program: PathBuf,
    pub limits: CompileLimits,
    /// Where the results are kept for the next time; None: nowhere.
    pub cache: Option<CodeCacheConfig>,
}

/// What compiling one module may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// CPU time of all its threads, in whole seconds.
    pub cpu_seconds: u64,
    /// Address space of the process.
    pub memory_bytes: u64,
    /// Wall-clock time, past which it is killed. On a machine that is not overloaded the CPU time ends first.
    pub wall: Duration,
}

impl CompileLimits {
    /// A whole SpiderMonkey, the dearest of the guests that people build, takes 45 s on a core at its worst.
    pub const DEFAULT_CPU_SECONDS: u64 = 120;
    /// SpiderMonkey takes 450 MB, of 620 MB of address space.
    pub const DEFAULT_MEMORY_BYTES: u64 = 2 << 30;
    /// The process itself and its threads' stacks.
    pub const MIN_MEMORY_BYTES: u64 = 512 << 20;

    pub fn new(cpu_seconds: u64, memory_bytes: u64) -> Self {
        // A neighbour may have most of the machine.
        let wall = Duration::from_secs(cpu_seconds.saturating_mul(3).saturating_add(30));
        Self { cpu_seconds, memory_bytes, wall }
    }
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self::new(Self::DEFAULT_CPU_SECONDS, Self::DEFAULT_MEMORY_BYTES)
    }
}

/// What is found out about a module on the way.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Facts {
    pub is_component: bool,
    pub componentized_bytes: Option<u64>,
    /// Functions that the outermost core module exports.
    pub exports: Vec<String>,
    pub functions: u64,
    pub minimum_memory_bytes: u64,
    pub compile_time: Duration,
    /// What all tables have from the start.
    #[serde(default)]
    pub minimum_table_elements: u64,
    /// The most memory that the compiler's process held; None where it was this one.
    #[serde(default)]
    pub compile_peak_bytes: Option<u64>,
}

/// A compiled module.
pub(super) enum Code {
    Component(Component),
    Program(Module),
}

/// Wasm that can be compiled as it is: a component, or a program for WASI 0.1.
pub(super) struct Wasm<'a> {
    is_component: bool,
    bytes: Cow<'a, [u8]>,
}

impl Sandbox {
    /// Compiles a module, wherever that is done. The facts are as far as it got.
    pub(super) fn compile(&self, bytes: &[u8], facts: &mut Facts) -> Result<Code, PrepareError> {
        match &self.config().compiler {
            Compiler::InProcess => {
                let wasm = Wasm::translate(bytes, self.config().memory_bytes, facts)?;
                let started = Instant::now();
                let code = wasm.compile(self.engine());
                facts.compile_time = started.elapsed();
                code
            }
            Compiler::Process(process) => self.compile_elsewhere(process, bytes, facts),
        }
    }

    fn compile_elsewhere(
        &self,
        process: &CompilerProcess,
        bytes: &[u8],
        facts: &mut Facts,
    ) -> Result<Code, PrepareError> {
        check_header(bytes)?;
        let memory_bytes = self.config().memory_bytes;
        let name = code_cache::Name::of(self.engine(), Digest::of(bytes));
        if let Some(cache) = self.code_cache()
            && let Some(kept) = cache.get(&name)
        {
            match Frame::parse(&kept).and_then(|frame| Ok((frame.load(self.engine())?, frame.facts))) {
                Ok((code, kept)) => {
                    *facts = kept;
                    check_memory(facts, memory_bytes)?;
                    return Ok(code);
                }
                Err(error) => {
                    tracing::warn!("compiled code in the cache is of no use and is made anew: {error:#}");
                    cache.remove(&name);
                }
            }
        }
        let on_demand = matches!(self.allocation(), Allocation::OnDemand { .. });
        let answer = child::compile(process, bytes, memory_bytes, on_demand)?;
        let host = |error: anyhow::Error| PrepareError::Host(format!("the compiler's answer is of no use: {error:#}"));
        let frame = Frame::parse(&answer).map_err(host)?;
        *facts = frame.facts.clone();
        if let Some(problem) = frame.problem {
            return Err(problem);
        }
        let code = frame.load(self.engine()).map_err(host)?;
        if let Some(cache) = self.code_cache() {
            cache.put(&name, &answer);
        }
        Ok(code)
    }
}

impl<'a> Wasm<'a> {
    /// Looks through the bytes, and makes them into a component where that is what they want to be.
    pub fn translate(bytes: &'a [u8], memory_bytes: u64, facts: &mut Facts) -> Result<Self, PrepareError> {
        check_header(bytes)?;
        let survey = survey(bytes)?;
        facts.functions = survey.functions;
        facts.minimum_memory_bytes = survey.minimum_memory_bytes;
        facts.minimum_table_elements = survey.table_elements;
        facts.exports = survey.exports.iter().map(|name| shown(name)).collect();
        check_memory(facts, memory_bytes)?;
        let (is_component, bytes) = if survey.is_component {
            (true, Cow::Borrowed(bytes))
        } else if survey.has_component_metadata {
            let component = componentize(bytes)?;
            facts.componentized_bytes = Some(component.len() as u64);
            (true, Cow::Owned(component))
        } else if survey.exports.iter().any(|name| name == "_start") {
            (false, Cow::Borrowed(bytes))
        } else {
            return Err(no_core_entry(&survey));
        };
        facts.is_component = is_component;
        Ok(Self { is_component, bytes })
    }

    /// The same of what is to be run as a program, whatever else it could be.
    pub fn translate_program(bytes: &'a [u8], memory_bytes: u64, facts: &mut Facts) -> Result<Self, PrepareError> {
        check_header(bytes)?;
        let survey = survey(bytes)?;
        facts.minimum_memory_bytes = survey.minimum_memory_bytes;
        check_memory(facts, memory_bytes)?;
        if !survey.is_component && !survey.exports.iter().any(|name| name == "_start") {
            return Err(PrepareError::NoEntry("a program exports _start, and this module does not".to_owned()));
        }
        Ok(Self { is_component: survey.is_component, bytes: Cow::Borrowed(bytes) })
    }

    pub fn compile(&self, engine: &Engine) -> Result<Code, PrepareError> {
        if self.is_component {
            Component::from_binary(engine, &self.bytes).map(Code::Component).map_err(invalid)
        } else {
            Module::from_binary(engine, &self.bytes).map(Code::Program).map_err(invalid)
        }
    }

    /// Machine code that an engine of the same settings can load.
    pub fn precompile(&self, engine: &Engine) -> wasmtime::Result<Vec<u8>> {
        if self.is_component { engine.precompile_component(&self.bytes) } else { engine.precompile_module(&self.bytes) }
    }
}

fn check_memory(facts: &Facts, limit: u64) -> Result<(), PrepareError> {
    let minimum = facts.minimum_memory_bytes;
    if minimum > limit { Err(PrepareError::TooMuchMemory { minimum, limit }) } else { Ok(()) }
}

fn check_header(bytes: &[u8]) -> Result<(), PrepareError> {
    let size = bytes.len() as u64;
    if size > MODULE_BYTES {
        return Err(PrepareError::TooLarge { size, limit: MODULE_BYTES });
    }
    if bytes.is_empty() {
        return Err(PrepareError::Empty);
    }
    if bytes.starts_with(b"\0asm") {
        return Ok(());
    }
    if Engine::detect_precompiled(bytes).is_some() {
        return Err(PrepareError::Precompiled);
    }
    if let Some(foreign) = foreign(bytes) {
        return Err(foreign);
    }
    let text = bytes.trim_ascii_start();
    if text.starts_with(b"(") || text.starts_with(b";;") {
        return Err(PrepareError::Text);
    }
    Err(PrepareError::NotWasm(bytes[..bytes.len().min(4)].escape_ascii().to_string()))
}

/// What people take for wasm by mistake, and what they should have sent.
fn foreign(bytes: &[u8]) -> Option<PrepareError> {
    const BUILD: &str = "build it for wasm: cargo build --release --target wasm32-wasip2";
    const UNPACK: &str = "unpack it and send the .wasm file inside";
    let starts: [(&[u8], &str, &str); 9] = [
        (b"\x7fELF", "a native program (ELF)", BUILD),
        (b"MZ", "a native program (PE)", BUILD),
        (b"\xcf\xfa\xed\xfe", "a native program (Mach-O)", BUILD),
        (b"!<arch>\n", "a native library", BUILD),
        (b"PK\x03\x04", "an archive (zip)", UNPACK),
        (b"\x1f\x8b", "compressed (gzip)", UNPACK),
        (b"\xfd7zXZ\0", "compressed (xz)", UNPACK),
        (b"\x28\xb5\x2f\xfd", "compressed (zstd)", UNPACK),
        (b"BZh", "compressed (bzip2)", UNPACK),
    ];
    let found =
        starts.into_iter().find(|(start, _, _)| bytes.starts_with(start)).map(|(_, what, advice)| (what, advice));
    let is_tar = bytes.get(257..262) == Some(b"ustar");
    let (what, advice) = found.or(is_tar.then_some(("an archive (tar)", UNPACK)))?;
    Some(PrepareError::Foreign { what: what.into(), size: bytes.len() as u64, advice: advice.into() })
}

/// A core module that carries component metadata, as guests built with wit-bindgen do, becomes a component. What it
/// imports from WASI 0.1 is given by the adapter, in terms of WASI 0.2.
fn componentize(core: &[u8]) -> Result<Vec<u8>, PrepareError> {
    let encode = || {
        ComponentEncoder::default()
            .validate(true)
            .module(core)?
            .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?
            .encode()
    };
    encode().map_err(|error| PrepareError::NotComponentizable(reason(&error)))
}

fn no_core_entry(survey: &Survey) -> PrepareError {
    PrepareError::NoEntry(if survey.names_contract {
        "the core module uses leasehold:job, but its component metadata is gone; do not strip custom sections"
            .to_owned()
    } else {
        "the core module has neither component metadata (is the job attribute missing?) nor _start (is it a library?)"
            .to_owned()
    })
}

pub(super) fn invalid(error: wasmtime::Error) -> PrepareError {
    let hosts_fault = is_hosts_fault(&error);
    let reason = reason(&error.into());
    if hosts_fault { PrepareError::Host(reason) } else { PrepareError::Invalid(reason) }
}

fn reason(error: &anyhow::Error) -> String {
    clip_text(format!("{error:#}").as_bytes(), REASON_BYTES)
}

pub(super) fn shown(name: &str) -> String {
    clip_text(name.as_bytes(), NAME_BYTES)
}
