//! The session as a state machine: events in, effects out, no socket, no disk, no clock.
//!
//! ```text
//! Closed ── Opening ──▶ Opening ── Welcome ──▶ Open
//!    ▲                     │                    │
//!    └──── Closed, Refused, bad time ◀──────────┘
//! ```
//!
//! Effects are carried out in order, and the first one that fails ends the batch: what is kept before it is applied is
//! on disk before it is applied.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use pki::{
    Realm,
    bundle::TrustBundle,
    hardware::{Claims, HardwareKey},
    node_key::NodeKey,
};
use proto::agent::v1::{self as pb, gateway_frame, node_frame};
use schema::{
    digest::Digest,
    generation::Generation,
    id::{BootId, NodeId},
    inventory::InventorySection,
    node::Condition,
    report::{DriftEntry, SectionStatus},
    spec::Section,
    time::Timestamp,
};
use serde_json::Value;

use crate::{
    command::{Desk, Do, desk, journal::Marks},
    policies::{self, Policies},
    state::{Desired, Progress},
};

mod commands;
mod incoming;
mod outgoing;
mod people;
mod proven;

pub use proven::Proven;

#[cfg(test)]
mod tests;

/// Reports are numbered from a block that is reserved on disk, so that no number is ever used twice.
const SEQ_BLOCK: u64 = 64;
/// How long a session may take to open, the connection included.
const OPENING: Duration = Duration::from_secs(25);
/// How long after the first word about a time far ahead the second one is believed.
const SECOND_WORD: Duration = Duration::from_secs(120);
/// How long a gateway may say nothing, in heartbeats.
const SILENT_BEATS: u32 = 3;

/// Now, by both clocks: one tells the time and may jump, the other only measures.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The machine's clock.
    pub wall: Timestamp,
    /// Time that passes.
    pub mono: Instant,
    /// The proven time, measured by a clock that goes on while the machine sleeps.
    pub proven: Option<Timestamp>,
}

/// Who this node is, for the session.
#[derive(Debug)]
pub struct Me {
    /// Its id.
    pub node_id: NodeId,
    /// Trust domain and fleet.
    pub realm: Realm,
    /// Its key.
    pub key: Arc<NodeKey>,
    /// This boot.
    pub boot_id: BootId,
    /// The machine is described by a file and not real.
    pub described: bool,
    /// The daemon's version.
    pub version: String,
}

/// What the machine is made of, as it was read last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The sections that could be read.
    pub sections: BTreeMap<InventorySection, Value>,
}

impl Inventory {
    /// The digest of every section.
    #[must_use]
    pub fn digests(&self) -> BTreeMap<InventorySection, Digest> {
        let digest = |value| schema::canonical::digest(value).expect("inventory holds no fractions");
        self.sections.iter().map(|(section, value)| (*section, digest(value))).collect()
    }
}

/// How a pass over a spec ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The spec's generation.
    pub generation: Generation,
    /// How each section ended.
    pub sections: BTreeMap<Section, SectionStatus>,
    /// The node's own conditions.
    pub conditions: Vec<Condition>,
    /// What something else changed.
    pub drift: Vec<DriftEntry>,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A connection is being opened; the nonce is fresh.
    Opening {
        /// 32 random bytes that the signed time has to answer.
        nonce: [u8; 32],
    },
    /// A frame came.
    Frame(gateway_frame::Frame),
    /// The connection is gone.
    Closed,
    /// A pass over the spec ended.
    Settled(Settled),
    /// The machine was looked at. The named sections are reported whether they changed or not.
    Inventoried(Inventory, Vec<InventorySection>),
    /// Something became of a command.
    Command(desk::Event),
    /// Time passed.
    Tick,
}

/// How much a line in the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something went as it should.
    Info,
    /// Something was refused, and nothing was lost.
    Warn,
}

/// When to come back after a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// After the usual back-off.
    BackOff,
    /// At a random time within this long, as the gateway asked.
    Within(Duration),
    /// After a new certificate was asked for.
    Renew,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a frame.
    Send(node_frame::Frame),
    /// Keep the trust bundle.
    KeepTrust(TrustBundle),
    /// Keep what people agreed on.
    KeepPolicies(policies::Kept),
    /// Keep that it is at least this late.
    KeepFloor(Timestamp),
    /// Keep the spec.
    KeepDesired(Desired),
    /// Keep the progress.
    KeepProgress(Progress),
    /// The time is proven: it is this, now.
    TimeProven(Proven),
    /// Converge the kept spec.
    Apply,
    /// Look at the machine again.
    Collect,
    /// Ask for a new certificate soon.
    Renew,
    /// The session is open.
    Opened,
    /// The journal is an old copy: go on with another id.
    RenameJournal,
    /// End the connection.
    Close(Again),
    /// Do something about a command.
    Command(Box<Do>),
    /// Say something in the log.
    Say(Level, String),
}

