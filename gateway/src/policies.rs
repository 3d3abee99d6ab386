//! What people agreed on, kept at hand for nodes: the trust policies and whose keys were revoked.
//!
//! The gateway believes nothing of it and adds nothing to it. A node judges each policy by the one before; a gateway can
//! withhold one, and no more. Policies and revocations go in the order in which the control plane heard them, so that a node comes to the
//! same.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use proto::agent::v1 as pb;
use store::{Db, DbError, trust};
use tokio::sync::Notify;

use crate::{registry::Registry, session::Input, shared::Shared, trust::NO_STEPS, writer};

/// How old what is at hand may be when a session opens: no command goes to a node that was not told what people agreed on.
const FRESH: Duration = Duration::from_secs(1);
/// How long the control plane may take to answer with which policy the fleet begins.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of policies and revocations in one frame, but for one that is larger alone; a frame has some MiB at most.
const PER_FRAME: usize = 1 << 20;

/// The policies of this fleet, as far as this gateway knows.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    known: Mutex<Known>,
    looked: tokio::sync::Mutex<Option<Instant>>,
    news: Notify,
}

#[derive(Debug, Clone, Default)]
struct Known {
    /// Counts what was news.
    version: u64,
    /// In order.
    policies: Vec<pb::Policy>,
    /// In the order in which they were heard, each behind the policy of an epoch.
    revocations: Vec<(u64, Vec<u8>)>,
    /// A worker's word on the first one; absent while the control plane is pinned to no fleet.
    first: Option<pb::FirstPolicy>,
}

/// What one node is given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    /// What it is up to date with.
    pub(crate) version: u64,
    /// A node hears the revocations of a frame, and then takes its policies.
    pub(crate) frames: Vec<pb::Policies>,
}

/// Frames that are filled in order.
#[derive(Default)]
struct Frames {
    done: Vec<pb::Policies>,
    open: pb::Policies,
    bytes: usize,
}

impl Frames {
    fn close(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.bytes = 0;
        self.done.extend((open != pb::Policies::default()).then_some(open));
    }

    fn room_for(&mut self, bytes: usize) {
        if self.bytes + bytes > PER_FRAME {
            self.close();
        }
        self.bytes += bytes;
    }

    /// What takes away comes before the policies of its frame.
    fn revocation(&mut self, raw: &[u8]) {
        if !self.open.policies.is_empty() {
            self.close();
        }
        self.room_for(raw.len());
        self.open.revocations.push(raw.to_vec());
    }

    fn policy(&mut self, policy: &pb::Policy) {
        self.room_for(policy.document.len() + policy.statements.iter().map(Vec::len).sum::<usize>());
        self.open.policies.push(policy.clone());
    }
}

