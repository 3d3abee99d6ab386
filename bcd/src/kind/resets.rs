//! When GPUs were reset in this boot: what the driver said of them before is history.

use std::{collections::BTreeMap, time::Duration};

use nix::time::{ClockId, clock_gettime};
use schema::id::BootId;
use serde::{Deserialize, Serialize};

use super::Machine;
use crate::hardware::boot_id;

const FILE: &str = "gpu-resets.json";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resets {
    boot_id: BootId,
    /// Microseconds since the boot, by PCI address.
    at: BTreeMap<String, u64>,
}

/// The resets of this boot. A file that cannot be read forgets them: then old events count again, which harms nothing.
pub(super) fn of_boot(machine: &Machine) -> BTreeMap<String, u64> {
    let bytes = machine.state.bytes(FILE).ok().flatten();
    let resets: Option<Resets> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let boot = boot_id(&machine.root, machine.hardware.is_described());
    resets.filter(|resets| resets.boot_id == boot).map(|resets| resets.at).unwrap_or_default()
}

/// Remembers that GPUs were reset just now.
pub(super) fn remember<'a>(machine: &Machine, gpus: impl Iterator<Item = &'a str>) {
    // A described machine's events end with their cause.
    if machine.hardware.is_described() {
        return;
    }
    let now = since_boot();
    let mut at = of_boot(machine);
    at.extend(gpus.map(|pci| (pci.to_owned(), now)));
    let resets = Resets { boot_id: boot_id(&machine.root, false), at };
    let bytes = serde_json::to_vec(&resets).expect("resets serialise");
    if let Err(error) = machine.state.write(FILE, &bytes) {
        tracing::warn!("the reset is not remembered: {error}");
    }
}

/// By the clock of the kernel's log, which stands while the machine sleeps.
fn since_boot() -> u64 {
    let measured = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).expect("the kernel measures");
    u64::try_from(measured.as_micros()).expect("no machine is up that long")
}
