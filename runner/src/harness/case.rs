//! A case: what to run and what to expect, in a TOML file. Whoever writes one by hand makes mistakes, so each is refused with
//! the file, the line, the key and what may stand there; nothing is guessed and nothing unknown is passed over.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, de};
use serde_json::Value;

use super::{Ending, Job};
use crate::job::{Deterministic, JobId, Limits};
use crate::outcome::FailureKind;
use crate::written;

/// The ending of a case file's name.
const CASE: &str = "toml";
/// How deep folders of cases may lie in each other.
const DEPTH: usize = 8;

/// A module's run and what is expected of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The path of its file within the folder of cases, without the ending.
    pub name: String,
    pub file: PathBuf,
    pub job: Job,
    pub expect: Expect,
}

/// What a run is compared with. What is None is not compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Expect {
    pub ending: Ending,
    pub kind: Option<FailureKind>,
    /// Parts of the failure's message, in any order.
    pub message: Vec<String>,
    pub delay: Option<Duration>,
    pub result: Option<Expected>,
    /// Parts of the log, in this order.
    pub log: Vec<String>,
    /// All follow-up jobs, in order.
    pub follow_ups: Option<Vec<ExpectedFollowUp>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// Equal as JSON: the order of keys and white space do not matter.
    Json(Value),
    /// Byte for byte.
    Text(String),
    /// The content of a file: as JSON where its name ends in .json, else byte for byte.
    Golden(PathBuf),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedFollowUp {
    pub module: String,
    pub payload: Option<Expected>,
    pub queue: Option<String>,
    pub priority: Option<i32>,
    pub delay: Option<Duration>,
    pub unique_key: Option<String>,
    pub concurrency_key: Option<String>,
}

/// What is wrong with a case file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CaseError {
    pub file: PathBuf,
    pub line: Option<usize>,
    /// The path of the key, as `expect.result`; empty where it is the file as a whole.
    pub key: String,
    pub message: String,
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The cases of a folder, those in folders of it included, in the order of their names; or the one of a file. Their limits
/// are these where they do not say otherwise. All that is wrong with all of them is answered at once.
pub fn load(path: &Path, limits: &Limits) -> Result<Vec<Case>, Vec<CaseError>> {
    let mut files = Vec::new();
    if path.is_file() {
        files.push((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path.to_owned()));
    } else {
        find(path, "", DEPTH, &mut files).map_err(|error| vec![error])?;
    }
    if files.is_empty() {
        let message = format!("there is no case in it; a case is a file NAME.{CASE}, see leasehold test --help");
        return Err(vec![whole(path, message)]);
    }
    files.sort();
    let (mut cases, mut errors) = (Vec::new(), Vec::new());
    for (name, file) in files {
        match read(name, &file, limits) {
            Ok(case) => cases.push(case),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(cases) } else { Err(errors) }
}

fn whole(file: &Path, message: String) -> CaseError {
    CaseError { file: file.to_owned(), line: None, key: String::new(), message }
}

fn find(dir: &Path, prefix: &str, depth: usize, files: &mut Vec<(String, PathBuf)>) -> Result<(), CaseError> {
    let unreadable = |error: std::io::Error| whole(dir, format!("{error}; name a folder of cases, or one case"));
    if depth == 0 {
        return Err(whole(dir, format!("folders of cases lie at most {DEPTH} deep in each other")));
    }
    for entry in dir.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = if prefix.is_empty() { stem.into_owned() } else { format!("{prefix}/{stem}") };
        // A link to a folder may lead back here.
        if path.is_dir() && !path.is_symlink() {
            find(&path, &name, depth - 1, files)?;
        } else if path.extension().is_some_and(|extension| extension == CASE) {
            files.push((name, path));
        }
    }
    Ok(())
}

fn read(name: String, file: &Path, limits: &Limits) -> Result<Case, CaseError> {
    let text = std::fs::read_to_string(file).map_err(|error| whole(file, error.to_string()))?;
    parse_case(name, file, &text, limits)
}

/// Reads a case from its text. Files that it names are beside `file`.
pub fn parse_case(name: String, file: &Path, text: &str, limits: &Limits) -> Result<Case, CaseError> {
    let line_of = |error: &toml::de::Error| error.span().map(|span| 1 + text[..span.start].matches('\n').count());
    let document = toml::Deserializer::parse(text).map_err(|error| CaseError {
        file: file.to_owned(),
        line: line_of(&error),
        key: String::new(),
        message: error.message().to_owned(),
    })?;
    let written: CaseFile = serde_path_to_error::deserialize(document).map_err(|error| {
        let key = error.path().to_string();
        let inner = error.inner();
        CaseError {
            file: file.to_owned(),
            line: line_of(inner),
            key: if key == "." { String::new() } else { key },
            message: inner.message().to_owned(),
        }
    })?;
    written.into_case(name, file, limits).map_err(|(key, message)| CaseError {
        file: file.to_owned(),
        line: None,
        key: key.to_owned(),
        message,
    })
}

