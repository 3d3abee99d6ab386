//! What the passing of time means for commands: deadlines, second tries, and what may be forgotten.

use std::time::{Duration, Instant};

use schema::{
    command::{Refusal, UpdateState},
    time::Timestamp,
};

use super::{
    super::{accept::Verdict, journal::MAX_ENTRIES},
    AGAIN, ASK_EVERY, Desk, Do, Known, Moment, Standing, naming,
};

/// How often to look for commands that may be forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// So many commands are remembered before those that are over make room.
pub(super) const CROWDED: usize = MAX_ENTRIES / 4 * 3;
/// How many make room at a time.
pub(super) const ROOM: usize = MAX_ENTRIES / 8;

impl Desk {
    /// The node has attempted a newer spec, or time has passed.
    pub fn tick(&mut self, moment: Moment) -> Vec<Do> {
        let mut decided = self.judge_waiting(moment);
        let Some(now) = moment.now else { return decided };
        let mut left = Vec::new();
        for (id, known) in &mut self.known {
            match &mut known.standing {
                Standing::Waits { paper, ask } if moment.mono >= *ask => {
                    *ask = moment.mono + ASK_EVERY;
                    decided.push(Do::WantSpec(paper.body.min_generation.unwrap_or_default()));
                }
                Standing::Left { ask } if ask.is_some_and(|ask| moment.mono >= ask) => {
                    *ask = None;
                    left.push(known.entry.clone());
                }
                Standing::Queued { ask }
                    if now >= known.entry.not_after && ask.is_none_or(|ask| moment.mono >= ask) =>
                {
                    *ask = Some(moment.mono + AGAIN);
                    decided.push(Do::Expire(*id));
                }
                Standing::Runs { until } if moment.mono >= *until => {
                    *until = moment.mono + AGAIN;
                    decided.push(Do::GiveUp(*id));
                }
                _ => {}
            }
        }
        decided.extend(left.iter().flat_map(|entry| self.left(entry, moment.now)));
        if self.known.len() > CROWDED {
            decided.extend(self.make_room(moment));
        }
        // What is forgotten could be sent again in time, should the time be taken back.
        if moment.confirmed && self.forget_at.is_none_or(|at| moment.mono >= at) {
            self.forget_at = Some(moment.mono + FORGET_EVERY);
            let old = |known: &&Known| {
                matches!(known.standing, Standing::Over | Standing::Left { .. }) && now > known.entry.forgettable_at()
            };
            let ids: Vec<_> = self.known.values().filter(old).map(|known| known.entry.id).collect();
            if !ids.is_empty() {
                decided.push(Do::Forget(ids));
            }
        }
        decided
    }

    /// A journal that is full forgets what can neither begin nor be waited for any more, the oldest first.
    pub(super) fn make_room(&mut self, moment: Moment) -> Vec<Do> {
        let Some(now) = moment.now else { return Vec::new() };
        let again = |known: &Known| moment.confirmed || known.entry.row().is_some_and(|row| row.retry_safe);
        let over =
            |known: &&Known| matches!(known.standing, Standing::Over) && now > known.entry.over_at() && again(known);
        let mut over: Vec<_> = self.known.values().filter(over).map(|known| (known.entry.at, known.entry.id)).collect();
        over.sort_unstable();
        let ids: Vec<_> = over.into_iter().take(ROOM).map(|(_, id)| id).collect();
        if ids.is_empty() { Vec::new() } else { vec![Do::Forget(ids)] }
    }

    /// When time has to be told next.
    #[must_use]
    pub fn wake_at(&self, moment: Moment) -> Option<Instant> {
        let at = |deadline: Timestamp| {
            let wait =
                moment.now.map(|now| deadline.duration_since(now).max(jiff::SignedDuration::ZERO).unsigned_abs());
            // Far deadlines are looked at again in between: the proven time may move.
            wait.map(|wait| moment.mono + wait.min(Duration::from_secs(60)))
        };
        let wakes = self.known.values().filter_map(|known| match &known.standing {
            Standing::Waits { ask, .. } => at(known.entry.not_after).map(|at| at.min(*ask)),
            Standing::Queued { ask: None } => at(known.entry.not_after),
            Standing::Queued { ask } | Standing::Left { ask } => *ask,
            Standing::Runs { until } => Some(*until),
            _ => None,
        });
        wakes.min()
    }

    fn judge_waiting(&mut self, moment: Moment) -> Vec<Do> {
        let waiting = self.known.values().filter_map(|known| match &known.standing {
            Standing::Waits { paper, .. } => Some((known.entry.seq, known.entry.clone(), paper.as_ref().clone())),
            _ => None,
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|(seq, ..)| *seq);
        let mut decided = Vec::new();
        for (_, entry, paper) in waiting {
            match self.judge(&Ok(paper.body.clone()), &paper.approval, Ok(()), moment) {
                Verdict::Wait | Verdict::Ignore => {}
                Verdict::Accept(toll) => decided.push(self.accept(entry, paper, &toll)),
                Verdict::Refuse(Refusal::Busy, why) => {
                    self.known.remove(&entry.id);
                    decided.push(Do::Say(self.pen.update(entry.id, UpdateState::Busy).because(Refusal::Busy, why)));
                }
                Verdict::Refuse(refusal, why) => {
                    let update = self.pen.update(entry.id, UpdateState::Rejected).because(refusal, why);
                    let update = naming(refusal, &paper.approval, update);
                    decided.push(self.refuse(entry, paper.bytes, update));
                }
            }
        }
        decided
    }
}
