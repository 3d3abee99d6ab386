//! Wire messages to the types of `pki`, part by part: nothing is believed here yet.

use pki::{
    bundle::{SignedBundle, TrustBundle},
    sealed::SealedToken,
    worker::Signature,
};
use proto::agent::v1 as pb;
use schema::{id::NodeId, time::Timestamp};

/// A worker's signature. An absent one has empty parts and never verifies.
pub(crate) fn signature(message: Option<pb::Signature>) -> Signature {
    let pb::Signature { worker, root_signature, signature } = message.unwrap_or_default();
    Signature { worker, root_signature, signature }
}

/// A trust bundle.
pub(crate) fn bundle(message: pb::SignedTrustBundle) -> SignedBundle {
    SignedBundle { bytes: message.bundle, signature: message.signature }
}

/// The time that a worker signed for this node and this nonce.
pub(crate) fn proven_time(
    trust: &TrustBundle,
    node: NodeId,
    nonce: &[u8; 32],
    signed: Option<pb::SignedTime>,
) -> Result<Timestamp, String> {
    let signed = signed.ok_or("the gateway brought no signed time")?;
    if signed.nonce != nonce {
        return Err("the gateway's time answers another nonce".to_owned());
    }
    let time: Timestamp = signed.time.parse().map_err(|_| "the gateway's time is no time")?;
    trust
        .verifier()
        .server_time(node, nonce, time, &signature(signed.signature))
        .map_err(|error| format!("the gateway's time is not believed: {error}"))?;
    Ok(time)
}

/// A sealed token.
pub(crate) fn sealed(token: SealedToken) -> pb::SealedToken {
    let SealedToken { key_id, encapsulated_key, ciphertext } = token;
    pb::SealedToken { key_id, encapsulated_key, ciphertext }
}
