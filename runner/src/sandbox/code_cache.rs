//! Compiled modules on this host's disk, so that a worker that starts anew compiles nothing anew. Machine code is run as it
//! is, so whoever can write it into here owns the worker: the directory and all in it are this user's alone, and each entry
//! carries a code of authentication by a key of this host's own, over its name and its content, that is checked before
//! anything else looks at it. Whatever is not as it should be is dropped, and compiled again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail, ensure};
use hmac::{Hmac, KeyInit, Mac};
use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};
use tracing::warn;
use wasmtime::Engine;

use crate::job::Digest;

/// Changes whenever the meaning of an entry does.
const TAG: &str = "leasehold compiled module 1";
const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 32;
/// The largest entry that is read, in bytes: the largest answer of a compiler.
const ENTRY_BYTES: u64 = 544 << 20;
/// The ends of the names of entries and of files that shall become some.
const ENTRY: &str = "code";
const UNFINISHED: &str = "new";
/// A file that has been unfinished for so long is what a crash left.
const UNFINISHED_FOR: Duration = Duration::from_secs(3_600);

type HmacSha256 = Hmac<sha2_of_hmac::Sha256>;

/// Where compiled modules are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeCacheConfig {
    pub dir: PathBuf,
    /// How much is kept; what was not used for the longest time goes first.
    pub max_bytes: u64,
}

impl CodeCacheConfig {
    /// Some fifty of the largest guests, thousands in Rust.
    pub const DEFAULT_BYTES: u64 = 2 << 30;
}

pub(super) struct CodeCache {
    dir: PathBuf,
    max_bytes: u64,
    key: [u8; KEY_BYTES],
}

/// What an entry is the result of: the module, and everything that decides what its code looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(String);

impl Name {
    /// The engine's hash holds wasmtime's version and all settings.
    pub fn of(engine: &Engine, module: Digest) -> Self {
        let mut settings = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut settings);
        let name = Sha256::new()
            .chain_update(TAG)
            .chain_update(env!("CARGO_PKG_VERSION"))
            .chain_update([0])
            .chain_update(settings.finish().to_le_bytes())
            .chain_update(module.0);
        Self(hex::encode(name.finalize()))
    }
}

impl CodeCache {
    /// None, with a warning, where there can be no cache: everything works without it.
    pub fn open_or_warn(config: &CodeCacheConfig) -> Option<Self> {
        Self::open(config)
            .inspect_err(|error| warn!("compiled modules are not kept in {}: {error:#}", config.dir.display()))
            .ok()
    }

    fn open(config: &CodeCacheConfig) -> anyhow::Result<Self> {
        let CodeCacheConfig { dir, max_bytes } = config;
        if let Some(parent) = dir.parent() {
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error).context("making it"),
            Ok(()) | Err(_) => {}
        }
        let found = fs::symlink_metadata(dir).context("looking at it")?;
        ensure!(found.is_dir(), "it is no directory of its own");
        ensure!(found.uid() == geteuid().as_raw(), "it belongs to user {}", found.uid());
        if found.mode() & 0o077 != 0 {
            warn!("{} was open to others (mode {:o}); all in it is dropped", dir.display(), found.mode() & 0o777);
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).context("closing it to others")?;
            clear(dir).context("clearing it")?;
        }
        let key = key_in(dir).context("getting its key")?;
        Ok(Self { dir: dir.clone(), max_bytes: *max_bytes, key })
    }

    /// What was stored under this name, by us.
    pub fn get(&self, name: &Name) -> Option<Vec<u8>> {
        let path = self.path(name);
        let refused = match self.read(&path, name) {
            Ok(content) => return content,
            Err(error) => error,
        };
        warn!("{} is not trusted and is dropped: {refused:#}", path.display());
        self.remove(name);
        None
    }

    fn read(&self, path: &Path, name: &Name) -> anyhow::Result<Option<Vec<u8>>> {
        let (file, mut bytes) = match read_private(path, ENTRY_BYTES)? {
            Some(read) => read,
            None => return Ok(None),
        };
        ensure!(bytes.len() >= MAC_BYTES, "it is cut off");
        let content = bytes.split_off(MAC_BYTES);
        self.mac(name, &content).verify_slice(&bytes).ok().context("its code of authentication is wrong")?;
        // So that it counts as used. Should that fail, it goes a little early.
        let _ = file.set_modified(SystemTime::now());
        Ok(Some(content))
    }

    /// Keeps it, if it can: what fails is only said.
    pub fn put(&self, name: &Name, content: &[u8]) {
        if content.len() as u64 > self.max_bytes {
            return;
        }
        let stored = self.write(name, content).and_then(|()| self.evict());
        if let Err(error) = stored {
            warn!("a compiled module is not kept in {}: {error:#}", self.dir.display());
        }
    }

    /// Another process sees either all of it or nothing.
    fn write(&self, name: &Name, content: &[u8]) -> anyhow::Result<()> {
        let unfinished = self.dir.join(format!("{:016x}.{UNFINISHED}", rand::random::<u64>()));
        let mac = self.mac(name, content).finalize().into_bytes();
        let written = write_private(&unfinished, &[&mac, content]).and_then(|()| {
            // What lies there may be anything.
            remove_any(&self.path(name));
            fs::rename(&unfinished, self.path(name))
        });
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.with_context(|| format!("writing {}", unfinished.display()))
    }

    pub fn remove(&self, name: &Name) {
        remove_any(&self.path(name));
    }

    fn evict(&self) -> anyhow::Result<()> {
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.dir).context("listing it")? {
            let file = file.context("listing it")?;
            // Another process may have removed it meanwhile.
            let Ok(data) = file.metadata() else { continue };
            let used = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let path = file.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(ENTRY) => entries.push((used, data.len(), path)),
                Some(UNFINISHED) if used.elapsed().is_ok_and(|age| age > UNFINISHED_FOR) => remove_any(&path),
                _ => {}
            }
        }
        entries.sort_unstable();
        let mut held: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in entries {
            if held <= self.max_bytes {
                break;
            }
            remove_any(&path);
            held -= bytes;
        }
        Ok(())
    }

    /// Over the name too, so that no entry passes for another one.
    fn mac(&self, name: &Name, content: &[u8]) -> HmacSha256 {
        let mac = HmacSha256::new_from_slice(&self.key).expect("a key may have any length");
        mac.chain_update(name.0.as_bytes()).chain_update(content)
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.dir.join(&name.0).with_extension(ENTRY)
    }
}

