//! Wire messages from and to the structs of `pki`.

use pki::{bundle::SignedBundle, sealed::SealedToken, worker::Signature};
use proto::agent::v1 as pb;
use rustls_pki_types::CertificateDer;

pub(super) fn signature(signature: Signature) -> pb::Signature {
    let Signature { worker, root_signature, signature } = signature;
    pb::Signature { worker, root_signature, signature }
}

pub(super) fn bundle(bundle: &SignedBundle) -> pb::SignedTrustBundle {
    pb::SignedTrustBundle { bundle: bundle.bytes.clone(), signature: bundle.signature.clone() }
}

pub(super) fn chain(chain: &[CertificateDer<'_>]) -> Vec<Vec<u8>> {
    chain.iter().map(|certificate| certificate.to_vec()).collect()
}

pub(super) fn sealed(token: pb::SealedToken) -> SealedToken {
    let pb::SealedToken { key_id, encapsulated_key, ciphertext } = token;
    SealedToken { key_id, encapsulated_key, ciphertext }
}
