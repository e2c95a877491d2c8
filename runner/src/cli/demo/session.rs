//! The application's own session: what somebody would type into psql, shown as it is sent. Unlike the rest of Leasehold it
//! speaks SQL past the store, as any application does.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;
use indicatif::ProgressBar;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, SimpleQueryRow};

use super::cases::Job;
use super::{LOOK_EVERY, PATIENCE};
use crate::store::explain;

pub struct Session {
    client: Client,
    prompt: String,
    variables: HashMap<&'static str, String>,
}

impl Session {
    pub async fn connect(url: &str, database: &str) -> anyhow::Result<Self> {
        let (client, connection) =
            tokio_postgres::connect(url, NoTls).await.map_err(explain).context("connecting as the application")?;
        // Ends with the client.
        tokio::spawn(connection);
        Ok(Self { client, prompt: format!("  {database}=# "), variables: HashMap::new() })
    }

    /// psql's `\set variable `command file``.
    pub fn set(&mut self, variable: &'static str, command: &[&str], file: &Path) -> anyhow::Result<()> {
        println!("{}\\set {variable} `{} {}`", self.prompt, command.join(" "), file.display());
        let output = Command::new(command[0]).args(&command[1..]).arg(file).output();
        let output = output.with_context(|| format!("running {}", command[0]))?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{} {}: {}", command.join(" "), file.display(), said.trim());
        let text = String::from_utf8(output.stdout).with_context(|| format!("{} is not text", file.display()))?;
        self.variables.insert(variable, text.trim_end_matches('\n').to_owned());
        Ok(())
    }

    pub async fn show_and_run(&self, sql: &str) -> anyhow::Result<()> {
        println!("{}{sql}", self.prompt);
        self.rows(sql).await.map(drop)
    }

    /// A statement that answers the id of a job.
    pub async fn enqueue(&self, sql: &str) -> anyhow::Result<i64> {
        let id = self.one(sql).await?.parse().context("a job's id is a number")?;
        println!("{}{sql}  -- job {id}", self.prompt);
        Ok(id)
    }

    /// A statement that answers one value.
    pub async fn one(&self, sql: &str) -> anyhow::Result<String> {
        let rows = self.rows(sql).await?;
        let value = rows.last().and_then(|row| row.get(0));
        Ok(value.with_context(|| format!("no answer to {sql}"))?.to_owned())
    }

    /// The rows of one statement or several, as psql gets them.
    pub async fn rows(&self, sql: &str) -> anyhow::Result<Vec<SimpleQueryRow>> {
        let mut full = sql.to_owned();
        for (name, value) in &self.variables {
            full = full.replace(&format!(":'{name}'"), &format!("'{}'", value.replace('\'', "''")));
        }
        let messages =
            self.client.simple_query(&full).await.map_err(explain).with_context(|| format!("running {sql}"))?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _end => None,
        };
        Ok(messages.into_iter().filter_map(row).collect())
    }

    /// Answers in which process the job runs.
    pub async fn until_running(&self, id: i64) -> anyhow::Result<u32> {
        let sql = format!(
            "select w.pid from leasehold.jobs j join leasehold.workers w using (worker_id) where j.id = {id} and j.state = 'running'"
        );
        let started = Instant::now();
        loop {
            if let Some(pid) = self.rows(&sql).await?.first().and_then(|row| row.get(0)) {
                return pid.parse().context("a process has a number");
            }
            anyhow::ensure!(started.elapsed() < PATIENCE, "job {id} was not started within {} s", PATIENCE.as_secs());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Until all have ended, or the patience has; whoever checks them sees which.
    pub async fn until_ended(&self, jobs: &[&Job], bar: &ProgressBar) -> anyhow::Result<()> {
        let ids: Vec<_> = jobs.iter().map(|job| job.id.to_string()).collect();
        let sql = format!("select id from leasehold.jobs where id in ({}) and finished_at is null", ids.join(", "));
        let started = Instant::now();
        loop {
            let left = self.rows(&sql).await?;
            let left: Vec<i64> = left.iter().filter_map(|row| row.get(0)?.parse().ok()).collect();
            bar.set_position((jobs.len() - left.len()) as u64);
            if left.is_empty() || started.elapsed() > PATIENCE {
                return Ok(());
            }
            let names: Vec<_> = jobs.iter().filter(|job| left.contains(&job.id)).map(|job| job.case.name).collect();
            bar.set_message(names.join(", "));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
