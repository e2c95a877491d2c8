//! Keeps the modules of a folder uploaded. Any change in it, or in a crate beside it that a job uses, makes everything be
//! built again: cargo knows best what that touches, and answers within a blink when it is nothing. What comes out is
//! uploaded if it differs from last time.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::build::{self, Built, Workspace};
use super::toolchain::Target;
use crate::cli::module::Upload;
use crate::job::{Digest, Limits};
use crate::outcome::{FailureKind, OnFailure};
use crate::sandbox::{Compiler, Sandbox, SandboxConfig};
use crate::store::Store;
use crate::worker::Stage;

/// Editors and git write many files at a time: a build waits until so long nothing has changed, but no longer than that.
const QUIET: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(2);
/// How many folders are watched at most. Each costs the kernel a kilobyte; more is somebody's disk, not a folder of jobs.
const FOLDERS: usize = 4_096;
/// Folders without sources.
const SKIPPED: [&str; 2] = ["target", "node_modules"];
/// Whose the modules are.
const TENANT: &str = "default";

pub struct JobsFolder {
    folder: PathBuf,
    store: Store,
    sandbox: Sandbox,
    stage: watch::Receiver<Stage>,
    uploaded: HashMap<PathBuf, Digest>,
}

impl JobsFolder {
    pub fn new(
        folder: PathBuf,
        store: Store,
        memory_bytes: u64,
        compiler: Compiler,
        stage: watch::Receiver<Stage>,
    ) -> anyhow::Result<Self> {
        let sandbox = Sandbox::new(&SandboxConfig { slots: 1, memory_bytes, compiler, profiling: false })?;
        Ok(Self { folder, store, sandbox, stage, uploaded: HashMap::new() })
    }

    /// Until it is dropped. Whatever goes wrong is said, and tried again after the next change.
    pub async fn keep_uploaded(mut self) -> Infallible {
        let (ring, mut bell) = mpsc::channel(1);
        let mut watcher = match watcher(ring) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                warn!("changes of jobs will not be seen: {error:#}");
                None
            }
        };
        loop {
            let (workspaces, problems) = build::find(&self.folder).await;
            // Before the build, so that a change in its course is not missed.
            if let Some(watcher) = &mut watcher {
                watch(watcher, &self.folder, &workspaces);
            }
            if !workspaces.is_empty() {
                info!("building the jobs in {}", self.folder.display());
            }
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            self.build_and_upload(&workspaces).await;
            if bell.recv().await.is_none() {
                return std::future::pending().await;
            }
            let first = Instant::now();
            while first.elapsed() < PATIENCE && tokio::time::timeout(QUIET, bell.recv()).await.is_ok() {}
        }
    }

    async fn build_and_upload(&mut self, workspaces: &[Workspace]) {
        let mut names = BTreeSet::new();
        for workspace in workspaces {
            for target in Target::ALL {
                let started = Instant::now();
                let outcome = match workspace.build(target).await {
                    Ok(outcome) => outcome,
                    Err(error) => {
                        warn!("{error:#}");
                        continue;
                    }
                };
                for built in outcome.built {
                    self.upload(&built, Some(started.elapsed())).await;
                    names.insert(built.name);
                }
                if let Some((failed, said)) = outcome.failed {
                    // Ctrl-C in a terminal is for cargo, too.
                    if *self.stage.borrow() == Stage::Run {
                        eprintln!("{said}");
                        for name in &failed {
                            warn!("{name} does not build; {}", self.what_stays(name).await);
                        }
                    }
                    names.extend(failed);
                }
            }
        }
        for built in wasm_files(&self.folder) {
            if names.contains(&built.name) {
                warn!("{} is not uploaded: a crate has the same name", built.file.display());
            } else {
                self.upload(&built, None).await;
            }
        }
    }

    async fn upload(&mut self, built: &Built, build_time: Option<Duration>) {
        match self.try_upload(built).await {
            Ok(None) => (),
            Ok(Some((version, true))) => {
                let took =
                    build_time.map(|time| format!(" (built in {:.1} s)", time.as_secs_f64())).unwrap_or_default();
                info!("{}: version {version} is uploaded and active{took}", built.name);
            }
            Ok(Some((version, false))) => info!("{}: version {version} is active, nothing has changed", built.name),
            Err(error) => warn!("{}: {error:#}; {}", built.name, self.what_stays(&built.name).await),
        }
    }

    /// None when the file is the same as last time; else the version, and whether it is a new one.
    async fn try_upload(&mut self, built: &Built) -> anyhow::Result<Option<(i32, bool)>> {
        let bytes = std::fs::read(&built.file).with_context(|| format!("reading {}", built.file.display()))?;
        let digest = Digest::of(&bytes);
        if self.uploaded.get(&built.file) == Some(&digest) {
            return Ok(None);
        }
        // Limits that somebody gave an earlier version with `module push` stay.
        let newest = self.store.module_versions(TENANT, &built.name).await?.into_iter().next();
        let (limits, on_failure) = match newest {
            Some(newest) => (newest.limits, overrides(&newest.on_failure)?),
            None => (Limits::default(), Vec::new()),
        };
        let upload = Upload {
            tenant: TENANT,
            name: &built.name,
            file: &built.file,
            limits,
            on_failure: &on_failure,
            activate: true,
            retry: Default::default(),
        };
        let (_verdict, pushed) = upload.send(&self.store, &self.sandbox).await?;
        self.uploaded.insert(built.file.clone(), digest);
        Ok(Some((pushed.version, pushed.created)))
    }

    async fn what_stays(&self, name: &str) -> String {
        let versions = self.store.module_versions(TENANT, name).await.unwrap_or_default();
        match versions.iter().find(|version| version.active) {
            Some(version) => format!("version {} stays active", version.version),
            None => "it has no version yet".into(),
        }
    }
}

