//! What an upload comes to, for people and for scripts.

use anyhow::ensure;
use serde_json::{Value, json};

use crate::cli::print;
use crate::cli::run::{as_json, usage_table};
use crate::harness::{Ending, Tried, advice};
use crate::job::{Limits, ModuleKind};
use crate::sandbox::{Inspection, Need};

/// How wide the first column is.
const NAMES: usize = 12;

/// What was found, beside what the module is given.
pub(super) struct Verdict {
    pub inspection: Inspection,
    pub limits: Limits,
    /// A run of it with a payload.
    pub trial: Option<Tried>,
}

impl Verdict {
    /// What the module calls and is not granted. It can run all the same: the call answers with an error.
    fn is_granted(&self, need: &Need) -> bool {
        match need.capability {
            "follow_ups" => self.limits.follow_ups > 0,
            _ => false,
        }
    }

    /// Whether a trial ended as a job should.
    pub fn check_trial(&self) -> anyhow::Result<()> {
        let Some(trial) = &self.trial else { return Ok(()) };
        ensure!(
            matches!(trial.ending, Ending::Done | Ending::Snooze),
            "the trial did not end well: {}; leasehold run FILE.wasm --payload ... shows all of it",
            trial.in_short()
        );
        Ok(())
    }

    pub fn as_json(&self) -> Value {
        let mut object = serde_json::to_value(&self.inspection).expect("an inspection is JSON");
        let needs = self.inspection.needs.iter().map(|need| {
            json!({ "capability": need.capability, "import": need.import, "flag": need.flag, "granted": self.is_granted(need) })
        });
        object["needs"] = needs.collect();
        if let Some(trial) = &self.trial {
            object["trial"] = as_json(trial, &self.limits);
            object["limits_that_suffice"] = json!(advice([&trial.run.usage]));
        }
        object
    }

    pub fn print(&self) {
        let found = &self.inspection;
        let line = |name: &str, value: String| print::line(&format!("  {name:<NAMES$} {value}"));
        line("kind", print::or_dash(found.kind.map(ModuleKind::as_str)));
        line("world", print::or_dash(found.world.as_ref()));
        line("digest", found.digest.to_string());
        let componentized = found.componentized_bytes.map(|bytes| format!(", as a component {bytes} bytes"));
        line("size", format!("{} bytes{}", found.size_bytes, componentized.unwrap_or_default()));
        line("memory", format!("{} bytes from the start, of {}", found.minimum_memory_bytes, self.limits.memory_bytes));
        line("tables", format!("{} elements from the start", found.minimum_table_elements));
        let memory = found.compile_peak_bytes.map(|bytes| format!(" with {bytes} bytes of memory"));
        let compiled = found.compiled_bytes.map_or("not at all".to_owned(), |bytes| {
            format!(
                "{} functions in {} ms{}, to {bytes} bytes",
                found.functions,
                found.compile_time.as_millis(),
                memory.unwrap_or_default()
            )
        });
        line("compiled", compiled);
        line("imports", if found.imports.is_empty() { "-".to_owned() } else { found.imports.join(", ") });
        for need in &found.needs {
            let granted = if self.is_granted(need) {
                "granted".to_owned()
            } else {
                format!("NOT granted; grant it with {}", need.flag)
            };
            line("needs", format!("{} ({}): {granted}", need.capability, need.import));
        }
        for missing in &found.missing {
            line("missing", missing.to_string());
        }
        if let Some(trial) = &self.trial {
            line("trial", trial.in_short());
            println!("{}", usage_table(&trial.run.usage, &self.limits));
            line("would do", advice([&trial.run.usage]).flags());
        }
    }
}
