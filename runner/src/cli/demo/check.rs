//! Compares what became of the jobs with what must become of them.

use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde_json::Value;
use tokio_postgres::SimpleQueryRow;

use super::cases::Job;
use super::session::Session;

/// The table's width, in characters: what a terminal on a laptop has.
const TABLE_WIDTH: u16 = 135;
/// How much of a message or result the table shows, in characters, and how much of a string in a result.
const SHOWN: usize = 130;
const SHOWN_OF_A_STRING: usize = 24;

/// A line of the account.
pub struct Row {
    pub name: String,
    pub expected: String,
    pub state: String,
    pub attempts: String,
    pub kind: String,
    pub says: String,
    pub time: String,
    pub result: Option<Value>,
    /// Empty if everything is as expected.
    pub problems: Vec<String>,
}

impl Row {
    /// Notes a problem if there is one.
    pub fn require(&mut self, problem: Option<String>) {
        self.problems.extend(problem);
    }
}

/// Looks a job up and judges it.
pub async fn job(session: &Session, job: &Job) -> anyhow::Result<Row> {
    let sql = format!(
        "select state, attempt, failure_kind, coalesce(result::text, error) as says, result, \
                round((usage->>'wall_ms')::numeric, 1) as wall_ms from leasehold.jobs where id = {}",
        job.id
    );
    let found = session.rows(&sql).await?;
    let text = |name: &str| found.first().and_then(|row| row.get(name)).map(str::to_owned);
    let Some(expected) = &job.case.expected else {
        let problems = found.iter().map(|_| format!("job {} exists, though its transaction was rolled back", job.id));
        let problems = problems.collect();
        let says = "the transaction was rolled back, so nobody has ever seen it".into();
        let state = text("state").unwrap_or_else(|| "no such job".into());
        return Ok(Row { says, state, problems, ..Row::new(job.case.name, "no such job") });
    };
    let attempts_sql = format!(
        "select coalesce(failure_kind, '') as kind, outcome, log_dropped_bytes, log \
           from leasehold.job_attempts where job_id = {} order by lease_no",
        job.id
    );
    let attempts = session.rows(&attempts_sql).await?;

    let mut row = Row {
        state: text("state").unwrap_or_else(|| "missing".into()),
        attempts: text("attempt").unwrap_or_default(),
        kind: text("failure_kind").unwrap_or_default(),
        says: text("says").unwrap_or_default(),
        time: text("wall_ms").map(|ms| format!("{ms} ms")).unwrap_or_default(),
        result: super::json(text("result").as_deref()),
        ..Row::new(job.case.name, &expected.text())
    };
    let differs = |what: &str, found: &str, wanted: &str| {
        (found != wanted).then(|| format!("job {}: {what} is {found:?} and should be {wanted:?}", job.id))
    };
    row.require(differs("state", &row.state, expected.state));
    row.require(differs("attempt", &row.attempts, &expected.attempts.to_string()));
    row.require(differs("failure kind", &row.kind, expected.kind.unwrap_or_default()));
    if !row.says.contains(expected.says) {
        row.require(Some(format!("job {} says {:?} and should say {:?}", job.id, row.says, expected.says)));
    }
    let get = |attempt: &SimpleQueryRow, name: &str| attempt.get(name).unwrap_or_default().to_owned();
    let mut kinds: Vec<_> =
        attempts.iter().map(|attempt| get(attempt, "kind")).filter(|kind| !kind.is_empty()).collect();
    if expected.kind.is_some() {
        kinds.pop(); // The last one is the end itself.
    }
    if expected.state != "cancelled" {
        row.require(differs("the way it failed before", &kinds.join(", "), &expected.before.join(", ")));
    }
    if let Some(last) = attempts.last() {
        let dropped: u64 = get(last, "log_dropped_bytes").parse().unwrap_or(0);
        if expected.floods {
            row.require((dropped == 0).then(|| format!("job {} logged 20 MB and all of it was kept", job.id)));
            row.says += &format!(
                "; {} characters of its log were kept, {dropped} bytes dropped",
                get(last, "log").chars().count()
            );
        }
        if expected.state == "cancelled" {
            row.says = get(last, "log").lines().last().unwrap_or_default().to_owned();
        }
    }
    Ok(row)
}

/// Somebody else than the process that was killed.
pub async fn other_worker_finished(session: &Session, id: i64, killed: u32) -> anyhow::Result<Option<String>> {
    let sql = format!(
        "select w.pid from leasehold.jobs j join leasehold.workers w using (worker_id) where j.id = {id} and j.state = 'done'"
    );
    let found = session.rows(&sql).await?;
    let pid = found.first().and_then(|row| row.get(0)).map(str::to_owned);
    Ok(match pid {
        Some(pid) if pid != killed.to_string() => None,
        Some(pid) => Some(format!("job {id} was finished by process {pid}, which had been killed")),
        None => Some(format!("no living worker has finished job {id}")),
    })
}

impl Row {
    pub fn new(name: &str, expected: &str) -> Self {
        Self {
            name: name.into(),
            expected: expected.into(),
            state: String::new(),
            attempts: String::new(),
            kind: String::new(),
            says: String::new(),
            time: String::new(),
            result: None,
            problems: Vec::new(),
        }
    }
}

pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(TABLE_WIDTH);
    table.set_header(["job", "expected", "state", "attempt", "failure", "result or message", "last run"]);
    for row in rows {
        let mark = if row.problems.is_empty() { '✓' } else { '✗' };
        let name = format!("{mark} {}", row.name);
        let shown = [&name, &row.expected, &row.state, &row.attempts, &row.kind, &short(&row.says), &row.time];
        table.add_row(shown.map(Cell::new));
    }
    // What is said is the longest by far; left to itself the table would give all columns the same.
    for (column, constraint) in [
        (0, ColumnConstraint::UpperBoundary(Width::Fixed(18))),
        (1, ColumnConstraint::UpperBoundary(Width::Fixed(19))),
        (5, ColumnConstraint::LowerBoundary(Width::Fixed(48))),
    ] {
        table.column_mut(column).expect("the header has seven columns").set_constraint(constraint);
    }
    table
}

/// On one line, and not all of it. Of a result that is an object, what needs no unfolding.
fn short(text: &str) -> String {
    let fields = serde_json::from_str::<serde_json::Map<String, Value>>(text);
    let text = fields.map_or_else(
        |_no_object| text.to_owned(),
        |fields| {
            let shown = fields.iter().filter_map(|(name, value)| Some(format!("{name}: {}", scalar(value)?)));
            shown.collect::<Vec<_>>().join(", ")
        },
    );
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), SHOWN)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(cut(text, SHOWN_OF_A_STRING)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
