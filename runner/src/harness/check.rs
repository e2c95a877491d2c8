//! A run beside what was expected of it. Each difference is told with both sides, and with what to do where that is not plain.

use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::case::{Expect, Expected, ExpectedFollowUp};
use super::{Ending, Tried, diff};
use crate::outcome::{FollowUp, clean_text};

/// Something that is not as expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key of the case file: `outcome`, `result`, `log`...
    pub what: &'static str,
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.detail.contains('\n') { "\n" } else { " " };
        write!(f, "{}:{separator}{}", self.what, self.detail)
    }
}

/// All that is not as expected.
pub(super) fn check(expect: &Expect, tried: &Tried) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |what, detail: String| problems.push(Problem { what, detail });
    if tried.ending != expect.ending {
        problem("outcome", format!("expected {}, was {}", expect.ending.as_str(), tried.in_short()));
    } else {
        if let Some(failure) = tried.failure() {
            if let Some(kind) = expect.kind.filter(|kind| *kind != failure.kind) {
                problem("kind", format!("expected {kind}, was {}: {}", failure.kind, failure.message));
            }
            for part in expect.message.iter().filter(|part| !failure.message.contains(part.as_str())) {
                problem("message", format!("expected {part:?} in it, was {:?}", failure.message));
            }
        }
        if let Some(delay) = expect.delay
            && tried.delay != Some(delay)
        {
            let was = tried.delay.map_or("none".to_owned(), |delay| humantime::format_duration(delay).to_string());
            problem("delay", format!("expected {}, was {was}", humantime::format_duration(delay)));
        }
        if let (Some(expected), Some(result)) = (&expect.result, tried.result()) {
            problems.extend(differs(expected, result).map(|detail| Problem { what: "result", detail }));
        }
        // Those of a run that did not end well are not put in.
        if let Some(expected) = &expect.follow_ups {
            let asked_for = if tried.ending == Ending::Done { tried.run.follow_ups.as_slice() } else { &[] };
            problems.extend(follow_ups(expected, asked_for));
        }
    }
    problems.extend(log(&expect.log, &tried.run.log.to_text()));
    problems
}

/// None where they are the same.
fn differs(expected: &Expected, actual: &[u8]) -> Option<String> {
    match expected {
        Expected::Json(expected) => differs_as_json(expected, actual),
        Expected::Text(expected) => (expected.as_bytes() != actual).then(|| diff::bytes(expected.as_bytes(), actual)),
        Expected::Golden(path) => {
            let golden = match std::fs::read(path) {
                Ok(golden) => golden,
                Err(error) => {
                    return Some(format!("{}: {error}; --update writes what the run gives", path.display()));
                }
            };
            let differs = if is_json(path) {
                match serde_json::from_slice(&golden) {
                    Ok(expected) => differs_as_json(&expected, actual),
                    Err(error) => Some(format!("{} is not JSON: {error}; --update writes it anew", path.display())),
                }
            } else {
                (golden != actual).then(|| diff::bytes(&golden, actual))
            };
            differs.map(|diff| format!("{diff}\n(from {}; --update takes the new one)", path.display()))
        }
    }
}

fn differs_as_json(expected: &Value, actual: &[u8]) -> Option<String> {
    match serde_json::from_slice::<Value>(actual) {
        Ok(actual) => (!same(expected, &actual)).then(|| diff::texts(&diff::pretty(expected), &diff::pretty(&actual))),
        Err(error) => Some(format!("expected JSON, was something else ({error}): {}", shown(actual))),
    }
}

