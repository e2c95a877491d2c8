//! The modules of tests/hostile and what must become of their jobs.

use std::iter::Peekable;
use std::path::Path;
use std::str::{Chars, FromStr};
use std::time::Duration;

use leasehold::job::{Limits, ModuleKind};
use leasehold_tests::guests::{LIMITS, core_with_realloc};

/// What begins the line before each module.
const HEADER: &str = ";;; ";

/// A module, and what its job must come to.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub kind: ModuleKind,
    pub bytes: Vec<u8>,
    pub limits: Limits,
    pub state: String,
    pub failure_kind: Option<String>,
    pub says: Vec<String>,
}

/// All that are written down, in the order of their files.
pub fn written() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "wat"));
    files.sort();
    files.iter().flat_map(|file| cases_of(&std::fs::read_to_string(file).expect("a readable file"))).collect()
}

fn cases_of(file: &str) -> Vec<Case> {
    // What stands before the first header tells of the file.
    file.split(&format!("\n{HEADER}")).skip(1).map(case).collect()
}

fn case(text: &str) -> Case {
    let (header, text) = text.split_once('\n').unwrap_or_else(|| panic!("no module follows {text:?}"));
    let mut words = Words(header.chars().peekable());
    let mut next = || words.next().unwrap_or_else(|| panic!("too little in the line {header:?}"));
    let (name, kind) = (next(), next());
    let (mut limits, mut realloc) = (LIMITS, None);
    let state = loop {
        let word = next();
        match word.split_once('=') {
            Some(("alloc", function)) => realloc = Some(function.to_owned()),
            Some((limit, value)) => set(&mut limits, limit, value),
            None => {
                assert_eq!(word, "->", "{header}");
                break next();
            }
        }
    };
    let failure_kind = words.next();
    let says = words.collect();
    let bytes = match kind.as_str() {
        "guest" => core_with_realloc(text, realloc.as_deref()),
        "module" | "component" => wat::parse_str(text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}")),
        other => panic!("{name}: {other} is no kind of module"),
    };
    let kind = if kind == "guest" { ModuleKind::Component } else { ModuleKind::Command };
    Case { name, kind, bytes, limits, state, failure_kind, says }
}

fn set(limits: &mut Limits, limit: &str, value: &str) {
    match limit {
        "fuel" => limits.fuel = number(value),
        "memory" => limits.memory_bytes = number(value),
        "timeout" => limits.timeout = Duration::from_millis(number(value)),
        "result" => limits.result_bytes = number(value),
        "log" => limits.log_bytes = number(value),
        "follow_ups" => limits.follow_ups = number(value),
        other => panic!("there is no limit {other}"),
    }
}

fn number<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// Words with spaces between them; one in quotes may have spaces itself.
struct Words<'a>(Peekable<Chars<'a>>);

impl Iterator for Words<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        while self.0.next_if_eq(&' ').is_some() {}
        let end = if self.0.next_if_eq(&'"').is_some() { '"' } else { ' ' };
        let word: String = self.0.by_ref().take_while(|c| *c != end).collect();
        (end == '"' || !word.is_empty()).then_some(word)
    }
}
