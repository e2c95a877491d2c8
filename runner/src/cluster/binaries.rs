//! Where the server's programs are. Distributions keep several versions side by side and none of them in PATH, so the
//! usual places are looked at, newest version first; data made by one version is only ever given to the same one.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tokio::process::Command;

/// Older ones lack what the schema uses.
const OLDEST: u32 = 14;
/// Debian and its children: a folder a version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A folder with `postgres` and `initdb` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    pub folder: PathBuf,
    /// "15.18".
    pub version: String,
}

impl Binaries {
    /// In `given` alone, or else wherever they usually are. `major` is the version that made the data, where there is some.
    pub async fn find(given: Option<&Path>, major: Option<u32>) -> anyhow::Result<Self> {
        if let Some(folder) = given {
            let binaries = Self::in_folder(folder).await?.with_context(|| {
                format!("{} has no postgres and initdb in it; PG_BIN names a server's bin folder", folder.display())
            })?;
            return match binaries.fits(major) {
                Ok(()) => Ok(binaries),
                Err(reason) => anyhow::bail!("{} has PostgreSQL {}; {reason}", folder.display(), binaries.version),
            };
        }
        let mut misfits = Vec::new();
        for folder in candidates().await {
            let Some(binaries) = Self::in_folder(&folder).await? else { continue };
            match binaries.fits(major) {
                Ok(()) => return Ok(binaries),
                Err(reason) => misfits.push((binaries, reason)),
            }
        }
        let package = major.map_or("postgresql".into(), |major| format!("postgresql-{major}"));
        match misfits.first() {
            Some((binaries, reason)) => anyhow::bail!(
                "found PostgreSQL {} in {}; {reason}; install it (sudo apt-get install {package}) or name its bin folder in PG_BIN",
                binaries.version,
                binaries.folder.display()
            ),
            None => anyhow::bail!(
                "no PostgreSQL server is installed (looked at pg_config, {DEBIAN} and PATH); install one \
                 (sudo apt-get install {package}), name its bin folder in PG_BIN, or name a running server in DATABASE_URL"
            ),
        }
    }

    /// None when the programs are not there.
    async fn in_folder(folder: &Path) -> anyhow::Result<Option<Self>> {
        let server = folder.join("postgres");
        if !server.is_file() || !folder.join("initdb").is_file() {
            return Ok(None);
        }
        let said = Command::new(&server).arg("--version").output().await;
        let said = said.with_context(|| format!("running {} --version", server.display()))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let version = version_in(&said).with_context(|| format!("{} --version said {said:?}", server.display()))?;
        Ok(Some(Self { folder: folder.to_owned(), version }))
    }

    fn major(&self) -> u32 {
        self.version.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse().ok()).unwrap_or(0)
    }

    /// Why not, as the second half of a sentence.
    fn fits(&self, major: Option<u32>) -> Result<(), String> {
        match major {
            Some(major) if major != self.major() => Err(format!("the data here was made by version {major}")),
            _ if self.major() < OLDEST => Err(format!("version {OLDEST} or newer is needed")),
            _ => Ok(()),
        }
    }
}

/// "postgres (PostgreSQL) 15.18 (Debian ...)", "postgres (PostgreSQL) 18beta1".
fn version_in(said: &str) -> Option<String> {
    let version = said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(version.to_owned())
}

async fn candidates() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    folders.extend(said_by(Command::new("pg_config").arg("--bindir")).await);
    folders.extend(newest_first(Path::new(DEBIAN)));
    let in_path = said_by(Command::new("sh").args(["-c", "command -v postgres"])).await;
    folders.extend(in_path.and_then(|server| Some(server.parent()?.to_owned())));
    folders
}

async fn said_by(command: &mut Command) -> Option<PathBuf> {
    let output = command.stderr(std::process::Stdio::null()).output().await.ok()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !said.is_empty()).then(|| said.into())
}

fn newest_first(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let major = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut versions: Vec<_> =
        entries.flatten().filter_map(|entry| Some((major(&entry.path())?, entry.path().join("bin")))).collect();
    versions.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_say_them() {
        let read = |said| version_in(said).expect("a version");
        assert_eq!(read("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), "15.18");
        assert_eq!(read("postgres (PostgreSQL) 18beta1"), "18beta1");
        assert_eq!(version_in("sh: postgres: not found"), None);
    }

    #[test]
    fn the_newest_version_comes_first_by_number() {
        let root = std::env::temp_dir().join(format!("leasehold-versions-{}", std::process::id()));
        for name in ["9.6", "14", "9", "15", "common"] {
            std::fs::create_dir_all(root.join(name)).expect("a temporary folder");
        }
        let found = newest_first(&root);
        std::fs::remove_dir_all(&root).expect("just made");
        let names: Vec<_> = found.iter().map(|path| path.strip_prefix(&root).expect("inside")).collect();
        assert_eq!(names, [Path::new("15/bin"), Path::new("14/bin"), Path::new("9/bin")]);
    }

    #[test]
    fn data_is_given_to_the_version_that_made_it_and_no_other() {
        let server = |version: &str| Binaries { folder: "/bin".into(), version: version.into() };
        assert_eq!(server("15.18").fits(Some(15)), Ok(()));
        assert_eq!(server("18beta1").fits(None), Ok(()));
        assert_eq!(server("16.1").fits(Some(15)), Err("the data here was made by version 15".into()));
        assert_eq!(server("13.9").fits(None), Err("version 14 or newer is needed".into()));
    }
}
