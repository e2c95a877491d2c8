//! `leasehold job logs`: what the runs of a job wrote, line by line, also while one of them goes on.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;

use crate::cli::print;
use crate::job::JobId;
use crate::outcome::clean_text;
use crate::store::{LogRow, Store};

/// How often to look for more. The worker of a run passes its lines on once a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many lines one look takes at most.
const PAGE: i64 = 1_000;

/// Prints what there is, and with `follow` what comes until the job has ended.
pub async fn run(store: &Store, id: JobId, follow: bool, json: bool) -> anyhow::Result<()> {
    let mut after = (0, -1);
    loop {
        // Before the lines are read: those of a job that has ended by then are all there.
        let job = store.job(id).await?.with_context(|| format!("there is no job {id}"))?;
        let has_ended = job.job.finished_at.is_some();
        loop {
            let rows = store.job_logs(id, after, PAGE).await?;
            for row in &rows {
                show(row, after.0, json)?;
                after = (row.lease_no, row.line);
            }
            if (rows.len() as i64) < PAGE {
                break;
            }
        }
        if !follow || has_ended {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn show(row: &LogRow, last_lease_no: i32, json: bool) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if json {
        serde_json::to_writer(&mut stdout, row)?;
        writeln!(stdout)?;
        return Ok(());
    }
    drop(stdout);
    if row.lease_no != last_lease_no {
        print::line(&format!("attempt {}, lease {}", row.attempt, row.lease_no));
    }
    let source = row.level.as_deref().or(row.stream.as_deref()).unwrap_or_default();
    for line in row.text.split('\n') {
        print::line(&format!("{:>9.3} s  {source:<7} {}", row.after_ms / 1e3, clean_text(line.as_bytes())));
    }
    Ok(())
}