#[derive(Debug)]
enum Phase {
    Closed,
    Opening { nonce: [u8; 32], since: Instant },
    Open { every: Duration, next_beat: Instant, beat: u64, heard: Instant },
}

/// The state machine.
#[derive(Debug)]
pub struct Core {
    me: Me,
    trust: TrustBundle,
    kept: Generation,
    kept_spec: Option<String>,
    progress: Progress,
    next_seq: u64,
    inventory: Inventory,
    proven: Option<(Proven, Instant)>,
    /// When the first word about the time came, while no second one has confirmed it.
    unconfirmed: Option<Instant>,
    /// A word about a time far away, that waits for a second one.
    leap: Option<(Proven, Instant)>,
    /// The control plane of this session reads drift.
    reads_drift: bool,
    /// It reads which trust bundle this node believes.
    reads_trust: bool,
    reads_policy: bool,
    reads_binds: bool,
    desk: Desk,
    /// What people agreed on.
    policies: Option<Arc<Policies>>,
    /// It was this late once, as far as two words about the time agree.
    floor: Option<Timestamp>,
    /// What the journal took, for Hello.
    marks: Option<Marks>,
    /// The journal may be an old copy.
    may_be_old: bool,
    /// Why nothing could be kept last, for Hello.
    cannot_keep: String,
    phase: Phase,
}

impl Core {
    /// A core that begins with what is on disk.
    #[must_use]
    pub fn new(me: Me, trust: TrustBundle, desired: Option<&Desired>, progress: Progress, desk: Desk) -> Self {
        Self {
            me,
            trust,
            kept: desired.map_or(Generation::NONE, |desired| desired.generation),
            kept_spec: desired.map(|desired| desired.spec.clone()),
            next_seq: progress.reserved_seq,
            progress,
            inventory: Inventory::default(),
            proven: None,
            unconfirmed: None,
            leap: None,
            reads_drift: false,
            reads_trust: false,
            reads_policy: false,
            reads_binds: false,
            desk,
            policies: None,
            floor: None,
            marks: None,
            may_be_old: false,
            cannot_keep: String::new(),
            phase: Phase::Closed,
        }
    }

    /// The journal may be an old copy that was put back, until a session was open: nobody puts one back under a daemon that
    /// runs.
    #[must_use]
    pub const fn may_be_old(mut self, may_be_old: bool) -> Self {
        self.may_be_old = may_be_old;
        self
    }

    /// Goes on with what people agreed on and how late it was, as both were kept.
    #[must_use]
    pub fn believing(mut self, policies: Option<Policies>, floor: Option<Timestamp>) -> Self {
        (self.policies, self.floor) = (policies.map(Arc::new), floor);
        self.guard();
        self
    }

    /// Whether it still may.
    #[must_use]
    pub const fn is_maybe_old(&self) -> bool {
        self.may_be_old
    }

    /// Says in Hello from now on what the journal took: where a copy of this daemon's state runs elsewhere, what the other one
    /// took is not sent to this one.
    pub const fn say(&mut self, marks: Marks) {
        self.marks = Some(marks);
    }

    /// Says in Hello why nothing could be kept last, until something is.
    pub fn cannot_keep(&mut self, why: String) {
        self.cannot_keep = why;
    }

    /// Something could be kept.
    pub fn kept(&mut self) {
        self.cannot_keep.clear();
    }

