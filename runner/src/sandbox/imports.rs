//! What a module asks for against what this worker offers. wasmtime's linker stops at the first import that it cannot
//! give; whoever uploads a module wants to see all of them.

use std::fmt;

use wasmtime::component::types::{Component as ComponentType, ComponentItem};
use wasmtime::component::{Linker, ResourceType};
use wasmtime::{Engine, ExternType, Module, Store};

use super::state::State;
use crate::outcome::clip_text;

/// How much of a name is shown, in bytes. Names of core modules may be 100 KB of anything.
pub(super) const NAME_BYTES: usize = 200;
/// Of how many imported functions the types are tried one by one, since it takes the square of their number. There are hardly more
/// to be had, but a hostile component can import each under a hundred versions.
const TRIED_TYPES: usize = 300;
/// Near misses are looked for among the first missing imports, and for names of a sensible length in bytes, since a hostile module may
/// have ten thousand, of any length.
const NEAR_MISSES: usize = 50;
const NEAR_MISS_BYTES: usize = 100;

/// An import that this worker does not offer, or offers with another type.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MissingImport {
    /// `package:name/interface@version`, with `#function` where only that is missing; `module::name` of a core module.
    pub name: String,
    /// What may help.
    pub hint: Option<String>,
}

impl fmt::Display for MissingImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hint {
            Some(hint) => write!(f, "{} ({hint})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Something that a module calls and that is granted at upload, or else refused at run time.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Need {
    pub capability: &'static str,
    /// The function or interface.
    pub import: String,
    /// The flag of `module push` that grants it.
    pub flag: &'static str,
}

/// What has to be granted: the import without its version, the capability, the flag.
const GRANTED: [(&str, &str, &str); 1] = [("leasehold:job/host#enqueue", "follow_ups", "--follow-ups N")];

/// What a component calls that has to be granted.
pub(super) fn needs_of(engine: &Engine, component: &ComponentType) -> Vec<Need> {
    let mut needs = Vec::new();
    for (name, import) in component.imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        let interface = name.split('@').next().unwrap_or(name);
        for (item, _) in instance.exports(engine) {
            let called = format!("{interface}#{item}");
            let granted = GRANTED.iter().filter(|(import, ..)| *import == interface || *import == called);
            needs.extend(granted.map(|(_, capability, flag)| Need {
                capability,
                import: format!("{name}#{item}"),
                flag,
            }));
        }
    }
    needs
}

/// The interfaces on offer, without their versions, for who mistyped one.
const INTERFACES: [&str; 20] = [
    "leasehold:job/host",
    "leasehold:job/types",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/random",
    "wasi:random/insecure",
];
const CONTRACT: &str = include_str!("../../../guest-sdk/wit/job.wit");

/// The functions of `leasehold:job/host`.
fn host_functions() -> impl Iterator<Item = &'static str> {
    let host = CONTRACT.split_once("interface host {").map_or("", |(_, rest)| rest);
    host.lines().take_while(|line| !line.starts_with('}')).filter_map(|line| Some(line.trim().split_once(": func(")?.0))
}

/// What may have been meant: a name of those on offer that takes at most so many changes as a quarter of its letters.
fn near_miss<'a>(wanted: &str, offered: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wanted.len() > NEAR_MISS_BYTES {
        return None;
    }
    let near = offered.into_iter().map(|name| (strsim::damerau_levenshtein(wanted, name), name));
    near.filter(|(changes, name)| (1..=name.len().div_ceil(4)).contains(changes)).min().map(|(_, name)| name)
}

/// The packages on offer and the versions at which the linker knows them.
pub(super) struct Offer {
    wasi: String,
}

/// The version of `leasehold:job` that this worker implements.
pub(super) const CONTRACT_VERSION: &str = "1.0.0";

impl Offer {
    /// Finds out which patch release of WASI 0.2 the linker has: its names carry the full version, and an attempt to
    /// define what is there already fails.
    pub fn of(linker: &Linker<State>) -> Self {
        let patch = (0..=99).find(|patch| {
            let mut scratch = Scratch::of(linker);
            scratch.has_function(Some(&format!("wasi:cli/stdout@0.2.{patch}")), "get-stdout")
        });
        Self { wasi: patch.map_or_else(|| "0.2.0".to_owned(), |patch| format!("0.2.{patch}")) }
    }

    /// The name under which the linker would look for an interface: versions that promise to be compatible are one.
    fn canonical(&self, import: &str) -> String {
        let Some((interface, version)) = import.split_once('@') else { return import.to_owned() };
        let offered = match interface.split_once('/') {
            Some((package, _)) if package.starts_with("wasi:") => &self.wasi,
            Some(("leasehold:job", _)) => CONTRACT_VERSION,
            _ => return import.to_owned(),
        };
        if track(version).is_some() && track(version) == track(offered) {
            format!("{interface}@{offered}")
        } else {
            import.to_owned()
        }
    }

