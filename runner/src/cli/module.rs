//! `leasehold module`.

mod verdict;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use self::verdict::Verdict;
use super::compile::CompilerArgs;
use super::grants::GrantArgs;
use super::{Common, LimitArgs, RetryArgs, parse, print};
use crate::grants::Grants;
use crate::harness::{Harness, Job, Tried};
use crate::job::{Limits, ModuleKind};
use crate::outcome::{FailureKind, OnFailure};
use crate::retry::RetrySettings;
use crate::sandbox::{Inspection, RunControl, Sandbox, SandboxConfig};
use crate::store::{NewVersion, Pushed, Store};

/// Upload modules and choose which version is active.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Push(Box<Push>),
    Check(Box<Check>),
    /// List modules with their active versions
    List {
        /// Only this tenant's
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Show a module's versions, newest first, with their limits
    Show {
        name: String,
        #[arg(long, default_value = "default")]
        tenant: String,
        #[command(flatten)]
        common: Common,
    },
    /// Make a version the active one, or switch the module off
    Activate {
        name: String,
        /// The version to run from now on
        #[arg(required_unless_present = "none")]
        version: Option<i32>,
        /// No version: its jobs stay queued
        #[arg(long, conflicts_with = "version")]
        none: bool,
        #[arg(long, default_value = "default")]
        tenant: String,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a module with all its versions; finished jobs stay
    Remove {
        name: String,
        #[arg(long, default_value = "default")]
        tenant: String,
        /// Cancel its queued jobs
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        common: Common,
    },
}

/// Upload a version of a module and make it the active one.
///
/// The file is checked first with the worker's own sandbox: a module that could not run is refused here, with all that is
/// missing.
#[derive(Debug, clap::Args)]
struct Push {
    /// The module's name: what jobs are enqueued by
    name: String,
    /// A component, a core module built for one, or a WASI program
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    #[arg(long, default_value = "default")]
    tenant: String,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    grants: GrantArgs,
    /// A secret of the tenant that the module may ask for; may be given several times
    #[arg(long, value_name = "NAME")]
    secret: Vec<String>,
    /// Another end for a kind of failure than usual; may be given several times
    #[arg(long, value_name = "KIND=fail|dead", value_parser = parse::on_failure)]
    on: Vec<(FailureKind, OnFailure)>,
    #[command(flatten)]
    retry: RetryArgs,
    /// Run it once before, with this payload: JSON, @FILE or - (standard input). It is uploaded only if that ends well
    #[arg(long, value_name = "JSON|@FILE|-")]
    trial: Option<String>,
    /// Upload without making it the active version
    #[arg(long)]
    no_activate: bool,
    #[command(flatten)]
    compiler: CompilerArgs,
    #[command(flatten)]
    common: Common,
}

/// Say what an upload of a file would come to, without a database.
///
/// Prints what the module is, what it imports, what it needs to be granted, what compiling it takes, and all that keeps it from running.
/// Exits with 1 when it could not run.
#[derive(Debug, clap::Args)]
struct Check {
    /// A component, a core module built for one, or a WASI program
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    #[command(flatten)]
    limits: LimitArgs,
    /// Run it once, with this payload: JSON, @FILE or - (standard input)
    #[arg(long, value_name = "JSON|@FILE|-")]
    trial: Option<String>,
    #[command(flatten)]
    compiler: CompilerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Push(args) => push(*args).await?,
        Command::Check(args) => check(*args).await?,
        Command::List { tenant, common } => {
            let modules = common.store()?.modules(tenant.as_deref()).await?;
            if common.json {
                return print::json(&modules);
            }
            print::table(
                &["tenant", "name", "active", "versions", "kind", "size", "digest"],
                modules.into_iter().map(|module| {
                    let digest = module.digest.map(|digest| digest[..12].to_owned());
                    vec![
                        module.tenant,
                        module.name,
                        print::or_dash(module.active_version),
                        module.versions.to_string(),
                        print::or_dash(module.kind),
                        print::or_dash(module.size_bytes),
                        print::or_dash(digest),
                    ]
                }),
            );
        }
        Command::Show { name, tenant, common } => {
            let versions = common.store()?.module_versions(&tenant, &name).await?;
            anyhow::ensure!(!versions.is_empty(), "tenant {tenant} has no module named {name}");
            if common.json {
                return print::json(&versions);
            }
            for version in versions {
                println!("version {}{}", version.version, if version.active { " (active)" } else { "" });
                println!("  kind         {}", version.kind);
                println!("  digest       {}", version.digest);
                println!("  size         {} bytes", version.size_bytes);
                println!("  fuel         {}", version.limits.fuel);
                println!("  memory       {} bytes", version.limits.memory_bytes);
                println!("  timeout      {}", humantime::format_duration(version.limits.timeout));
                println!("  result limit {} bytes", version.limits.result_bytes);
                println!("  log limit    {} bytes", version.limits.log_bytes);
                println!("  follow-ups   {}", version.limits.follow_ups);
                println!("  checkpoint   {} bytes", version.grants.checkpoint_bytes);
                let config = version.grants.config.iter().map(|(key, value)| format!("{key}={value}"));
                print::line(&format!("  config       {}", config.collect::<Vec<_>>().join(", ")));
                let http: Vec<_> = version.grants.http.iter().map(ToString::to_string).collect();
                let private = if version.grants.http_private { ", private addresses too" } else { "" };
                println!("  HTTP         {}{private}", http.join(", "));
                println!("  secrets      {}", version.grants.secrets.join(", "));
                println!("  on failure   {}", version.on_failure);
                println!("  retry        {}", version.retry);
                println!("  imports      {}", version.imports.join(", "));
                println!("  uploaded     {}", version.created_at);
            }
        }
        Command::Activate { name, version, none: _, tenant, common } => {
            let before = common.store()?.activate_module(&tenant, &name, version).await?;
            if common.json {
                return print::json(
                    &serde_json::json!({ "module": name, "active_version": version, "active_before": before }),
                );
            }
            println!("module {name}: active version is {} (was {})", print::or_dash(version), print::or_dash(before));
        }
        Command::Remove { name, tenant, force, common } => {
            let cancelled = common.store()?.remove_module(&tenant, &name, force).await?;
            if common.json {
                return print::json(
                    &serde_json::json!({ "module": name, "removed": true, "cancelled_jobs": cancelled }),
                );
            }
            println!("module {name} is removed; {cancelled} queued jobs were cancelled");
        }
    }
    Ok(())
}

