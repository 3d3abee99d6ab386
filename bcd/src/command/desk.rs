//! What becomes of each command that comes: events in, decisions out; no disk, no threads, no clock.
//!
//! A command stands in one place: it waits for its spec, is being kept, waits in its lane, runs, is over, or was left
//! behind by an earlier life of the daemon. What is decided here is carried out by the [`super::Clerk`], who says whether
//! it could be kept; only then does the node say it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use pki::{
    command::command_copy,
    worker::{Signature, SignatureRefusal},
};
use schema::{
    command::{BodyError, CommandBody, CommandHead, CommandKind, CommandUpdate, Lane, Reason, Refusal, UpdateState},
    digest::Digest,
    id::CommandId,
    time::Timestamp,
};

use super::{
    accept::{Facts, Offer, Verdict, accept},
    again::{Again, again},
    context::Order,
    journal::{Ended, Entry},
    pen::Pen,
    quorum::{Gate, Permitted, Toll},
};

mod time;
mod words;

pub use words::{Do, Event, Moment};

#[cfg(test)]
mod tests;

/// How long until something that could not be kept is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How often a command that waits for its spec asks for it.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// The longest word of a stranger that goes into the log.
const SHORT: usize = 200;

#[derive(Debug, Clone)]
enum Standing {
    /// It waits for the spec that it presupposes.
    Waits { paper: Box<Paper>, ask: Instant },
    /// The clerk writes it down. What was cancelled meanwhile ends as soon as that is done.
    Kept { paper: Box<Paper>, cancelled: bool },
    /// It waits in its lane; it is asked about again at this time.
    Queued { ask: Option<Instant> },
    /// It runs, at most until then.
    Runs { until: Instant },
    /// The clerk writes down its end. What was in no journal before is forgotten when that fails.
    Closing { kept: bool },
    /// It is over.
    Over,
    /// An earlier life of the daemon left it behind. It was asked for, and is tried again at this time.
    Left { ask: Option<Instant> },
}

/// A command that is in no journal yet.
#[derive(Debug, Clone)]
struct Paper {
    body: CommandBody,
    bytes: Vec<u8>,
    approval: Vec<u8>,
}

/// A command as it came, and what its worker's signature is worth.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The exact bytes of its body.
    pub bytes: Vec<u8>,
    /// Its signature.
    pub signature: &'a Signature,
    /// What that is worth.
    pub verified: Result<(), SignatureRefusal>,
    /// What came with it for a destructive command.
    pub approval: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Known {
    entry: Entry,
    standing: Standing,
}

impl Known {
    /// Whether it takes one of the places in its lane.
    const fn is_live(&self) -> bool {
        matches!(self.standing, Standing::Kept { .. } | Standing::Queued { .. } | Standing::Runs { .. })
    }

