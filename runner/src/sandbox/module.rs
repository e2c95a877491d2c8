//! From uploaded bytes to something that can be run. PostgreSQL holds the original bytes and their digest; each worker
//! makes them into a component, where they are not one yet, has them compiled (`compile`) and links them. Making a component
//! takes milliseconds, so it is not worth a second copy in the database that would have to be kept equal to the first.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;
use wasmtime::{Engine, InstancePre, Module, Store};
use wasmtime_wasi::p2::bindings::CommandPre;

use super::compile::{Code, Facts, invalid, shown};
use super::control::RunControl;
use super::host::bindings::JobPre;
use super::imports::{self, CONTRACT_VERSION, MissingImport, Need};
use super::state::{Setting, State, Time};
use super::{Sandbox, signature};
use crate::job::{Digest, Limits, ModuleKind};

/// How many names an error lists before it only counts the rest.
const LISTED: usize = 50;

/// A module that is ready to run. Cheap to clone; belongs to the sandbox that made it.
#[derive(Clone)]
pub struct Prepared(Arc<Inner>);

struct Inner {
    kind: ModuleKind,
    entry: Entry,
    compiled_bytes: u64,
}

/// How a module is entered.
pub(super) enum Entry {
    /// A component that exports the handler.
    Handler(JobPre<State>),
    /// A core module for WASI 0.1 with `_start`, run as it is so that its exit code survives.
    Program(InstancePre<State>),
    /// A component that exports `wasi:cli/run`; its exit code is only ever 0 or 1.
    Command(CommandPre<State>),
}

impl Prepared {
    pub(super) fn new(kind: ModuleKind, entry: Entry, compiled_bytes: u64) -> Self {
        Self(Arc::new(Inner { kind, entry, compiled_bytes }))
    }

    pub fn kind(&self) -> ModuleKind {
        self.0.kind
    }

    /// What the compiled code takes in memory.
    pub fn compiled_bytes(&self) -> u64 {
        self.0.compiled_bytes
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.0.entry
    }
}

/// Why bytes cannot be run as a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum PrepareError {
    #[error("the module is empty")]
    Empty,
    #[error("the module is text; compile it to binary first (wasm-tools parse, wat2wasm)")]
    Text,
    #[error("the module is machine code compiled by wasmtime beforehand; upload the original wasm")]
    Precompiled,
    #[error("this is {what} of {size} bytes, not wasm; {advice}")]
    Foreign { what: Cow<'static, str>, size: u64, advice: Cow<'static, str> },
    #[error("this is not wasm: it begins with {0}, not with \\0asm")]
    NotWasm(String),
    #[error("module of {size} bytes exceeds the limit of {limit} bytes")]
    TooLarge { size: u64, limit: u64 },
    #[error("the module has {found} {what}; the limit is {limit}")]
    TooComplex { what: Cow<'static, str>, found: u64, limit: u64 },
    #[error(
        "the module has {found} bytes of debug information; the limit is {limit} bytes: strip it, or build with less"
    )]
    DebugInfo { found: u64, limit: u64 },
    #[error("the module's memories have {minimum} bytes from the start; the limit is {limit} bytes")]
    TooMuchMemory { minimum: u64, limit: u64 },
    #[error("the module is not valid: {0}")]
    Invalid(String),
    #[error("the core module cannot be made into a component: {0}")]
    NotComponentizable(String),
    #[error("the module has no entry that a job could be called by: {0}")]
    NoEntry(String),
    #[error("the module imports what this worker does not offer: {}", list(.0))]
    MissingImports(Vec<MissingImport>),
    #[error("the compiler failed on this module: {0}")]
    Compiler(String),
    #[error(
        "compiling the module was not done after {limit_seconds} s of CPU time, the limit; make its functions smaller, \
        or raise --compile-cpu"
    )]
    CompileTime { limit_seconds: u64 },
    #[error("compiling the module takes more than the limit of {limit} bytes of memory{}; make its functions smaller, \
        or raise --compile-memory", asked_for(*.asked))]
    CompileMemory { asked: Option<u64>, limit: u64 },
    #[error("the module's machine code has more than the limit of {limit} bytes")]
    CompiledTooLarge { limit: u64 },
    /// Says nothing about the module: it may well be prepared later, or by another worker.
    #[error("the worker lacks what preparing the module needs: {0}")]
    Host(String),
}