    /// Everything that the component imports and the linker lacks.
    pub fn missing_of_component(
        &self,
        linker: &Linker<State>,
        engine: &Engine,
        component: &ComponentType,
    ) -> Vec<MissingImport> {
        let mut scratch = Scratch::of(linker);
        let mut missing = Vec::new();
        let mut resources = Vec::new();
        for (name, import) in component.imports(engine) {
            match import.ty {
                ComponentItem::ComponentInstance(instance) => {
                    let canonical = self.canonical(name);
                    let mut has_any = false;
                    let mut lacks = Vec::new();
                    for (item, export) in instance.exports(engine) {
                        let has = match export.ty {
                            ComponentItem::ComponentFunc(_) => scratch.has_function(Some(&canonical), item),
                            // A resource under a second name (`use`) is the first one; only that has to be given.
                            ComponentItem::Resource(resource) if resources.contains(&resource) => continue,
                            ComponentItem::Resource(resource) => {
                                resources.push(resource);
                                scratch.has_resource(Some(&canonical), item)
                            }
                            // A type has no implementation that could be missing.
                            ComponentItem::Type(_) => continue,
                            ComponentItem::CoreFunc(_)
                            | ComponentItem::Module(_)
                            | ComponentItem::Component(_)
                            | ComponentItem::ComponentInstance(_) => false,
                        };
                        if has {
                            has_any = true;
                        } else {
                            lacks.push(item);
                        }
                    }
                    if has_any {
                        for item in lacks {
                            missing.push(self.missing(missing.len(), format!("{name}#{item}")));
                        }
                    } else if !lacks.is_empty() {
                        missing.push(self.missing(missing.len(), name.to_owned()));
                    }
                }
                ComponentItem::Type(_) => {}
                ComponentItem::ComponentFunc(_)
                | ComponentItem::CoreFunc(_)
                | ComponentItem::Module(_)
                | ComponentItem::Component(_)
                | ComponentItem::Resource(_) => missing.push(self.missing(missing.len(), name.to_owned())),
            }
        }
        missing
    }

    /// Imports of the right name and the wrong type: each is tried on a linker that takes anything for all others.
    pub fn mismatched_of_component(
        &self,
        linker: &Linker<State>,
        engine: &Engine,
        component: &wasmtime::component::Component,
    ) -> Vec<MissingImport> {
        let ty = component.component_type();
        let mut functions = Vec::new();
        for (name, import) in ty.imports(engine) {
            let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
            let called =
                instance.exports(engine).filter(|(_, export)| matches!(export.ty, ComponentItem::ComponentFunc(_)));
            functions.extend(called.map(|(item, _)| (name.to_owned(), self.canonical(name), item.to_owned())));
        }
        let mut mismatched = Vec::new();
        if functions.len() > TRIED_TYPES {
            return mismatched;
        }
        for tried in &functions {
            let mut others = linker.clone();
            others.allow_shadowing(true);
            for (_, instance, item) in functions.iter().filter(|other| *other != tried) {
                let defined =
                    others.root().instance(instance).and_then(|mut to| to.func_new(item, |_, _, _, _| Ok(())));
                if defined.is_err() {
                    return mismatched;
                }
            }
            if let Err(error) = others.instantiate_pre(component) {
                let hint = Some(format!(
                    "of another type than this worker's: {}",
                    clip_text(error.root_cause().to_string().as_bytes(), NAME_BYTES)
                ));
                let name = clip_text(format!("{}#{}", tried.0, tried.2).as_bytes(), NAME_BYTES);
                mismatched.push(MissingImport { name, hint });
            }
        }
        mismatched
    }

    /// With so many missing before it.
    fn missing(&self, before: usize, name: String) -> MissingImport {
        let (interface, function) = name.split_once('#').unwrap_or((&name, ""));
        let interface = interface.split('@').next().unwrap_or(interface);
        let near = if before >= NEAR_MISSES {
            None
        } else if interface == "leasehold:job/host" && !function.is_empty() {
            near_miss(function, host_functions())
        } else {
            near_miss(interface, INTERFACES)
        };
        if let Some(near) = near {
            let hint = Some(format!("did you mean {near}?"));
            return MissingImport { name: clip_text(name.as_bytes(), NAME_BYTES), hint };
        }
        let hint = if name.starts_with("wasi:http/") {
            Some("this worker offers no HTTP".to_owned())
        } else if name.starts_with("leasehold:job/") {
            Some(format!("this worker implements leasehold:job {CONTRACT_VERSION}; the module wants a newer one"))
        } else if name.starts_with("wasi:cli/")
            || name.starts_with("wasi:io/")
            || name.starts_with("wasi:clocks/")
            || name.starts_with("wasi:random/")
        {
            Some(format!("this worker offers WASI {}", self.wasi))
        } else {
            None
        };
        MissingImport { name: clip_text(name.as_bytes(), NAME_BYTES), hint }
    }
}

