//! A look at a module's bytes before anything is compiled. Compiling is the one thing a guest's code makes the host do
//! that no fuel and no epoch bounds, so whatever would make it long or large is refused here, with both numbers.

use wasmparser::{
    BinaryReaderError, BlockType, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind,
    ComponentTypeRef, CompositeInnerType, DataKind, DataSectionReader, ElementItems, ElementKind, ElementSectionReader,
    Encoding, ExternalKind, FunctionBody, Instance, Operator, Parser, Payload, TypeRef,
};

use super::engine::TABLE_ELEMENTS;
use super::module::PrepareError;

// Beside each bound: the most that was seen in the largest guests that people build (a whole CPython of 18 MB, a
// SpiderMonkey of 12 MB, a QuickJS of 1.6 MB, each with its libraries), and what it costs to compile as much as is allowed,
// on one core. What gets through still differs by a factor of hundreds; the compiler's own limits are the last word.

/// A module's size, in bytes. CPython: 18 MB.
pub const MODULE_BYTES: u64 = 32 << 20;
/// Code of all functions together, in bytes. SpiderMonkey: 9.2 MB. Nothing but calls takes 3 s a MB.
const CODE_BYTES: u64 = 16 << 20;
/// Functions in all core modules together. CPython: 13,354. So many empty ones take 6 s and 390 MB.
const FUNCTIONS: u64 = 65_536;
/// One function's body, in bytes. CPython: 427 KB. The compiler's memory for it is a multiple of its length.
const FUNCTION_BYTES: u64 = 1 << 20;
/// Loops inside each other. QuickJS: 21. With a branch at each end, time grows with the third power: a hundred take 0.1 s,
/// a thousand 5 s, two thousand, in 14 KB, 40 s.
const LOOP_DEPTH: u64 = 100;
/// Blocks inside each other. CPython: 781. So many conditions take 0.7 s.
const BLOCK_DEPTH: u64 = 4_096;
/// Types of functions. CPython: 1,103.
const TYPES: u64 = 65_536;
/// Global variables. CPython: 874. 900,000 take 500 MB.
const GLOBALS: u64 = 65_536;
/// Elements of all tables together. SpiderMonkey: 7,716. Each may take 5 bytes of image, and more while it is made.
const ALL_TABLE_ELEMENTS: u64 = 262_144;
/// Items of all element segments together. SpiderMonkey: 7,715.
const ELEMENT_ITEMS: u64 = 262_144;
/// Of those, items that are expressions rather than numbers of functions, which no compiler writes for functions alone.
/// 200,000, in 600 KB, took 28 s and 1.4 GB.
const ELEMENT_EXPRESSIONS: u64 = 16_384;
/// Element segments. CPython: 8.
const ELEMENT_SEGMENTS: u64 = 16_384;
/// Data segments. SpiderMonkey: 10,000, which is the most that snapshots of a started program are written with.
const DATA_SEGMENTS: u64 = 65_536;
/// Segments of both kinds that are not put into place at the start. All that were seen: none. 99,000 took 7 to 19 s.
const PASSIVE_SEGMENTS: u64 = 4_096;
/// What lies between the first and the last byte that a module puts into its memories, of all modules together. CPython:
/// 12 MB. Up to `IMAGE_BYTES` of each become part of its code, full or not: 60 bytes of wasm made 16 MB.
const DATA_SPAN_BYTES: u64 = 64 << 20;
/// wasmtime's bound for an image that is mostly empty.
const IMAGE_BYTES: u64 = 16 << 20;

/// Something that costs the compiler time or memory and is counted in the body of a function.
struct Measure {
    what: &'static str,
    in_function: &'static str,
    /// The most of it in one function, and in all together.
    function: u64,
    all: u64,
}

const BRANCH_TARGETS: usize = 0;
const CARRIED_LOCALS: usize = 1;
const LOOP_LOCALS: usize = 2;
const BRANCH_LOCALS: usize = 3;
const CALL_VALUES: usize = 4;
const BLOCK_VALUES: usize = 5;

