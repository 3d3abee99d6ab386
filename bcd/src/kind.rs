//! What each kind of command does on a machine.
//!
//! A kind says what it is about to do before it does it, asks between two actions whether to go on, and gives whatever it
//! waits for a deadline. What cannot be done here is said and never pretended.
//!
//! | module | kind |
//! |---|---|
//! | `inventory` | `inventory.refresh` |
//! | `diagnose` | `diag.nvml`, and what a healthy GPU is |
//! | `dcgm` | `diag.dcgm` |
//! | `logs` | `logs.collect` |
//! | `reboot` | `node.reboot` |
//! | `reset` | `gpu.reset` |
//! | `upgrade` | `daemon.upgrade` |

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use schema::command::{CommandKind, Reason};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    command::{Context, Outcome, Run, Stop},
    hardware::{Hardware, Programs, health::Undone},
    state::StateDir,
};

mod dcgm;
mod diagnose;
mod inventory;
mod logs;
mod reboot;
mod reset;
mod resets;
#[cfg(test)]
mod testing;
mod upgrade;

/// The machine that commands are run on.
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
    live: bool,
    state: StateDir,
    hardware: Arc<dyn Hardware>,
    programs: Programs,
}

impl Machine {
    /// The machine of a daemon that works under `root` and keeps its state there.
    #[must_use]
    pub fn new(root: &Path, state: &StateDir, hardware: Arc<dyn Hardware>) -> Self {
        let live = root.canonicalize().is_ok_and(|root| root == Path::new("/"));
        Self { root: root.to_owned(), live, state: state.clone(), hardware, programs: Programs::default() }
    }

    /// Whether hardware and system may be changed: a daemon whose root is a directory is not the machine's.
    fn check_own(&self) -> Result<(), Undone> {
        if self.live || self.hardware.is_described() {
            return Ok(());
        }
        let why =
            format!("{} stands for the root: this daemon does not change the machine itself", self.root.display());
        Err(Undone { reason: Reason::UNSUPPORTED_HERE, why })
    }
}

impl Run for Machine {
    fn run(&self, context: &Context) -> Outcome {
        let ended = match context.order().body.kind {
            CommandKind::InventoryRefresh => with(context, |payload| inventory::run(self, context, &payload)),
            CommandKind::DiagNvml => with(context, |payload| diagnose::run(self, context, &payload)),
            CommandKind::DiagDcgm => with(context, |payload| dcgm::run(self, context, &payload)),
            CommandKind::LogsCollect => with(context, |payload| logs::run(self, context, &payload)),
            CommandKind::NodeReboot => with(context, |payload| reboot::run(self, context, &payload)),
            CommandKind::GpuReset => with(context, |payload| reset::run(self, context, &payload)),
            CommandKind::DaemonUpgrade => with(context, |payload| upgrade::run(context, &payload)),
        };
        ended.unwrap_or_else(Outcome::from)
    }
}

fn with<T: DeserializeOwned>(context: &Context, run: impl FnOnce(T) -> Result<Outcome, Stop>) -> Result<Outcome, Stop> {
    match serde_json::from_value(context.order().body.payload.clone()) {
        Ok(payload) => run(payload),
        Err(error) => Ok(failed(Reason::FAILED, format!("the payload makes no sense: {error}"))),
    }
}

fn succeeded(result: &impl Serialize) -> Outcome {
    Outcome::Succeeded(serde_json::to_value(result).expect("results serialise"))
}

fn failed(reason: Reason, message: impl Into<String>) -> Outcome {
    Outcome::Failed { reason, message: message.into(), result: None }
}

fn failed_with(reason: Reason, message: impl Into<String>, result: &impl Serialize) -> Outcome {
    let result = serde_json::to_value(result).expect("results serialise");
    Outcome::Failed { reason, message: message.into(), result: Some(result) }
}

impl From<Undone> for Outcome {
    fn from(undone: Undone) -> Self {
        failed(undone.reason, undone.why)
    }
}

#[cfg(test)]
mod tests;
