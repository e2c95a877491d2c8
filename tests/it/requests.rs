//! Requests of guests: to where the module was granted it, and nowhere else, whatever a name or a redirect says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::grants::Grants;
use leasehold::job::Limits;
use leasehold::secrets::Keyring;
use leasehold::worker::WorkerConfig;
use leasehold_tests::guests::{LIMITS, core, result, run};
use leasehold_tests::scenario::Job;
use leasehold_tests::workers::{TestWorker, quick};
use leasehold_tests::{TestDb, Upload};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const TOKEN: &str = "a-token-nobody-knows";

/// A server that answers every request alike, and keeps what it got.
struct Service {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Service {
    async fn answering(response: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        let (requests, response) = (Arc::<Mutex<Vec<String>>>::default(), response.into());
        let kept = requests.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that gives up in the middle is for its own test to notice.
                if let Some(request) = serve(stream, &response).await {
                    kept.lock().expect("nobody panics").push(request);
                }
            }
        });
        Self { port, requests, serving }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("nobody panics").clone()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(mut stream: TcpStream, response: &str) -> Option<String> {
    let mut request = Vec::new();
    loop {
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_ascii_lowercase()
            .split_once("content-length: ")
            .and_then(|(_, rest)| rest.lines().next().and_then(|length| length.trim().parse::<usize>().ok()));
        if body.len() >= length.unwrap_or(0) {
            stream.write_all(response.as_bytes()).await.ok()?;
            return Some(text);
        }
    }
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

/// The job jobs/webhook, told to call `url` and granted these places.
async fn with_webhook(url: &str, http: &[&str], http_private: bool) -> (TestDb, TestWorker) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../jobs/target/modules/webhook.wasm");
    let bytes =
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; run scripts/build-jobs", path.display()));
    let db = TestDb::new().await;
    let keyring = Keyring::parse("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key");
    let sealed = keyring.seal("default", "webhook-token", TOKEN).expect("it is sealed");
    db.store().set_secret("default", &sealed, None).await.expect("it is kept");
    let grants = Grants {
        config: BTreeMap::from([("url".to_owned(), url.to_owned())]),
        secrets: vec!["webhook-token".into()],
        http: http.iter().map(|rule| rule.parse().expect("a rule")).collect(),
        http_private,
        ..Grants::default()
    };
    let limits = Limits { timeout: Duration::from_secs(20), ..Limits::default() };
    db.push(Upload { limits, grants: &grants, ..Upload::component("webhook", &bytes) }).await;
    let worker = db.worker_with(WorkerConfig { keyring: Some(keyring), ..quick() });
    (db, worker)
}

/// How a call ends, and what the log of its only attempt says.
async fn call(url: &str, http: &[&str], http_private: bool) -> (Job, String) {
    let (db, worker) = with_webhook(url, http, http_private).await;
    let id = db.enqueue("'webhook', '{\"order\": 7}', max_attempts => 1").await;
    let job = db.wait_for_end(id).await;
    worker.drain().await;
    let log = db.attempts(id).await.first().and_then(|attempt| attempt.log.clone()).unwrap_or_default();
    (job, log)
}

#[tokio::test]
async fn a_granted_request_goes_out_whole_and_its_answer_comes_back() {
    let service = Service::answering(answer("202 Accepted", &format!("I know {TOKEN}"))).await;
    let rule = format!("http://127.0.0.1:{}", service.port);
    let (job, _) = call(&service.url(), &[&rule], true).await;
    assert_eq!(job.state, "done", "{:?}", job.error);
    assert_eq!(job.result, Some(json!({ "status": 202, "answer": "I know [secret]" })));
    let [request] = &service.requests()[..] else { panic!("{:?}", service.requests()) };
    let lines: Vec<String> = request.lines().map(str::to_ascii_lowercase).collect();
    assert_eq!(lines[0], "post /hook http/1.1");
    for line in [
        format!("host: 127.0.0.1:{}", service.port),
        format!("authorization: bearer {TOKEN}"),
        format!("idempotency-key: {}", job.id),
        "content-type: application/json".into(),
    ] {
        assert!(lines.contains(&line), "{line} is not in {request}");
    }
    assert!(request.ends_with("{\"order\": 7}"), "{request}");
}

