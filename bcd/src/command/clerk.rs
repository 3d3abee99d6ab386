//! Carries out what the desk decides: writes it down, signs it, hands it to the lanes.

use proto::agent::v1 as pb;
use schema::{clock::Clock as _, command::CommandBody, id::CommandId};

use super::{
    context::Order,
    desk::{Do, Event},
    journal::{Ended, Journal, JournalError, Stored},
    lanes::Lanes,
    pen::Pen,
};
use crate::agent::NodeClock;

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
    pub clock: std::sync::Arc<NodeClock>,
}

/// What came of it.
#[derive(Debug, Default, PartialEq)]
pub struct Carried {
    /// To be sent.
    pub update: Option<pb::CommandUpdate>,
    /// For the desk.
    pub event: Option<Event>,
}

impl Carried {
    fn say(said: Stored) -> Self {
        let update = pb::CommandUpdate { update: said.update, signature: said.signature };
        Self { update: Some(update), event: None }
    }

    fn event(event: Event) -> Self {
        Self { update: None, event: Some(event) }
    }
}

impl Clerk {
    /// Does it. Whatever cannot be kept is not said; the desk hears of it.
    #[must_use]
    pub fn carry_out(&self, what: Do) -> Carried {
        match what {
            Do::Accept { entry, body } => {
                let kept = worked(entry.id, self.journal.accept(&entry, &body));
                Carried::event(Event::Kept(entry.id, kept))
            }
            Do::Refuse { mut entry, body, update } => {
                entry.ended = Some(Ended::of(&update, self.clock.now()));
                let closed = worked(entry.id, self.journal.refuse(&entry, &body, &self.pen.sign(&update)));
                Carried::event(Event::Closed(entry.id, closed))
            }
            Do::Settle(update) => {
                let ended = Ended::of(&update, self.clock.now());
                let settled = self.journal.settle(update.command, &ended, &self.pen.sign(&update)).map(drop);
                Carried::event(Event::Closed(update.command, worked(update.command, settled)))
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
            Do::RunAgain { id, ran } => match self.order(id, ran) {
                Ok(order) => {
                    self.lanes.push(order);
                    Carried::default()
                }
                Err(error) => {
                    tracing::warn!("{id} cannot be run again: {error}");
                    Carried::event(Event::Closed(id, false))
                }
            },
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
            Do::WantSpec(_) | Do::Warn(_) => Carried::default(),
        }
    }

    fn order(&self, id: CommandId, ran: bool) -> Result<Order, JournalError> {
        let body = CommandBody::read(&self.journal.body(id)?);
        Ok(Order { body: body.map_err(|error| JournalError::Broken(error.to_string()))?, ran })
    }
}

fn worked(id: CommandId, result: Result<(), JournalError>) -> bool {
    if let Err(error) = &result {
        tracing::warn!("{id}: {error}");
    }
    result.is_ok()
}
