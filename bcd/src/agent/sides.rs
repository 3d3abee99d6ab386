//! What goes on beside the loop: passes over the spec, and looks at the machine.

use std::sync::Arc;

use schema::clock::Clock as _;

use super::{Agent, AgentError, Pass, Side};
use crate::session::Event;

impl Agent {
    pub(super) fn want_pass(&mut self, all: bool) {
        if !self.config.apply {
            tracing::info!("the spec is kept and not applied; see `bcd diff`");
            return;
        }
        if self.desired.is_none() {
            return;
        }
        if self.asking {
            self.pass_wanted = Some(all || self.pass_wanted.unwrap_or(false));
            return;
        }
        self.pass(all, self.may_ask());
    }

    /// A pass, or first what it lacks, when that may be asked for.
    pub(super) fn pass(&mut self, all: bool, ask: bool) {
        let Some(desired) = self.desired.clone() else { return };
        let Some(mut converger) = self.converger.take() else {
            self.pass_wanted = Some(all || self.pass_wanted.unwrap_or(false));
            return;
        };
        self.pass_wanted = None;
        converger.knows_time(self.clock.is_proven());
        let before = self.core.progress().sections.clone();
        let (sides, now) = (self.sides.clone(), self.clock.now());
        tokio::task::spawn_blocking(move || {
            let lacks = if ask { converger.missing(&desired) } else { Vec::new() };
            if !lacks.is_empty() {
                sides.blocking_send(Side::Lacks(Box::new((converger, lacks, all)))).ok();
                return;
            }
            let pass = converger.pass(&desired, &before, all, now);
            converger.forget_values();
            sides.blocking_send(Side::Passed(Box::new((converger, pass)))).ok();
        });
    }

    pub(super) fn passed(&mut self, pass: Pass) -> Result<(), AgentError> {
        for line in &pass.done {
            tracing::info!("{line}");
        }
        let before = self.core.progress();
        let generation = pass.settled.generation;
        for (section, status) in &pass.settled.sections {
            if before.sections.get(section) != Some(status) || before.observed != generation {
                match status.reason.as_str() {
                    "" => tracing::info!("generation {generation}: {section} {}", status.state),
                    reason => tracing::warn!("generation {generation}: {section} {}: {reason}", status.state),
                }
            }
        }
        for condition in &pass.settled.conditions {
            if !before.conditions.iter().any(|old| old.kind == condition.kind && old.message == condition.message) {
                tracing::info!("{}: {}", condition.kind, condition.message);
            }
        }
        self.until = pass.until;
        self.handle(Event::Settled(pass.settled))?;
        // A command may have waited for this spec.
        self.handle(Event::Tick)
    }

    pub(super) fn read_hardware(&mut self) {
        if std::mem::replace(&mut self.reading, true) {
            return;
        }
        let (hardware, sides) = (Arc::clone(&self.config.hardware), self.sides.clone());
        tokio::task::spawn_blocking(move || sides.blocking_send(Side::Read(hardware.read().inventory())).ok());
    }
}