impl PrepareError {
    /// Whether the bytes are nothing that a worker would ever have got.
    pub fn is_no_module(&self) -> bool {
        matches!(self, Self::Empty | Self::Text | Self::Precompiled | Self::Foreign { .. } | Self::NotWasm(_))
    }
}

fn asked_for(asked: Option<u64>) -> String {
    asked.map(|bytes| format!(" (it asked for {bytes} more)")).unwrap_or_default()
}

fn list(missing: &[MissingImport]) -> String {
    let mut names: Vec<_> = missing.iter().take(LISTED).map(ToString::to_string).collect();
    if missing.len() > LISTED {
        names.push(format!("and {} more", missing.len() - LISTED));
    }
    names.join(", ")
}

/// What can be said about uploaded bytes: the verdict on them, and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    pub size_bytes: u64,
    /// None when the bytes cannot be run.
    pub kind: Option<ModuleKind>,
    /// The interface that a job enters it by, with its version.
    pub world: Option<String>,
    /// The size of the component made from a core module; None when none was made.
    pub componentized_bytes: Option<u64>,
    /// Exported interfaces of a component, exported functions of a core module.
    pub exports: Vec<String>,
    /// Imported interfaces of a component, `module::name` of a core module.
    pub imports: Vec<String>,
    /// The imports that this worker cannot give, or has of another type.
    pub missing: Vec<MissingImport>,
    /// What it calls that has to be granted at upload.
    pub needs: Vec<Need>,
    pub functions: u64,
    /// What its memories take from the start, all together; a job's limit must be larger.
    pub minimum_memory_bytes: u64,
    pub minimum_table_elements: u64,
    pub compiled_bytes: Option<u64>,
    /// The most memory that compiling it took; None where this process did it.
    pub compile_peak_bytes: Option<u64>,
    #[serde(rename = "compile_ms", serialize_with = "as_millis")]
    pub compile_time: Duration,
    /// Why it cannot be run; None when it can.
    #[serde(serialize_with = "as_optional_text")]
    pub problem: Option<PrepareError>,
}

fn as_text<T: ToString, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

fn as_optional_text<T: ToString, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

impl Inspection {
    /// Whether the module can start at all within a job's limits.
    pub fn check_limits(&self, limits: &Limits) -> Result<(), PrepareError> {
        if self.minimum_memory_bytes > limits.memory_bytes {
            return Err(PrepareError::TooMuchMemory { minimum: self.minimum_memory_bytes, limit: limits.memory_bytes });
        }
        Ok(())
    }
}

impl Sandbox {
    /// Makes a module ready to run: validates, componentizes where needed, compiles and links it. Computes for
    /// milliseconds to seconds on all cores and blocks; call it from a thread that may.
    pub fn prepare(&self, bytes: &[u8]) -> Result<Prepared, PrepareError> {
        self.examine(bytes).1
    }

    /// Prepares a module to see whether it can be run, and tells all that is to be known about it. Blocks like `prepare`.
    pub fn inspect(&self, bytes: &[u8]) -> Inspection {
        let (mut inspection, prepared) = self.examine(bytes);
        match prepared {
            Ok(prepared) => inspection.kind = Some(prepared.kind()),
            Err(problem) => inspection.problem = Some(problem),
        }
        inspection
    }

    fn examine(&self, bytes: &[u8]) -> (Inspection, Result<Prepared, PrepareError>) {
        let mut inspection = Inspection {
            digest: Digest::of(bytes),
            size_bytes: bytes.len() as u64,
            kind: None,
            world: None,
            componentized_bytes: None,
            exports: Vec::new(),
            imports: Vec::new(),
            missing: Vec::new(),
            needs: Vec::new(),
            functions: 0,
            minimum_memory_bytes: 0,
            minimum_table_elements: 0,
            compiled_bytes: None,
            compile_peak_bytes: None,
            compile_time: Duration::ZERO,
            problem: None,
        };
        // Encoder and compiler are fuzzed, but they are large and read what a stranger wrote: a panic in them must not
        // end a worker.
        let prepared = catch_unwind(AssertUnwindSafe(|| self.build(bytes, &mut inspection)))
            .unwrap_or_else(|_| Err(PrepareError::Compiler("it panicked".to_owned())));
        (inspection, prepared)
    }