    fn lane(&self) -> Option<Lane> {
        self.entry.row().map(|row| row.lane)
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Desk {
    pen: Pen,
    gate: Gate,
    allowed: Option<Vec<CommandKind>>,
    known: BTreeMap<CommandId, Known>,
    forget_at: Option<Instant>,
    /// What the journal did not take, and why, until that is known not to be kept.
    refused: Option<(CommandId, Reason)>,
}

impl Desk {
    /// A desk that begins with what the journal holds.
    #[must_use]
    pub fn new(pen: Pen, gate: Gate, entries: Vec<Entry>) -> Self {
        let known = entries.into_iter().map(|entry| {
            let standing = if entry.ended.is_some() { Standing::Over } else { Standing::Left { ask: None } };
            (entry.id, Known { entry, standing })
        });
        Self { pen, gate, allowed: None, known: known.collect(), forget_at: None, refused: None }
    }

    /// Accepts these kinds only, as the node's identity says; every kind when it says none.
    #[must_use]
    pub fn accepting(mut self, kinds: Option<&[String]>) -> Self {
        // A word that this version does not know is of a kind that it does not run.
        self.allowed = kinds.map(|kinds| kinds.iter().filter_map(|word| word.parse().ok()).collect());
        self
    }

    /// What this node holds against destructive commands.
    #[must_use]
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What an earlier life left behind and is certain without anybody's asking.
    #[must_use]
    pub fn begin(&mut self) -> Vec<Do> {
        let left = self.known.values().filter(|known| matches!(known.standing, Standing::Left { .. }));
        let left: Vec<_> = left.map(|known| known.entry.clone()).collect();
        left.iter().flat_map(|entry| self.left(entry, None)).collect()
    }

    /// A command came.
    pub fn offer(&mut self, frame: Frame<'_>, moment: Moment) -> Vec<Do> {
        let read = CommandBody::read(&frame.bytes);
        let head = match &read {
            Ok(body) => body.head(),
            Err(BodyError::Unsupported { head, .. }) => head.as_ref().clone(),
            Err(error @ BodyError::Malformed) => return vec![Do::Warn(format!("a command was not read: {error}"))],
        };
        if let Some(known) = self.known.get(&head.id) {
            return self.once_more(&known.entry.clone(), frame, moment);
        }
        let Frame { bytes, signature, verified, approval } = frame;
        match self.judge(&read, &approval, verified, moment) {
            Verdict::Ignore => Vec::new(),
            Verdict::Refuse(Refusal::Busy, why) => {
                vec![Do::Say(self.pen.update(head.id, UpdateState::Busy).because(Refusal::Busy, why))]
            }
            Verdict::Refuse(refusal, why) => {
                let update = self.pen.update(head.id, UpdateState::Rejected).because(refusal, why);
                if let Err(reason) = verified {
                    // Nobody's word gets into the journal. The answer names the copy, so that it speaks for no other.
                    let text = format!("{} is refused ({refusal}): {reason}", head.id);
                    let update = CommandUpdate { copy: Some(command_copy(&bytes, signature)), ..update };
                    return vec![Do::Warn(text), Do::Spurn(update)];
                }
                let text = format!("{} is refused: {}", head.id, update.message.as_deref().unwrap_or_default());
                let update = naming(refusal, &approval, update);
                vec![Do::Warn(text), self.refuse(self.entry(&head, &bytes, signature, moment), bytes, update)]
            }
            Verdict::Wait => {
                let Ok(body) = read else { return Vec::new() };
                let entry = self.entry(&head, &bytes, signature, moment);
                self.wait(entry, Paper { body, bytes, approval }, moment)
            }
            Verdict::Accept(toll) => {
                let Ok(body) = read else { return Vec::new() };
                let entry = self.entry(&head, &bytes, signature, moment);
                vec![self.accept(entry, Paper { body, bytes, approval }, &toll)]
            }
        }
    }

    fn wait(&mut self, entry: Entry, paper: Paper, moment: Moment) -> Vec<Do> {
        let body = &paper.body;
        let lane = body.kind.row().lane;
        let waits = |known: &&Known| matches!(known.standing, Standing::Waits { .. }) && known.lane() == Some(lane);
        if self.known.values().filter(waits).count() >= lane.credits() {
            let why = format!("the lane {lane} has as many commands as it takes");
            return vec![Do::Say(self.pen.update(body.id, UpdateState::Busy).because(Refusal::Busy, why))];
        }
        let wanted = body.min_generation.unwrap_or_default();
        let standing = Standing::Waits { paper: Box::new(paper), ask: moment.mono + ASK_EVERY };
        self.known.insert(entry.id, Known { entry, standing });
        vec![Do::WantSpec(wanted)]
    }

    /// The gateway wants a command to stop.
    pub fn cancel(&mut self, id: CommandId) -> Vec<Do> {
        let cancelled = || {
            let why = "it was cancelled before it began";
            self.pen.update(id, UpdateState::Cancelled).because(Reason::CANCELLED, why)
        };
        let Some(known) = self.known.get_mut(&id) else { return Vec::new() };
        match &mut known.standing {
            Standing::Waits { paper, .. } => {
                let (entry, bytes, update) = (known.entry.clone(), paper.bytes.clone(), cancelled());
                vec![self.refuse(entry, bytes, update)]
            }
            Standing::Queued { .. } | Standing::Runs { .. } => vec![Do::Cancel(id)],
            Standing::Over => vec![Do::Answer(id)],
            Standing::Left { .. } if known.entry.runs.is_empty() => {
                let update = cancelled();
                self.settle(update)
            }
            Standing::Left { .. } => {
                let why = "the daemon or the machine stopped while it ran, and it was cancelled before it ran again";
                let update = self.pen.update(id, UpdateState::Failed).because(Reason::INTERRUPTED, why);
                self.settle(update)
            }
            Standing::Kept { cancelled, .. } => {
                *cancelled = true;
                Vec::new()
            }
            Standing::Closing { .. } => Vec::new(),
        }
    }

    /// Takes what the clerk and the lanes say.
    pub fn handle(&mut self, event: Event, moment: Moment) -> Vec<Do> {
        match event {
            Event::Kept(id, kept) => self.kept(id, kept),
            Event::Closed(id, closed) => self.closed(id, closed, moment),
            Event::Full(id) => {
                self.refused = Some((id, Reason::JOURNAL_FULL));
                self.make_room(moment)
            }
            Event::Unusable(id) => {
                self.refused = Some((id, Reason::JOURNAL_UNUSABLE));
                Vec::new()
            }
            Event::Began(id) => {
                let Some(known) = self.known.get_mut(&id) else { return Vec::new() };
                known.standing = Standing::Runs { until: moment.mono + known.entry.timeout().to_std() };
                vec![Do::Say(self.pen.update(id, UpdateState::Running))]
            }
            Event::Ended(id) => {
                let Some(known) = self.known.get_mut(&id) else { return Vec::new() };
                known.standing = Standing::Over;
                vec![Do::Answer(id)]
            }
            Event::Forgotten(ids, forgotten) => {
                if forgotten {
                    self.known.retain(|id, _| !ids.contains(id));
                }
                Vec::new()
            }
        }
    }

    fn kept(&mut self, id: CommandId, kept: bool) -> Vec<Do> {
        let Some(known) = self.known.get_mut(&id) else { return Vec::new() };
        let Standing::Kept { paper, cancelled } = &known.standing else { return Vec::new() };
        if kept && *cancelled {
            known.standing = Standing::Left { ask: None };
            return self.cancel(id);
        }
        if kept {
            let order = Order { body: paper.body.clone(), approval: paper.approval.clone(), ran: false };
            known.standing = Standing::Queued { ask: None };
            return vec![Do::Say(self.pen.update(id, UpdateState::Acked)), Do::Run(order)];
        }
        self.known.remove(&id);
        vec![self.not_kept(id)]
    }

    fn closed(&mut self, id: CommandId, closed: bool, moment: Moment) -> Vec<Do> {
        let Some(known) = self.known.get_mut(&id) else { return Vec::new() };
        // What was not kept has not happened: it is decided anew when the command is sent again.
        match (closed, &known.standing) {
            (true, _) => {
                known.standing = Standing::Over;
                vec![Do::Answer(id)]
            }
            (false, Standing::Closing { kept: false }) => {
                self.known.remove(&id);
                vec![self.not_kept(id)]
            }
            (false, _) => {
                known.standing = Standing::Left { ask: Some(moment.mono + AGAIN) };
                Vec::new()
            }
        }
    }

    fn not_kept(&mut self, id: CommandId) -> Do {
        let update = self.pen.update(id, UpdateState::Busy);
        let reason = self.refused.take().filter(|(refused, _)| *refused == id).map(|(_, reason)| reason);
        Do::Say(match reason {
            Some(reason) if reason == Reason::JOURNAL_FULL => update
                .because(reason, "the node's journal is full; it takes this one when it has forgotten what is over"),
            Some(reason) => update.because(reason, "the node's journal cannot be written; its log says why"),
            None => update.because(Refusal::Busy, "the node's journal takes nothing now"),
        })
    }

    fn judge(
        &self,
        body: &Result<CommandBody, BodyError>,
        approval: &[u8],
        signature: Result<(), SignatureRefusal>,
        moment: Moment,
    ) -> Verdict {
        let lane = body.as_ref().ok().map(|body| body.kind.row().lane);
        let (guard, spent) = (self.gate.guard(), self.gate.spent());
        let facts = Facts {
            node: self.pen.node,
            allowed: self.allowed.as_deref(),
            applied: moment.applied,
            now: moment.now,
            wall: moment.wall,
            journal: self.pen.journal,
            guard: &guard,
            spent: &spent,
            room: lane.map_or(0, |lane| self.room(lane)),
        };
        accept(&Offer { body, approval, signature }, &facts)
    }

    fn room(&self, lane: Lane) -> usize {
        let live = self.known.values().filter(|known| known.is_live() && known.lane() == Some(lane)).count();
        lane.credits().saturating_sub(live)
    }

    /// A command that is known comes again: the same answer, or the next one.
    fn once_more(&mut self, entry: &Entry, copy: Frame<'_>, moment: Moment) -> Vec<Do> {
        let id = entry.id;
        if entry.body != Digest::of(&copy.bytes) {
            return vec![Do::Warn(format!("another text under the name of {id} was ignored"))];
        }
        match self.known.get_mut(&id).map(|known| &mut known.standing) {
            Some(Standing::Queued { .. }) => vec![Do::Say(self.pen.update(id, UpdateState::Acked))],
            Some(Standing::Runs { .. }) => vec![Do::Say(self.pen.update(id, UpdateState::Running))],
            // What was refused for other approvals, which something on the way may have spoilt, is judged by these.
            Some(Standing::Over)
                if copy.verified.is_ok()
                    && entry.refused_approvals().is_some_and(|refused| refused != Digest::of(&copy.approval)) =>
            {
                let before = self.known.remove(&id);
                let decided = self.offer(copy, moment);
                if let Some(before) = before {
                    self.known.entry(id).or_insert(before);
                }
                decided
            }
            Some(Standing::Over) => vec![Do::Answer(id)],
            Some(Standing::Left { .. }) if copy.verified.is_ok() => self.left(entry, moment.now),
            Some(Standing::Left { .. }) => {
                vec![Do::Warn(format!("a copy of {id} without a good signature was ignored"))]
            }
            Some(Standing::Waits { paper, .. }) => {
                // The approvals that came first may be over by then.
                if copy.verified.is_ok() && !copy.approval.is_empty() {
                    paper.approval = copy.approval;
                }
                vec![Do::WantSpec(paper.body.min_generation.unwrap_or_default())]
            }
            Some(Standing::Kept { .. } | Standing::Closing { .. }) | None => Vec::new(),
        }
    }

    fn left(&mut self, entry: &Entry, now: Option<Timestamp>) -> Vec<Do> {
        match again(entry, self.pen.boot, now) {
            Again::Wait => Vec::new(),
            Again::Run => {
                // It has its place already: the earlier life gave it.
                self.stand(entry.id, Standing::Queued { ask: None });
                let run = Do::RunAgain { id: entry.id, ran: !entry.runs.is_empty() };
                vec![Do::Say(self.pen.update(entry.id, UpdateState::Acked)), run]
            }
            Again::Settle { state, reason, message, result } => {
                let update = self.pen.update(entry.id, state);
                let update = match reason {
                    Some(reason) => update.because(reason, message),
                    None => update,
                };
                self.settle(match result {
                    Some(result) => update.with_result(result),
                    None => update,
                })
            }
        }
    }

    fn entry(&self, head: &CommandHead, bytes: &[u8], signature: &Signature, moment: Moment) -> Entry {
        let parts = [&signature.worker, &signature.root_signature, &signature.signature];
        Entry {
            id: head.id,
            seq: head.seq,
            kind: head.kind.chars().take(SHORT).collect(),
            not_after: head.not_after,
            body: Digest::of(bytes),
            signature: Digest::of(parts.map(Vec::as_slice).concat()),
            at: moment.now.unwrap_or(Timestamp::UNIX_EPOCH),
            boot_id: self.pen.boot,
            permitted: None,
            runs: Vec::new(),
            ended: None,
            bytes: 0,
        }
    }

    fn accept(&mut self, mut entry: Entry, paper: Paper, toll: &Toll) -> Do {
        entry.permitted = Permitted::of(toll);
        let body = paper.bytes.clone();
        let standing = Standing::Kept { paper: Box::new(paper), cancelled: false };
        self.known.insert(entry.id, Known { entry: entry.clone(), standing });
        Do::Accept { entry: Box::new(entry), body }
    }

    fn refuse(&mut self, mut entry: Entry, bytes: Vec<u8>, update: CommandUpdate) -> Do {
        entry.ended = Some(Ended::of(&update, entry.at));
        self.known.insert(entry.id, Known { entry: entry.clone(), standing: Standing::Closing { kept: false } });
        Do::Refuse { entry: Box::new(entry), body: bytes, update: Box::new(update) }
    }

    fn settle(&mut self, update: CommandUpdate) -> Vec<Do> {
        self.stand(update.command, Standing::Closing { kept: true });
        vec![Do::Settle(update)]
    }

    fn stand(&mut self, id: CommandId, standing: Standing) {
        if let Some(known) = self.known.get_mut(&id) {
            known.standing = standing;
        }
    }
}

/// A refusal for want of approvals says which were refused, so that it speaks for no others.
fn naming(refusal: Refusal, approval: &[u8], update: CommandUpdate) -> CommandUpdate {
    let approvals = (refusal == Refusal::BatchUnapproved).then(|| Digest::of(approval));
    CommandUpdate { approvals, ..update }
}
