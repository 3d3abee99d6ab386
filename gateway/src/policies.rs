//! What people agreed on, kept at hand for nodes: the trust policies and whose keys were revoked.
//!
//! The gateway believes nothing of it and adds nothing to it. A node judges each policy by the one before; a gateway can
//! withhold one, and no more.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use proto::agent::v1 as pb;
use schema::time::Timestamp;
use store::{Db, DbError, trust};

use crate::{registry::Registry, session::Input, shared::Shared};

/// How old what is at hand may be when a session opens: no command goes to a node that was not told what people agreed on.
const FRESH: Duration = Duration::from_secs(1);

/// The policies of this fleet, as far as this gateway knows.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    known: Mutex<Known>,
    looked: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    /// Counts what was news.
    version: u64,
    /// In order, each with the time at which it came into force.
    policies: Vec<(Timestamp, pb::Policy)>,
    /// In the order in which they were first seen.
    revocations: Vec<(Timestamp, Vec<u8>)>,
    /// A worker's word on the first one; absent while the control plane is pinned to no fleet.
    first: Option<pb::FirstPolicy>,
}

/// What one node is given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    /// What it is up to date with.
    pub(crate) version: u64,
    /// One epoch at a time, each behind the revocations that were heard before it: so a node judges as the control plane did.
    pub(crate) frames: Vec<pb::Policies>,
}

impl Known {
    fn after(&self, epoch: u64) -> Given {
        let heard = |before: Timestamp| -> Vec<Vec<u8>> {
            self.revocations.iter().filter(|(at, _)| *at <= before).map(|(_, raw)| raw.clone()).collect()
        };
        let news = self.policies.iter().filter(|(_, policy)| policy.epoch > epoch);
        let mut frames: Vec<pb::Policies> = news
            .map(|(at, policy)| pb::Policies {
                policies: vec![policy.clone()],
                revocations: heard(*at),
                // The word on the first policy is for who has none.
                first: self.first.clone().filter(|_| epoch == 0 && policy.epoch == 1),
            })
            .collect();
        // Where the rows are gone, a machine is told all the same that it has to ask people.
        if epoch == 0 && self.first.is_some() && frames.iter().all(|frame| frame.first.is_none()) {
            frames.insert(0, pb::Policies { first: self.first.clone(), ..pb::Policies::default() });
        }
        let all = heard(Timestamp::MAX);
        if !all.is_empty() && frames.last().is_none_or(|last| last.revocations.len() < all.len()) {
            frames.push(pb::Policies { revocations: all, ..pb::Policies::default() });
        }
        Given { version: self.version, frames }
    }
}

impl Policies {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks, unless somebody just did: many sessions that open at once cost one look.
    pub(crate) async fn fresh(&self, shared: &Shared) -> Result<(), DbError> {
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|at| at.elapsed() < FRESH) {
            return Ok(());
        }
        let first = shared.trust.first(&*shared.control_plane).await;
        self.look(&shared.db, first).await?;
        *looked = Some(Instant::now());
        Ok(())
    }

    /// What a node that believes a policy of this epoch is given when its session opens.
    pub(crate) fn give(&self, epoch: u64) -> Given {
        self.lock().after(epoch)
    }

    /// Looks what is news. The newest policy is looked at again, for there may be another one of its epoch.
    pub(crate) async fn look(&self, db: &Db, first: Option<pb::FirstPolicy>) -> Result<(), DbError> {
        let newest = self.lock().policies.last().cloned();
        let from = newest.as_ref().map_or(0, |(_, policy)| policy.epoch.saturating_sub(1));
        let mut rows = trust::epochs_after(db, from).await?;
        if newest.is_some_and(|(_, newest)| rows.first().is_none_or(|row| row.policy != newest.document)) {
            rows = trust::epochs(db).await?;
        }
        let revocations = trust::statements_of(db, &["revoke/v1"], None).await?;
        let revocations: Vec<(Timestamp, Vec<u8>)> =
            revocations.into_iter().map(|statement| (statement.first_seen_at, statement.raw)).collect();
        let fresh = rows
            .into_iter()
            .map(|row| (row.at, pb::Policy { epoch: row.epoch, document: row.policy, statements: row.statements }));
        let mut known = self.lock();
        let begin = (known.policies.clone(), known.revocations.len(), known.first.is_some());
        for policy in fresh {
            known.policies.retain(|(_, other)| other.epoch < policy.1.epoch);
            known.policies.push(policy);
        }
        (known.revocations, known.first) = (revocations, first);
        let changed = begin != (known.policies.clone(), known.revocations.len(), known.first.is_some());
        known.version += u64::from(changed);
        Ok(())
    }

    /// Tells every session what it was not told yet.
    pub(crate) fn tell(&self, registry: &Registry) {
        let known = self.lock().clone();
        for seat in registry.all() {
            let (epoch, version) = seat.policies();
            if version >= known.version {
                continue;
            }
            let given = known.after(epoch);
            if !given.frames.is_empty() {
                seat.mailbox.put(Input::Policies(given.frames));
            }
            // The node says with its next Hello what it took; until then it gets all that came since this one.
            seat.was_told_policies(given.version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn policy(epoch: u64) -> (Timestamp, pb::Policy) {
        let second = i64::try_from(epoch * 10).expect("few");
        (at(second), pb::Policy { epoch, document: epoch.to_string().into_bytes(), statements: Vec::new() })
    }

    /// Of each frame: epochs, revocations, whether it has the word on the first policy.
    fn told(known: &Known, since: u64) -> Vec<(Vec<u64>, usize, bool)> {
        let words = |frame: pb::Policies| {
            let epochs = frame.policies.iter().map(|policy| policy.epoch).collect();
            (epochs, frame.revocations.len(), frame.first.is_some())
        };
        known.after(since).frames.into_iter().map(words).collect()
    }

    #[test]
    fn a_node_gets_what_follows_and_a_fresh_one_the_word_on_the_first() {
        let mut known = Known { policies: (1..=3).map(policy).collect(), ..Known::default() };
        assert_eq!(told(&known, 0), [(vec![1], 0, false), (vec![2], 0, false), (vec![3], 0, false)]);
        known.first = Some(pb::FirstPolicy::default());
        assert_eq!(told(&known, 0), [(vec![1], 0, true), (vec![2], 0, false), (vec![3], 0, false)]);
        assert_eq!(told(&known, 2), [(vec![3], 0, false)]);
        let gone = Known { first: known.first.clone(), ..Known::default() };
        assert_eq!(told(&gone, 0), [(vec![], 0, true)], "somebody deleted the rows");
        assert_eq!(told(&gone, 1), []);
        assert_eq!(told(&known, 3), []);
        assert_eq!(told(&Known::default(), 0), [], "a fleet without a policy says nothing");
    }

    #[test]
    fn revocations_are_told_in_the_order_in_which_they_were_heard() {
        let mut known = Known { policies: (1..=3).map(policy).collect(), ..Known::default() };
        known.revocations = vec![(at(15), vec![1]), (at(40), vec![2])];
        assert_eq!(
            told(&known, 0),
            [(vec![1], 0, false), (vec![2], 1, false), (vec![3], 1, false), (vec![], 2, false)],
            "what came later says nothing against what was agreed before"
        );
        assert_eq!(told(&known, 3), [(vec![], 2, false)], "what takes away is told whatever the node has");
    }
}
