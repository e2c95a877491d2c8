//! A private PostgreSQL in a folder: made at the first start, the same data, port and password at each later one.
//!
//! Whoever else has an account on the machine must get nothing out of it. So the server listens on 127.0.0.1 alone and
//! asks everybody, on its socket too, for a random password (SCRAM, which never sends it); the file with the password is
//! readable by its owner only. A socket without a password would be as safe for one user, but a server that root starts
//! has to run as somebody else, and many a client takes nothing but a host and a port. A folder serves one process at a
//! time, which a lock on a file says: the kernel gives it back however that process ends.

mod binaries;
mod folder;
mod owner;
mod server;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tracing::info;

use binaries::Binaries;
use folder::{Folder, Settings};
use owner::Owner;
use server::Server;

/// The superuser, whose password is in the settings.
const USER: &str = "postgres";
/// The database that every cluster has; others are made from it.
const FIRST_DATABASE: &str = "postgres";
/// How often another port is tried when somebody takes the one just found free. Twice in a row is no accident.
const PORT_TRIES: usize = 3;

/// How a cluster is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder with `postgres` and `initdb`; found by itself when None.
    pub binaries: Option<PathBuf>,
    /// The port on 127.0.0.1; the one of last time, or a random free one at first, when None.
    pub port: Option<u16>,
    /// Whether commits and the making of the cluster wait for the disk. Off only for data that nobody will miss.
    pub durable: bool,
    /// Shut the server down when the thread that starts it ends, however it ends. Off where a cluster is to outlive that
    /// thread, as one does that tests share.
    pub ends_with_thread: bool,
    /// More settings for `postgres -c`.
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self { binaries: None, port: None, durable: true, ends_with_thread: false, settings: Vec::new() }
    }
}

/// A running server. Dropping it asks the server to stop and does not wait; `stop` waits.
pub struct Cluster {
    server: Server,
    settings: Settings,
    folder: Folder,
}

impl Cluster {
    /// Starts the cluster of the folder; makes both when they are not there yet, in a second or two.
    pub async fn start(dir: &Path, options: &Options) -> anyhow::Result<Self> {
        let folder = Folder::open(dir)?;
        let known = folder.settings()?;
        // Data decides who runs the server and which version it has to be.
        let found = known.as_ref().map(|settings| folder.data(settings)).filter(|data| data.exists());
        let owner = Owner::of_server(folder.dir(), found.as_deref())?;
        let major = found.as_deref().map(folder::major_version).transpose()?;
        let binaries = Binaries::find(options.binaries.as_deref(), major).await?;
        let mut settings = match known {
            Some(settings) => settings,
            None => {
                let settings = Settings::new(folder.place_for_data(&owner).await?);
                folder.save(&settings)?;
                settings
            }
        };
        let data = folder.data(&settings);
        if !data.exists() {
            info!("making a PostgreSQL {} cluster in {}", binaries.version, data.display());
            server::init(&binaries, &owner, &data, &settings.password, options.durable).await?;
        }
        server::stop_leftover(&data).await?;

        let mut tries = 0;
        loop {
            tries += 1;
            let port = choose_port(options.port, settings.port)?;
            match Server::start(&binaries, &owner, &folder, &data, port, options).await {
                Ok(server) => {
                    if port != settings.port {
                        settings.port = port;
                        folder.save(&settings)?;
                    }
                    return Ok(Self { server, settings, folder });
                }
                Err(server::StartError::PortTaken) if options.port.is_none() && tries < PORT_TRIES => (),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The URL of a database of this server, password and all.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/{database}", self.settings.password, self.settings.port)
    }

    /// The file that the server writes its log to.
    pub fn log(&self) -> PathBuf {
        self.folder.log()
    }

    /// Writes a file that a shell can source to reach a database with any client. A URL on a command line shows its
    /// password to everybody who asks for the machine's processes.
    pub fn write_env(&self, database: &str) -> anyhow::Result<PathBuf> {
        let Settings { port, password, .. } = &self.settings;
        let text = format!(
            "export DATABASE_URL={}\n\
             export PGHOST=127.0.0.1 PGPORT={port} PGUSER={USER} PGPASSWORD={password} PGDATABASE={database}\n",
            self.url(database)
        );
        self.folder.write("env", &text)
    }

    /// Makes a database; one that exists is left as it is.
    pub async fn create_database(&self, name: &str) -> anyhow::Result<()> {
        let client = self.connect().await?;
        let found = client.query("select from pg_catalog.pg_database where datname = $1", &[&name]).await;
        if found.map_err(crate::store::explain).context("looking for the database")?.is_empty() {
            let sql = format!("create database {}", quoted(name));
            client.batch_execute(&sql).await.map_err(crate::store::explain).context("creating the database")?;
        }
        Ok(())
    }

    /// Drops a database with all that is in it, whoever is connected to it.
    pub async fn drop_database(&self, name: &str) -> anyhow::Result<()> {
        let sql = format!("drop database if exists {} with (force)", quoted(name));
        self.connect().await?.batch_execute(&sql).await.map_err(crate::store::explain).context("dropping the database")
    }

    async fn connect(&self) -> anyhow::Result<tokio_postgres::Client> {
        let url = self.url(FIRST_DATABASE);
        let connecting = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
        let (client, connection) =
            connecting.map_err(crate::store::explain).context("connecting to the private cluster")?;
        // Ends when the client is dropped.
        tokio::spawn(connection);
        Ok(client)
    }

    /// Answers when the server has ended without having been asked to.
    pub async fn ended(&mut self) -> anyhow::Error {
        self.server.ended(&self.folder.log()).await
    }

    /// Ends sessions, writes what has to be written and stops.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.server.stop().await
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The wanted port or none; else that of last time while it is free, so that URLs stay good; else any free one.
fn choose_port(wanted: Option<u16>, last: u16) -> anyhow::Result<u16> {
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port));
    if let Some(port) = wanted {
        return free(port).map(|_| port).with_context(|| format!("port {port} of 127.0.0.1 cannot be had"));
    }
    if last != 0 {
        match free(last) {
            Ok(_) => return Ok(last),
            Err(_) => info!("port {last} is taken by now; the database URL changes"),
        }
    }
    let listener = free(0).context("looking for a free port on 127.0.0.1")?;
    Ok(listener.local_addr().context("reading the port")?.port())
}
