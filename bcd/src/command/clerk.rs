//! Carries out what the desk decides: writes it down, signs it, hands it to the lanes.
//!
//! A thread of its own does it, for a disk may take its time, and the loop that holds the session must not wait for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use proto::agent::v1 as pb;
use schema::{
    clock::Clock as _,
    command::{CommandBody, Reason, UpdateState},
    id::CommandId,
};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    context::Order,
    desk::{Do, Event},
    journal::{Ended, Journal, JournalError, Stored},
    lanes::{self, Lanes, Told},
    pen::Pen,
};
use crate::agent::NodeClock;

#[cfg(test)]
mod tests;

/// How much may wait for a slow disk before the rest is sent back.
const PATIENCE: usize = 256;

/// The one who does it.
#[derive(Debug, Clone)]
pub struct Clerk {
    /// Signs.
    pub pen: Pen,
    /// Remembers.
    pub journal: Journal,
    /// Run.
    pub lanes: Lanes,
    /// Tells the time.
    pub clock: Arc<NodeClock>,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Carried {
    /// To be sent.
    pub update: Option<pb::CommandUpdate>,
    /// For the desk.
    pub events: Vec<Event>,
}

impl Carried {
    fn say(said: Stored) -> Self {
        let update = pb::CommandUpdate { update: said.update, signature: said.signature };
        Self { update: Some(update), events: Vec::new() }
    }

    fn event(event: Event) -> Self {
        Self { update: None, events: vec![event] }
    }
}

/// What waits for the clerk.
#[derive(Debug)]
pub struct Tray {
    work: mpsc::Sender<Do>,
    waiting: Arc<AtomicUsize>,
}

impl Tray {
    /// Hands something over, or says at once that it could not be done.
    #[must_use]
    pub fn put(&self, what: Do) -> Carried {
        let crowded = self.waiting.load(Ordering::SeqCst) >= PATIENCE;
        let back = match &what {
            Do::Accept { entry, .. } => Some(Event::Kept(entry.id, false)),
            Do::Refuse { entry, .. } => Some(Event::Closed(entry.id, false)),
            Do::Settle(update) => Some(Event::Closed(update.command, false)),
            Do::RunAgain { id, .. } => Some(Event::Closed(*id, false)),
            Do::Forget(ids) => Some(Event::Forgotten(ids.clone(), false)),
            // What was accepted is run: no more than the lanes take is ever on its way.
            _ => None,
        };
        let droppable = matches!(
            &what,
            Do::Proven(_) | Do::Answer(_) | Do::Spurn(_) | Do::Cancel(_) | Do::Expire(_) | Do::GiveUp(_)
        );
        if crowded && (droppable || back.is_some()) {
            return Carried { update: None, events: back.into_iter().collect() };
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.work.send(what).ok();
        Carried::default()
    }
}

impl Clerk {
    /// Begins on a thread of its own; what comes of the work goes to `told`. It ends when its tray is gone.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn begin(self, told: UnboundedSender<Told>) -> std::io::Result<Tray> {
        let (work, from) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        thread::Builder::new().name("clerk".to_owned()).spawn(move || {
            for what in from {
                let carried = self.carry_out(what);
                left.fetch_sub(1, Ordering::SeqCst);
                if carried != Carried::default() && told.send(Told::Carried(carried)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Tray { work, waiting })
    }

    /// Does it. Whatever cannot be kept is not said; the desk hears of it.
    fn carry_out(&self, what: Do) -> Carried {
        match what {
            Do::Accept { entry, body } => {
                let kept = self.journal.accept(&entry, &body);
                self.kept(entry.id, kept, Event::Kept)
            }
            Do::Refuse { mut entry, body, update } => {
                entry.ended = Some(Ended::of(&update, self.clock.now()));
                let kept = self.journal.refuse(&entry, &body, &self.pen.sign(&update));
                lanes::ended(&update);
                self.kept(entry.id, kept, Event::Closed)
            }
            Do::Settle(update) => {
                let ended = Ended::of(&update, self.clock.now());
                let settled = match self.journal.settle(update.command, &ended, &self.pen.sign(&update)) {
                    Ok(_) | Err(JournalError::Over(_)) => {
                        lanes::ended(&update);
                        Ok(())
                    }
                    Err(error) => Err(error),
                };
                self.kept(update.command, settled, Event::Closed)
            }
            Do::Say(update) => Carried::say(Stored { update: update.to_bytes(), signature: Vec::new() }),
            Do::Spurn(update) => Carried::say(self.pen.sign(&update)),
            Do::Answer(id) => match self.journal.said(id) {
                Ok(Some(said)) => Carried::say(said),
                Ok(None) => Carried::default(),
                Err(error) => {
                    tracing::warn!("what became of {id} cannot be said now: {error}");
                    Carried::default()
                }
            },
            Do::Run(order) => {
                self.lanes.push(order);
                Carried::default()
            }
            Do::RunAgain { id, ran } => self.run_again(id, ran),
            Do::Cancel(id) => {
                self.lanes.cancel(id);
                Carried::default()
            }
            Do::Expire(id) => {
                self.lanes.expire(id);
                Carried::default()
            }
            Do::GiveUp(id) => {
                self.lanes.give_up(id);
                Carried::default()
            }
            Do::Forget(ids) => {
                let forgotten = self.journal.forget(&ids);
                if let Err(error) = &forgotten {
                    tracing::warn!("old commands are remembered for now: {error}");
                }
                Carried::event(Event::Forgotten(ids, forgotten.is_ok()))
            }
            Do::Proven(now) => {
                if let Err(error) = self.journal.proven(now) {
                    tracing::warn!("since when the journal of commands knows everything is not kept now: {error}");
                }
                Carried::default()
            }
            Do::WantSpec(_) | Do::Warn(_) => Carried::default(),
        }
    }

    fn kept(&self, id: CommandId, kept: Result<(), JournalError>, event: fn(CommandId, bool) -> Event) -> Carried {
        let Err(error) = &kept else { return Carried::event(event(id, true)) };
        tracing::warn!("{id}: {error}");
        let why = match error {
            JournalError::Full => Some(Event::Full(id)),
            JournalError::Store(_) | JournalError::File { .. } | JournalError::Broken(_) => Some(Event::Unusable(id)),
            _ => None,
        };
        Carried { update: None, events: why.into_iter().chain([event(id, false)]).collect() }
    }

    fn run_again(&self, id: CommandId, ran: bool) -> Carried {
        let body = self
            .journal
            .body(id)
            .and_then(|bytes| CommandBody::read(&bytes).map_err(|error| JournalError::Broken(error.to_string())));
        match body {
            Ok(body) => {
                // No kind that needs an approval is run again: what came with it is not kept.
                self.lanes.push(Order { body, approval: Vec::new(), ran });
                Carried::default()
            }
            Err(error @ (JournalError::Broken(_) | JournalError::Unknown(_))) => {
                let why = format!("it cannot be read any more: {error}");
                self.carry_out(Do::Settle(self.pen.update(id, UpdateState::Failed).because(Reason::INTERRUPTED, why)))
            }
            Err(error) => {
                tracing::warn!("{id} cannot be run again now: {error}");
                Carried::event(Event::Closed(id, false))
            }
        }
    }
}
