//! A proxy before the database that can freeze, as a network does when a switch dies: no error, only silence.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Listens on a port of this machine until it is dropped.
pub struct Proxy {
    url: String,
    frozen: Arc<watch::Sender<bool>>,
    accepting: AbortHandle,
}

#[derive(Clone)]
enum Target {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Proxy {
    /// Before the database of a URL.
    pub async fn before(url: &str) -> Self {
        let config: Config = url.parse().expect("a URL of ours");
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let target = match config.get_hosts().first().expect("a host") {
            Host::Tcp(host) => Target::Tcp(host.clone(), port),
            Host::Unix(dir) => Target::Unix(dir.join(format!(".s.PGSQL.{port}"))),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let (authority, path) = rest.split_once('/').expect("a URL with a database");
        let user = authority.rsplit_once('@').map(|(user, _)| format!("{user}@")).unwrap_or_default();
        let url = format!("{scheme}://{user}127.0.0.1:{port}/{path}");
        let frozen = Arc::new(watch::channel(false).0);
        let accepting = tokio::spawn(accept(listener, target, frozen.clone())).abort_handle();
        Self { url, frozen, accepting }
    }

    /// The same database, through here.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on no byte passes either way, and nobody is told.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// What was held back goes on its way.
    pub fn thaw(&self) {
        self.frozen.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Ends when it is aborted, and all connections with it.
async fn accept(listener: TcpListener, target: Target, frozen: Arc<watch::Sender<bool>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (target, frozen) = (target.clone(), frozen.subscribe());
        connections.spawn(async move {
            // Either side may be gone at any time.
            let _ = match target {
                Target::Tcp(host, port) => match TcpStream::connect((host, port)).await {
                    Ok(server) => pipe(client, server, frozen).await,
                    Err(error) => Err(error),
                },
                Target::Unix(path) => match UnixStream::connect(path).await {
                    Ok(server) => pipe(client, server, frozen).await,
                    Err(error) => Err(error),
                },
            };
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn pipe(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite,
    frozen: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(server);
    tokio::select! {
        end = copy(from_client, to_server, frozen.clone()) => end,
        end = copy(from_server, to_client, frozen) => end,
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frozen: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        // Not even a connection's end passes a frozen proxy.
        let _ = frozen.wait_for(|frozen| !frozen).await;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
