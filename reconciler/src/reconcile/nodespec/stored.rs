//! The stored form of a signature: the wire message, so that a gateway sends it as it is.

use pki::worker::Signature;
use prost::Message as _;
use proto::agent::v1 as pb;

pub(in crate::reconcile) fn encode(signature: Signature) -> Vec<u8> {
    let Signature { worker, root_signature, signature } = signature;
    pb::Signature { worker, root_signature, signature }.encode_to_vec()
}

/// The signature in a column; `None` when it is none, and then it is made again.
pub(crate) fn decode(bytes: &[u8]) -> Option<Signature> {
    let pb::Signature { worker, root_signature, signature } = pb::Signature::decode(bytes).ok()?;
    Some(Signature { worker, root_signature, signature })
}
