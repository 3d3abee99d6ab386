//! The one cryptographic provider: aws-lc-rs.

use std::sync::{Arc, OnceLock};

use aws_lc_rs::hmac;
use rustls::crypto::CryptoProvider;

/// Makes aws-lc-rs the process-wide provider of rustls. Calling it again changes nothing.
pub fn install_provider() {
    // A second installation fails, and the first one is the same provider.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
}

/// The provider that every configuration of this crate names explicitly.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())))
}

/// 32 bytes that follow from a secret, for one purpose, and say nothing about it.
pub(crate) fn derive(secret: &[u8], purpose: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), purpose)
}

/// Random bytes from the provider.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the provider's random generator does not fail after start");
    bytes
}
