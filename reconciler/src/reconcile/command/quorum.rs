//! The quorum's seam in the queue: what every daemon would refuse is refused up front.

use schema::{command::CommandKind, id::BatchId};

/// What the trust policy says about destructive commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuorumPolicy {
    /// How many destructive commands outside a batch are allowed in an hour.
    pub unbatched_destructive_per_hour: u32,
}

/// A destructive command needs a batch that people approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is destructive and needs an approved batch")]
pub struct BatchRequired(pub CommandKind);

impl BatchRequired {
    /// The stable word.
    pub const CODE: &'static str = "batch-required";
}

/// Whether a command may be queued at all. Without a trust policy everything may, and a batch is recorded for audit only.
///
/// # Errors
/// [`BatchRequired`] for a destructive kind outside a batch, where the policy allows none of those.
pub fn may_queue(
    kind: CommandKind,
    batch: Option<BatchId>,
    policy: Option<&QuorumPolicy>,
) -> Result<(), BatchRequired> {
    match policy {
        Some(policy) if kind.row().destructive && batch.is_none() && policy.unbatched_destructive_per_hour == 0 => {
            Err(BatchRequired(kind))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_policy_without_an_allowance_asks_for_a_batch_and_only_for_what_is_destructive() {
        let strict = QuorumPolicy { unbatched_destructive_per_hour: 0 };
        let lenient = QuorumPolicy { unbatched_destructive_per_hour: 1 };
        for kind in CommandKind::ALL.iter().copied() {
            for batch in [None, Some(BatchId::generate())] {
                for policy in [None, Some(&strict), Some(&lenient)] {
                    let refused = kind.row().destructive && batch.is_none() && policy == Some(&strict);
                    assert_eq!(may_queue(kind, batch, policy).is_err(), refused, "{kind} {batch:?} {policy:?}");
                }
            }
        }
    }
}
