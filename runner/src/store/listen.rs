//! The one connection that listens. A NOTIFY is a hint: any of them may be lost (a broken connection, a pooler, a restart),
//! and nothing depends on one but how soon a job starts.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::poll_fn;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;

use super::{Database, explain};
use crate::job::JobId;

/// What the database said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// There is something to claim in a queue.
    Wake,
    /// Somebody asked to cancel a running job.
    Cancel(JobId),
    /// The listener is connected (again): whatever was said in between was lost.
    Listening,
    /// The connection broke, or never came about; polling goes on.
    Deaf,
}

/// How long to wait before connecting again.
const RECONNECT: Duration = Duration::from_secs(2);
/// How often a silent connection is asked whether it still lives: a half-open socket gives no error by itself.
const CHECK: Duration = Duration::from_secs(30);
/// How long that question may take.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// Listens until it is dropped or nobody receives.
pub struct Listener {
    database: Database,
}

impl Listener {
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// Never returns while somebody receives; connects again whenever the connection breaks.
    pub async fn run(self, notices: mpsc::UnboundedSender<Notice>) {
        while !notices.is_closed() {
            if let Err(error) = self.listen(&notices).await {
                tracing::warn!("not listening, polling instead: {error:#}");
                let _ = notices.send(Notice::Deaf);
            }
            tokio::select! {
                () = tokio::time::sleep(RECONNECT) => (),
                () = notices.closed() => (),
            }
        }
    }

    async fn listen(&self, notices: &mpsc::UnboundedSender<Notice>) -> anyhow::Result<()> {
        let connecting = self.database.config().connect(self.database.tls());
        let (client, mut connection) = tokio::time::timeout(Duration::from_secs(10), connecting)
            .await
            .context("connecting took over 10 s")?
            .map_err(explain)
            .with_context(|| format!("connecting to {}", self.database))?;
        // The connection is driven here, beside the questions asked through it.
        let said = async {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(said) = message.map_err(explain)? {
                    let notice = match said.channel() {
                        "leasehold_cancel" => said.payload().parse().ok().map(|id| Notice::Cancel(JobId(id))),
                        _wake => Some(Notice::Wake),
                    };
                    notice.map(|notice| notices.send(notice));
                }
            }
            anyhow::bail!("the listening connection was closed")
        };
        let asked = async {
            client.batch_execute("listen leasehold_wake; listen leasehold_cancel").await.map_err(explain)?;
            let _ = notices.send(Notice::Listening);
            loop {
                tokio::time::sleep(CHECK).await;
                tokio::time::timeout(CHECK_LIMIT, client.batch_execute("select 1"))
                    .await
                    .context("the listening connection is half open")?
                    .map_err(explain)?;
            }
        };
        tokio::select! {
            end = said => end,
            end = asked => end,
            () = notices.closed() => Ok(()),
        }
    }
}
