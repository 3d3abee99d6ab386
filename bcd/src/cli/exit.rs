//! Exit codes, by name. A number that `better-compute` has too means the same there.

use std::process::ExitCode;

use crate::{agent::AgentError, join::JoinError};

/// The codes, for `--help`.
pub(super) const HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  the command line makes no sense
  4  the control plane refused, or is not the pinned one
  5  the control plane cannot be reached
  6  this machine has no identity, or one already
  (bcd diff --exit-code: 0 nothing to do, 2 changes, 1 error)

They mean what those of better-compute mean.";

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Failed.
    Failure = 1,
    /// The control plane refused, or is not the pinned one.
    Refused = 4,
    /// The control plane cannot be reached.
    Unreachable = 5,
    /// This machine has no identity, or one already.
    Identity = 6,
    /// Something would change; asked for with `--exit-code` only.
    Changes = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The code of an error.
pub(super) fn of(error: &anyhow::Error) -> Exit {
    if let Some(error) = error.downcast_ref::<JoinError>() {
        return super::join_exit(error);
    }
    match error.downcast_ref::<AgentError>() {
        Some(AgentError::NotJoined(_) | AgentError::OtherHardware { .. } | AgentError::Identity(_)) => Exit::Identity,
        _ => Exit::Failure,
    }
}