const MEASURES: [Measure; 6] = [
    // CPython: 15,805 and 43,656. So many in one, deeply nested, take 0.3 s.
    Measure {
        what: "branch table targets",
        in_function: "branch table targets in one function",
        function: 32_768,
        all: 262_144,
    },
    // Locals times blocks: what the compiler may have to carry through every branch. SpiderMonkey: 224,068 and 3.7 million.
    // A million in one take 0.5 s and 130 MB; forty times as many, in 434 KB, took 19 s and 2 GB.
    Measure {
        what: "locals times blocks",
        in_function: "locals times blocks in one function",
        function: 1 << 20,
        all: 8 << 20,
    },
    // What is carried around. SpiderMonkey: 47,824 and 315,207. A million in one, loop after loop, took 10 s.
    Measure {
        what: "locals times loops",
        in_function: "locals times loops in one function",
        function: 131_072,
        all: 1 << 20,
    },
    // What each branch may carry. SpiderMonkey: 238,108 and 4 million. A million in one, in 114 KB, took 40 s.
    Measure {
        what: "locals times branches",
        in_function: "locals times branches in one function",
        function: 524_288,
        all: 8 << 20,
    },
    // Parameters and results of all calls. CPython: 7,780 and 241,849. 320,000 in one, in 20 KB, took 7 s.
    Measure {
        what: "values passed in calls",
        in_function: "values passed in calls of one function",
        function: 65_536,
        all: 1 << 20,
    },
    // Parameters and results of all blocks. SpiderMonkey: 1,254 and 19,867. A million in one, in 8 KB, took 2 GB.
    Measure {
        what: "values passed to blocks",
        in_function: "values passed to blocks in one function",
        function: 16_384,
        all: 262_144,
    },
];