fn overrides(on_failure: &serde_json::Value) -> anyhow::Result<Vec<(FailureKind, OnFailure)>> {
    let map = on_failure.as_object().into_iter().flatten();
    map.map(|(kind, end)| Ok((kind.parse()?, end.as_str().unwrap_or_default().parse()?))).collect()
}

/// Modules that somebody built elsewhere.
fn wasm_files(folder: &Path) -> Vec<Built> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "wasm")).collect();
    files.sort();
    let name = |file: &PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
    files.into_iter().filter_map(|file| Some(Built { name: name(&file)?, file })).collect()
}

fn watcher(ring: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading is no change, and a build reads everything.
        let news = event.is_ok_and(|event| match event.kind {
            EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
            EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) | EventKind::Other => {
                true
            }
        });
        if news {
            let _ = ring.try_send(()); // Full means rung already.
        }
    })
}

/// Watches every folder with sources on its own: one recursive watch would have all of `target` in it.
fn watch(watcher: &mut RecommendedWatcher, folder: &Path, workspaces: &[Workspace]) {
    let mut folders = BTreeSet::new();
    add_below(folder, workspaces, &mut folders);
    for dependency in workspaces.iter().flat_map(|workspace| &workspace.dependencies) {
        add_below(dependency, workspaces, &mut folders);
    }
    if folders.len() >= FOLDERS {
        warn!("only {FOLDERS} folders are watched for changes; {} has more", folder.display());
    }
    for folder in folders {
        // A folder that was just removed is no news; its parent tells.
        if let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive)
            && folder.exists()
        {
            warn!("changes in {} will not be seen: {error}", folder.display());
        }
    }
}

fn add_below(folder: &Path, workspaces: &[Workspace], folders: &mut BTreeSet<PathBuf>) {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let skipped = SKIPPED.contains(&&*name) || name.starts_with('.');
    if skipped || workspaces.iter().any(|workspace| workspace.target_directory == folder) {
        return;
    }
    if folders.len() >= FOLDERS || !folders.insert(folder.to_owned()) {
        return;
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        // Links are not followed: they can lead around in a circle.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_below(&entry.path(), workspaces, folders);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_sources_are_watched_and_no_others() {
        let root = std::env::temp_dir().join(format!("leasehold-watch-{}", std::process::id()));
        for folder in ["a/src/deep", "a/target/release", ".git/objects", "b/node_modules/x"] {
            std::fs::create_dir_all(root.join(folder)).expect("a temporary folder");
        }
        std::fs::write(root.join("made.wasm"), "").expect("writes");
        let mut folders = BTreeSet::new();
        add_below(&root, &[], &mut folders);
        let files = wasm_files(&root);
        std::fs::remove_dir_all(&root).expect("just made");
        let names: Vec<_> = folders.iter().map(|path| path.strip_prefix(&root).expect("inside")).collect();
        assert_eq!(names, ["", "a", "a/src", "a/src/deep", "b"].map(Path::new));
        assert_eq!(files, [Built { name: "made".into(), file: root.join("made.wasm") }]);
    }
}