/// Equal as JSON, where 1 and 1.0 are one number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn follow_ups(expected: &[ExpectedFollowUp], asked_for: &[FollowUp]) -> Vec<Problem> {
    let problem = |detail: String| Problem { what: "follow_ups", detail };
    let mut problems = Vec::new();
    if expected.len() != asked_for.len() {
        let modules: Vec<_> = asked_for.iter().map(|job| shown(job.module.as_bytes())).collect();
        let were = if modules.is_empty() { "none".to_owned() } else { modules.join(", ") };
        problems.push(problem(format!("expected {} jobs, were {}: {were}", expected.len(), asked_for.len())));
    }
    for (number, (expected, job)) in expected.iter().zip(asked_for).enumerate() {
        let number = number + 1;
        let delay_ms = expected.delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        let text = |value: &Option<String>| value.as_ref().map_or("none".to_owned(), |value| shown(value.as_bytes()));
        let number_of = |value: Option<u64>| value.map_or("none".to_owned(), |value| value.to_string());
        let fields = [
            ("module", Some(expected.module.clone()), shown(job.module.as_bytes())),
            ("queue", expected.queue.clone(), text(&job.queue)),
            ("priority", expected.priority.map(|priority| priority.to_string()), job.priority.to_string()),
            ("delay in ms", delay_ms.map(|delay| delay.to_string()), number_of(job.delay_ms)),
            ("unique_key", expected.unique_key.clone(), text(&job.unique_key)),
            ("concurrency_key", expected.concurrency_key.clone(), text(&job.concurrency_key)),
        ];
        for (field, wanted, was) in fields {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != was) {
                problems.push(problem(format!("{field} of number {number}: expected {wanted}, was {was}")));
            }
        }
        let payload = expected.payload.as_ref().and_then(|expected| differs(expected, &job.payload));
        problems.extend(payload.map(|diff| problem(format!("payload of number {number}:\n{diff}"))));
    }
    problems
}

/// Each part must come after the one before.
fn log(parts: &[String], log: &str) -> Option<Problem> {
    let mut rest = log;
    for part in parts {
        let Some(at) = rest.find(part.as_str()) else {
            let before = if rest.len() < log.len() { " after the parts before it" } else { "" };
            return Some(Problem { what: "log", detail: format!("expected {part:?} in it{before}") });
        };
        rest = &rest[at + part.len()..];
    }
    None
}

/// Writes a result where it is expected, if it is not what is there. Answers whether it did.
pub(super) fn update(path: &Path, result: &[u8]) -> anyhow::Result<bool> {
    let wanted = match serde_json::from_slice::<Value>(result) {
        Ok(value) if is_json(path) => (diff::pretty(&value) + "\n").into_bytes(),
        _ if is_json(path) => {
            anyhow::bail!("the result is not JSON, and {} is a file of JSON; call it otherwise", path.display())
        }
        _ => result.to_vec(),
    };
    if std::fs::read(path).is_ok_and(|there| there == wanted) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, wanted)?;
    Ok(true)
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// What a guest wrote, on one line and not too long.
fn shown(bytes: &[u8]) -> String {
    const BYTES: usize = 200;
    clean_text(crate::outcome::clip_text(bytes, BYTES).replace('\n', "\\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_compared_by_what_it_means() {
        assert!(same(&json!({ "a": 1, "b": [null, 2.0] }), &json!({ "b": [null, 2], "a": 1.0 })));
        assert!(!same(&json!({ "a": 1 }), &json!({ "a": 1, "b": 2 })));
        assert!(!same(&json!({ "a": 1, "c": 2 }), &json!({ "a": 1, "b": 2 })));
        assert!(!same(&json!([1, 2]), &json!([2, 1])));
        assert!(!same(&json!(u64::MAX), &json!(u64::MAX - 1)), "large numbers are not rounded");
        assert!(!same(&json!("1"), &json!(1)));
    }

    #[test]
    fn parts_of_a_log_come_in_their_order() {
        let parts = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        assert_eq!(log(&parts(&["one", "two"]), "one\ntwo\n"), None);
        let swapped = log(&parts(&["two", "one"]), "one\ntwo\n").expect("a problem");
        assert_eq!(swapped.to_string(), "log: expected \"one\" in it after the parts before it");
        assert!(log(&parts(&["one", "one"]), "one").is_some(), "one place is not two");
    }

    #[test]
    fn a_difference_shows_both_sides() {
        let differs = differs_as_json(&json!({ "a": 1, "b": 2 }), b"{\"b\": 3, \"a\": 1}").expect("they differ");
        assert!(differs.contains("-  \"b\": 2") && differs.contains("+  \"b\": 3"), "{differs}");
        assert!(differs_as_json(&json!(1), b"\xff").is_some_and(|text| text.contains("expected JSON")));
    }
}
