//! A WASI program in the place of a native one, as `cargo test` runs what it built for wasm: with arguments, its output
//! going where ours goes, its exit code for whoever started it. The sandbox is that of a job: no files, no network, the same
//! limits. So what holds of a job's code here holds of it in a worker.

use std::io::{self, Write};

use wasmtime::component::Component;
use wasmtime::{ExternType, Module};
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi::p2::{StreamError, StreamResult};

use super::Sandbox;
use super::compile::{Code, Facts, Wasm, invalid, shown};
use super::control::RunControl;
use super::imports::{self, MissingImport};
use super::module::{Entry, PrepareError, Prepared, scratch_store};
use super::run::{Extras, JobInput};
use super::stdio::{LogBuffer, Sink};
use crate::job::{JobId, Limits, ModuleKind};
use crate::outcome::Run;

impl Sandbox {
    /// Makes a program ready to run, even where the module could be a job as well: a test of a job's crate carries all that a
    /// job has. What it could call of `leasehold:job/host` ends it if it does. Blocks like `prepare`.
    pub fn prepare_program(&self, bytes: &[u8]) -> Result<Prepared, PrepareError> {
        let wasm = Wasm::translate_program(bytes, self.config().memory_bytes, &mut Facts::default())?;
        match wasm.compile(self.engine())? {
            Code::Component(component) => self.link_command(&component),
            Code::Program(module) => self.link_main(&module),
        }
    }

    fn link_command(&self, component: &Component) -> Result<Prepared, PrepareError> {
        let linker = self.component_linker();
        let missing = self.offer().missing_of_component(linker, self.engine(), &component.component_type());
        if !missing.is_empty() {
            return Err(PrepareError::MissingImports(missing));
        }
        let linked = linker.instantiate_pre(component).map_err(invalid)?;
        let command = CommandPre::new(linked).map_err(|_| {
            PrepareError::NoEntry("a program exports wasi:cli/run@0.2, and this component does not".into())
        })?;
        Ok(Prepared::new(ModuleKind::Command, Entry::Command(command), 0))
    }

    fn link_main(&self, module: &Module) -> Result<Prepared, PrepareError> {
        let mut linker = self.program_linker().clone();
        let missing = imports::missing_of_module(&linker, &mut scratch_store(self), module);
        let (of_a_job, missing): (Vec<MissingImport>, _) =
            missing.into_iter().partition(|import| import.name.starts_with("leasehold:job/"));
        if !missing.is_empty() {
            return Err(PrepareError::MissingImports(missing));
        }
        if !of_a_job.is_empty() {
            for import in module.imports().filter(|import| import.module().starts_with("leasehold:job/")) {
                let ExternType::Func(ty) = import.ty() else { continue };
                let name = shown(&format!("{}::{}", import.module(), import.name()));
                linker
                    .func_new(import.module(), import.name(), ty, move |_, _, _| {
                        Err(wasmtime::format_err!(
                            "called {name}, which only a worker has; test that natively, with a MockContext"
                        ))
                    })
                    .map_err(invalid)?;
            }
        }
        let linked = linker.instantiate_pre(module).map_err(invalid)?;
        Ok(Prepared::new(ModuleKind::Command, Entry::Program(linked), 0))
    }

    /// Runs a program to its end. Answers its exit code too, unless it did not come to that.
    pub async fn run_program(
        &self,
        program: &Prepared,
        args: &[String],
        stdin: &[u8],
        limits: &Limits,
        control: &RunControl,
    ) -> (Run, Option<i32>) {
        let job = JobInput {
            id: JobId(0),
            tenant: "local",
            module: args.first().map_or("", String::as_str),
            queue: "default",
            attempt: 1,
            max_attempts: 1,
            payload: stdin,
            deterministic: None,
        };
        let extras = Extras { args: Some(args), ..Extras::default() };
        self.run_with(program, job, limits, control, &extras).await
    }
}

/// A stream of this process's own.
#[derive(Debug, Clone)]
pub(super) enum Terminal {
    Out,
    /// Kept as well: a panic's message is in it.
    Err(LogBuffer),
}

impl Sink for Terminal {
    fn take_in(&self, bytes: &[u8]) -> StreamResult<()> {
        let written = match self {
            Self::Out => write(io::stdout().lock(), bytes),
            Self::Err(log) => {
                log.write(bytes);
                write(io::stderr().lock(), bytes)
            }
        };
        // Whoever read it is gone.
        written.map_err(|_| StreamError::Closed)
    }
}

fn write(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}
