//! What guests may ask of the network: HTTP requests to where their module was granted it (`grants::HttpRule`), sent by
//! this process. Each request is checked on its own, so one that follows a redirect is too. A name is resolved once,
//! every address that it has must be fit (`address`), and the connection goes to one of those. Nothing takes longer
//! than the run, and bytes and requests are counted.

mod address;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_rustls::TlsConnector;
use wasmtime::component::{Linker, Resource};
use wasmtime::{StoreContextMut, bail};
use wasmtime_wasi::runtime::{AbortOnDropJoinHandle, spawn};
use wasmtime_wasi_http::p2::bindings::http::types;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpHooks, WasiHttpView as _};

use super::state::State;
use super::stdio::LogBuffer;
use crate::grants::Grants;
use crate::outcome::{LogStream, clip_text};
use address::Special;

/// How many requests a run may send. A job with more to fetch is several jobs.
const REQUESTS: u64 = 100;
/// How much a run may send, and how much receive, in bytes.
const BYTES: u64 = 64 << 20;
/// How much of a response's head is read, in bytes, and how many headers.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 200;
/// How many requests of a run are under way at once; others wait. Each has a connection.
const AT_ONCE: usize = 8;
/// What the host may hold of one request that is not sent yet, in bytes: of its headers, of each of its other parts,
/// and of its body. A guest can have as many of them as handles, whether or not it may send any: so next to nothing
/// where it may not.
const HELD: Held = Held { headers: 8 << 10, part: 8 << 10, body: 4 << 10 };
const HELD_UNGRANTED: Held = Held { headers: 1 << 10, part: 256, body: 256 };
/// How long a name may take to resolve and a connection to come about, if the guest does not say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many names are looked up at once, each on a thread of its own, of which the runtime has 512.
const LOOKUPS: usize = 64;
/// How much of a URL is shown.
const URL_BYTES: usize = 200;

#[derive(Clone, Copy)]
struct Held {
    headers: usize,
    part: usize,
    body: usize,
}

/// A run's.
pub(super) struct Http {
    pub ctx: WasiHttpCtx,
    pub hooks: Hooks,
}

pub(super) struct Hooks {
    grants: Arc<Grants>,
    log: LogBuffer,
    deadline: Instant,
    requests: u64,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    turns: Arc<Semaphore>,
    held: Held,
}

impl Http {
    pub fn new(grants: &Arc<Grants>, log: &LogBuffer, deadline: Instant) -> Self {
        let (grants, log) = (Arc::clone(grants), log.clone());
        let (sent, received) = (Arc::default(), Arc::default());
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let held = if grants.http.is_empty() { HELD_UNGRANTED } else { HELD };
        let mut ctx = WasiHttpCtx::new();
        ctx.set_field_size_limit(held.headers);
        Self { ctx, hooks: Hooks { grants, log, deadline, requests: 0, sent, received, turns, held } }
    }
}

