//! A look at a module's bytes before anything is compiled. Compiling is the one thing a guest's code makes the host do
//! that no fuel and no epoch bounds, so whatever would make it long or large is refused here, with both numbers.

use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind,
    ComponentTypeRef, Encoding, ExternalKind, FunctionBody, Instance, Operator, Parser, Payload,
};

use super::engine::TABLE_ELEMENTS;
use super::module::PrepareError;

// Beside each bound: what a whole CPython with its libraries has, the largest guest that people are known to build, and
// what it costs to compile as much as is allowed, on one core. Together they leave about a minute at worst.

/// A module's size, in bytes. CPython: 18 MB.
pub const MODULE_BYTES: u64 = 32 << 20;
/// Code of all functions together, in bytes. CPython: 6.5 MB. Nothing but calls takes 3 s a MB.
const CODE_BYTES: u64 = 16 << 20;
/// Functions in all core modules together. CPython: 13,354. So many empty ones take 6 s and 390 MB.
const FUNCTIONS: u64 = 65_536;
/// One function's body, in bytes. CPython: 427 KB. The compiler's memory for it is a multiple of its length.
const FUNCTION_BYTES: u64 = 1 << 20;
/// Targets of the branch tables of one function. CPython: 15,805. So many, deeply nested, take 0.3 s.
const FUNCTION_BRANCH_TARGETS: u64 = 32_768;
/// The same of all functions together. CPython: 43,656.
const BRANCH_TARGETS: u64 = 262_144;
/// Locals of a function times its blocks: what the compiler may have to carry through every branch. CPython: 67,479. So
/// many take 0.5 s and 130 MB; forty times as many, in 434 KB, took 19 s and 2 GB.
const FUNCTION_CARRIED_LOCALS: u64 = 1 << 20;
/// The same of all functions together. CPython: 1.4 million.
const CARRIED_LOCALS: u64 = 8 << 20;
/// Imports of all parts together. CPython: 2,254.
const IMPORTS: u64 = 10_000;
/// Exported functions of the outermost module.
const EXPORTS: u64 = 10_000;
/// Core modules and components in one component. CPython: 17.
const PARTS: u64 = 256;
/// Instances that come of a component's instances of components, and so on down. They are laid out one by one when it
/// is compiled, and each level may double them.
const INSTANCES: u64 = 1_000;
/// Debug sections, in bytes. They are read for each frame of each trap's backtrace, and nothing can interrupt that: 5.2 MB
/// took 0.3 s a trap.
const DEBUG_BYTES: u64 = 8 << 20;
const WASM_PAGE_BYTES: u64 = 64 << 10;

/// What the bytes say of themselves.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub is_component: bool,
    /// A core module that says how it wants to be made into a component.
    pub has_component_metadata: bool,
    /// Whether a core module names the contract among its imports or exports.
    pub names_contract: bool,
    /// Functions that the outermost core module exports.
    pub exports: Vec<String>,
    pub functions: u64,
    /// What all memories have from the start, in bytes.
    pub minimum_memory_bytes: u64,
    code_bytes: u64,
    branch_targets: u64,
    carried_locals: u64,
    imports: u64,
    parts: u64,
    debug_bytes: u64,
    /// The modules and components that are being read, outermost first.
    open: Vec<Part>,
    /// The largest part that was read so far, in instances.
    largest: u64,
}

/// Counts what an instance of a module or component consists of.
#[derive(Debug, Default)]
struct Part {
    core_instances: u64,
    component_instances: u64,
    /// The largest part inside, in instances.
    largest_inside: u64,
    /// Whether it can also instantiate what lies outside of it.
    sees_outside: bool,
}

/// Reads a module or component, without validating it: wasmtime does that. Bounds are checked as they are met.
pub(super) fn survey(bytes: &[u8]) -> Result<Survey, PrepareError> {
    let mut survey = Survey::default();
    for payload in Parser::new(0).parse_all(bytes) {
        survey.add(payload.map_err(invalid)?)?;
    }
    Ok(survey)
}

