//! The worker's HTTP face: health, metrics in the words of explain, and callers who do as they should not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold::http::Server;
use leasehold::worker::Counters;
use leasehold_tests::TestDb;
use leasehold_tests::scenario::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What a server answers to these bytes, until it closes.
async fn say(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    // One that has said no already may close before all of it is there.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).expect("text")
}

async fn get(address: SocketAddr, path: &str) -> String {
    say(address, format!("GET {path} HTTP/1.1\r\nhost: worker\r\n\r\n").as_bytes()).await
}

async fn serve(db: &TestDb, counters: Arc<Counters>) -> Server {
    Server::bind("127.0.0.1:0".parse().expect("an address"), db.store().clone(), counters).await.expect("a free port")
}

#[tokio::test]
async fn a_worker_tells_how_it_is_and_what_it_did() {
    let db = TestDb::new().await;
    db.push_wat("unreachable").await;
    db.push_wat("echo").await;
    let worker = db.worker();
    let server = serve(&db, worker.counters.clone()).await;
    let address = server.address();
    for _ in 0..3 {
        db.enqueue("'echo'").await;
    }
    let dead = db.enqueue("'unreachable', max_attempts => 1").await;
    eventually("all have ended", || worker.finished() >= 4).await;
    db.wait_for(dead, "dead").await;
    assert!(get(address, "/health").await.starts_with("HTTP/1.1 200 OK\r\n"));
    let mut text = String::new();
    for _ in 0..100 {
        text = get(address, "/metrics").await;
        if text.contains("leasehold_runs_settled_total{settlement=\"complete\"} 3\n") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{text}");
    for line in [
        "# TYPE leasehold_runs_settled counter\n",
        "leasehold_runs_settled_total{settlement=\"complete\"} 3\n",
        "leasehold_runs_settled_total{settlement=\"fail\"} 1\n",
        "leasehold_runs_failed_total{kind=\"trap\"} 1\n",
        "leasehold_runs_failed_total{kind=\"fuel\"} 0\n",
        "leasehold_slots 4.0\n",
        "leasehold_slots_running 0.0\n",
        "leasehold_leases_lost_total 0\n",
        "leasehold_notify_heard 1.0\n",
    ] {
        assert!(text.contains(line), "{line}is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    worker.drain().await;
    server.stop().await;
    assert!(TcpStream::connect(address).await.is_err(), "it is gone with the worker");
}

#[tokio::test]
async fn what_jobs_wait_for_is_counted_in_the_words_of_explain() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let server = serve(&db, Arc::default()).await;
    db.enqueue("'echo', queue => 'nobodys'").await;
    let claimer = db.claimer().await;
    let first = db.enqueue("'echo', concurrency_key => 'k'").await;
    assert_eq!(claimer.claim(1).await[0].id, first);
    let second = db.enqueue("'echo', concurrency_key => 'k'").await;
    assert!(claimer.claim(1).await.is_empty());
    db.enqueue("'echo', run_at => now() + interval '1 hour'").await;
    db.enqueue(&format!("'echo', after => array[{second}]")).await;
    let text = get(server.address(), "/metrics/queues").await;
    for (queue, reason) in [
        ("default", "key_held"),
        ("default", "not_due"),
        ("default", "running"),
        ("default", "waits_for_job"),
        ("nobodys", "no_worker"),
    ] {
        let line = format!("leasehold_jobs{{queue=\"{queue}\",reason=\"{reason}\"}} 1.0\n");
        assert!(text.contains(&line), "{line}is not in\n{text}");
    }
    db.enqueue("'echo', queue => 'nobodys'").await;
    assert_eq!(
        get(server.address(), "/metrics/queues").await,
        text,
        "asked again at once, it does not read all jobs again"
    );
    server.stop().await;
}

#[tokio::test]
async fn without_the_database_a_worker_is_not_well() {
    let db = TestDb::new().await;
    let counters = Arc::<Counters>::default();
    let server = serve(&db, counters).await;
    let answer = get(server.address(), "/health").await;
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    assert!(answer.ends_with("not registered with the database yet\n"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn callers_can_ask_nothing_else() {
    let db = TestDb::new().await;
    let server = serve(&db, Arc::default()).await;
    let address = server.address();
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    for (said, expected) in [
        ("GET /metrics/other HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        ("POST /metrics HTTP/1.1\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 405 "),
        ("GET /../etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        (long.as_str(), "HTTP/1.1 431 "),
        ("\0\u{1}nonsense\r\n\r\n", "HTTP/1.1 400 "),
    ] {
        let answer = say(address, said.as_bytes()).await;
        // One that was refused while it was still sending may see the connection end before it reads the answer.
        assert!(answer.starts_with(expected) || (answer.is_empty() && said.len() > 1 << 16), "{said:.40}: {answer}");
    }
    // More callers who say nothing than are served at once: each is sent away in time, and the next one is heard.
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(address).await.expect("it listens"));
    }
    let answer = tokio::time::timeout(Duration::from_secs(20), get(address, "/health")).await.expect("in time");
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    server.stop().await;
}