/// Everything that a core module imports and the linker lacks. The store only lends its type.
pub(super) fn missing_of_module(
    linker: &wasmtime::Linker<State>,
    store: &mut Store<State>,
    module: &Module,
) -> Vec<MissingImport> {
    let mut missing = Vec::new();
    let offered: Vec<_> = linker.iter(&mut *store).map(|(module, name, _)| format!("{module}::{name}")).collect();
    for import in module.imports() {
        let given = linker.get_by_import(&mut *store, &import).map(|given| given.ty(&*store));
        let name = format!("{}::{}", import.module(), import.name());
        if let (Some(ExternType::Func(given)), ExternType::Func(wanted)) = (&given, import.ty())
            && !given.matches(&wanted)
        {
            let hint = Some(format!("of another type than this worker's: it wants {wanted}, and there is {given}"));
            missing.push(MissingImport { name: clip_text(name.as_bytes(), NAME_BYTES), hint });
        } else if given.is_none() {
            let near = Some(&name).filter(|_| missing.len() < NEAR_MISSES);
            let near = near.and_then(|name| near_miss(name, offered.iter().map(String::as_str)));
            let near = near.map(|near| format!("did you mean {near}?"));
            let hint = near.or_else(|| match import.module() {
                "wasi_unstable" => Some("WASI of before 2020; rebuild it for wasm32-wasip1".to_owned()),
                "wasi_snapshot_preview1" => None,
                name if name.contains(':') => Some(
                    "an interface of the component model, but the module carries no component metadata; \
                     did a tool strip its custom sections?"
                        .to_owned(),
                ),
                _ => None,
            });
            missing.push(MissingImport { name: clip_text(name.as_bytes(), NAME_BYTES), hint });
        }
    }
    missing
}

/// The part of a version within which all versions are compatible: `1` of 1.2.3, `0.2` of 0.2.3. None for prereleases
/// and for 0.0.x, which are compatible with nothing.
fn track(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split('.').map(|number| number.parse::<u64>().ok());
    let (major, minor, _patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
    match (major, minor) {
        (0, 0) => None,
        (0, minor) => Some((0, minor)),
        (major, _) => Some((major, 0)),
    }
}

/// A copy of a linker that tells what the linker has by failing to define it a second time. What it has not got is
/// defined afterwards, so each thing may be asked for once.
struct Scratch(Linker<State>);

impl Scratch {
    fn of(linker: &Linker<State>) -> Self {
        let mut scratch = linker.clone();
        scratch.allow_shadowing(false);
        Self(scratch)
    }

    fn has_function(&mut self, instance: Option<&str>, name: &str) -> bool {
        self.define(instance, |target| target.func_new(name, |_, _, _, _| Ok(())).is_err())
    }

    fn has_resource(&mut self, instance: Option<&str>, name: &str) -> bool {
        self.define(instance, |target| target.resource(name, ResourceType::host::<()>(), |_, _| Ok(())).is_err())
    }

    fn define(
        &mut self,
        instance: Option<&str>,
        is_there: impl FnOnce(&mut wasmtime::component::LinkerInstance<'_, State>) -> bool,
    ) -> bool {
        let mut root = self.0.root();
        match instance {
            None => is_there(&mut root),
            Some(instance) => root.instance(instance).is_ok_and(|mut instance| is_there(&mut instance)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_a_near_miss_and_another_name_is_not() {
        assert_eq!(near_miss("enqeue", host_functions()), Some("enqueue"));
        assert_eq!(near_miss("cancel_requested", host_functions()), Some("cancel-requested"));
        assert_eq!(near_miss("wasi:cli/stdotu", INTERFACES), Some("wasi:cli/stdout"));
        assert_eq!(near_miss("launch", host_functions()), None);
        assert_eq!(near_miss("enqueue", host_functions()), None, "what is there is no miss");
    }

    #[test]
    fn compatible_versions_are_on_one_track() {
        assert_eq!(track("0.2.0"), track("0.2.12"));
        assert_ne!(track("0.2.0"), track("0.3.0"));
        assert_eq!(track("1.0.0"), track("1.9.3"));
        assert_ne!(track("1.0.0"), track("2.0.0"));
        assert_eq!(track("0.0.1"), None);
        assert_eq!(track("0.2.0-rc-2023-10-25"), None);
        assert_eq!(track("1"), None);
    }
}
