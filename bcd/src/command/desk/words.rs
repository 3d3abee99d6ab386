//! What the desk is told and what it decides.

use std::time::Instant;

use schema::{command::CommandUpdate, generation::Generation, id::CommandId, time::Timestamp};

use super::super::{context::Order, journal::Entry};

/// Now, for commands.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The proven time; `None` before it is proven.
    pub now: Option<Timestamp>,
    /// It does not rest on one word alone, which a second one may take back.
    pub confirmed: bool,
    /// What the machine's own clock says.
    pub wall: Timestamp,
    /// Time that passes.
    pub mono: Instant,
    /// The spec that was attempted last.
    pub applied: Generation,
}

/// What the clerk and the lanes say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An accepted command is in the journal, or could not be.
    Kept(CommandId, bool),
    /// The end of a command is in the journal, or could not be.
    Closed(CommandId, bool),
    /// The journal has no room for this one.
    Full(CommandId),
    /// The journal could not be written for this one.
    Unusable(CommandId),
    /// A command runs.
    Began(CommandId),
    /// A lane has ended a command, and the journal knows.
    Ended(CommandId),
    /// These are out of the journal, or could not be.
    Forgotten(Vec<CommandId>, bool),
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Do {
    /// Write an accepted command into the journal, and answer with [`Event::Kept`].
    Accept {
        /// For the journal.
        entry: Box<Entry>,
        /// The exact body.
        body: Vec<u8>,
    },
    /// Write a command that never runs into the journal with its end, and answer with [`Event::Closed`].
    Refuse {
        /// For the journal.
        entry: Box<Entry>,
        /// The exact body.
        body: Vec<u8>,
        /// Its end.
        update: Box<CommandUpdate>,
    },
    /// Write the end of a command that is in the journal, and answer with [`Event::Closed`].
    Settle(CommandUpdate),
    /// Say something that is not the last word.
    Say(CommandUpdate),
    /// Say something about a copy that is nobody's word: signed, and not kept.
    Spurn(CommandUpdate),
    /// Say what the journal holds as the last word.
    Answer(CommandId),
    /// Hand a command over to its lane.
    Run(Order),
    /// Hand a command from the journal over to its lane; [`Event::Closed`] with `false` when it cannot be read.
    RunAgain {
        /// Which.
        id: CommandId,
        /// It began in an earlier life.
        ran: bool,
    },
    /// Write down since when the journal knows everything.
    Proven(Timestamp),
    /// Cancel a command in its lane.
    Cancel(CommandId),
    /// Take a command that waits past its deadline out of its lane.
    Expire(CommandId),
    /// Give up a command that runs too long.
    GiveUp(CommandId),
    /// Ask for the spec of this generation.
    WantSpec(Generation),
    /// Take these out of the journal, and answer with [`Event::Forgotten`].
    Forget(Vec<CommandId>),
    /// Say something in the log.
    Warn(String),
}
