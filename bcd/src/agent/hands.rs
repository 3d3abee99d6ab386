//! The daemon's hands: the journal and the lanes of its commands. They outlive a loop that has to begin again.

use std::{sync::Arc, time::Duration};

use schema::{clock::Clock as _, generation::Generation, id::JournalId};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Agent, AgentError, Config, NodeClock};
use crate::{
    command::{
        Clerk, Desk, Do, Gate, Journal, Lanes, Pen, Told,
        clerk::{Carried, Tray},
        desk,
        journal::{Begun, JournalError},
    },
    kind::Machine,
    session::{Core, Event, Me},
    state::{Progress, StateDir},
};

/// How long a daemon that stops waits for commands that run.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a daemon that stops waits for its disk.
const CLOSING: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Hands {
    pub(super) clerk: Clerk,
    tray: Tray,
    /// A described machine has another boot.
    pub(super) booted: bool,
    /// The journal has another id.
    pub(super) renamed: bool,
    desk: Option<Desk>,
    fresh: bool,
    told: UnboundedReceiver<Told>,
}

impl Hands {
    pub(super) fn open(config: &Config, state: &StateDir, me: &Me, kept: &Progress) -> Result<Self, JournalError> {
        let clock = Arc::new(NodeClock::new(Arc::clone(&config.clock)));
        let opened = Journal::open(state, clock.now())?;
        match &opened.begun {
            Begun::Found => {}
            Begun::Broken { why, aside } => tracing::error!(
                "the journal of commands is broken ({why}) and kept as {aside}; another one begins, and what was in \
                 flight and is not safe to run again ends as journal-lost"
            ),
            Begun::Fresh if kept.applied > Generation::NONE => tracing::warn!(
                "the journal of commands is gone; another one begins, and what was in flight and is not safe to run \
                 again ends as journal-lost"
            ),
            Begun::Fresh => {}
        }
        let journal = opened.journal;
        let pen = Pen {
            node: me.node_id,
            realm: me.realm.clone(),
            key: Arc::clone(&me.key),
            journal: journal.id(),
            boot: me.boot_id,
        };
        let (tell, told) = unbounded_channel();
        let machine = Arc::new(Machine::new(&config.root, state, Arc::clone(&config.hardware)));
        let gate = Gate::new(journal.spent());
        let lanes = Lanes::new(pen.clone(), gate.clone(), journal.clone(), Arc::clone(&clock), machine, tell.clone());
        let desk = Some(Desk::new(pen.clone(), gate, opened.entries));
        let clerk = Clerk { pen, journal, lanes, clock };
        let no_thread = |source| JournalError::File { doing: "begin a thread for it", source };
        let tray = clerk.clone().begin(tell).map_err(no_thread)?;
        Ok(Self { clerk, tray, booted: false, renamed: false, desk, fresh: true, told })
    }

    pub(super) const fn journal_id(&self) -> JournalId {
        self.clerk.journal.id()
    }

    /// An old copy of the journal was put back. What it does not know is lost; what it knows, it still does.
    pub(super) fn rename_journal(&mut self) {
        match self.clerk.journal.rename() {
            Ok(id) => {
                tracing::error!(
                    "the state directory was put back from an old copy: the journal of commands goes on as {id}, and what \
                     was in flight and is not safe to run again ends as journal-lost"
                );
                self.renamed = true;
            }
            Err(error) => tracing::error!("an old copy of the journal of commands cannot be told apart: {error}"),
        }
    }

    /// The desk, for the loop that begins.
    pub(super) fn desk(&mut self) -> Desk {
        self.desk.take().expect("one loop at a time")
    }

    /// The desk comes back from a loop that has ended.
    pub(super) fn rest(mut self, core: Core) -> Self {
        self.desk = Some(core.into_desk());
        self
    }

    pub(super) async fn told(&mut self) -> Option<Told> {
        self.told.recv().await
    }

    /// Ends it. What runs and is not safe to run again gets a while to end by itself.
    pub(super) async fn let_go(hands: &mut Option<Self>) {
        let Some(hands) = hands.take() else { return };
        hands.clerk.lanes.end();
        if tokio::time::timeout(PATIENCE, hands.clerk.lanes.rest()).await.is_err() {
            tracing::warn!("commands still run; they end as interrupted");
        }
        let journal = hands.clerk.journal.clone();
        drop(hands);
        // A disk that hangs keeps nobody from ending.
        let closed = tokio::task::spawn_blocking(move || journal.close());
        if tokio::time::timeout(CLOSING, closed).await.is_err() {
            tracing::warn!("the journal of commands is not let go of: its disk does not answer");
        }
    }
}

impl Agent {
    /// What earlier lives left behind, once.
    pub(super) fn begin_commands(&mut self) -> Result<(), AgentError> {
        if std::mem::replace(&mut self.hands.fresh, false) {
            for effect in self.core.begin() {
                self.carry_out(effect)?;
            }
        }
        Ok(())
    }

    pub(super) fn command(&mut self, what: Do) -> Result<(), AgentError> {
        let carried = self.hands.tray.put(what);
        self.carried(carried)
    }

    fn carried(&mut self, carried: Carried) -> Result<(), AgentError> {
        // What nobody hears now is asked for when the session is open again.
        if let Some(update) = carried.update.filter(|_| self.core.is_open()) {
            self.send(proto::agent::v1::node_frame::Frame::CommandUpdate(update));
        }
        if carried.events.iter().any(|event| matches!(event, desk::Event::Unusable(_))) {
            self.unkept("the journal of commands cannot be written; the machine's log says why".to_owned());
        }
        carried.events.into_iter().try_for_each(|event| self.handle(Event::Command(event)))
    }

    pub(super) fn lane_said(&mut self, told: Told) -> Result<(), AgentError> {
        match told {
            Told::Began(id) => self.handle(Event::Command(desk::Event::Began(id))),
            Told::Ended(id) => self.handle(Event::Command(desk::Event::Ended(id))),
            Told::Read(inventory, sections) => self.handle(Event::Inventoried(inventory, sections)),
            Told::Carried(carried) => self.carried(carried),
            Told::Unkept(why) => {
                self.unkept(why);
                Ok(())
            }
            Told::Booted => {
                self.hands.booted = true;
                Ok(())
            }
        }
    }
}