impl Survey {
    fn add(&mut self, payload: Payload<'_>) -> Result<(), PrepareError> {
        match payload {
            Payload::Version { encoding, .. } => {
                self.parts += 1;
                check("modules and components inside", self.parts, PARTS)?;
                self.is_component |= self.open.is_empty() && encoding == Encoding::Component;
                self.open.push(Part::default());
            }
            Payload::End(_) => self.close()?,
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    self.import()?;
                    self.names_contract |= import.map_err(invalid)?.module.starts_with("leasehold:job/");
                }
            }
            Payload::ExportSection(section) if self.open.len() == 1 => {
                for export in section {
                    let export = export.map_err(invalid)?;
                    self.names_contract |= export.name.starts_with("leasehold:job/");
                    if export.kind == ExternalKind::Func {
                        self.exports.push(export.name.to_owned());
                        check("exports", self.exports.len() as u64, EXPORTS)?;
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    let bytes = memory.map_err(invalid)?.initial.saturating_mul(WASM_PAGE_BYTES);
                    self.minimum_memory_bytes = self.minimum_memory_bytes.saturating_add(bytes);
                }
            }
            Payload::TableSection(section) => {
                for table in section {
                    check("elements in one table", table.map_err(invalid)?.ty.initial, TABLE_ELEMENTS as u64)?;
                }
            }
            Payload::CodeSectionStart { count, .. } => {
                self.functions += u64::from(count);
                check("functions", self.functions, FUNCTIONS)?;
            }
            Payload::CodeSectionEntry(body) => {
                let bytes = body.range().len() as u64;
                check("bytes of code in one function", bytes, FUNCTION_BYTES)?;
                self.code_bytes += bytes;
                check("bytes of code", self.code_bytes, CODE_BYTES)?;
                self.branches(&body)?;
            }
            Payload::CustomSection(section) => {
                self.has_component_metadata |= self.open.len() == 1 && section.name().starts_with("component-type");
                if section.name().starts_with(".debug_") {
                    self.debug_bytes += section.data().len() as u64;
                    if self.debug_bytes > DEBUG_BYTES {
                        return Err(PrepareError::DebugInfo { found: self.debug_bytes, limit: DEBUG_BYTES });
                    }
                }
            }
            Payload::InstanceSection(section) => {
                for instance in section {
                    if let Instance::Instantiate { .. } = instance.map_err(invalid)? {
                        self.part().core_instances += 1;
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    if let ComponentInstance::Instantiate { .. } = instance.map_err(invalid)? {
                        self.part().component_instances += 1;
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.part().sees_outside |= matches!(
                        alias.map_err(invalid)?,
                        ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, .. }
                            | ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. }
                    );
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    self.import()?;
                    self.part().sees_outside |= matches!(import.map_err(invalid)?.ty, ComponentTypeRef::Component(_));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn branches(&mut self, body: &FunctionBody<'_>) -> Result<(), PrepareError> {
        let mut locals = 0_u64;
        for group in body.get_locals_reader().map_err(invalid)? {
            locals += u64::from(group.map_err(invalid)?.0);
        }
        let (mut targets, mut carried) = (0, 0);
        for operator in body.get_operators_reader().map_err(invalid)? {
            match operator.map_err(invalid)? {
                Operator::BrTable { targets: table } => {
                    targets += u64::from(table.len());
                    check("branch table targets in one function", targets, FUNCTION_BRANCH_TARGETS)?;
                }
                Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } | Operator::Else => {
                    carried += locals;
                    check("locals times blocks in one function", carried, FUNCTION_CARRIED_LOCALS)?;
                }
                _ => {}
            }
        }
        self.branch_targets += targets;
        check("branch table targets", self.branch_targets, BRANCH_TARGETS)?;
        self.carried_locals += carried;
        check("locals times blocks", self.carried_locals, CARRIED_LOCALS)
    }

    fn import(&mut self) -> Result<(), PrepareError> {
        self.imports += 1;
        check("imports", self.imports, IMPORTS)
    }

    fn part(&mut self) -> &mut Part {
        if self.open.is_empty() {
            self.open.push(Part::default());
        }
        self.open.last_mut().expect("one was pushed if there was none")
    }

    /// Ends a part. Which one each instance is made of would take the index spaces to tell, so each counts as the
    /// largest that it could be made of; that is exact enough to tell what people build from what doubles on purpose.
    fn close(&mut self) -> Result<(), PrepareError> {
        let Some(part) = self.open.pop() else { return Ok(()) };
        let largest = if part.sees_outside { self.largest } else { part.largest_inside };
        let instances = 1 + part.core_instances + part.component_instances.saturating_mul(largest);
        check("instances", instances, INSTANCES)?;
        self.largest = self.largest.max(instances);
        if let Some(outer) = self.open.last_mut() {
            outer.largest_inside = outer.largest_inside.max(instances);
        }
        Ok(())
    }
}

fn check(what: &'static str, found: u64, limit: u64) -> Result<(), PrepareError> {
    if found > limit { Err(PrepareError::TooComplex { what, found, limit }) } else { Ok(()) }
}

fn invalid(error: BinaryReaderError) -> PrepareError {
    PrepareError::Invalid(error.to_string())
}
