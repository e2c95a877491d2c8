//! Finds the crates of a folder and builds them for wasm. Cargo is asked what there is and what it built; nothing is guessed
//! from names of files.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use serde::Deserialize;
use tokio::process::Command;

use super::toolchain::{self, Target};

/// What cargo builds at once, into one target directory.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    manifest: PathBuf,
    pub target_directory: PathBuf,
    jobs: Vec<Job>,
    /// Folders of crates that the jobs use and that may change, too.
    pub dependencies: Vec<PathBuf>,
}

/// A crate that becomes a module, or several if it has several programs.
#[derive(Debug, PartialEq, Eq)]
struct Job {
    package: String,
    manifest: PathBuf,
    target: Target,
}

/// A file to upload under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    pub name: String,
    pub file: PathBuf,
}

/// What one call of cargo came to.
pub struct Outcome {
    pub built: Vec<Built>,
    /// The packages that were not built, and what cargo said about that.
    pub failed: Option<(Vec<String>, String)>,
}

/// All crates in the folder itself or one level below. What cargo cannot read is answered beside them, and stops nothing.
pub async fn find(folder: &Path) -> (Vec<Workspace>, Vec<String>) {
    let (mut found, mut problems) = (Vec::<Workspace>::new(), Vec::new());
    for manifest in manifests(folder) {
        if found.iter().any(|workspace| workspace.has(&manifest)) {
            continue;
        }
        match metadata(&manifest).await {
            Ok(metadata) => {
                let workspace = Workspace::of(metadata, manifest, folder);
                // One that has nothing of this folder, or was found by a crate of its own before.
                if !workspace.jobs.is_empty() && found.iter().all(|other| other.root != workspace.root) {
                    found.push(workspace);
                }
            }
            Err(error) => problems.push(format!("{error:#}")),
        }
    }
    (found, problems)
}

fn manifests(folder: &Path) -> Vec<PathBuf> {
    let below = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut folders: Vec<_> = below.collect();
    folders.sort();
    std::iter::once(folder.to_owned())
        .chain(folders)
        .map(|folder| folder.join("Cargo.toml"))
        .filter(|manifest| manifest.is_file())
        .collect()
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<CargoTarget>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct CargoTarget {
    name: String,
    kind: Vec<String>,
    crate_types: Vec<String>,
}

#[derive(Deserialize)]
struct Dependency {
    path: Option<PathBuf>,
}

async fn metadata(manifest: &Path) -> anyhow::Result<Metadata> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(manifest);
    cargo.current_dir(manifest.parent().unwrap_or(Path::new("/"))).stdin(Stdio::null()).kill_on_drop(true);
    let output = cargo.output().await.context("running cargo; Rust is installed with rustup (https://rustup.rs)")?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    serde_json::from_slice(&output.stdout).context("reading what cargo metadata said")
}

impl Workspace {
    fn of(metadata: Metadata, manifest: PathBuf, folder: &Path) -> Self {
        let ours = metadata.packages.into_iter().filter(|package| package.manifest_path.starts_with(folder));
        let (mut jobs, mut dependencies) = (Vec::new(), Vec::new());
        for package in ours {
            let has = |test: fn(&CargoTarget) -> bool| package.targets.iter().any(test);
            let target = if has(CargoTarget::is_component) {
                Target::Component
            } else if has(CargoTarget::is_program) {
                Target::Command
            } else {
                continue; // A library that other jobs share.
            };
            dependencies.extend(package.dependencies.into_iter().filter_map(|dependency| dependency.path));
            jobs.push(Job { package: package.name, manifest: package.manifest_path, target });
        }
        Self {
            root: metadata.workspace_root,
            manifest,
            target_directory: metadata.target_directory,
            jobs,
            dependencies,
        }
    }

    fn has(&self, manifest: &Path) -> bool {
        self.jobs.iter().any(|job| job.manifest == manifest)
    }

