//! `inventory.refresh`: reads the machine again and hands the reading to the session.

use schema::{
    command::{payload::InventoryRefresh, result::InventoryRefreshed},
    inventory::InventorySection,
};

use super::{Machine, succeeded};
use crate::command::{Context, Outcome, Stop};

pub(super) fn run(machine: &Machine, context: &Context, payload: &InventoryRefresh) -> Result<Outcome, Stop> {
    if payload.rescan {
        if let Err(undone) = machine.check_own() {
            return Ok(undone.into());
        }
        context.effect("pci.rescan")?;
        if let Err(undone) = machine.hardware.rescan() {
            return Ok(undone.into());
        }
    }
    context.go_on()?;
    let inventory = machine.hardware.read().inventory();
    let digests = inventory.digests();
    let all = payload.sections.is_empty();
    let wanted: Vec<InventorySection> = if all { InventorySection::ALL.to_vec() } else { payload.sections.clone() };
    let (read, missing): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|section| digests.contains_key(section));
    let unread = missing.into_iter().map(|section| (section, "it could not be read".to_owned())).collect();
    // After a look at the bus the control plane gets all of it; else what changed goes without being named.
    let sent = if all && !payload.rescan { Vec::new() } else { read };
    context.report(inventory, &sent);
    Ok(succeeded(&InventoryRefreshed { digests, sent, unread, rescanned: payload.rescan }))
}
