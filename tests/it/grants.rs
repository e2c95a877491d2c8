//! What a module is granted at upload: config values and secrets, and nothing of them to any other module or tenant.

use std::collections::BTreeMap;

use leasehold::grants::Grants;
use leasehold::secrets::{Keyring, Sealed};
use leasehold::worker::WorkerConfig;
use leasehold_tests::binary::{self, Answer, Files};
use leasehold_tests::guests::core;
use leasehold_tests::workers::quick;
use leasehold_tests::{TestDb, Upload};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "/////wQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const VALUE: &str = "hunter2-hunter2";

fn keyring() -> Keyring {
    Keyring::parse(KEY).expect("a key")
}

fn with_key() -> WorkerConfig {
    WorkerConfig { keyring: Some(keyring()), ..quick() }
}

async fn keep(db: &TestDb, tenant: &str, name: &str, value: &str) -> Sealed {
    let sealed = keyring().seal(tenant, name, value).expect("it is sealed");
    db.store().set_secret(tenant, &sealed, None).await.unwrap_or_else(|error| panic!("{error:#}"));
    sealed
}

fn granted(secrets: &[&str]) -> Grants {
    Grants { secrets: secrets.iter().map(ToString::to_string).collect(), ..Grants::default() }
}

async fn with_guest(grants: &Grants) -> TestDb {
    let db = TestDb::new().await;
    db.push(Upload { grants, ..Upload::component("tells_secret", &core("tells_secret")) }).await;
    db
}

/// How a job ended that asked for the secret.
async fn ask(db: &TestDb, name: &str) -> leasehold_tests::scenario::Job {
    let id = db.enqueue(&format!("'tells_secret', '{name}'::bytea, max_attempts => 1")).await;
    db.wait_for_end(id).await
}

#[tokio::test]
async fn a_granted_secret_reaches_the_guest_and_no_log_result_or_error() {
    let db = with_guest(&granted(&["token", "failing"])).await;
    keep(&db, "default", "token", VALUE).await;
    keep(&db, "default", "failing", VALUE).await;
    let worker = db.worker_with(with_key());
    let told = ask(&db, "token").await;
    assert_eq!((told.state.as_str(), told.result), ("done", Some(json!("[secret]"))), "{:?}", told.error);
    assert_eq!(db.attempts(told.id).await[0].log.as_deref(), Some("[info] [secret]\n[secret]"));
    let failed = ask(&db, "failing").await;
    assert_eq!((failed.state.as_str(), failed.error.as_deref()), ("dead", Some("[secret]")));
    worker.drain().await;
    // Nowhere in the database, in whatever table.
    let tables: Vec<String> = db
        .column(
            "select c.oid::regclass::text from pg_class c where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'p') order by 1",
        )
        .await;
    for table in tables {
        let shown: bool = db
            .value(&format!(
                "select exists (select from {table} t where t::text like '%hunter2%' or t::text like '%' || encode('hunter2', 'hex') || '%')"
            ))
            .await;
        assert!(!shown, "{table} shows it");
    }
}

#[tokio::test]
async fn a_guest_that_gets_no_secret_is_told_why() {
    let db = with_guest(&granted(&["missing", "sealed"])).await;
    keep(&db, "default", "ungranted", VALUE).await;
    keep(&db, "default", "sealed", VALUE).await;
    let keyless = db.worker();
    for (name, says) in [
        (
            "ungranted",
            "secret ungranted is not granted to this module; it is granted at upload: module push --secret ungranted",
        ),
        ("missing", "secret missing is not set; set it with: leasehold secret set missing"),
        ("sealed", "secret sealed cannot be opened: this worker has no LEASEHOLD_SECRET_KEY"),
    ] {
        assert_eq!(ask(&db, name).await.error.as_deref(), Some(says));
    }
    keyless.drain().await;
}

#[tokio::test]
async fn a_row_that_was_moved_to_another_tenant_or_name_does_not_open() {
    let db = with_guest(&granted(&["token", "moved"])).await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    keep(&db, "acme", "token", VALUE).await;
    keep(&db, "default", "other", VALUE).await;
    db.sql(
        "update leasehold.secrets set tenant_id = (select tenant_id from leasehold.tenants where name = 'default') where name = 'token';
         update leasehold.secrets set name = 'moved' where name = 'other'",
    )
    .await;
    let worker = db.worker_with(with_key());
    for name in ["token", "moved"] {
        let error = ask(&db, name).await.error.expect("it is dead");
        assert_eq!(error, format!("secret {name} of tenant default does not open: its row was changed"));
    }
    worker.drain().await;
}

#[tokio::test]
async fn a_config_value_is_the_versions_own() {
    let db = TestDb::new().await;
    let of =
        |value: &str| Grants { config: BTreeMap::from([("url".to_owned(), value.to_owned())]), ..Grants::default() };
    let bytes = core("tells_config");
    let first = db.push(Upload { grants: &of("http://one"), ..Upload::component("tells_config", &bytes) }).await;
    let second = db.push(Upload { grants: &of("http://two"), ..Upload::component("tells_config", &bytes) }).await;
    assert_ne!(first, second, "other grants are another version");
    let worker = db.worker();
    for (version, wanted) in [(first, "http://one"), (second, "http://two")] {
        let id = db.enqueue(&format!("'tells_config', 'url'::bytea, version => {version}")).await;
        assert_eq!(db.wait_for(id, "done").await.result, Some(json!(wanted)));
    }
    let id = db.enqueue("'tells_config', 'other'::bytea").await;
    db.wait_for(id, "dead").await;
    worker.drain().await;
}