impl Known {
    fn after(&self, epoch: u64) -> Given {
        let mut frames = Frames::default();
        // The word on the first policy is for who has none. Where the rows are gone, it says all the same that people have to be asked.
        frames.open.first = self.first.clone().filter(|_| epoch == 0);
        let mut heard = self.revocations.iter().peekable();
        for policy in self.policies.iter().filter(|policy| policy.epoch > epoch) {
            while let Some((_, raw)) = heard.next_if(|(behind, _)| *behind < policy.epoch) {
                frames.revocation(raw);
            }
            frames.policy(policy);
        }
        heard.for_each(|(_, raw)| frames.revocation(raw));
        frames.close();
        Given { version: self.version, frames: frames.done }
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
        let began = Instant::now();
        if let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, shared.control_plane.trust(NO_STEPS)).await {
            self.begin_with(answer.first_policy);
        }
        self.read(&shared.db).await?;
        *looked = Some(began);
        Ok(())
    }

    /// Looks what is news.
    pub(crate) async fn look(&self, db: &Db) -> Result<(), DbError> {
        // One look at a time: an older answer does not take the place of a later one.
        let mut looked = self.looked.lock().await;
        let began = Instant::now();
        self.read(db).await?;
        *looked = Some(began);
        Ok(())
    }

    /// Keeps what the control plane says of the first policy, which is a fresh word each time.
    pub(crate) fn begin_with(&self, first: Option<pb::FirstPolicy>) {
        let mut known = self.lock();
        known.version += u64::from(known.first.is_some() != first.is_some());
        known.first = first;
    }

    /// Something may be news.
    pub(crate) fn wake(&self) {
        self.news.notify_one();
    }

    /// Waits for that.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// What a node that believes a policy of this epoch is given when its session opens.
    pub(crate) fn give(&self, epoch: u64) -> Given {
        self.lock().after(epoch)
    }

    /// The newest policy is looked at again: what is stored may have been put in its place.
    async fn read(&self, db: &Db) -> Result<(), DbError> {
        let newest = self.lock().policies.last().cloned();
        let from = newest.as_ref().map_or(0, |policy| policy.epoch.saturating_sub(1));
        let (rows, revocations) = writer::answer(async {
            let mut rows = trust::epochs_after(db, from).await?;
            if newest.is_some_and(|newest| rows.first().is_none_or(|row| row.policy != newest.document)) {
                rows = trust::epochs(db).await?;
            }
            Ok((rows, trust::revocations(db).await?))
        })
        .await?;
        let revocations: Vec<(u64, Vec<u8>)> = revocations.into_iter().map(|one| (one.epoch, one.raw)).collect();
        let policies = rows.into_iter().map(|row| pb::Policy {
            epoch: row.epoch,
            document: row.policy,
            statements: row.statements,
        });
        let mut known = self.lock();
        let mut changed = known.revocations != revocations;
        for policy in policies {
            if known.policies.last() != Some(&policy) {
                known.policies.retain(|other| other.epoch < policy.epoch);
                known.policies.push(policy);
                changed = true;
            }
        }
        known.revocations = revocations;
        known.version += u64::from(changed);
        Ok(())
    }

    /// Tells every session what it was not told yet.
    pub(crate) fn tell(&self, registry: &Registry) {
        let version = self.lock().version;
        for seat in registry.all() {
            let (epoch, told) = seat.policies();
            if told >= version {
                continue;
            }
            let given = self.give(epoch);
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

    fn policy(epoch: u64) -> pb::Policy {
        pb::Policy { epoch, document: epoch.to_string().into_bytes(), statements: Vec::new() }
    }

    /// Of each frame: revocations, epochs, whether it has the word on the first policy.
    fn told(known: &Known, since: u64) -> Vec<(usize, Vec<u64>, bool)> {
        let words = |frame: pb::Policies| {
            let epochs = frame.policies.iter().map(|policy| policy.epoch).collect();
            (frame.revocations.len(), epochs, frame.first.is_some())
        };
        known.after(since).frames.into_iter().map(words).collect()
    }

    #[test]
    fn a_node_gets_what_follows_and_a_fresh_one_the_word_on_the_first() {
        let mut known = Known { policies: (1..=200).map(policy).collect(), ..Known::default() };
        assert_eq!(told(&known, 0), [(0, (1..=200).collect(), false)], "one frame, however many there are");
        known.first = Some(pb::FirstPolicy { fleet: "a".to_owned(), ..pb::FirstPolicy::default() });
        assert_eq!(told(&known, 0), [(0, (1..=200).collect(), true)]);
        assert_eq!(told(&known, 198), [(0, vec![199, 200], false)]);
        let gone = Known { first: known.first.clone(), ..Known::default() };
        assert_eq!(told(&gone, 0), [(0, vec![], true)], "somebody deleted the rows");
        assert_eq!(told(&gone, 1), []);
        assert_eq!(told(&known, 200), []);
        assert_eq!(told(&Known::default(), 0), [], "a fleet without a policy says nothing");
    }

    #[test]
    fn revocations_are_told_in_the_order_in_which_they_were_heard() {
        let mut known = Known { policies: (1..=5).map(policy).collect(), ..Known::default() };
        known.revocations = vec![(1, vec![1]), (3, vec![2]), (3, vec![3]), (5, vec![4])];
        assert_eq!(
            told(&known, 0),
            [(0, vec![1], false), (1, vec![2, 3], false), (2, vec![4, 5], false), (1, vec![], false)],
            "what came later says nothing against what was agreed before"
        );
        assert_eq!(told(&known, 4), [(3, vec![5], false), (1, vec![], false)], "a node may have missed some");
        assert_eq!(told(&known, 5), [(4, vec![], false)]);
    }

    #[test]
    fn no_frame_is_larger_than_a_stream_carries() {
        let mut known = Known { policies: (1..=9).map(policy).collect(), ..Known::default() };
        for policy in &mut known.policies {
            policy.statements = vec![vec![0; 16 << 10]; 20];
        }
        known.revocations = (0..300).map(|_| (9, vec![0; 16 << 10])).collect();
        let frames = known.after(0).frames;
        let bytes = |frame: &pb::Policies| {
            let of_policies: usize = frame.policies.iter().flat_map(|policy| &policy.statements).map(Vec::len).sum();
            of_policies + frame.revocations.iter().map(Vec::len).sum::<usize>()
        };
        assert!(
            frames.iter().all(|frame| bytes(frame) <= PER_FRAME),
            "{:?}",
            frames.iter().map(bytes).collect::<Vec<_>>()
        );
        assert_eq!(frames.iter().map(|frame| frame.revocations.len()).sum::<usize>(), 300);
        assert_eq!(frames.iter().map(|frame| frame.policies.len()).sum::<usize>(), 9);
    }
}