#[tokio::test]
async fn without_a_grant_nothing_goes_out_and_the_log_names_the_flag() {
    let service = Service::answering(answer("200 OK", "")).await;
    let rule = format!("http://127.0.0.1:{}", service.port);
    let other_port = format!("http://127.0.0.1:{}", if service.port == 1 { 2 } else { service.port - 1 });
    let other_scheme = format!("https://127.0.0.1:{}", service.port);
    for http in [&[][..], &[other_port.as_str(), other_scheme.as_str()]] {
        let (job, log) = call(&service.url(), http, !http.is_empty()).await;
        assert_eq!(job.state, "dead");
        assert!(
            log.contains(&format!(
                "not granted to this module; it is granted at upload: module push --allow-http {rule}"
            )),
            "{log}"
        );
        assert!(job.error.is_some_and(|error| error.contains("--allow-http")), "{log}");
    }
    assert!(service.requests().is_empty());
}

#[tokio::test]
async fn a_private_address_is_refused_by_number_and_by_name_unless_it_was_granted() {
    let service = Service::answering(answer("200 OK", "inside")).await;
    for host in ["127.0.0.1", "localhost"] {
        let (url, rule) = (format!("http://{host}:{}/", service.port), format!("http://{host}:{}", service.port));
        let (job, log) = call(&url, &[&rule], false).await;
        assert_eq!(job.state, "dead");
        assert!(log.contains("a loopback address; --allow-http-private lets requests go there"), "{log}");
        assert!(job.error.is_some_and(|error| error.contains("not public")), "{log}");
    }
    assert!(service.requests().is_empty());
    let (job, log) = call("http://169.254.169.254/latest/meta-data", &["http://169.254.169.254"], true).await;
    assert_eq!(job.state, "dead", "whatever was granted");
    assert!(log.contains("a link-local address, where clouds keep their metadata"), "{log}");
}

#[tokio::test]
async fn a_redirect_goes_where_it_was_granted_and_leaves_the_token_behind() {
    let inside = Service::answering(answer("200 OK", "inside")).await;
    let redirect =
        format!("HTTP/1.1 307 Moved\r\nlocation: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", inside.url());
    let outside = Service::answering(redirect).await;
    let rules = [&outside, &inside].map(|service| format!("http://127.0.0.1:{}", service.port));
    let (job, log) = call(&outside.url(), &[&rules[0]], true).await;
    assert_eq!(job.state, "dead");
    assert!(log.contains(&format!("--allow-http {}", rules[1])), "{log}");
    assert!(inside.requests().is_empty());
    let (job, _) = call(&outside.url(), &[&rules[0], &rules[1]], true).await;
    assert_eq!(job.result, Some(json!({ "status": 200, "answer": "inside" })), "{:?}", job.error);
    let [request] = &inside.requests()[..] else { panic!("{:?}", inside.requests()) };
    assert!(!request.contains(TOKEN) && request.ends_with("{\"order\": 7}"), "{request}");
}

#[tokio::test]
async fn a_service_that_fails_or_breaks_off_is_tried_again() {
    let torn = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nnot all of it";
    for (response, says) in [
        (answer("503 Busy", "later"), "status 503: later"),
        (torn.into(), "broke off"),
        ("garbage\r\n\r\n".into(), "failed"),
    ] {
        let service = Service::answering(response).await;
        let rule = format!("http://127.0.0.1:{}", service.port);
        let (job, _) = call(&service.url(), &[&rule], true).await;
        assert_eq!(job.failure_kind.as_deref(), Some("guest_retry"), "{says}: {:?}", job.error);
        assert!(job.error.as_deref().is_some_and(|error| error.contains(says)), "{says}: {:?}", job.error);
    }
}

#[tokio::test]
async fn a_service_that_never_answers_holds_a_run_no_longer_than_its_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    let (db, worker) =
        with_webhook(&format!("http://127.0.0.1:{port}/"), &[&format!("http://127.0.0.1:{port}")], true).await;
    let id = db.enqueue("'webhook', max_attempts => 1, timeout => '300 ms'").await;
    let job = db.wait_for_end(id).await;
    assert_eq!(job.failure_kind.as_deref(), Some("timeout"), "{:?}", job.error);
    worker.drain().await;
}

#[tokio::test]
async fn requests_that_are_never_sent_take_next_to_no_room() {
    let hoarded = run(&core("hoards_requests"), b"", &LIMITS).await;
    assert_eq!(result(&hoarded), 0_u32.to_le_bytes(), "none of the giant methods was taken");
}
