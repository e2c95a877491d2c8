//! A look at a module's bytes before anything is compiled. Compiling is the one thing a guest's code makes the host do
//! that no fuel and no epoch bounds, so whatever would make it long or large is refused here, with both numbers.

use wasmparser::{Encoding, ExternalKind, Operator, Parser, Payload, TypeRef};

use super::engine::TABLE_ELEMENTS;
use super::module::PrepareError;

/// A module's size, in bytes. CPython as a component has 18 MB.
pub const MODULE_BYTES: u64 = 64 << 20;
/// Functions in all core modules together. 100 thousand empty ones, 390 KB, take 15 s and 500 MB to compile.
pub const FUNCTIONS: u64 = 65_536;
/// One function's body, in bytes. The compiler's time and memory for it grow faster than its length.
pub const FUNCTION_BYTES: u64 = 1 << 20;
/// Targets of all branch tables of one function, times how deep they are nested: what 238 KB of blocks and tables need
/// to make the compiler work for 38 s.
pub const BRANCH_TARGETS: u64 = 32_768;
/// Core modules, instances and components in one component. A guest with its adapter has 4 modules.
const PARTS: u64 = 256;
/// Debug sections, in bytes: they are read anew for each trap's backtrace.
pub const DEBUG_BYTES: u64 = 32 << 20;
const WASM_PAGE_BYTES: u64 = 64 << 10;

/// What the bytes say of themselves.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub is_component: bool,
    /// A core module that says how it wants to be made into a component.
    pub has_component_metadata: bool,
    pub exports: Vec<String>,
    /// (module, name) of what the outermost core module imports.
    pub imports: Vec<(String, String)>,
    pub functions: u64,
    /// What all memories have from the start, in bytes.
    pub minimum_memory_bytes: u64,
    parts: u64,
    debug_bytes: u64,
}

/// Reads a module or component, without validating it: wasmtime does that. Bounds are checked as they are met.
pub(super) fn survey(bytes: &[u8]) -> Result<Survey, PrepareError> {
    let mut survey = Survey::default();
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(invalid)? {
            Payload::Version { encoding, .. } => {
                depth += 1;
                survey.parts += 1;
                check("modules and components inside", survey.parts, PARTS)?;
                if depth == 1 {
                    survey.is_component = encoding == Encoding::Component;
                }
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ImportSection(section) if depth == 1 => {
                for import in section.into_imports() {
                    let import = import.map_err(invalid)?;
                    if !matches!(import.ty, TypeRef::Tag(_)) {
                        survey.imports.push((import.module.to_owned(), import.name.to_owned()));
                    }
                }
            }
            Payload::ExportSection(section) if depth == 1 => {
                for export in section {
                    let export = export.map_err(invalid)?;
                    if export.kind == ExternalKind::Func {
                        survey.exports.push(export.name.to_owned());
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    let memory = memory.map_err(invalid)?;
                    survey.minimum_memory_bytes =
                        survey.minimum_memory_bytes.saturating_add(memory.initial.saturating_mul(WASM_PAGE_BYTES));
                }
            }
            Payload::TableSection(section) => {
                for table in section {
                    let table = table.map_err(invalid)?;
                    check("elements in one table", table.ty.initial, TABLE_ELEMENTS as u64)?;
                }
            }
            Payload::CodeSectionStart { count, .. } => {
                survey.functions += u64::from(count);
                check("functions", survey.functions, FUNCTIONS)?;
            }
            Payload::CodeSectionEntry(body) => {
                let size = body.range().len() as u64;
                check("bytes in one function", size, FUNCTION_BYTES)?;
                check_branches(&body)?;
            }
            Payload::CustomSection(section) => {
                if depth == 1 && section.name().starts_with("component-type") {
                    survey.has_component_metadata = true;
                }
                if section.name().starts_with(".debug_") {
                    survey.debug_bytes += section.data().len() as u64;
                    if survey.debug_bytes > DEBUG_BYTES {
                        return Err(PrepareError::DebugInfo { found: survey.debug_bytes, limit: DEBUG_BYTES });
                    }
                }
            }
            _ => {}
        }
    }
    Ok(survey)
}

fn check_branches(body: &wasmparser::FunctionBody<'_>) -> Result<(), PrepareError> {
    let mut targets = 0_u64;
    for operator in body.get_operators_reader().map_err(invalid)? {
        if let Operator::BrTable { targets: table } = operator.map_err(invalid)? {
            targets += u64::from(table.len());
            check("branch table targets in one function", targets, BRANCH_TARGETS)?;
        }
    }
    Ok(())
}

fn check(what: &'static str, found: u64, limit: u64) -> Result<(), PrepareError> {
    if found > limit { Err(PrepareError::TooComplex { what, found, limit }) } else { Ok(()) }
}

fn invalid(error: wasmparser::BinaryReaderError) -> PrepareError {
    PrepareError::Invalid(error.to_string())
}
