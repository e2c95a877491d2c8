//! The one connection that listens. A NOTIFY is a hint: any of them may be lost (a broken connection, a pooler, a restart),
//! and nothing depends on one but how soon a job starts.
//!
//! Whether it hears is found out by speaking to it: a word of its own, sent through another connection, has to arrive. Nothing
//! less tells a pooler that shares connections between transactions from a server: it takes a LISTEN without complaint, and
//! answers a `select 1` on a socket behind which nobody listens any more.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::poll_fn;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

use super::{Database, Store, explain};
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
    /// There is a connection and nothing arrives over it, nor will.
    Unheard,
}

/// How long to wait before connecting again.
const RECONNECT: Duration = Duration::from_secs(2);
/// The first and the longest wait where a connection came about and nothing arrives over it: only somebody who changes the
/// pooler's settings changes that, unless the server was too busy.
const RETRY_UNHEARD: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// How often it is made sure that the connection still hears: a half-open socket gives no error by itself.
const CHECK: Duration = Duration::from_secs(30);
/// How long a word may be on its way, and how many are sent before the connection counts as deaf: longer than it takes on a server
/// that is merely busy.
const ECHO_LIMIT: Duration = Duration::from_secs(1);
const ECHOES: usize = 3;

/// Listens until it is dropped or nobody receives.
pub struct Listener {
    database: Database,
    /// For what is sent to itself, which must come by another connection.
    store: Store,
}

/// Why a connection is given up.
enum Deaf {
    /// LISTEN was taken, and nothing arrives.
    Unheard,
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Deaf {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

impl Listener {
    /// `database` is the store's own or another way to it, past a pooler.
    pub fn new(database: Database, store: Store) -> Self {
        Self { database, store }
    }

    /// Never returns while somebody receives; connects again whenever the connection breaks.
    pub async fn run(self, notices: mpsc::UnboundedSender<Notice>) {
        let mut unheard: Option<Duration> = None;
        while !notices.is_closed() {
            let Err(deaf) = self.listen(&notices).await else { return };
            let wait = match deaf {
                Deaf::Broken(error) => {
                    let _ = notices.send(Notice::Deaf);
                    tracing::warn!("not listening, polling instead: {error:#}");
                    unheard = None;
                    RECONNECT
                }
                Deaf::Unheard => {
                    let _ = notices.send(Notice::Unheard);
                    if unheard.is_none() {
                        tracing::warn!(
                            "{} takes LISTEN and no NOTIFY arrives, as through a pooler that shares connections between \
                             transactions; polling instead, so jobs start and cancels arrive a little later; to be told at \
                             once, name the server itself, or a pool in session mode, with --listen-url",
                            self.database
                        );
                    }
                    *unheard.insert(unheard.map_or(RETRY_UNHEARD.0, |wait| (wait * 2).min(RETRY_UNHEARD.1)))
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => (),
                () = notices.closed() => (),
            }
        }
    }

    /// Ends well when nobody receives any more.
    async fn listen(&self, notices: &mpsc::UnboundedSender<Notice>) -> Result<(), Deaf> {
        let connecting = self.database.config().connect(self.database.tls());
        let (client, mut connection) = tokio::time::timeout(Duration::from_secs(10), connecting)
            .await
            .context("connecting took over 10 s")?
            .map_err(explain)
            .with_context(|| format!("connecting to {}", self.database))?;
        // A channel of its own, so that no listener is woken by the words of another.
        let own_channel = format!("leasehold_echo_{:016x}", rand::random::<u64>());
        let (echo, mut echoes) = mpsc::unbounded_channel();
        // The connection is driven here, beside the questions asked through it.
        let said = async {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(said) = message.map_err(explain)? {
                    let notice = match said.channel() {
                        "leasehold_wake" => Some(Notice::Wake),
                        "leasehold_cancel" => said.payload().parse().ok().map(|id| Notice::Cancel(JobId(id))),
                        _own => {
                            let _ = echo.send(said.payload().to_owned());
                            None
                        }
                    };
                    notice.map(|notice| notices.send(notice));
                }
            }
            Err(Deaf::Broken(anyhow::anyhow!("the listening connection was closed")))
        };
        let asked = async {
            client.batch_execute(&format!("listen {own_channel}")).await.map_err(explain)?;
            if !self.hears(&own_channel, &mut echoes).await? {
                // So that the pooler's connection does not hear for us, if it is the same one again.
                client.batch_execute("unlisten *").await.map_err(explain)?;
                return Err(Deaf::Unheard);
            }
            client.batch_execute("listen leasehold_wake; listen leasehold_cancel").await.map_err(explain)?;
            let _ = notices.send(Notice::Listening);
            loop {
                tokio::time::sleep(CHECK).await;
                if !self.hears(&own_channel, &mut echoes).await? {
                    return Err(Deaf::Broken(anyhow::anyhow!("the listening connection hears no more")));
                }
            }
        };
        tokio::select! {
            end = said => end,
            end = asked => end,
            () = notices.closed() => Ok(()),
        }
    }

    /// Whether a word that is sent through another connection arrives. Nothing is asked of the listening one meanwhile: a pooler
    /// could lend it just the connection on which the word arrives.
    async fn hears(&self, channel: &str, echoes: &mut mpsc::UnboundedReceiver<String>) -> anyhow::Result<bool> {
        for _ in 0..ECHOES {
            let word = format!("{:016x}", rand::random::<u64>());
            self.store.notify(channel, &word).await?;
            let arrival = async { while echoes.recv().await.is_some_and(|said| said != word) {} };
            if tokio::time::timeout(ECHO_LIMIT, arrival).await.is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Store {
    /// A hint to whoever listens.
    async fn notify(&self, channel: &str, word: &str) -> anyhow::Result<()> {
        let sql = "-- notify\nselect pg_notify($1, $2)";
        self.row("making sure that the listener hears", sql, &[(&channel, Type::TEXT), (&word, Type::TEXT)]).await?;
        Ok(())
    }
}