/// `wasi:http`, with bounds on what wasmtime's own would take in any size.
pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    type Part<T> = (Resource<types::OutgoingRequest>, T);
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    // In the place of those that are there: under another version's name they would be beside them, and bound nothing.
    if linker.instance(TYPES)?.func_wrap("[method]outgoing-request.set-method", |_, (): ()| Ok(())).is_ok() {
        bail!("wasmtime's wasi:http is of another version than {TYPES}");
    }
    linker.allow_shadowing(true);
    let mut replaced = linker.instance(TYPES)?;
    replaced.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: StoreContextMut<'_, State>, (request, method): Part<types::Method>| {
            let size = if let types::Method::Other(name) = &method { name.len() } else { 0 };
            let state = store.data_mut();
            if size > state.http_hooks().held.part {
                return Ok((Err(()),));
            }
            Ok((types::HostOutgoingRequest::set_method(&mut state.http(), request, method)?,))
        },
    )?;
    replaced.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: StoreContextMut<'_, State>, (request, authority): Part<Option<String>>| {
            let state = store.data_mut();
            if authority.as_ref().is_some_and(|text| text.len() > state.http_hooks().held.part) {
                return Ok((Err(()),));
            }
            Ok((types::HostOutgoingRequest::set_authority(&mut state.http(), request, authority)?,))
        },
    )?;
    replaced.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: StoreContextMut<'_, State>, (request, path): Part<Option<String>>| {
            let state = store.data_mut();
            if path.as_ref().is_some_and(|text| text.len() > state.http_hooks().held.part) {
                return Ok((Err(()),));
            }
            Ok((types::HostOutgoingRequest::set_path_with_query(&mut state.http(), request, path)?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// As wasmtime's own linker names it.
const TYPES: &str = "wasi:http/types@0.2.12";

type Connection = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Box<dyn Future<Output = Result<(Response<WasiBody>, Connection), Error>> + Send>;

impl WasiHttpHooks for Hooks {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Connection,
    ) -> Sent {
        match self.admit(&request) {
            Ok(target) => {
                let exchange = Exchange {
                    target,
                    allows_private: self.grants.http_private,
                    options: options.unwrap_or_default(),
                    deadline: self.deadline,
                    log: self.log.clone(),
                    sent: Arc::clone(&self.sent),
                    received: Arc::clone(&self.received),
                    turns: Arc::clone(&self.turns),
                };
                Box::new(async move {
                    let response = exchange.run(request).await?;
                    // Whoever holds the body drives the connection.
                    Ok((response, Box::new(async { Ok(()) }) as Connection))
                })
            }
            Err(error) => Box::new(async { Err(error) }),
        }
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        self.held.body
    }
}

impl Hooks {
    /// Where a request goes, if the module was granted it.
    fn admit(&mut self, request: &Request<WasiBody>) -> Result<Target, Error> {
        let shown = clip_text(request.uri().to_string().as_bytes(), URL_BYTES);
        let target = Target::of(request.uri()).ok_or(Error::HttpRequestUriInvalid)?;
        if request.method() == Method::CONNECT {
            return Err(Error::HttpRequestMethodInvalid);
        }
        if !self.grants.http.iter().any(|rule| rule.allows(target.scheme(), &target.host, target.port)) {
            refused(
                &self.log,
                &format!(
                    "request to {shown} is refused: not granted to this module; it is granted at upload: \
                     module push --allow-http {}://{}:{}",
                    target.scheme(),
                    target.host,
                    target.port
                ),
            );
            return Err(Error::HttpRequestDenied);
        }
        if self.requests >= REQUESTS {
            let asked = self.requests + 1;
            refused(
                &self.log,
                &format!("request to {shown} is refused: it is number {asked} of this run; the limit is {REQUESTS}"),
            );
            return Err(Error::HttpRequestDenied);
        }
        self.requests += 1;
        Ok(target)
    }
}

/// The contract's errors have no room for words, so they go where the guest's author looks.
fn refused(log: &LogBuffer, why: &str) {
    log.write_line(LogStream::Warn, clip_text(why.as_bytes(), 4 * URL_BYTES).as_bytes());
}

/// Whom a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    tls: bool,
    /// In lower case; of an IPv6 address without its brackets.
    host: String,
    port: u16,
}

