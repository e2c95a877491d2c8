//! The `leasehold` binary, as its users start it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::SystemTime;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The path of the binary that was built from the sources as they are. Cargo builds it beside the tests when the whole
/// workspace is tested; with `-p leasehold-tests` it does not, so it is built here.
pub async fn leasehold() -> &'static Path {
    tokio::task::spawn_blocking(built).await.expect("the binary builds")
}

/// The same for a test without a runtime.
pub fn built() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(build);
    &BINARY
}

/// Where processes of the tests keep compiled modules: beside the binary, not among the caches of whoever runs the tests.
pub fn cache_home() -> PathBuf {
    built().with_file_name("tests-cache")
}

fn build() -> PathBuf {
    let exe = std::env::current_exe().expect("the test has a path");
    let profile_dir = exe.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let (binary, stamp) = (profile_dir.join("leasehold"), profile_dir.join("leasehold.tests-stamp"));
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let newest = ["runner", "migrations", "guest-sdk/wit", "Cargo.toml", "Cargo.lock"]
        .iter()
        .filter_map(|part| newest_change(&repository.join(part)))
        .max()
        .expect("the repository is there");
    // The stamp says when cargo last found the binary to be current; cargo itself would leave a current binary's time alone.
    let fresh = |path: &Path| path.metadata().and_then(|data| data.modified()).is_ok_and(|built| built >= newest);
    if binary.exists() && (fresh(&binary) || fresh(&stamp)) {
        return binary;
    }
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What the outer cargo says about the test's package would make build scripts of others run again, each time.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"]
            .iter()
            .any(|of| name.starts_with(of))
        {
            cargo.env_remove(&*name);
        }
    }
    // With the features that the tests themselves were built with: others would build wasmtime anew.
    cargo.current_dir(&repository).args(["build", "--quiet", "--workspace", "--all-targets"]);
    cargo.arg("--target-dir").arg(profile_dir.parent().expect("target/PROFILE"));
    let profile = profile_dir.file_name().expect("target/PROFILE").to_string_lossy().into_owned();
    cargo.args(["--profile", if profile == "debug" { "dev" } else { &profile }]);
    assert!(cargo.status().expect("cargo starts").success(), "building the binary failed");
    std::fs::write(&stamp, "").expect("target/ is writable");
    binary
}

fn newest_change(path: &Path) -> Option<SystemTime> {
    let data = path.metadata().ok()?;
    if !data.is_dir() {
        return data.modified().ok();
    }
    path.read_dir().ok()?.flatten().filter_map(|entry| newest_change(&entry.path())).max()
}

/// What a command answered.
#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    /// Of a command that went well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub fn json(self) -> Value {
        let answer = self.ok();
        serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:#?}"))
    }
}

/// Runs `leasehold` with these arguments against a database.
pub async fn run(url: &str, args: &[&str]) -> Answer {
    run_with_input(url, args, b"").await
}

pub async fn run_with_input(url: &str, args: &[&str], input: &[u8]) -> Answer {
    let mut command = Command::new(leasehold().await);
    command
        .args(args)
        .env("XDG_CACHE_HOME", cache_home())
        .env("DATABASE_URL", url)
        .env_remove("LEASEHOLD_LOG")
        .env_remove("LEASEHOLD_LOG_JSON");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("the binary starts");
    // One that does not read its input closes the pipe, which is no error of the test's.
    let _ = child.stdin.take().expect("piped").write_all(input).await;
    let output = child.wait_with_output().await.expect("the binary runs");
    Answer {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Files for a command to read, gone with this.
pub struct Files(PathBuf);

impl Files {
    pub fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("leasehold-files-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&dir).expect("a temporary directory");
        Self(dir)
    }

    /// The path of a new file.
    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("it is our directory");
        path
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