    /// Builds the jobs of one kind. An error is one of the toolchain; a crate that does not build is in the outcome.
    pub async fn build(&self, target: Target) -> anyhow::Result<Outcome> {
        let jobs: Vec<_> = self.jobs.iter().filter(|job| job.target == target).collect();
        if jobs.is_empty() {
            return Ok(Outcome { built: Vec::new(), failed: None });
        }
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--keep-going", "--message-format", "json-render-diagnostics"]);
        cargo.args(["--target", target.triple()]).arg("--manifest-path").arg(&self.manifest);
        cargo.args(["--color", if std::io::stderr().is_terminal() { "always" } else { "never" }]);
        cargo.arg(match target {
            Target::Component => "--lib",
            Target::Command => "--bins",
        });
        for job in &jobs {
            cargo.args(["--package", &job.package]);
        }
        cargo.envs(toolchain::environment(target, &self.root).await?);
        let output = cargo.current_dir(&self.root).stdin(Stdio::null()).kill_on_drop(true).output().await;
        let output = output.context("running cargo build")?;

        let artifacts: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().filter_map(Artifact::read).collect();
        let (mut built, mut failed) = (Vec::new(), Vec::new());
        for job in jobs {
            let before = built.len();
            let own = artifacts.iter().filter(|artifact| artifact.manifest_path == job.manifest);
            built.extend(own.filter_map(|artifact| artifact.built(job)));
            if built.len() == before {
                failed.push(job.package.clone());
            }
        }
        let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok(Outcome { built, failed: (!failed.is_empty()).then(|| (failed, said())) })
    }
}

impl CargoTarget {
    fn is_component(&self) -> bool {
        self.crate_types.iter().any(|kind| kind == "cdylib")
    }

    fn is_program(&self) -> bool {
        self.kind.iter().any(|kind| kind == "bin")
    }
}

/// One of cargo's messages: something was built, or was there already.
#[derive(Deserialize)]
struct Artifact {
    reason: String,
    manifest_path: PathBuf,
    target: CargoTarget,
    filenames: Vec<PathBuf>,
}

impl Artifact {
    fn read(line: &str) -> Option<Self> {
        let artifact: Self = serde_json::from_str(line).ok()?;
        (artifact.reason == "compiler-artifact").then_some(artifact)
    }

    fn built(&self, job: &Job) -> Option<Built> {
        let file = self.filenames.iter().find(|file| file.extension().is_some_and(|end| end == "wasm"))?.clone();
        match job.target {
            Target::Component => self.target.is_component().then(|| Built { name: job.package.clone(), file }),
            Target::Command => self.target.is_program().then(|| Built { name: self.target.name.clone(), file }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_becomes_a_component_by_the_crates_name_and_programs_go_by_their_own() {
        let package = |name: &str, targets: &str| {
            format!(
                r#"{{"name": "{name}", "manifest_path": "/w/jobs/{name}/Cargo.toml", "targets": [{targets}],
                     "dependencies": [{{"name": "serde"}}, {{"name": "shared", "path": "/w/jobs/shared"}}]}}"#
            )
        };
        let text = format!(
            r#"{{"packages": [{}, {}, {}, {}], "workspace_root": "/w", "target_directory": "/w/target"}}"#,
            package(
                "csv-report",
                r#"{"name": "csv_report", "kind": ["cdylib", "rlib"], "crate_types": ["cdylib", "rlib"]}"#
            ),
            package("tools", r#"{"name": "one", "kind": ["bin"], "crate_types": ["bin"]}"#),
            package("shared", r#"{"name": "shared", "kind": ["lib"], "crate_types": ["lib"]}"#),
            package("../server", r#"{"name": "server", "kind": ["bin"], "crate_types": ["bin"]}"#)
                .replace("/jobs/..", ""),
        );
        let metadata = serde_json::from_str(&text).expect("as cargo writes it");
        let workspace = Workspace::of(metadata, "/w/jobs/tools/Cargo.toml".into(), Path::new("/w/jobs"));
        let job = |package: &str, target| Job {
            package: package.into(),
            manifest: format!("/w/jobs/{package}/Cargo.toml").into(),
            target,
        };
        assert_eq!(workspace.jobs, [job("csv-report", Target::Component), job("tools", Target::Command)]);
        assert_eq!(workspace.dependencies, [Path::new("/w/jobs/shared"), Path::new("/w/jobs/shared")]);

        let message = r#"{"reason": "compiler-artifact", "manifest_path": "/w/jobs/x/Cargo.toml", "filenames": ["/t/x.wasm"],
            "target": {"name": "one", "kind": ["bin"], "crate_types": ["bin"]}, "fresh": true}"#;
        let artifact = Artifact::read(message).expect("as cargo writes it");
        let built = artifact.built(&workspace.jobs[1]);
        assert_eq!(built, Some(Built { name: "one".into(), file: "/t/x.wasm".into() }));
        assert!(Artifact::read(r#"{"reason": "build-finished", "success": true}"#).is_none());
    }
}