impl Target {
    /// None for a URL that names no host, or a user, who would stand in the Host header.
    fn of(uri: &Uri) -> Option<Self> {
        let tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        let host = authority.host();
        // What is more than a host is a port; one that is no port would leave the Host header and the connection two
        // things.
        let port = match (authority.as_str().strip_prefix(host)?, authority.port_u16()) {
            ("", None) if tls => 443,
            ("", None) => 80,
            (port, number) if port.starts_with(':') && !port.contains('@') => number.filter(|number| *number > 0)?,
            _ => return None,
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_ascii_lowercase();
        (!host.is_empty()).then_some(Self { tls, host, port })
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Every address of the name, if all of them are fit.
    async fn resolve(&self, allows_private: bool, log: &LogBuffer, run_turn: &Turn) -> Result<Vec<SocketAddr>, Error> {
        let found: Vec<SocketAddr> = match self.host.parse::<IpAddr>() {
            Ok(address) => vec![(address, self.port).into()],
            Err(_) => look_up(self.host.clone(), self.port, run_turn.clone())
                .await
                .map_err(|error| Error::DnsError { rcode: Some(error.to_string()), info_code: None })?,
        };
        check(&found, allows_private).map_err(|(address, why)| {
            let hint = match why {
                Special::Private(_) => "; --allow-http-private lets requests go there",
                Special::Never(_) => "",
            };
            let (Special::Private(what) | Special::Never(what)) = why;
            refused(log, &format!("request to {} is refused: it is at {address}, {what}{hint}", self.host));
            Error::DestinationIpProhibited
        })?;
        if found.is_empty() { Err(Error::DestinationNotFound) } else { Ok(found) }
    }
}

/// One of a run's requests at a time.
type Turn = Arc<OwnedSemaphorePermit>;

/// As tokio does it; but a lookup holds its thread until it ends, whoever has given up on it, and a guest's own name
/// server can take its time. So they are counted, and a run that has given up on one has not got its turn back.
async fn look_up(host: String, port: u16, run_turn: Turn) -> io::Result<Vec<SocketAddr>> {
    static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS)));
    let turn = Arc::clone(&TURNS).acquire_owned().await.expect("the semaphore is never closed");
    let looked_up = tokio::task::spawn_blocking(move || {
        let _turns = (turn, run_turn);
        (host.as_str(), port).to_socket_addrs().map(Iterator::collect)
    });
    looked_up.await.map_err(io::Error::other)?
}

/// One address that is not fit spoils them all: a name that has both is somebody's try to get in.
fn check(found: &[SocketAddr], allows_private: bool) -> Result<(), (IpAddr, Special)> {
    for address in found {
        match address::special(address.ip()) {
            None => {}
            Some(Special::Private(_)) if allows_private => {}
            Some(special) => return Err((address.ip(), special)),
        }
    }
    Ok(())
}

/// One request and its response.
struct Exchange {
    target: Target,
    allows_private: bool,
    options: RequestOptions,
    deadline: Instant,
    log: LogBuffer,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    turns: Arc<Semaphore>,
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Exchange {
    async fn run(self, request: Request<WasiBody>) -> Result<Response<WasiBody>, Error> {
        let turn: Turn =
            Arc::new(Arc::clone(&self.turns).acquire_owned().await.expect("the semaphore is never closed"));
        let connect_timeout = self.clamp(self.options.connect_timeout.unwrap_or(CONNECT_TIMEOUT));
        let stream = tokio::time::timeout(connect_timeout, self.connect(&turn))
            .await
            .map_err(|_| Error::ConnectionTimeout)??;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        // Ends with the body, or with the run that dropped it.
        let connection = spawn(async move {
            // What goes wrong with it, the body's reader is told.
            let _ = connection.await;
        });
        let (mut head, body) = request.into_parts();
        head.uri = head.uri.path_and_query().map_or_else(|| Uri::from_static("/"), |path| Uri::from(path.clone()));
        let body = Counted {
            body,
            count: self.sent.clone(),
            too_much: Error::HttpRequestBodySize(Some(BYTES)).into(),
            quiet: None,
            connection: None,
        };
        let first_byte = self.clamp(self.options.first_byte_timeout.unwrap_or(Duration::MAX));
        let response = tokio::time::timeout(first_byte, sender.send_request(Request::from_parts(head, body)));
        let response = response.await.map_err(|_| Error::ConnectionReadTimeout)??;
        let quiet = self.clamp(self.options.between_bytes_timeout.unwrap_or(Duration::MAX));
        Ok(response.map(|body| {
            let body = Counted {
                body: body.map_err(Error::from),
                count: self.received.clone(),
                too_much: Error::HttpResponseBodySize(Some(BYTES)).into(),
                quiet: Some((quiet, Box::pin(tokio::time::sleep(quiet)))),
                connection: Some((connection, turn)),
            };
            body.boxed_unsync()
        }))
    }

    async fn connect(&self, turn: &Turn) -> Result<Box<dyn Duplex>, Error> {
        let addresses = self.target.resolve(self.allows_private, &self.log, turn).await?;
        // One after the other; the last one's error is told.
        let mut failed = Error::DestinationNotFound;
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) if self.target.tls => return self.encrypt(stream).await,
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) => failed = Error::Connect(error),
            }
        }
        Err(failed)
    }

    async fn encrypt(&self, stream: TcpStream) -> Result<Box<dyn Duplex>, Error> {
        static CONFIG: LazyLock<Option<Arc<rustls::ClientConfig>>> =
            LazyLock::new(|| crate::tls::client_config().ok().map(Arc::new));
        let config = CONFIG.as_ref().ok_or(Error::ConfigurationError)?;
        let name = ServerName::try_from(self.target.host.clone()).map_err(|_| Error::HttpRequestUriInvalid)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(Error::Tls)?;
        Ok(Box::new(stream))
    }

    /// No longer than the run has left.
    fn clamp(&self, timeout: Duration) -> Duration {
        timeout.min(self.deadline.saturating_duration_since(Instant::now()))
    }
}

