//! Why the journal does not take or give something.

use std::io;

use schema::id::CommandId;

use crate::command::quorum::Short;

/// Why the journal did not take or give something.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The store refused. Nothing of the call is kept.
    #[error("the journal of commands cannot be used: {0}")]
    Store(#[source] Box<redb::Error>),
    /// Its file cannot be made, moved or opened.
    #[error("the journal of commands: {doing}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has it.
    #[error("another process has the journal of commands open")]
    Locked,
    /// It holds something else than it should.
    #[error("the journal of commands is broken: {0}")]
    Broken(String),
    /// It remembers as much as it may.
    #[error("the journal of commands is full")]
    Full,
    /// This daemon is done with it.
    #[error("the journal of commands is closed")]
    Closed,
    /// The command is not in it.
    #[error("{0} is not in the journal")]
    Unknown(CommandId),
    /// The command is settled: nothing may happen for it any more.
    #[error("{0} has ended")]
    Over(CommandId),
    /// What it costs is used up.
    #[error("{0}")]
    Unpaid(Short),
}

impl<E: Into<redb::Error>> From<E> for JournalError {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::Corrupted(what) => Self::Broken(what),
            error => Self::Store(Box::new(error)),
        }
    }
}
