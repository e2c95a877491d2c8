use std::path::PathBuf;

use super::*;

/// A folder of a test's own, gone at its end.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("leasehold-cluster-{}", folder::random_hex(6))))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> Options {
    Options { durable: false, ends_with_thread: true, ..Options::default() }
}

async fn client(url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn count_of_things(url: &str) -> i64 {
    let client = client(url).await.expect("the server answers");
    client.query_one("select count(*) from things", &[]).await.expect("the table is there").get(0)
}

#[tokio::test]
async fn a_cluster_keeps_its_data_and_its_url() {
    let dir = TempDir::new();
    let cluster = Cluster::start(&dir.0, &options()).await.expect("starts");
    cluster.create_database("app").await.expect("creates a database");
    let url = cluster.url("app");
    let things = "create table things (n int); insert into things values (1), (2)";
    client(&url).await.expect("connects").batch_execute(things).await.expect("writes");
    cluster.stop().await.expect("stops");
    assert!(client(&url).await.is_err(), "nobody answers after the stop");

    let cluster = Cluster::start(&dir.0, &options()).await.expect("starts again");
    cluster.create_database("app").await.expect("one that exists is left alone");
    assert_eq!(cluster.url("app"), url);
    assert_eq!(count_of_things(&url).await, 2);
    cluster.stop().await.expect("stops");
}

#[tokio::test]
async fn others_get_nothing_without_the_password() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = TempDir::new();
    let cluster = Cluster::start(&dir.0, &options()).await.expect("starts");
    let url = cluster.url("postgres");
    client(&url).await.expect("with the password it works");
    let wrong = url.replace(&cluster.settings.password, "guess");
    let error = client(&wrong).await.expect_err("a guess is refused").to_string();
    let by_socket = format!(
        "host={} port={} user=postgres password=guess",
        dir.0.join("postgres").display(),
        cluster.settings.port
    );
    let socket_error = client(&by_socket).await.expect_err("on the socket, too").to_string();
    cluster.write_env("postgres").expect("writes");
    for (path, mode) in [("cluster.json", 0o600), ("env", 0o600), ("postgres", 0o700), ("postgres.log", 0o600)] {
        let meta = dir.0.join(path).metadata().expect(path);
        assert_eq!(meta.permissions().mode() & 0o777, mode, "{path}");
    }
    cluster.stop().await.expect("stops");
    assert_eq!((error.as_str(), socket_error.as_str()), ("db error", "db error"), "refused by the server itself");
}

#[tokio::test]
async fn a_crash_is_recovered_and_a_server_left_behind_is_stopped() {
    let dir = TempDir::new();
    let options = Options { durable: true, ..options() }; // without it, a crash may take the last commits along
    let mut cluster = Cluster::start(&dir.0, &options).await.expect("starts");
    let url = cluster.url("postgres");
    client(&url).await.expect("connects").batch_execute("create table things (n int)").await.expect("writes");
    cluster.server.send(rustix::process::Signal::KILL);
    let why = cluster.ended().await.to_string();
    assert!(why.starts_with("the PostgreSQL server ended by itself (signal: 9 (SIGKILL))"), "{why}");
    drop(cluster);

    let cluster = Cluster::start(&dir.0, &options).await.expect("recovers");
    assert_eq!(count_of_things(&url).await, 0);
    // As if this process had been killed: nobody stops the server, and the lock is free.
    let Cluster { server, folder, .. } = cluster;
    let old = server.leak();
    drop(folder);
    let cluster = Cluster::start(&dir.0, &options).await.expect("takes over");
    assert!(!PathBuf::from(format!("/proc/{old}/cwd")).exists(), "the old server {old} is gone");
    assert_eq!(count_of_things(&url).await, 0);
    cluster.stop().await.expect("stops");
}

#[tokio::test]
async fn a_process_that_is_no_server_does_not_keep_one_from_starting() {
    let dir = TempDir::new();
    let cluster = Cluster::start(&dir.0, &options()).await.expect("starts");
    let data = cluster.folder.data(&cluster.settings);
    let pid_file = std::fs::read_to_string(data.join("postmaster.pid")).expect("a server has one");
    cluster.stop().await.expect("stops");
    // The number of the dead server was given to another process of the same user.
    let mut other = tokio::process::Command::new("sleep");
    Owner::of_server(&dir.0, Some(&data)).expect("has an owner").run(&mut other);
    let other = other.arg("600").kill_on_drop(true).spawn().expect("starts");
    let rest = pid_file.split_once('\n').expect("several lines").1;
    let stale = format!("{}\n{rest}", other.id().expect("it runs"));
    std::fs::write(data.join("postmaster.pid"), stale).expect("writes");
    Cluster::start(&dir.0, &options()).await.expect("starts all the same").stop().await.expect("stops");
}

#[tokio::test]
async fn a_folder_serves_one_at_a_time() {
    let dir = TempDir::new();
    let cluster = Cluster::start(&dir.0, &options()).await.expect("starts");
    let refused = Cluster::start(&dir.0, &options()).await.err().expect("is refused").to_string();
    assert!(refused.ends_with(&format!("is in use by process {}", std::process::id())), "{refused}");
    cluster.stop().await.expect("stops");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_or_avoided() {
    let dir = TempDir::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port();
    let wanted = Options { port: Some(port), ..options() };
    let refused = Cluster::start(&dir.0, &wanted).await.err().expect("is refused");
    assert!(format!("{refused:#}").starts_with(&format!("port {port} of 127.0.0.1 cannot be had: ")), "{refused:#}");
    assert_ne!(choose_port(None, port).expect("another one"), port);
    drop(taken);
    assert_eq!(choose_port(None, port).expect("free again"), port);
}
