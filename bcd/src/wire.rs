//! Wire messages to the types of `pki`, part by part: nothing is believed here yet.

use pki::{bundle::SignedBundle, sealed::SealedToken, worker::Signature};
use proto::agent::v1 as pb;

/// A worker's signature. An absent one has empty parts and never verifies.
pub(crate) fn signature(message: Option<pb::Signature>) -> Signature {
    let pb::Signature { worker, root_signature, signature } = message.unwrap_or_default();
    Signature { worker, root_signature, signature }
}

/// A trust bundle.
pub(crate) fn bundle(message: pb::SignedTrustBundle) -> SignedBundle {
    SignedBundle { bytes: message.bundle, signature: message.signature }
}

/// A sealed token.
pub(crate) fn sealed(token: SealedToken) -> pb::SealedToken {
    let SealedToken { key_id, encapsulated_key, ciphertext } = token;
    pb::SealedToken { key_id, encapsulated_key, ciphertext }
}