/// `leasehold` with these keys in its environment.
async fn leasehold(db: &TestDb, keys: Option<&str>, args: &[&str], input: &str) -> Answer {
    let mut command = tokio::process::Command::new(binary::leasehold().await);
    command.args(args).env("DATABASE_URL", db.url()).env_remove("LEASEHOLD_SECRET_KEY").kill_on_drop(true);
    command.env("XDG_CACHE_HOME", binary::cache_home());
    command.envs(keys.map(|keys| ("LEASEHOLD_SECRET_KEY", keys)));
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    // One that does not read its input closes the pipe.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes()).await;
    let output = child.wait_with_output().await.expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Answer { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[tokio::test]
async fn secrets_are_set_listed_sealed_anew_and_removed() {
    let db = TestDb::new().await;
    let refused = leasehold(&db, None, &["secret", "set", "token"], VALUE).await;
    assert!(refused.code == 1 && refused.stderr.contains("LEASEHOLD_SECRET_KEY is not set"), "{refused:?}");
    let refused = leasehold(&db, Some("c2hvcnQ="), &["secret", "set", "token"], VALUE).await;
    assert!(
        refused.stderr.contains("key 1: it has 5 bytes; a key has 32") && !refused.stderr.contains("c2hv"),
        "{refused:?}"
    );
    let refused = leasehold(&db, Some(KEY), &["secret", "set", "token"], "short\n").await;
    assert!(refused.stderr.contains("value of 5 bytes is out of range; a secret has 8 to 65536 bytes"), "{refused:?}");
    let refused = leasehold(&db, Some(KEY), &["secret", "set", "token", "--tenant", "nobody"], VALUE).await;
    assert!(refused.stderr.contains("no tenant is named 'nobody'"), "{refused:?}");

    leasehold(&db, Some(KEY), &["secret", "set", "token"], &format!("{VALUE}\n")).await.ok();
    let listed = leasehold(&db, None, &["secret", "list", "--json"], "").await.json();
    assert_eq!((&listed[0]["name"], &listed[0]["key_id"]), (&json!("token"), &json!(keyring().key_id())));

    let both = format!("{OTHER_KEY},{KEY}");
    let rotated = leasehold(&db, Some(&both), &["secret", "rotate", "--json"], "").await.json();
    assert_eq!(rotated["rotated"], json!(1));
    let (_, sealed) = db.store().sealed_secrets(None).await.expect("they are there").remove(0);
    let other = Keyring::parse(OTHER_KEY).expect("a key");
    assert_eq!(
        (sealed.key_id.as_str(), other.open("default", &sealed).expect("it opens").as_str()),
        (other.key_id(), VALUE)
    );
    // Sealing anew under what somebody has changed meanwhile changes nothing.
    let stale = other.seal("default", "token", "what it was before").expect("it is sealed");
    assert!(!db.store().set_secret("default", &stale, Some(&[0; 12])).await.expect("an answer"));

    leasehold(&db, None, &["secret", "remove", "token"], "").await.ok();
    let gone = leasehold(&db, None, &["secret", "remove", "token"], "").await;
    assert!(gone.code == 1 && gone.stderr.contains("tenant default has no secret named token"), "{gone:?}");
}

#[tokio::test]
async fn grants_are_given_at_upload_and_shown() {
    let db = TestDb::new().await;
    let files = Files::new();
    let wasm = files.write("tells_secret.wasm", &core("tells_secret"));
    let push =
        ["module", "push", "m", &wasm, "--config", "url=http://x?a=b", "--secret", "token", "--checkpoint", "1KiB"];
    let http =
        ["--allow-http", "https://api.example.com", "--allow-http", "http://127.0.0.1:8080", "--allow-http-private"];
    leasehold(&db, None, &[&push[..], &http[..]].concat(), "").await.ok();
    let shown = leasehold(&db, None, &["module", "show", "m"], "").await.ok().stdout;
    for line in [
        "checkpoint   1024 bytes",
        "config       url=http://x?a=b",
        "HTTP         https://api.example.com:443, http://127.0.0.1:8080, private addresses too",
        "secrets      token",
    ] {
        assert!(shown.contains(&format!("  {line}\n")), "{line} is not in {shown}");
    }
    for (flags, says) in [
        (&["--allow-http", "api.example.com"][..], "write https://api.example.com"),
        (&["--allow-http-private"][..], "add --allow-http URL"),
        (&["--secret", "no such name"][..], "is not 1 to 63 letters"),
        (&["--config", "url"][..], "is not KEY=VALUE"),
        (
            &["--checkpoint", "1GiB"][..],
            "checkpoint limit of 1073741824 bytes is out of range; it may be 0 to 4194304 bytes",
        ),
    ] {
        let refused = leasehold(&db, None, &[&push[..4], flags].concat(), "").await;
        assert!(refused.code != 0 && refused.stderr.contains(says), "{flags:?}: {refused:?}");
    }
}

#[tokio::test]
async fn a_secret_of_a_run_on_a_laptop_is_a_flag() {
    let files = Files::new();
    let wasm = files.write("tells_secret.wasm", &core("tells_secret"));
    let flag = format!("token={VALUE}");
    let args = ["run", &wasm, "--payload", "@-", "--secret", &flag, "--json"];
    let name = files.write("name", b"token");
    let payload = format!("@{name}");
    let args: Vec<&str> = args.iter().map(|arg| if *arg == "@-" { payload.as_str() } else { arg }).collect();
    let ran = binary::run("", &args).await.json();
    assert_eq!((&ran["result"], &ran["log"]), (&json!("[secret]"), &json!("[info] [secret]\n[secret]")));
}
