//! What a bench came to: figures, and ratios with what they should be.

use serde_json::{Map, Value, json};

use super::print;

/// What a ratio should be.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

/// Lines in the order in which they are printed; each has a key in the JSON.
#[derive(Default)]
pub struct Report {
    keys: Map<String, Value>,
    text: Vec<String>,
}

impl Report {
    /// A number that depends on the machine.
    pub fn figure(&mut self, key: &str, what: &str, value: f64, unit: &str) {
        self.keys.insert(key.into(), json!(rounded(value)));
        let shown = if value.abs() < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") };
        self.text.push(format!("{what:<60} {shown:>10} {unit}"));
    }

    /// What was done, as text for people and a value for programs.
    pub fn fact(&mut self, key: &str, text: String, value: Value) {
        self.keys.insert(key.into(), value);
        self.text.push(text);
    }

    /// A number that another machine should come to as well.
    pub fn ratio(&mut self, key: &str, what: &str, value: f64, target: Target) {
        let (name, words, wanted) = match target {
            Target::AtLeast(wanted) => ("at_least", "at least", wanted),
            Target::AtMost(wanted) => ("at_most", "at most", wanted),
        };
        self.keys.insert(key.into(), json!({ "value": rounded(value), name: wanted }));
        self.text.push(format!("{what:<60} {value:>10.2} (should be {words} {wanted})"));
    }

    pub fn print(mut self, no_sync: bool, as_json: bool) -> anyhow::Result<()> {
        if as_json {
            self.keys.insert("synchronous_commit".into(), json!(!no_sync));
            return print::json(&self.keys);
        }
        for line in self.text {
            println!("{line}");
        }
        Ok(())
    }
}

/// More digits would only pretend to be exact.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
