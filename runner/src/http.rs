//! The worker's HTTP face, for probes and for Prometheus: `/health`, `/metrics` (this worker, which costs nothing) and `/metrics/queues` (all
//! jobs, which reads them, so at most once in `KEPT` however many ask). It changes nothing and tells nothing of payloads, but it
//! asks nobody who they are: bind it where only those may connect who may know.

mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};

use crate::store::Store;
use crate::worker::Counters;

/// How long an answer about all jobs is given again.
const KEPT: Duration = Duration::from_secs(5);
/// How many callers are served at once; the others wait in the system's queue.
const CALLERS: usize = 32;
/// How long a caller may take to say what it wants, and for all of it.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// After an accept that failed, as when no file descriptor is left.
const RETRY: Duration = Duration::from_millis(100);

/// A server at work. Ends with `stop`, or when it is dropped.
pub struct Server {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

struct Shared {
    store: Store,
    counters: Arc<Counters>,
    queues: Mutex<Option<(Instant, String)>>,
}

impl Server {
    pub async fn bind(address: SocketAddr, store: Store, counters: Arc<Counters>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening for HTTP on {address}"))?;
        let address = listener.local_addr().context("asking where HTTP is served")?;
        info!(%address, "serving HTTP");
        let shared = Arc::new(Shared { store, counters, queues: Mutex::default() });
        let router = Router::new()
            .route("/health", get(health))
            .route("/metrics", get(own))
            .route("/metrics/queues", get(queues))
            .with_state(shared);
        Ok(Self { address, serving: tokio::spawn(serve(listener, router)) })
    }

    /// Where it is reached; the port was chosen by the system if none was named.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub async fn stop(mut self) {
        self.serving.abort();
        let _ = (&mut self.serving).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Until it is aborted, which ends the callers' connections with it.
async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CALLERS));
    let mut callers = JoinSet::new();
    loop {
        let place = places.clone().acquire_owned().await.expect("never closed");
        while callers.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(cause) => {
                warn!("no HTTP caller can be let in: {cause}");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        callers.spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE.0)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // Whatever a caller does wrong is its own loss.
            let _ = tokio::time::timeout(PATIENCE.1, connection).await;
            drop(place);
        });
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    match shared.counters.illness() {
        None => "ok\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why + "\n").into_response(),
    }
}

async fn own(State(shared): State<Arc<Shared>>) -> Response {
    open_metrics(metrics::of_worker(&shared.counters))
}

async fn queues(State(shared): State<Arc<Shared>>) -> Response {
    let mut kept = shared.queues.lock().await;
    if let Some((at, text)) = &*kept
        && at.elapsed() < KEPT
    {
        return open_metrics(Ok(text.clone()));
    }
    match shared.store.count_waiting().await {
        Ok(waiting) => {
            let text = metrics::of_queues(&waiting);
            *kept = text.as_ref().ok().map(|text| (Instant::now(), text.clone()));
            open_metrics(text)
        }
        Err(cause) => {
            warn!("{cause:#}");
            // What the database said may name tables and hosts; that is for the log.
            (StatusCode::SERVICE_UNAVAILABLE, "the database did not answer; the worker's log says why\n")
                .into_response()
        }
    }
}

fn open_metrics(text: Result<String, std::fmt::Error>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
            .into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n").into_response(),
    }
}
