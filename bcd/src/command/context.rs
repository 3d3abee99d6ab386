//! What a kind may ask and do while its command runs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use schema::{
    clock::Clock as _,
    command::{CommandBody, KindRow, Reason},
    inventory::InventorySection,
    time::Timestamp,
};
use serde_json::Value;
use tokio::sync::{mpsc::UnboundedSender, watch};

use super::{
    journal::{Entry, Journal, JournalError},
    lanes::Told,
    quorum::Guard,
};
use crate::{agent::NodeClock, policies::Policies, session::Inventory};

/// A command that is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Its body. The payload was checked.
    pub body: CommandBody,
    /// What people are said to have approved; looked at again before it begins.
    pub approval: Vec<u8>,
    /// It began before, in an earlier life of the daemon.
    pub ran: bool,
}

impl Order {
    /// How its kind has to be treated.
    #[must_use]
    pub fn row(&self) -> &'static KindRow {
        self.body.kind.row()
    }
}

/// Why a command does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Somebody cancelled it.
    #[error("it was cancelled")]
    Cancelled,
    /// It took longer than its kind may, and its end was reported already.
    #[error("it took longer than its kind may")]
    GivenUp,
    /// The daemon ends. What becomes of the command is decided when it is back.
    #[error("the daemon ends")]
    Ending,
    /// The journal does not take the effect.
    #[error("{0}")]
    Unkept(String),
    /// Destructive work waits for a proven time.
    #[error("the time is not proven")]
    TimeUnproven,
}

/// How a command's work ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done.
    Succeeded(Value),
    /// Not done, or done and found wanting.
    Failed {
        /// Why.
        reason: Reason,
        /// Why, for people.
        message: String,
        /// What came out all the same.
        result: Option<Value>,
    },
    /// Stopped because somebody cancelled it.
    Cancelled {
        /// What was done until then.
        message: String,
        /// What came out all the same.
        result: Option<Value>,
    },
    /// The machine goes down now. Nothing is settled until it is up with another boot, or the kind's time is over.
    Boots,
    /// A described machine has another boot: the daemon begins anew.
    Booted,
    /// The daemon ends before the work does.
    Interrupted,
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        let message = stop.to_string();
        match stop {
            Stop::Cancelled => Self::Cancelled { message, result: None },
            Stop::GivenUp => Self::Failed { reason: Reason::TIMEOUT, message, result: None },
            Stop::Ending => Self::Interrupted,
            Stop::Unkept(_) | Stop::TimeUnproven => Self::Failed { reason: Reason::FAILED, message, result: None },
        }
    }
}

/// Runs commands of every kind.
pub trait Run: Send + Sync + std::fmt::Debug {
    /// Runs one, on a thread of its lane. Whatever it waits for has a deadline within [`Context::remaining`].
    fn run(&self, context: &Context) -> Outcome;
}

/// Tells a running command to stop, from another thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Token(watch::Sender<u8>);

impl Token {
    const CANCELLED: u8 = 1;
    const ENDING: u8 = 2;
    const GIVEN_UP: u8 = 3;

    pub(super) fn cancel(&self) {
        self.raise(Self::CANCELLED);
    }

    pub(super) fn end(&self) {
        self.raise(Self::ENDING);
    }

    pub(super) fn give_up(&self) {
        self.raise(Self::GIVEN_UP);
    }

    fn raise(&self, to: u8) {
        self.0.send_if_modified(|word| {
            let higher = to > *word;
            *word = to.max(*word);
            higher
        });
    }

    pub(super) fn go_on(&self) -> Result<(), Stop> {
        match *self.0.borrow() {
            0 => Ok(()),
            Self::CANCELLED => Err(Stop::Cancelled),
            Self::ENDING => Err(Stop::Ending),
            _ => Err(Stop::GivenUp),
        }
    }
}

/// A running command, as its kind sees it.
#[derive(Debug)]
pub struct Context {
    pub(super) order: Order,
    pub(super) before: Vec<String>,
    pub(super) since: Instant,
    pub(super) token: Token,
    pub(super) journal: Journal,
    pub(super) clock: Arc<NodeClock>,
    pub(super) told: UnboundedSender<Told>,
    pub(super) guard: Arc<Guard>,
}

impl Context {
    /// What people agreed on, as far as this node knew when the command began; `None` when nobody ever told it of a policy.
    #[must_use]
    pub fn policies(&self) -> Option<&Policies> {
        self.guard.policies.as_deref()
    }

    /// The command.
    #[must_use]
    pub const fn order(&self) -> &Order {
        &self.order
    }

    /// Whether to go on. Asked between two actions.
    ///
    /// # Errors
    /// When the command is to stop.
    pub fn go_on(&self) -> Result<(), Stop> {
        self.token.go_on()
    }

    /// Waits until the command is to stop.
    pub async fn stopped(&self) -> Stop {
        let mut words = self.token.0.subscribe();
        loop {
            if let Err(stop) = self.go_on() {
                return stop;
            }
            words.changed().await.expect("the token holds the other end");
        }
    }

