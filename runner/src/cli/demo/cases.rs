//! The jobs of the demo: the SQL that puts them into the queue, and what must become of them by the trap table.

use std::path::{Path, PathBuf};

/// What is typed, in order.
pub enum Line {
    Set { variable: &'static str, command: &'static [&'static str], file: PathBuf },
    Sql(&'static str),
    Job(Case),
}

pub struct Case {
    pub name: &'static str,
    pub sql: String,
    /// None: the transaction is rolled back, so there must be no such job.
    pub expected: Option<Expected>,
    pub cancel: bool,
}

/// A case with the id that the database gave.
pub struct Job {
    pub case: Case,
    pub id: i64,
}

/// How a job must end.
#[derive(Default)]
pub struct Expected {
    pub state: &'static str,
    pub attempts: u32,
    pub kind: Option<&'static str>,
    /// A part of the result or the message.
    pub says: &'static str,
    /// How the attempts before the last one failed.
    pub before: &'static [&'static str],
    /// Whether more was logged than is kept.
    pub floods: bool,
}

impl Expected {
    fn done(says: &'static str) -> Self {
        Self { state: "done", attempts: 1, says, ..Self::default() }
    }

    fn dead(kind: &'static str, says: &'static str) -> Self {
        Self { state: "dead", attempts: 1, kind: Some(kind), says, ..Self::default() }
    }

    /// After attempts that failed in those ways.
    fn after(self, before: &'static [&'static str]) -> Self {
        Self { before, attempts: 1 + u32::try_from(before.len()).unwrap_or(u32::MAX), ..self }
    }

    /// "dead (timeout), attempt 2".
    pub fn text(&self) -> String {
        let kind = self.kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
        let attempt = if self.attempts > 1 { format!(", attempt {}", self.attempts) } else { String::new() };
        format!("{}{kind}{attempt}", self.state)
    }
}

pub fn script(jobs: &Path) -> Vec<Line> {
    let set = |variable, command, file: &str| Line::Set { variable, command, file: jobs.join(file) };
    let job = |name, sql: &str, expected| {
        Line::Job(Case { name, sql: sql.into(), expected: Some(expected), cancel: name == "cancelled" })
    };
    let thumbnail = "insert into photos values ('rocket.jpg', leasehold.enqueue('thumbnail', jsonb_build_object(\
                     'image', :'photo', 'max_width', 320, 'max_height', 320))) returning job;";
    vec![
        Line::Sql("create table photos (file text primary key, job bigint not null);"),
        set("photo", &["base64", "-w0"], "thumbnail/sample/rocket.jpg"),
        Line::Sql("begin;"),
        job("thumbnail", thumbnail, Expected::done("\"width\": 320")),
        Line::Sql("commit;"),
        Line::Sql("begin;"),
        Line::Job(Case {
            name: "rolled back",
            sql: "insert into photos values ('secret.jpg', leasehold.enqueue('thumbnail', '{}')) returning job;".into(),
            expected: None,
            cancel: false,
        }),
        Line::Sql("rollback;"),
        set("csv", &["cat"], "csv-report/sample/weather.csv"),
        job(
            "csv-report",
            "select leasehold.enqueue('csv-report', jsonb_build_object('csv', :'csv', 'group_by', 'location', 'value', 'precipitation'));",
            Expected::done("\"rows\": 2922"),
        ),
        job(
            "markdown",
            r##"select leasehold.enqueue('markdown', '{"markdown": "# Jobs\n\nSome are *good*, <b>some</b> are not."}');"##,
            Expected::done("<em>good</em>, &lt;b&gt;some&lt;/b&gt;"),
        ),
        job(
            "wordcount",
            "select leasehold.enqueue('wordcount', 'to be or not to be'::bytea);",
            Expected::done("\"words\": 6"),
        ),
        job(
            "flaky",
            r#"select leasehold.enqueue('flaky', '{"panics": 2}', backoff => '100ms');"#,
            Expected::done("\"attempt\": 3").after(&["trap", "trap"]),
        ),
        job(
            "dead",
            r#"select leasehold.enqueue('faults', '{"fault": "dead"}');"#,
            Expected::dead("guest_dead", "the payload asked for dead"),
        ),
        job(
            "endless loop",
            r#"select leasehold.enqueue('faults', '{"fault": "loop"}', timeout => '300ms', max_attempts => 2, backoff => '100ms');"#,
            Expected::dead("timeout", "the limit is 300 ms").after(&["timeout"]),
        ),
        job(
            "out of fuel",
            r#"select leasehold.enqueue('faults', '{"fault": "fuel"}');"#,
            Expected::dead("fuel", "used all of 20000000000 instructions"),
        ),
        job(
            "memory hog",
            r#"select leasehold.enqueue('faults', '{"fault": "memory"}');"#,
            Expected::dead("memory", "67108864 bytes"),
        ),
        job(
            "recursion without end",
            r#"select leasehold.enqueue('faults', '{"fault": "recursion"}', max_attempts => 2, backoff => '100ms');"#,
            Expected::dead("trap", "recursion without an end").after(&["trap"]),
        ),
        job(
            "flood of output",
            r#"select leasehold.enqueue('faults', '{"fault": "flood"}');"#,
            Expected { floods: true, ..Expected::done("logged 10000 lines of 1000 bytes") },
        ),
        job(
            "result too large",
            r#"select leasehold.enqueue('faults', '{"fault": "big_result"}');"#,
            Expected::dead("output", "exceeds the limit of 1048576 bytes"),
        ),
        job(
            "cancelled",
            r#"select leasehold.enqueue('faults', '{"fault": "wait_for_cancel"}');"#,
            Expected { state: "cancelled", attempts: 1, ..Expected::default() },
        ),
    ]
}

/// Runs long enough to be killed in the middle.
pub fn killed() -> Case {
    Case {
        name: "killed worker",
        sql: r#"select leasehold.enqueue('faults', '{"fault": "sleep", "ms": 1500}', queue => 'short');"#.into(),
        expected: Some(Expected::done("slept for 1500 ms").after(&["crash"])),
        cancel: false,
    }
}
