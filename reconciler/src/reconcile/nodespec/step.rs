//! Whether a node needs another spec, another signature, or nothing. Pure.

use pki::worker::Signature;
use schema::{generation::Generation, spec::NodeSpec, time::Timestamp};
use store::{
    node_sections::NodeSection,
    nodes::{Node, StoredSpec},
};

use super::stored;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// What is stored is what is wanted, and its signature is young enough.
    Nothing,
    /// The same generation under a fresh signature.
    SignAgain,
    /// A new generation.
    Store { to: Generation },
}

/// Whether the node attempted something else under the generation of this spec: what it signed is the digest of each
/// section that it tried.
pub(in crate::reconcile) fn is_other(spec: &StoredSpec, sections: &[NodeSection]) -> bool {
    let Ok(ours) = NodeSpec::from_bytes(&spec.bytes).map(|spec| spec.section_digests()) else { return false };
    let other = |theirs: &NodeSection| ours.get(&theirs.section).is_some_and(|ours| *ours != theirs.status.digest);
    sections.iter().any(|theirs| theirs.generation == spec.generation && other(theirs))
}

pub(super) fn decide(
    node: &Node,
    stored: Option<&StoredSpec>,
    sections: &[NodeSection],
    wanted: &[u8],
    is_current: impl Fn(&Signature) -> bool,
    now: Timestamp,
) -> Step {
    let reported = node.observed.max(node.applied);
    let next = Step::Store { to: node.generation.max(reported).next() };
    match stored {
        None => next,
        Some(stored) if stored.bytes != wanted => next,
        // A node ahead of this database refuses everything up to what it has: the named exception of "a generation moves
        // only when the spec differs".
        Some(_) if reported > node.generation => next,
        // So does one that has another spec of the same generation.
        Some(stored) if is_other(stored, sections) => next,
        Some(spec) => {
            let signature = stored::decode(&spec.signature).filter(is_current);
            let worker = signature.and_then(|signature| signature.certificate().ok());
            let young = worker.is_some_and(|worker| !worker.is_past_half_life(now));
            if young { Step::Nothing } else { Step::SignAgain }
        }
    }
}
