//! TLS towards others: the database, and what guests may call. Certificates are checked against the system's.

use std::sync::Arc;

use anyhow::Context as _;

pub(crate) fn client_config() -> anyhow::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    // A certificate of the system that can't be read is skipped, as browsers and curl do.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("setting up TLS")?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