    /// Says that the next action does `name` to the machine; it is on disk when this returns.
    ///
    /// # Errors
    /// When the action must not be taken.
    pub fn effect(&self, name: &str) -> Result<(), Stop> {
        self.in_time()?;
        if self.order.row().destructive && !self.clock.is_proven() {
            return Err(Stop::TimeUnproven);
        }
        match self.journal.effect(self.order.body.id, name, self.now()) {
            // Writing it down may have taken long, too.
            Ok(()) => self.in_time(),
            Err(JournalError::Over(_)) => Err(Stop::GivenUp),
            Err(JournalError::Closed) => Err(Stop::Ending),
            Err(error) => Err(Stop::Unkept(error.to_string())),
        }
    }

    /// A machine that slept, or a daemon that was frozen, between begin and effect is told so by nobody else in time.
    fn in_time(&self) -> Result<(), Stop> {
        self.go_on()?;
        let late = self.now() >= self.order.row().timeout.after(self.order.body.not_after);
        if late || self.remaining().is_zero() { Err(Stop::GivenUp) } else { Ok(()) }
    }

    /// The effects that earlier runs of this very command were about to have.
    #[must_use]
    pub fn effects(&self) -> &[String] {
        &self.before
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How much of its kind's time is left: the deadline of whatever it waits for.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.order.row().timeout.to_std().saturating_sub(self.since.elapsed())
    }

    /// Hands a fresh look at the machine over: what changed is reported, and the named sections in any case.
    pub fn report(&self, inventory: Inventory, sections: &[InventorySection]) {
        self.told.send(Told::Read(inventory, sections.to_vec())).ok();
    }

    pub(super) fn effects_of(entry: &Entry) -> Vec<String> {
        entry.effects().map(|effect| effect.name.clone()).collect()
    }
}

#[cfg(test)]
mod testing {
    use schema::{clock::ManualClock, id::BootId};

    use super::*;
    use crate::state::StateDir;

    /// The other end of a context under test.
    #[derive(Debug)]
    pub(crate) struct Handle {
        id: schema::id::CommandId,
        token: Token,
        journal: Journal,
        /// What was told.
        pub(crate) told: tokio::sync::mpsc::UnboundedReceiver<Told>,
        _dir: tempfile::TempDir,
    }

    impl Handle {
        /// The effects that were written down.
        pub(crate) fn effects(&self) -> Vec<String> {
            let entries = self.journal.entries().expect("read");
            let entry = entries.iter().find(|entry| entry.id == self.id).expect("accepted");
            Context::effects_of(entry)
        }

        /// Cancels the command.
        pub(crate) fn cancel(&self) {
            self.token.cancel();
        }
    }

    impl Context {
        /// A context for a command that has just begun, at a proven time.
        pub(crate) fn for_test(body: CommandBody) -> (Self, Handle) {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let state = StateDir::open(dir.path()).expect("made");
            let now = crate::testing::now();
            let clock = Arc::new(NodeClock::new(Arc::new(ManualClock::new(now))));
            clock.prove(now);
            let journal = Journal::open(&state, now).expect("opens").journal;
            let entry = crate::testing::entry(&body, BootId::generate());
            journal.accept(&entry, &body.to_bytes()).expect("accepted");
            journal.start(body.id, clock.clocks(), &crate::command::quorum::Toll::Free).expect("started");
            let (told, from) = tokio::sync::mpsc::unbounded_channel();
            let token = Token::default();
            let handle = Handle { id: body.id, token: token.clone(), journal: journal.clone(), told: from, _dir: dir };
            let context = Self {
                order: Order { body, approval: Vec::new(), ran: false },
                before: Vec::new(),
                since: Instant::now(),
                token,
                journal,
                clock,
                told,
                guard: Arc::default(),
            };
            (context, handle)
        }

        /// The same on a node that believes these policies.
        pub(crate) fn believing(self, policies: Policies) -> Self {
            Self { guard: Arc::new(Guard { policies: Some(Arc::new(policies)), ..Guard::default() }), ..self }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use schema::{clock::Clock, command::CommandKind, id::JournalId};

    use super::*;

    /// Twenty minutes pass each time that somebody looks.
    #[derive(Debug, Default)]
    struct Hasty(AtomicU64);

    impl Clock for Hasty {
        fn now(&self) -> Timestamp {
            let looks = self.0.fetch_add(1, Ordering::Relaxed);
            crate::testing::now().checked_add(Duration::from_secs(looks * 20 * 60)).expect("a time")
        }
    }

    #[test]
    fn what_is_late_once_it_is_written_down_is_not_done() {
        let pen = crate::testing::pen(JournalId::generate());
        let mut body = crate::testing::command(&pen, CommandKind::LogsCollect, 1);
        body.not_after = crate::testing::now();
        let (mut context, handle) = Context::for_test(body);
        context.clock = Arc::new(NodeClock::new(Arc::new(Hasty::default())));
        assert!(matches!(context.effect("upload"), Err(Stop::GivenUp)));
        assert_eq!(handle.effects(), ["upload"], "it was in time before");
    }
}