/// A body whose bytes are counted with all others of the run that go the same way.
struct Counted<B> {
    body: B,
    count: Arc<AtomicU64>,
    /// What is answered past the limit; taken once.
    too_much: Option<Error>,
    /// How long nothing may come, and when that is over.
    quiet: Option<(Duration, Pin<Box<Sleep>>)>,
    connection: Option<(AbortOnDropJoinHandle<()>, Turn)>,
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            let Some((_, over)) = &mut self.quiet else { return Poll::Pending };
            ready!(over.as_mut().poll(cx));
            return Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
        };
        if let Some((quiet, over)) = &mut self.quiet {
            let next = tokio::time::Instant::now().checked_add(*quiet);
            over.as_mut().reset(next.unwrap_or_else(|| tokio::time::Instant::now() + FAR_AWAY));
        }
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) | None => 0,
        };
        if bytes > 0 && self.count.fetch_add(bytes, Relaxed) + bytes > BYTES {
            self.connection = None;
            return Poll::Ready(self.too_much.take().map(Err));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Stands in for a moment beyond what the clock can count.
const FAR_AWAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Option<Target> {
        Target::of(&url.parse().ok()?)
    }

    #[test]
    fn a_target_is_what_the_connection_goes_to_and_the_host_header_says() {
        let of = |tls, host: &str, port| Some(Target { tls, host: host.into(), port });
        assert_eq!(target("https://API.example.com/x?y"), of(true, "api.example.com", 443));
        assert_eq!(target("http://api.example.com:8080"), of(false, "api.example.com", 8080));
        assert_eq!(target("http://[::1]:8080/"), of(false, "::1", 8080));
        for hostile in [
            "https://user@api.example.com/",
            "https://x@x:443/",
            "http://a:/",
            "https://good.com:443@evil.com/",
            "ftp://a/",
            "/relative",
            "http://a:0/",
            "http://a:99999/",
        ] {
            assert_eq!(target(hostile), None, "{hostile}");
        }
    }

    #[test]
    fn one_private_address_among_public_ones_spoils_them_all() {
        let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), 443);
        let mixed = [at("1.1.1.1"), at("10.0.0.7"), at("2606:4700:4700::1111")];
        let (address, special) = check(&mixed, false).expect_err("one of them is private");
        assert_eq!((address.to_string(), special), ("10.0.0.7".to_owned(), Special::Private("a private address")));
        assert!(check(&mixed, true).is_ok(), "where it was granted");
        assert!(check(&[at("1.1.1.1"), at("169.254.169.254")], true).is_err(), "never");
        assert!(check(&[at("1.1.1.1"), at("::ffff:127.0.0.1")], false).is_err());
        assert!(check(&[at("1.1.1.1")], false).is_ok());
    }
}
