//! Who runs the server: ourselves, except that PostgreSQL refuses to be root. Then it is the user that a package made for
//! it, or else nobody, and the data belongs to that user.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use tokio::process::Command;

/// Whom root lets run a server, the first that exists.
const STAND_INS: [&str; 2] = ["postgres", "nobody"];

/// The user of the server's processes and files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    Ourselves,
    Other { name: String, uid: u32, gid: u32 },
}

impl Owner {
    /// As root: the owner of the data there is; or else of the folder, who may start the cluster next; or a stand-in.
    pub fn of_server(dir: &Path, data: Option<&Path>) -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Ourselves);
        }
        if let Some(data) = data {
            let meta = data.metadata().with_context(|| format!("reading {}", data.display()))?;
            anyhow::ensure!(
                meta.uid() != 0,
                "{} belongs to root, as whom PostgreSQL does not run; give it to another user or move it away",
                data.display()
            );
            return Ok(Self::Other { name: format!("number {}", meta.uid()), uid: meta.uid(), gid: meta.gid() });
        }
        let owner = dir.metadata().with_context(|| format!("reading {}", dir.display()))?.uid();
        let passwd = std::fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
        // The owner may be unknown here, as in a container; initdb wants a user with a name.
        let known = (owner != 0).then(|| find(&passwd, 2, &owner.to_string())).flatten();
        known.or_else(|| STAND_INS.iter().find_map(|name| find(&passwd, 0, name))).with_context(|| {
            format!(
                "PostgreSQL does not run as root, and there is no user {} to run it; run this as an ordinary user",
                STAND_INS.join(" or ")
            )
        })
    }

    /// Makes the command run as this user, and away from folders that it may not enter.
    pub fn run(&self, command: &mut Command) {
        command.current_dir("/");
        if let Self::Other { uid, gid, .. } = self {
            // The standard library drops root's other groups with this.
            command.uid(*uid).gid(*gid);
        }
    }

    /// Hands a file or folder over.
    pub fn own(&self, path: &Path) -> anyhow::Result<()> {
        match self {
            Self::Ourselves => Ok(()),
            Self::Other { uid, gid, name } => std::os::unix::fs::chown(path, Some(*uid), Some(*gid))
                .with_context(|| format!("giving {} to user {name}", path.display())),
        }
    }

    /// Whether the user can get into a folder, through all that lie above it. Only that user can tell.
    pub async fn can_enter(&self, folder: &Path) -> anyhow::Result<bool> {
        let mut test = Command::new("test");
        self.run(&mut test);
        let status = test.arg("-x").arg(folder).stdin(Stdio::null()).status().await.context("running test -x")?;
        Ok(status.success())
    }
}

/// The line of /etc/passwd whose field number so and so is this.
fn find(passwd: &str, field: usize, value: &str) -> Option<Owner> {
    let line = passwd.lines().find(|line| line.split(':').nth(field) == Some(value))?;
    let mut fields = line.split(':');
    let (name, _password) = (fields.next()?.to_owned(), fields.next()?);
    Some(Owner::Other { name, uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name_or_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\npostgres2:x:7:7::/:\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        let postgres = Some(Owner::Other { name: "postgres".into(), uid: 101, gid: 104 });
        assert_eq!(find(passwd, 0, "postgres"), postgres);
        assert_eq!(find(passwd, 2, "101"), postgres);
        assert_eq!(find(passwd, 0, "nobody"), None);
        assert_eq!(find(passwd, 2, "10"), None);
    }
}
