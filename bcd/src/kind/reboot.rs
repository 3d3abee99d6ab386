//! `node.reboot`: the machine goes down. That it came back, the next boot says.

use schema::command::payload::NodeReboot;

use super::Machine;
use crate::{
    command::{Context, Outcome, Stop},
    hardware::health::Reboot,
};

pub(super) fn run(machine: &Machine, context: &Context, payload: &NodeReboot) -> Result<Outcome, Stop> {
    if let Err(undone) = machine.check_own() {
        return Ok(undone.into());
    }
    context.effect("reboot")?;
    tracing::warn!("rebooting: {}", payload.reason.as_deref().unwrap_or("a command says so"));
    Ok(match machine.hardware.reboot(&machine.root, payload.reason.as_deref()) {
        Ok(Reboot::Begun) => Outcome::Boots,
        Ok(Reboot::Done) => Outcome::Booted,
        Err(undone) => undone.into(),
    })
}