/// For looking at one module, and running it once.
fn sandbox(limits: &Limits, compiler: &CompilerArgs) -> anyhow::Result<Sandbox> {
    Sandbox::new(&SandboxConfig {
        slots: 1,
        memory_bytes: limits.memory_bytes,
        compiler: compiler.compiler()?,
        profiling: false,
    })
}

async fn check(args: Check) -> anyhow::Result<()> {
    let limits = args.limits.limits()?;
    let sandbox = sandbox(&limits, &args.compiler)?;
    let (bytes, inspection) = look_at(&args.file, &sandbox).await?;
    let problem = inspection.problem.clone().or_else(|| inspection.check_limits(&limits).err());
    let mut verdict = Verdict { inspection, limits, grants: Grants::default(), trial: None };
    if let (None, Some(payload)) = (&problem, &args.trial) {
        verdict.trial = Some(try_once(&args.file, bytes, payload, limits, Grants::usual(), &sandbox).await?);
    }
    if args.json {
        print::json(&verdict.as_json())?;
    } else {
        verdict.print();
    }
    if let Some(problem) = problem {
        anyhow::bail!("{} cannot run as a job: {problem}", args.file.display());
    }
    verdict.check_trial()
}

async fn push(args: Push) -> anyhow::Result<()> {
    let limits = args.limits.limits()?;
    let grants = args.grants.grants(args.secret)?;
    let retry = args.retry.settings();
    retry.validate()?;
    let sandbox = sandbox(&limits, &args.compiler)?;
    let store = args.common.store()?;
    let trial = match &args.trial {
        None => None,
        Some(payload) => {
            let Inspected { bytes, verdict, .. } = inspect(&args.file, &limits, &sandbox).await?;
            let trial = Some(try_once(&args.file, bytes, payload, limits, &grants, &sandbox).await?);
            let verdict = Verdict { inspection: verdict, limits, grants: grants.clone(), trial };
            if verdict.check_trial().is_err() && !args.common.json {
                verdict.print();
            }
            verdict.check_trial().context("nothing was uploaded")?;
            verdict.trial
        }
    };
    let (inspection, pushed) = Upload {
        tenant: &args.tenant,
        name: &args.name,
        file: &args.file,
        limits,
        grants: &grants,
        on_failure: &args.on,
        activate: !args.no_activate,
        retry,
    }
    .send(&store, &sandbox)
    .await?;
    let verdict = Verdict { inspection, limits, grants, trial };
    if args.common.json {
        return print::json(&serde_json::json!({
            "tenant": args.tenant, "module": args.name, "version": pushed.version, "created": pushed.created,
            "active": !args.no_activate, "verdict": verdict.as_json(),
        }));
    }
    println!(
        "{} version {} of module {}{}",
        if pushed.created { "uploaded" } else { "unchanged:" },
        pushed.version,
        args.name,
        if args.no_activate { ", not active" } else { "" },
    );
    verdict.print();
    Ok(())
}