/// By `MEASURES`.
type Counts = [u64; MEASURES.len()];

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
    counts: Counts,
    types: u64,
    globals: u64,
    /// What all tables have from the start.
    pub table_elements: u64,
    element_segments: u64,
    element_items: u64,
    element_expressions: u64,
    data_segments: u64,
    passive_segments: u64,
    data_span_bytes: u64,
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
    /// How many parameters and results the types of a core module have; none for what is no function.
    types: Vec<(u64, u64)>,
    /// The types of a core module's functions.
    functions: Vec<u32>,
    /// Of how many functions the body has still to come.
    bodies: usize,
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
            Payload::TypeSection(section) => {
                for group in section {
                    for ty in group.map_err(invalid)?.types() {
                        self.types += 1;
                        check("types", self.types, TYPES)?;
                        self.part().types.push(match &ty.composite_type.inner {
                            CompositeInnerType::Func(ty) => (ty.params().len() as u64, ty.results().len() as u64),
                            _ => (0, 0),
                        });
                    }
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    self.import()?;
                    let import = import.map_err(invalid)?;
                    self.names_contract |= import.module.starts_with("leasehold:job/");
                    if let TypeRef::Func(ty) | TypeRef::FuncExact(ty) = import.ty {
                        self.part().functions.push(ty);
                    }
                }
            }
            Payload::FunctionSection(section) => {
                self.functions += u64::from(section.count());
                check("functions", self.functions, FUNCTIONS)?;
                for ty in section {
                    let ty = ty.map_err(invalid)?;
                    let part = self.part();
                    part.functions.push(ty);
                    part.bodies += 1;
                }
            }
            Payload::GlobalSection(section) => {
                self.globals += u64::from(section.count());
                check("global variables", self.globals, GLOBALS)?;
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
                    let elements = table.map_err(invalid)?.ty.initial;
                    check("elements in one table", elements, TABLE_ELEMENTS as u64)?;
                    self.table_elements += elements;
                    check("elements in all tables", self.table_elements, ALL_TABLE_ELEMENTS)?;
                }
            }
            Payload::ElementSection(section) => self.elements(section)?,
            Payload::DataSection(section) => self.data(section)?,
            Payload::CodeSectionEntry(body) => {
                let bytes = body.range().len() as u64;
                check("bytes of code in one function", bytes, FUNCTION_BYTES)?;
                self.code_bytes += bytes;
                check("bytes of code", self.code_bytes, CODE_BYTES)?;
                self.body(&body)?;
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

    fn elements(&mut self, section: ElementSectionReader<'_>) -> Result<(), PrepareError> {
        self.element_segments += u64::from(section.count());
        check("element segments", self.element_segments, ELEMENT_SEGMENTS)?;
        for element in section {
            let element = element.map_err(invalid)?;
            if !matches!(element.kind, ElementKind::Active { .. }) {
                self.passive()?;
            }
            match element.items {
                ElementItems::Functions(items) => self.element_items += u64::from(items.count()),
                ElementItems::Expressions(_, items) => {
                    self.element_items += u64::from(items.count());
                    self.element_expressions += u64::from(items.count());
                }
            }
            check("items of element segments", self.element_items, ELEMENT_ITEMS)?;
            check("expressions in element segments", self.element_expressions, ELEMENT_EXPRESSIONS)?;
        }
        Ok(())
    }

    fn data(&mut self, section: DataSectionReader<'_>) -> Result<(), PrepareError> {
        self.data_segments += u64::from(section.count());
        check("data segments", self.data_segments, DATA_SEGMENTS)?;
        let (mut first, mut last) = (u64::MAX, 0);
        for data in section {
            let data = data.map_err(invalid)?;
            match data.kind {
                DataKind::Passive => self.passive()?,
                DataKind::Active { offset_expr, .. } => {
                    // Where the place is no constant there is no image.
                    if let Ok(Operator::I32Const { value }) = offset_expr.get_operators_reader().read() {
                        let start = u64::from(value.cast_unsigned());
                        first = first.min(start);
                        last = last.max(start + data.data.len() as u64);
                    }
                }
            }
        }
        self.data_span_bytes += last.saturating_sub(first).min(IMAGE_BYTES);
        check("bytes between the first and the last data", self.data_span_bytes, DATA_SPAN_BYTES)
    }

    fn passive(&mut self) -> Result<(), PrepareError> {
        self.passive_segments += 1;
        check("passive segments", self.passive_segments, PASSIVE_SEGMENTS)
    }

    fn body(&mut self, body: &FunctionBody<'_>) -> Result<(), PrepareError> {
        let part = self.part();
        let function = part.functions.len() - part.bodies.min(part.functions.len());
        part.bodies = part.bodies.saturating_sub(1);
        let counts = part.body(function, body)?;
        for (index, measure) in MEASURES.iter().enumerate() {
            self.counts[index] += counts[index];
            check(measure.what, self.counts[index], measure.all)?;
        }
        Ok(())
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

impl Part {
    /// What lies in the body of a function, by its index.
    fn body(&self, function: usize, body: &FunctionBody<'_>) -> Result<Counts, PrepareError> {
        let mut locals = self.functions.get(function).map_or(0, |ty| self.type_of(*ty).0);
        for group in body.get_locals_reader().map_err(invalid)? {
            locals += u64::from(group.map_err(invalid)?.0);
        }
        let mut counts = Counts::default();
        let mut count = |index: usize, more: u64| {
            counts[index] += more;
            check(MEASURES[index].in_function, counts[index], MEASURES[index].function)
        };
        // Whether each open block is a loop.
        let mut open: Vec<bool> = Vec::new();
        let mut loops = 0;
        for operator in body.get_operators_reader().map_err(invalid)? {
            let operator = operator.map_err(invalid)?;
            match operator {
                Operator::Block { blockty } | Operator::If { blockty } | Operator::Loop { blockty } => {
                    let is_loop = matches!(operator, Operator::Loop { .. });
                    open.push(is_loop);
                    check("blocks inside each other", open.len() as u64, BLOCK_DEPTH)?;
                    if is_loop {
                        loops += 1;
                        check("loops inside each other", loops, LOOP_DEPTH)?;
                        count(LOOP_LOCALS, locals)?;
                    }
                    count(CARRIED_LOCALS, locals)?;
                    count(BLOCK_VALUES, self.values_of_block(blockty))?;
                }
                Operator::Else => count(CARRIED_LOCALS, locals)?,
                Operator::End => loops -= u64::from(open.pop() == Some(true)),
                Operator::Br { .. } | Operator::BrIf { .. } => count(BRANCH_LOCALS, locals)?,
                Operator::BrTable { targets } => count(BRANCH_TARGETS, u64::from(targets.len()))?,
                Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                    let ty = self.functions.get(function_index as usize);
                    count(CALL_VALUES, ty.map_or(0, |ty| self.values_of(*ty)))?;
                }
                Operator::CallIndirect { type_index, .. } | Operator::ReturnCallIndirect { type_index, .. } => {
                    count(CALL_VALUES, self.values_of(type_index))?;
                }
                _ => {}
            }
        }
        Ok(counts)
    }

    /// What is not there is for wasmtime to complain of.
    fn type_of(&self, index: u32) -> (u64, u64) {
        self.types.get(index as usize).copied().unwrap_or_default()
    }

    fn values_of(&self, index: u32) -> u64 {
        let (params, results) = self.type_of(index);
        params + results
    }

    fn values_of_block(&self, ty: BlockType) -> u64 {
        match ty {
            BlockType::Empty => 0,
            BlockType::Type(_) => 1,
            BlockType::FuncType(index) => self.values_of(index),
        }
    }
}

fn check(what: &'static str, found: u64, limit: u64) -> Result<(), PrepareError> {
    if found > limit { Err(PrepareError::TooComplex { what: what.into(), found, limit }) } else { Ok(()) }
}

fn invalid(error: BinaryReaderError) -> PrepareError {
    PrepareError::Invalid(error.to_string())
}