    fn build(&self, bytes: &[u8], inspection: &mut Inspection) -> Result<Prepared, PrepareError> {
        let mut facts = Facts::default();
        let code = self.compile(bytes, &mut facts);
        inspection.functions = facts.functions;
        inspection.minimum_memory_bytes = facts.minimum_memory_bytes;
        inspection.exports = facts.exports;
        inspection.componentized_bytes = facts.componentized_bytes;
        inspection.compile_time = facts.compile_time;
        inspection.minimum_table_elements = facts.minimum_table_elements;
        inspection.compile_peak_bytes = facts.compile_peak_bytes;
        match code? {
            Code::Component(component) => self.link_component(&component, inspection),
            Code::Program(module) => self.link_program(&module, inspection),
        }
    }

    fn link_component(&self, component: &Component, inspection: &mut Inspection) -> Result<Prepared, PrepareError> {
        let engine = self.engine();
        let compiled_bytes = component.image_range().end as u64 - component.image_range().start as u64;
        inspection.compiled_bytes = Some(compiled_bytes);
        let ty = component.component_type();
        inspection.imports = ty.imports(engine).map(|(name, _)| shown(name)).collect();
        inspection.exports = ty.exports(engine).map(|(name, _)| shown(name)).collect();
        inspection.needs = imports::needs_of(engine, &ty);
        inspection.missing = self.offer().missing_of_component(self.component_linker(), engine, &ty);
        let entry = ComponentEntry::of(&inspection.exports)?;
        inspection.world = Some(entry.name().to_owned());
        if let ComponentEntry::Handler(name) = &entry {
            check_signature(engine, &ty, name)?;
        }
        if !inspection.missing.is_empty() {
            return Err(PrepareError::MissingImports(inspection.missing.clone()));
        }
        // What is left to go wrong are imports of the right name and the wrong type.
        let linked = self.component_linker().instantiate_pre(component).map_err(|error| {
            inspection.missing = self.offer().mismatched_of_component(self.component_linker(), engine, component);
            if inspection.missing.is_empty() {
                invalid(error)
            } else {
                PrepareError::MissingImports(inspection.missing.clone())
            }
        })?;
        // Else the first job would pay for it.
        component.initialize_copy_on_write_image().map_err(invalid)?;
        let (kind, entry) = match entry {
            ComponentEntry::Handler(_) => {
                (ModuleKind::Component, Entry::Handler(JobPre::new(linked).map_err(invalid)?))
            }
            ComponentEntry::Run(_) => (ModuleKind::Command, Entry::Command(CommandPre::new(linked).map_err(invalid)?)),
        };
        Ok(Prepared::new(kind, entry, compiled_bytes))
    }

    fn link_program(&self, module: &Module, inspection: &mut Inspection) -> Result<Prepared, PrepareError> {
        let compiled_bytes = module.image_range().end as u64 - module.image_range().start as u64;
        inspection.compiled_bytes = Some(compiled_bytes);
        inspection.imports =
            module.imports().map(|import| shown(&format!("{}::{}", import.module(), import.name()))).collect();
        inspection.world = Some("wasi_snapshot_preview1".to_owned());
        inspection.missing = imports::missing_of_module(self.program_linker(), &mut scratch_store(self), module);
        if !inspection.missing.is_empty() {
            return Err(PrepareError::MissingImports(inspection.missing.clone()));
        }
        let linked = self.program_linker().instantiate_pre(module).map_err(invalid)?;
        module.initialize_copy_on_write_image().map_err(invalid)?;
        let start = module.get_export("_start");
        if start.as_ref().and_then(|ty| ty.func()).is_none_or(|ty| ty.params().len() + ty.results().len() > 0) {
            return Err(PrepareError::NoEntry("_start must take and return nothing".to_owned()));
        }
        Ok(Prepared::new(ModuleKind::Command, Entry::Program(linked), compiled_bytes))
    }
}

