//! How a command ends: the named exit codes, and the one shape in which a failure reaches a person.
//!
//! `bcd` has the same numbers where they mean the same, and 6 for a machine without an identity, or with one already.

use std::{error::Error, fmt};

use schema::cause::chain;

/// What the shell is told. The numbers are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for was done.
    Ok = 0,
    /// Something went wrong that no other code names.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The fleet repository has errors.
    InvalidFleet = 3,
    /// The control plane says no, with a code (not to what is not there, nor when it is broken), or a word would not count under
    /// the trust policy.
    Refused = 4,
    /// Nothing answers.
    Unreachable = 5,
}

/// The table that `--help` shows.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done              3  the fleet repository has errors, or commits that do not count (verify)
  1  failed            4  refused
  2  wrong usage       5  the control plane cannot be reached
  (plan and drift with --exit-code: 0 nothing to do, 2 changes, 1 error)";

/// Why a command failed, ready to be read: one message, its causes, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    /// What the shell is told.
    pub exit: Exit,
    /// What went wrong, in one sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The caller may not do this at all: no token, or one without the right.
    pub denied: bool,
}

impl Failure {
    /// A failure of one kind.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, denied: false }
    }

    /// A failure that no other code names.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// A failure of the command line.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A refusal, with the stable word that `better-compute why` explains.
    #[must_use]
    pub fn refused(code: &str, message: impl fmt::Display) -> Self {
        Self::new(Exit::Refused, format!("{message} ({code})"))
    }

    /// A failure with its causes: `what: cause: its cause`.
    #[must_use]
    pub fn because(what: impl fmt::Display, cause: &(dyn Error + 'static)) -> Self {
        Self::failed(format!("{what}: {}", chain(cause)))
    }

    /// Adds what to do about it, where nothing is said yet.
    #[must_use]
    pub fn or_hint(mut self, text: impl FnOnce() -> Option<String>) -> Self {
        self.hint = self.hint.or_else(text);
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

/// Says what was attempted when an operation fails.
pub trait During<T> {
    /// Turns any error into a [`Failure`] that begins with what was attempted.
    ///
    /// # Errors
    /// The same one, said to a person.
    fn during(self, what: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Error + 'static> During<T> for Result<T, E> {
    fn during(self, what: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::because(what, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_are_said_once_each() {
        let error = Outer(std::io::Error::other("inner"));
        assert_eq!(Failure::because("cannot start", &error).message, "cannot start: outer: inner");
    }
}
