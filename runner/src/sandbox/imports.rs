//! What a module asks for against what this worker offers. wasmtime's linker stops at the first import that it cannot
//! give; whoever uploads a module wants to see all of them.

use std::fmt;

use wasmtime::component::types::{Component as ComponentType, ComponentItem};
use wasmtime::component::{Linker, ResourceType};
use wasmtime::{Engine, Module, Store};

use super::state::State;
use crate::outcome::clip_text;

/// How much of a name is shown, in bytes. Names of core modules may be 100 KB of anything.
pub(super) const NAME_BYTES: usize = 200;

/// An import that this worker does not offer.
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
                        missing.extend(lacks.into_iter().map(|item| self.missing(format!("{name}#{item}"))));
                    } else if !lacks.is_empty() {
                        missing.push(self.missing(name.to_owned()));
                    }
                }
                ComponentItem::Type(_) => {}
                ComponentItem::ComponentFunc(_)
                | ComponentItem::CoreFunc(_)
                | ComponentItem::Module(_)
                | ComponentItem::Component(_)
                | ComponentItem::Resource(_) => missing.push(self.missing(name.to_owned())),
            }
        }
        missing
    }

    fn missing(&self, name: String) -> MissingImport {
        let hint = if name.starts_with("leasehold:job/") {
            Some(format!("this worker implements leasehold:job {CONTRACT_VERSION}; the module wants a newer one"))
        } else if name.starts_with("wasi:cli/")
            || name.starts_with("wasi:io/")
            || name.starts_with("wasi:clocks/")
            || name.starts_with("wasi:random/")
            || name.starts_with("wasi:http/types")
            || name.starts_with("wasi:http/outgoing-handler")
        {
            Some(format!("this worker offers WASI {}", self.wasi))
        } else {
            None
        };
        MissingImport { name: clip_text(name.as_bytes(), NAME_BYTES), hint }
    }
}

/// Whether a component imports a function of the contract's `host`.
pub(super) fn asks_for(engine: &Engine, component: &ComponentType, function: &str) -> bool {
    component.imports(engine).any(|(name, import)| match import.ty {
        ComponentItem::ComponentInstance(host) => {
            name.starts_with("leasehold:job/host@") && host.exports(engine).any(|(name, _)| name == function)
        }
        ComponentItem::ComponentFunc(_)
        | ComponentItem::CoreFunc(_)
        | ComponentItem::Module(_)
        | ComponentItem::Component(_)
        | ComponentItem::Type(_)
        | ComponentItem::Resource(_) => false,
    })
}

/// Everything that a core module imports and the linker lacks. The store only lends its type.
pub(super) fn missing_of_module(
    linker: &wasmtime::Linker<State>,
    store: &mut Store<State>,
    module: &Module,
) -> Vec<MissingImport> {
    let mut missing = Vec::new();
    for import in module.imports() {
        if linker.get_by_import(&mut *store, &import).is_none() {
            let hint = match import.module() {
                "wasi_unstable" => Some("WASI of before 2020; rebuild it for wasm32-wasip1".to_owned()),
                "wasi_snapshot_preview1" => None,
                name if name.contains(':') => Some(
                    "an interface of the component model, but the module carries no component metadata; \
                     did a tool strip its custom sections?"
                        .to_owned(),
                ),
                _ => None,
            };
            let name = format!("{}::{}", import.module(), import.name());
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