/// A key and what is wrong with it.
type Wrong = (&'static str, String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    /// For people.
    #[serde(rename = "description")]
    _description: Option<String>,
    payload: Option<Json>,
    payload_json: Option<JsonText>,
    payload_text: Option<String>,
    payload_file: Option<PathBuf>,
    #[serde(default)]
    job: JobPart,
    #[serde(default)]
    limits: LimitsPart,
    #[serde(default)]
    sandbox: SandboxPart,
    #[serde(default)]
    on: BTreeMap<String, String>,
    #[serde(default)]
    expect: ExpectPart,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct JobPart {
    id: Option<i64>,
    tenant: Option<String>,
    module: Option<String>,
    queue: Option<String>,
    attempt: Option<u32>,
    max_attempts: Option<u32>,
    cancel_requested: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LimitsPart {
    fuel: Option<u64>,
    memory: Option<Size>,
    timeout: Option<Time>,
    result: Option<Size>,
    log: Option<Size>,
    follow_ups: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct SandboxPart {
    seed: Option<u64>,
    starts_at: Option<Moment>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ExpectPart {
    outcome: Option<Read<Ending>>,
    kind: Option<Read<FailureKind>>,
    message: Option<Parts>,
    delay: Option<Time>,
    result: Option<Json>,
    result_json: Option<JsonText>,
    result_text: Option<String>,
    result_file: Option<PathBuf>,
    log: Option<Parts>,
    follow_ups: Option<Vec<FollowUpPart>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FollowUpPart {
    module: String,
    payload: Option<Json>,
    payload_text: Option<String>,
    queue: Option<String>,
    priority: Option<i32>,
    delay: Option<Time>,
    unique_key: Option<String>,
    concurrency_key: Option<String>,
}

impl CaseFile {
    fn into_case(self, name: String, file: &Path, defaults: &Limits) -> Result<Case, Wrong> {
        let beside = |path: PathBuf| file.parent().unwrap_or(Path::new("")).join(path);
        let payload = match (self.payload, self.payload_json, self.payload_text, self.payload_file) {
            (None, None, None, None) => None,
            (Some(Json(value)), None, None, None) => Some(value.to_string().into_bytes()),
            (None, Some(JsonText(_, text)), None, None) | (None, None, Some(text), None) => Some(text.into_bytes()),
            (None, None, None, Some(path)) => {
                let path = beside(path);
                Some(std::fs::read(&path).map_err(|error| ("payload_file", format!("{}: {error}", path.display())))?)
            }
            _ => {
                let choice = "give one of payload, payload_json, payload_text and payload_file";
                return Err(("payload", choice.to_owned()));
            }
        };
        let on_failure =
            self.on.iter().map(|(kind, end)| written::on_failure(&format!("{kind}={end}"))).collect::<Result<_, _>>();
        let default = Job::default();
        let JobPart { id, tenant, module, queue, attempt, max_attempts, cancel_requested } = self.job;
        let job = Job {
            id: id.map_or(default.id, JobId),
            tenant: tenant.unwrap_or(default.tenant),
            module,
            queue: queue.unwrap_or(default.queue),
            attempt: attempt.unwrap_or(default.attempt),
            max_attempts: max_attempts.unwrap_or_else(|| default.max_attempts.max(attempt.unwrap_or(1))),
            payload,
            limits: self.limits.over(defaults)?,
            on_failure: on_failure.map_err(|message| ("on", message))?,
            cancel_requested: cancel_requested.unwrap_or(false),
            deterministic: self.sandbox.deterministic()?,
        };
        if !(1..=job.max_attempts).contains(&job.attempt) {
            let message = format!("attempt {} is not one of 1 to max_attempts, {}", job.attempt, job.max_attempts);
            return Err(("job.attempt", message));
        }
        Ok(Case { name, file: file.to_owned(), job, expect: self.expect.into_expect(beside)? })
    }
}

impl LimitsPart {
    fn over(self, defaults: &Limits) -> Result<Limits, Wrong> {
        let limits = Limits {
            fuel: self.fuel.unwrap_or(defaults.fuel),
            memory_bytes: self.memory.map_or(defaults.memory_bytes, |size| size.0),
            timeout: self.timeout.map_or(defaults.timeout, |time| time.0),
            result_bytes: self.result.map_or(defaults.result_bytes, |size| size.0),
            log_bytes: self.log.map_or(defaults.log_bytes, |size| size.0),
            follow_ups: self.follow_ups.unwrap_or(defaults.follow_ups),
        };
        limits.validate().map_err(|error| ("limits", error.to_string()))?;
        Ok(limits)
    }
}

impl SandboxPart {
    fn deterministic(self) -> Result<Option<Deterministic>, Wrong> {
        match (self.seed, self.starts_at) {
            (Some(seed), starts_at) => Ok(Some(Deterministic::new(seed, starts_at.map(|moment| moment.0)))),
            (None, Some(_)) => Err(("sandbox.starts_at", "only with a seed; write seed = 7".to_owned())),
            (None, None) => Ok(None),
        }
    }
}

impl ExpectPart {
    fn into_expect(self, beside: impl Fn(PathBuf) -> PathBuf) -> Result<Expect, Wrong> {
        let ending = self.outcome.map_or(Ending::Done, |outcome| outcome.0);
        let is_failure = matches!(ending, Ending::Fail | Ending::Dead);
        let message = self.message.unwrap_or_default().0;
        for (key, given) in [("expect.kind", self.kind.is_some()), ("expect.message", !message.is_empty())] {
            if given && !is_failure {
                return Err((key, format!("only with outcome = \"fail\" or \"dead\", not {:?}", ending.as_str())));
            }
        }
        if self.delay.is_some() && !matches!(ending, Ending::Fail | Ending::Snooze) {
            return Err((
                "expect.delay",
                format!("only with outcome = \"fail\" or \"snooze\", not {:?}", ending.as_str()),
            ));
        }
        let result = match (self.result, self.result_json, self.result_text, self.result_file) {
            (None, None, None, None) => None,
            (Some(Json(value)), None, None, None) | (None, Some(JsonText(value, _)), None, None) => {
                Some(Expected::Json(value))
            }
            (None, None, Some(text), None) => Some(Expected::Text(text)),
            (None, None, None, Some(path)) => Some(Expected::Golden(beside(path))),
            _ => {
                let choice = "give one of result, result_json, result_text and result_file";
                return Err(("expect.result", choice.to_owned()));
            }
        };
        if result.is_some() && ending != Ending::Done {
            return Err(("expect.result", format!("only with outcome = \"done\", not {:?}", ending.as_str())));
        }
        let follow_ups = self.follow_ups.map(|jobs| jobs.into_iter().map(FollowUpPart::into_expected).collect());
        Ok(Expect {
            ending,
            kind: self.kind.map(|kind| kind.0),
            message,
            delay: self.delay.map(|delay| delay.0),
            result,
            log: self.log.unwrap_or_default().0,
            follow_ups: follow_ups.transpose()?,
        })
    }
}

impl FollowUpPart {
    fn into_expected(self) -> Result<ExpectedFollowUp, Wrong> {
        let Self { module, payload, payload_text, queue, priority, delay, unique_key, concurrency_key } = self;
        let payload = match (payload, payload_text) {
            (Some(_), Some(_)) => {
                return Err(("expect.follow_ups", "give one of payload and payload_text".to_owned()));
            }
            (Some(Json(value)), None) => Some(Expected::Json(value)),
            (None, Some(text)) => Some(Expected::Text(text)),
            (None, None) => None,
        };
        let delay = delay.map(|delay| delay.0);
        Ok(ExpectedFollowUp { module, payload, queue, priority, delay, unique_key, concurrency_key })
    }
}

/// TOML that means JSON.
struct Json(Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_json(toml::Value::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

fn as_json(value: toml::Value) -> Result<Value, String> {
    Ok(match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| format!("JSON has no number {number}; write null in payload_json or result_json"))?,
        toml::Value::Boolean(value) => value.into(),
        toml::Value::Datetime(at) => return Err(format!("JSON has no times; write it in quotes: \"{at}\"")),
        toml::Value::Array(values) => Value::Array(values.into_iter().map(as_json).collect::<Result<_, _>>()?),
        toml::Value::Table(table) => {
            let fields = table.into_iter().map(|(key, value)| Ok((key, as_json(value)?)));
            Value::Object(fields.collect::<Result<_, String>>()?)
        }
    })
}

/// JSON in a string, for what TOML cannot say: null, and the payload's very bytes.
struct JsonText(Value, String);

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let value = serde_json::from_str(&text).map_err(|error| D::Error::custom(format!("not JSON: {error}")))?;
        Ok(Self(value, text))
    }
}

/// One part of a text, or several.
#[derive(Default)]
struct Parts(Vec<String>);

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Parts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of texts")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Parts, E> {
                Ok(Parts(vec![text.to_owned()]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Parts, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = items.next_element()? {
                    parts.push(part);
                }
                Ok(Parts(parts))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

/// A number of bytes, or a size as in flags.
struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a size like \"64MiB\"")
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom(format!("{bytes} bytes are less than none")))
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                written::bytes(text).map(Size).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}

/// A duration as in flags.
struct Time(Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written::duration(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

/// A moment as in flags, or one of TOML's own.
struct Moment(Duration);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match toml::Value::deserialize(deserializer)? {
            toml::Value::Datetime(at) => at.to_string(),
            toml::Value::String(text) => text,
            other => return Err(D::Error::custom(format!("{other} is not a time; write 2026-12-01T13:00:00Z"))),
        };
        written::moment(&text).map(Self).map_err(D::Error::custom)
    }
}

/// Something that has a text of its own in flags.
struct Read<T>(T);

impl<'de, T: FromStr<Err = anyhow::Error>> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(|error| D::Error::custom(format!("{error:#}")))
    }
}

impl FromStr for Ending {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "done" => Self::Done,
            "fail" => Self::Fail,
            "dead" => Self::Dead,
            "snooze" => Self::Snooze,
            other => anyhow::bail!("unknown outcome {other:?}; write done, fail, dead or snooze"),
        })
    }
}