/// The key of this host, made at the first start. One that is not as it should be is made anew, and all entries with it.
fn key_in(dir: &Path) -> anyhow::Result<[u8; KEY_BYTES]> {
    let path = dir.join(KEY_FILE);
    for _ in 0..3 {
        match read_private(&path, KEY_BYTES as u64) {
            Ok(Some((_, bytes))) => match bytes.try_into() {
                Ok(key) => return Ok(key),
                Err(bytes) => warn!("{} has {} bytes, not {KEY_BYTES}; it is made anew", path.display(), bytes.len()),
            },
            Ok(None) => {}
            Err(error) => warn!("{} is not trusted and is made anew: {error:#}", path.display()),
        }
        remove_any(&path);
        let unfinished = dir.join(format!("{:016x}.{UNFINISHED}", rand::random::<u64>()));
        write_private(&unfinished, &[&rand::random::<[u8; KEY_BYTES]>()]).context("writing it")?;
        // Unlike a rename this leaves in place what another process has made in the meantime; then we take that.
        let linked = fs::hard_link(&unfinished, &path);
        let _ = fs::remove_file(&unfinished);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).context("putting it in place");
            }
            Ok(()) | Err(_) => {}
        }
    }
    bail!("{} changes all the time", path.display())
}

/// Reads a file that is nobody's but ours. None when there is none.
fn read_private(path: &Path, max_bytes: u64) -> anyhow::Result<Option<(File, Vec<u8>)>> {
    // No link is followed, and opening a pipe does not wait for its other end.
    let mut file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.context("opening it")?,
    };
    let data = file.metadata().context("looking at it")?;
    ensure!(data.is_file(), "it is no file");
    ensure!(data.uid() == geteuid().as_raw(), "it belongs to user {}", data.uid());
    ensure!(data.mode() & 0o077 == 0, "it is open to others (mode {:o})", data.mode() & 0o777);
    ensure!(data.len() <= max_bytes, "its {} bytes exceed the limit of {max_bytes} bytes", data.len());
    let mut bytes = Vec::with_capacity(usize::try_from(data.len())?);
    // One more than there can be, so that a file that grows is seen to.
    (&mut file).take(max_bytes + 1).read_to_end(&mut bytes).context("reading it")?;
    ensure!(bytes.len() as u64 <= max_bytes, "it grew past the limit of {max_bytes} bytes");
    Ok(Some((file, bytes)))
}

fn write_private(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))
}

/// Removes whatever has this name. What cannot be removed stays, and is not trusted either.
fn remove_any(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ = fs::remove_dir(path);
    }
}

/// Drops everything of ours that lies in the directory.
fn clear(dir: &Path) -> io::Result<()> {
    for file in fs::read_dir(dir)? {
        let path = file?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.ends_with(KEY_FILE) || matches!(extension, Some(ENTRY | UNFINISHED)) {
            remove_any(&path);
        }
    }
    Ok(())
}