/// A file on its way to be a version of a module.
pub(super) struct Upload<'a> {
    pub tenant: &'a str,
    pub name: &'a str,
    pub file: &'a Path,
    pub limits: Limits,
    pub grants: &'a Grants,
    pub on_failure: &'a [(FailureKind, OnFailure)],
    pub activate: bool,
    pub retry: RetrySettings,
}

impl Upload<'_> {
    /// Uploads the file if the sandbox finds that it can run within the limits.
    pub async fn send(&self, store: &Store, sandbox: &Sandbox) -> anyhow::Result<(Inspection, Pushed)> {
        let Inspected { bytes, kind, verdict } = inspect(self.file, &self.limits, sandbox).await?;
        let new = NewVersion {
            tenant: self.tenant,
            name: self.name,
            kind,
            bytes: &bytes,
            limits: self.limits,
            grants: self.grants,
            on_failure: self.on_failure,
            imports: &verdict.imports,
            activate: self.activate,
            retry: self.retry,
        };
        let pushed = store.push_module(&new).await?;
        Ok((verdict, pushed))
    }
}

/// A module that can run within the limits it was inspected for.
pub(super) struct Inspected {
    pub bytes: Vec<u8>,
    pub kind: ModuleKind,
    pub verdict: Inspection,
}

/// Has the sandbox look at a file; refuses one that could not run.
pub(super) async fn inspect(file: &Path, limits: &Limits, sandbox: &Sandbox) -> anyhow::Result<Inspected> {
    let (bytes, verdict) = look_at(file, sandbox).await?;
    if let Some(problem) = &verdict.problem {
        anyhow::bail!("{} cannot run as a job: {problem}", file.display());
    }
    verdict.check_limits(limits)?;
    let kind = verdict.kind.context("a module without a problem has a kind")?;
    Ok(Inspected { bytes, kind, verdict })
}

async fn look_at(file: &Path, sandbox: &Sandbox) -> anyhow::Result<(Vec<u8>, Inspection)> {
    let bytes = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let sandbox = sandbox.clone();
    let looking = tokio::task::spawn_blocking(move || {
        let inspection = sandbox.inspect(&bytes);
        (bytes, inspection)
    });
    looking.await.context("inspecting the module")
}

/// Runs the module once as a job with this payload.
async fn try_once(
    file: &Path,
    bytes: Vec<u8>,
    payload: &str,
    limits: Limits,
    grants: &Grants,
    sandbox: &Sandbox,
) -> anyhow::Result<Tried> {
    let grants = Arc::new(grants.clone());
    let job = Job { payload: Some(parse::payload(payload)?), limits, grants, ..Job::default() };
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let config = sandbox.config().clone();
    let opening = tokio::task::spawn_blocking(move || Harness::from_bytes(&name, &bytes, &config));
    let harness = opening.await.context("compiling")??;
    Ok(harness.run(&job, &RunControl::new()).await)
}
