//! Where the database is and how it is reached: a URL as libpq takes it, with TLS as `sslmode` asks for.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres_rustls::MakeRustlsConnect;

/// A parsed DATABASE_URL. Its Display leaves the password out.
#[derive(Clone)]
pub struct Database {
    config: Config,
    tls: MakeRustlsConnect,
}

impl Database {
    /// `sslmode` in the URL: `disable`, `prefer` (the default) or `require`. Certificates are checked against the system's
    /// wherever TLS is used.
    pub fn parse(url: &str) -> anyhow::Result<Self> {
        let mut config: Config =
            url.parse().context("reading the database URL; it looks like postgres://user:password@host:5432/name")?;
        if config.get_hosts().is_empty() {
            anyhow::bail!("the database URL names no host; it looks like postgres://user:password@host:5432/name");
        }
        config
            .application_name("leasehold")
            .connect_timeout(Duration::from_secs(5))
            .keepalives_idle(Duration::from_secs(30))
            .tcp_user_timeout(Duration::from_secs(30));
        Ok(Self { config, tls: MakeRustlsConnect::new(crate::tls::client_config()?) })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn tls(&self) -> MakeRustlsConnect {
        self.tls.clone()
    }

    /// A setting of each session, as in `-c name=value`.
    pub fn set_option(&mut self, name: &str, value: &str) {
        let own = self.config.get_options().map(|own| format!("{own} ")).unwrap_or_default();
        self.config.options(format!("{own}-c {name}={value}"));
    }

    /// The same server and user, another database.
    pub fn with_name(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.config.dbname(name);
        other
    }

    pub fn name(&self) -> &str {
        self.config.get_dbname().or(self.config.get_user()).unwrap_or("postgres")
    }
}

/// As Display, for the password's sake.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "?".into(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        write!(f, "database {:?} on {host}:{port}", self.name())
    }
}
