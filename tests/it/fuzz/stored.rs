//! Text of a guest on its way into the database and onto terminals: bounded and clean, whatever the bytes.

use std::time::Duration;

use leasehold::outcome::{Failure, FailureKind, Log, clean_text, clip_text};
use leasehold::settlement::{Settled, Settlement};
use leasehold_tests::{TestDb, report};
use rand::Rng as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

pub const TARGET: super::Target = super::Target { name: "text", inputs: 3_000, share: 10, make, check };

/// What tears text apart: NUL, escapes, halves of characters, surrogates, separators, noncharacters, long numbers.
const PIECES: [&[u8]; 16] = [
    b"\0",
    b"\x1b[31m",
    b"\x9b",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xef\xbf\xbf",
    b"\\u0000",
    b"\"",
    b"\n",
    b"\t",
    b"1e99999",
    b"panicked at ",
    "gr\u{fc}n".as_bytes(),
];

fn make(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.random_range(0..40) {
        if random.random_bool(0.5) {
            bytes.extend(*PIECES.choose(random).expect("some"));
        } else {
            let mut chance = vec![0; random.random_range(0..20)];
            random.fill(&mut chance[..]);
            bytes.extend(chance);
        }
    }
    bytes
}

pub fn clean(text: &str) -> Result<(), String> {
    match text.chars().find(|c| c.is_control() && *c != '\n' && *c != '\t') {
        Some(control) => Err(format!("{control:?} in {text:.200?}")),
        None => Ok(()),
    }
}

fn check(bytes: &[u8]) -> Result<(), String> {
    let text = clean_text(bytes);
    clean(&text)?;
    if clean_text(text.as_bytes()) != text {
        return Err(format!("{text:?} is not clean the second time"));
    }
    for limit in [0, 1, 2, 3, 4, 7, bytes.len() / 2, bytes.len(), bytes.len() + 1] {
        let clipped = clip_text(bytes, limit);
        clean(&clipped)?;
        if clipped.len() > 3 * limit + 40 {
            return Err(format!("cut to {limit} bytes it has {}", clipped.len()));
        }
    }
    let log = Log { bytes: bytes.to_vec(), dropped_bytes: bytes.len() as u64 / 3, dropped_at: bytes.len() / 2 };
    clean(&log.to_text())
}

#[tokio::test]
async fn whatever_a_guest_says_is_stored_and_shown() {
    /// One batch a kind, as the settler has them.
    const JOBS: usize = 120;
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.enqueue_many("echo", JOBS).await;
    let jobs = db.claim(JOBS).await;
    let mut random = StdRng::seed_from_u64(1);
    let mut said = Vec::new();
    let reports = jobs.iter().enumerate().map(|(n, job)| {
        let bytes = make(&mut random);
        // A message comes as text of any characters, and is cleaned on its way.
        let message = String::from_utf8_lossy(&make(&mut random)).into_owned();
        let failure =
            Failure { kind: FailureKind::Trap, message: message.clone(), backtrace: Some(message), delay: None };
        let settlement = match n % 3 {
            0 => Settlement::Complete { result: bytes.clone() },
            1 => Settlement::Fail { failure, delay: Duration::from_secs(3600) },
            _ => Settlement::Bury { failure },
        };
        let mut report = report(job, settlement);
        report.log = Log { bytes: bytes.clone(), dropped_bytes: 1, dropped_at: bytes.len() / 2 };
        said.push(bytes);
        report
    });
    let reports: Vec<_> = reports.collect();
    assert_eq!(db.settle_all(reports).await, [Settled::Yes; JOBS]);
    for (n, (job, said)) in jobs.iter().zip(said).enumerate() {
        let shown = db.job(job.id).await;
        match n % 3 {
            0 => assert_eq!(shown.result_bytes, Some(said.clone())),
            _ => clean(&shown.error.expect("a message")).unwrap_or_else(|problem| panic!("{problem}")),
        }
        let [attempt] = &db.attempts(job.id).await[..] else { panic!("job {} has not one attempt", job.id) };
        let log = Log { bytes: said.clone(), dropped_bytes: 1, dropped_at: said.len() / 2 };
        assert_eq!(attempt.log, Some(log.to_text()));
    }
}
