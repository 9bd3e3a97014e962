//! TLS as the SDK speaks it: rustls over ring, trusting whom the system trusts.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// The certificates that the system trusts. A host without any trusts nobody, which matters only if TLS is spoken.
pub(crate) fn trusted_by_the_system() -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = || ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let trusting = builder().and_then(|builder| builder.with_platform_verifier());
    trusting.map_or_else(
        |error| {
            tracing::debug!(%error, "no certificate authorities on this host");
            trusting_nobody()
        },
        |builder| builder.with_no_client_auth(),
    )
}

fn trusting_nobody() -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    match builder {
        Ok(builder) => builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
        // The provider speaks TLS 1.3: there is no such case, and no TLS without it.
        Err(_) => ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
    }
}