/// A store that runs nothing, for who has to have one.
pub(super) fn scratch_store(sandbox: &Sandbox) -> Store<State> {
    let setting = Setting {
        kind: ModuleKind::Command,
        stdin: b"",
        limits: &Limits::default(),
        control: RunControl::new(),
        time: Time::Real(sandbox.timer().alarm().clone()),
        deterministic: None,
        args: None,
    };
    Store::new(sandbox.engine(), State::new(setting))
}

enum ComponentEntry {
    /// With the full name of the exported interface.
    Handler(String),
    Run(String),
}

impl ComponentEntry {
    fn name(&self) -> &str {
        match self {
            Self::Handler(name) | Self::Run(name) => name,
        }
    }

    fn of(exports: &[String]) -> Result<Self, PrepareError> {
        let version_of = |interface: &str| {
            exports.iter().find_map(|name| name.strip_prefix(interface)?.strip_prefix('@').map(|v| (name, v)))
        };
        if let Some((name, version)) = version_of("leasehold:job/handler") {
            return if version.starts_with("1.") {
                Ok(Self::Handler(name.clone()))
            } else {
                Err(PrepareError::NoEntry(format!(
                    "it exports {name}, and this worker runs version {CONTRACT_VERSION}"
                )))
            };
        }
        if let Some((name, _)) = version_of("wasi:cli/run").filter(|(_, version)| version.starts_with("0.2.")) {
            return Ok(Self::Run(name.clone()));
        }
        let exports =
            if exports.is_empty() { "nothing".to_owned() } else { exports[..exports.len().min(LISTED)].join(", ") };
        Err(PrepareError::NoEntry(format!(
            "the component exports {exports}, but neither leasehold:job/handler@1 nor wasi:cli/run@0.2"
        )))
    }
}

fn check_signature(
    engine: &Engine,
    ty: &wasmtime::component::types::Component,
    handler: &str,
) -> Result<(), PrepareError> {
    let found = ty.get_export(engine, handler).and_then(|export| match export.ty {
        ComponentItem::ComponentInstance(instance) => {
            instance.get_export(engine, "run").and_then(|export| match export.ty {
                ComponentItem::ComponentFunc(func) => Some(signature::text(&func)),
                _ => None,
            })
        }
        _ => None,
    });
    match found {
        Some(found) if found == signature::RUN => Ok(()),
        Some(found) => Err(PrepareError::NoEntry(format!("{handler} has run: {found}; it must be {}", signature::RUN))),
        None => Err(PrepareError::NoEntry(format!("{handler} has no function run"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::SandboxConfig;

    #[test]
    fn what_the_system_refuses_is_not_held_against_the_module() {
        use wasmtime::error::Context;
        let refused = Err::<(), _>(std::io::Error::from_raw_os_error(24)).context("making a memory's image");
        assert!(matches!(refused.map_err(invalid), Err(PrepareError::Host(_))));
        assert!(matches!(invalid(wasmtime::format_err!("a bad section")), PrepareError::Invalid(_)));
    }

    #[test]
    fn code_that_was_compiled_beforehand_is_refused() {
        let sandbox = Sandbox::new(&SandboxConfig { slots: 1, memory_bytes: 1 << 20, ..SandboxConfig::default() })
            .expect("the sandbox starts");
        let module = wat::parse_str("(module (func (export \"_start\")))").expect("it parses");
        let component = wat::parse_str("(component)").expect("it parses");
        let compiled = [
            sandbox.engine().precompile_module(&module).expect("it compiles"),
            sandbox.engine().precompile_component(&component).expect("it compiles"),
        ];
        for bytes in compiled {
            assert_eq!(sandbox.prepare(&bytes).err(), Some(PrepareError::Precompiled));
        }
    }
}
