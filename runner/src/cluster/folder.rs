//! The folder of a cluster and what lies in it: a lock, the settings with the password, the server's log, the data.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::owner::Owner;

const LOCK: &str = "lock";
const SETTINGS: &str = "cluster.json";
const LOG: &str = "postgres.log";
const DATA: &str = "postgres";
/// Where data goes whose server cannot get into the folder: below root's home, nobody else can get anywhere.
const OUTSIDE: &str = "/var/lib/leasehold";
/// The server's log starts anew at a start that finds it larger than this, in bytes.
const LOG_BYTES: u64 = 4 << 20;
/// Of the password: more than anybody guesses.
const PASSWORD_BYTES: usize = 16;

/// What a cluster keeps between two starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// On 127.0.0.1. 0 before the first start.
    pub port: u16,
    /// Plain hex digits, so that URLs take it as it is.
    pub password: String,
    /// Relative to the folder, so that the folder can be moved, where it lies inside.
    data: PathBuf,
}

impl Settings {
    pub fn new(data: PathBuf) -> Self {
        Self { port: 0, password: random_hex(PASSWORD_BYTES), data }
    }
}

/// A folder that is ours alone until this is dropped.
pub struct Folder {
    dir: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder where there is none, and locks it.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        if !dir.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .with_context(|| format!("making {}", dir.display()))?;
            // A password and a database have no place in anybody's repository.
            std::fs::write(dir.join(".gitignore"), "*\n").with_context(|| format!("writing to {}", dir.display()))?;
        }
        let dir = dir.canonicalize().with_context(|| format!("finding {}", dir.display()))?;
        let mut lock = private(&dir, LOCK, OpenOptions::new().read(true).write(true).create(true))?;
        match lock.try_lock() {
            Ok(()) => (),
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = lock.read_to_string(&mut holder);
                anyhow::bail!("the cluster in {} is in use by process {}", dir.display(), holder.trim());
            }
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("locking {}", dir.join(LOCK).display()));
            }
        }
        // For whoever finds it locked.
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).context("writing the lock file")?;
        Ok(Self { dir, _lock: lock })
    }

    /// None before the first start.
    pub fn settings(&self) -> anyhow::Result<Option<Settings>> {
        let path = self.dir.join(SETTINGS);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                anyhow::ensure!(
                    !self.dir.join(DATA).exists(),
                    "{} has a cluster, and {SETTINGS} with its password is gone; move the folder away to start anew",
                    self.dir.display()
                );
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        serde_json::from_str(&text).map(Some).with_context(|| format!("reading {}", path.display()))
    }

    pub fn save(&self, settings: &Settings) -> anyhow::Result<()> {
        self.write(SETTINGS, &serde_json::to_string_pretty(settings).context("writing the cluster's settings")?)?;
        Ok(())
    }

    /// A file for the owner of the folder, all of it or nothing whenever the process ends.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let (new, path) = (format!("{name}.new"), self.dir.join(name));
        let mut file = private(&self.dir, &new, OpenOptions::new().write(true).create(true).truncate(true))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(self.dir.join(new), &path))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    pub fn data(&self, settings: &Settings) -> PathBuf {
        self.dir.join(&settings.data)
    }

    /// Where new data goes: inside, or outside where the server's user cannot get into the folder.
    pub async fn place_for_data(&self, owner: &Owner) -> anyhow::Result<PathBuf> {
        if let Owner::Other { name, .. } = owner {
            // Others may pass through and see nothing.
            std::fs::set_permissions(&self.dir, std::fs::Permissions::from_mode(0o711))
                .with_context(|| format!("opening {} to user {name}", self.dir.display()))?;
            if !owner.can_enter(&self.dir).await? {
                let outside = Path::new(OUTSIDE);
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o711)
                    .create(outside)
                    .with_context(|| format!("making {OUTSIDE}"))?;
                let data = outside.join(format!("dev-{}", random_hex(4)));
                tracing::info!(
                    "the server runs as user {name}, who cannot get into {}; its data goes to {}",
                    self.dir.display(),
                    data.display()
                );
                return Ok(data);
            }
        }
        Ok(DATA.into())
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join(LOG)
    }

    /// Opened for appending, with what was there before unless that was too much.
    pub fn open_log(&self) -> anyhow::Result<File> {
        let log = private(&self.dir, LOG, OpenOptions::new().append(true).create(true))?;
        if log.metadata().is_ok_and(|meta| meta.len() > LOG_BYTES) {
            log.set_len(0).context("cutting the server's log")?;
        }
        Ok(log)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A file for a moment, readable by the owner of the server.
pub struct Secret(pub PathBuf);

impl Secret {
    pub fn new(path: PathBuf, owner: &Owner, text: &str) -> anyhow::Result<Self> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("making {}", path.display()))?;
        let secret = Self(path);
        writeln!(file, "{text}").with_context(|| format!("writing {}", secret.0.display()))?;
        owner.own(&secret.0)?;
        Ok(secret)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens a file that only the owner of the folder may read; root leaves it to that owner, who may start the cluster next.
fn private(dir: &Path, name: &str, options: &mut OpenOptions) -> anyhow::Result<File> {
    let path = dir.join(name);
    let file = options.mode(0o600).open(&path);
    let file = file.with_context(|| format!("opening {}; does the folder belong to another user?", path.display()))?;
    if rustix::process::geteuid().is_root() {
        let meta = dir.metadata().with_context(|| format!("reading {}", dir.display()))?;
        std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()))
            .with_context(|| format!("giving {} to the owner of its folder", path.display()))?;
    }
    Ok(file)
}

/// Which version of PostgreSQL made the data.
pub fn major_version(data: &Path) -> anyhow::Result<u32> {
    let path = data.join("PG_VERSION");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("reading {}; was this cluster made by root?", path.display()))?;
    text.trim().parse().with_context(|| format!("{} says {:?}", path.display(), text.trim()))
}

pub fn random_hex(bytes: usize) -> String {
    let mut random = vec![0_u8; bytes];
    rand::fill(&mut random[..]);
    hex::encode(random)
}
