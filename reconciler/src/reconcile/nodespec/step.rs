//! Whether a node needs another spec, another signature, or nothing. Pure.

use schema::{generation::Generation, time::Timestamp};
use store::nodes::{Node, StoredSpec};

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

pub(super) fn decide(node: &Node, stored: Option<&StoredSpec>, wanted: &[u8], now: Timestamp) -> Step {
    let reported = node.observed.max(node.applied);
    let next = Step::Store { to: node.generation.max(reported).next() };
    match stored {
        None => next,
        Some(stored) if stored.bytes != wanted => next,
        // A node ahead of this database refuses everything up to what it has: the named exception of "a generation moves
        // only when the spec differs".
        Some(_) if reported > node.generation => next,
        Some(spec) => {
            let worker = stored::decode(&spec.signature).and_then(|signature| signature.certificate().ok());
            let young = worker.is_some_and(|worker| !worker.is_past_half_life(now));
            if young { Step::Nothing } else { Step::SignAgain }
        }
    }
}