    /// Takes an event and says what to do.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Effect> {
        match event {
            Event::Opening { nonce } => {
                self.phase = Phase::Opening { nonce, since: now.mono };
                vec![Effect::Send(node_frame::Frame::Hello(self.hello(nonce)))]
            }
            Event::Frame(frame) => self.frame(frame, now),
            Event::Closed => {
                self.phase = Phase::Closed;
                Vec::new()
            }
            Event::Settled(settled) => self.settled(settled, now),
            Event::Inventoried(inventory, wanted) => {
                self.inventory = inventory;
                self.guard();
                self.report_changed_inventory(&wanted, now)
            }
            Event::Command(event) => self.command_event(event, now),
            Event::Tick => {
                let mut effects = self.tick(now);
                effects.extend(self.command_tick(now));
                effects
            }
        }
    }

    /// When time has to be told next.
    #[must_use]
    pub fn wake_at(&self, now: Now) -> Option<Instant> {
        let session = match self.phase {
            Phase::Open { next_beat, .. } => Some(next_beat),
            Phase::Opening { since, .. } => Some(since + OPENING),
            Phase::Closed => None,
        };
        [session, self.desk.wake_at(self.moment(now))].into_iter().flatten().min()
    }

    /// What earlier lives of the daemon left behind and is certain now. Asked once, at the beginning.
    #[must_use]
    pub fn begin(&mut self) -> Vec<Effect> {
        let decided = self.desk.begin();
        self.decided(decided)
    }

    /// A renewal brought trust bundles that this node missed; each was checked.
    pub fn stepped(&mut self, trust: TrustBundle) {
        if trust.version > self.trust.version {
            self.trust = trust;
        }
    }

    /// The trust bundle in force.
    #[must_use]
    pub const fn trust(&self) -> &TrustBundle {
        &self.trust
    }

    /// The desk, for the next core.
    #[must_use]
    pub fn into_desk(self) -> Desk {
        self.desk
    }

    /// How far this node came.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The time: as proven by the control plane and measured since, or the machine's while nothing is proven.
    #[must_use]
    pub fn time(&self, now: Now) -> Timestamp {
        self.proven_at(now).map_or(now.wall, Proven::at_least)
    }

    /// Takes a signed time over, beside what is known already. A leap of more than a day needs a second word, a while after
    /// the first, so that one bad clock does not stop a fleet. Nor does one that this daemon met first: what rests on one word
    /// is taken back by two. Anything else never runs backwards.
    fn prove(&mut self, signed: Proven, now: Now) -> Result<Proven, String> {
        let passed = |since: Instant| now.mono.saturating_duration_since(since);
        let Some(known) = self.proven_at(now) else {
            self.unconfirmed = Some(now.mono);
            return Ok(self.proves(signed, now));
        };
        let taken_back = self.unconfirmed.is_some() && known.contradicts(signed);
        if !known.leaps_to(signed) && !taken_back {
            self.leap = None;
            self.unconfirmed.take_if(|since| known.agrees_with(signed) && passed(*since) >= SECOND_WORD);
            return Ok(self.proves(known.and(signed), now));
        }
        match self.leap {
            Some((first, since)) if first.after(passed(since)).agrees_with(signed) => {
                if passed(since) >= SECOND_WORD {
                    (self.leap, self.unconfirmed) = (None, None);
                    return Ok(self.proves(signed, now));
                }
            }
            _ => self.leap = Some((signed, now.mono)),
        }
        let (signed, known) = (signed.at_least(), known.at_most());
        Err(format!(
            "the gateway's time {signed} is more than a day away from {known}; it takes a second word to believe it"
        ))
    }

    const fn proves(&mut self, proven: Proven, now: Now) -> Proven {
        self.proven = Some((proven, now.mono));
        proven
    }

    fn proven_at(&self, now: Now) -> Option<Proven> {
        self.proven.map(|(proven, at)| proven.after(now.mono.saturating_duration_since(at)))
    }

    fn tick(&mut self, now: Now) -> Vec<Effect> {
        let (every, next_beat, beat, heard) = match &mut self.phase {
            Phase::Open { every, next_beat, beat, heard } => (every, next_beat, beat, heard),
            Phase::Opening { since, .. } if now.mono.saturating_duration_since(*since) >= OPENING => {
                self.phase = Phase::Closed;
                let text = "the gateway does not open a session; connecting again".to_owned();
                return vec![Effect::Say(Level::Warn, text), Effect::Close(Again::BackOff)];
            }
            Phase::Opening { .. } | Phase::Closed => return Vec::new(),
        };
        if now.mono.saturating_duration_since(*heard) > *every * SILENT_BEATS {
            self.phase = Phase::Closed;
            let text = "the gateway has gone silent; connecting again".to_owned();
            return vec![Effect::Say(Level::Warn, text), Effect::Close(Again::BackOff)];
        }
        if now.mono < *next_beat {
            return Vec::new();
        }
        *beat += 1;
        *next_beat = now.mono + *every;
        vec![Effect::Send(node_frame::Frame::Heartbeat(pb::Heartbeat { sequence: *beat }))]
    }

    fn settled(&mut self, settled: Settled, now: Now) -> Vec<Effect> {
        let before = self.progress.clone();
        // A pass over an older spec that ends late never takes back what a newer one reached.
        if settled.generation < self.progress.applied {
            return Vec::new();
        }
        self.progress.applied = settled.generation;
        self.progress.observed = settled.generation;
        self.progress.sections = settled.sections;
        self.progress.conditions = keep_since(settled.conditions, &before.conditions);
        self.progress.drift = settled.drift;
        if self.progress == before {
            return Vec::new();
        }
        let mut effects = vec![Effect::KeepProgress(self.progress.clone())];
        effects.extend(self.report_status(now));
        effects
    }
}

/// A condition that goes on is as old as it was.
fn keep_since(mut conditions: Vec<Condition>, before: &[Condition]) -> Vec<Condition> {
    for condition in &mut conditions {
        let same = before.iter().find(|old| old.kind == condition.kind && old.status == condition.status);
        if let Some(old) = same {
            condition.since = old.since;
        }
    }
    conditions
}
