//! `gpu.reset`: refuses the whole command while one of its GPUs is in use, and resets them one after the other.

use schema::command::{
    Reason,
    payload::{GpuName, GpuReset},
    result::{CheckStatus, GpuResetOutcome, GpuResets},
};

use super::{
    Machine,
    diagnose::{PASSED_THROUGH, of_gpu},
    failed, failed_with, resets, succeeded,
};
use crate::{
    command::{Context, Outcome, Stop},
    hardware::health::{GpuHealth, OnBus, User},
};

pub(super) fn run(machine: &Machine, context: &Context, payload: &GpuReset) -> Result<Outcome, Stop> {
    if let Err(undone) = machine.check_own() {
        return Ok(undone.into());
    }
    let health = match machine.hardware.health() {
        Ok(health) => health,
        Err(silence) => {
            let why = format!("nobody can say whether the GPUs are in use: {silence}");
            return Ok(failed(Reason::GPU_USE_UNKNOWN, why));
        }
    };
    let bus = machine.hardware.bus().unwrap_or_default();
    let mut targets: Vec<(&GpuName, GpuHealth)> = Vec::new();
    let mut unknown = Vec::new();
    for name in &payload.gpus {
        match find(&health.gpus, &bus, name) {
            Some(gpu) if targets.iter().any(|(_, known)| known.pci == gpu.pci && known.uuid == gpu.uuid) => {}
            Some(gpu) => targets.push((name, gpu)),
            None => unknown.push(name.as_str()),
        }
    }
    if !unknown.is_empty() {
        return Ok(failed(Reason::GPU_UNKNOWN, format!("this machine has no {}", unknown.join(", "))));
    }
    let gpus: Vec<&GpuHealth> = targets.iter().map(|(_, gpu)| gpu).collect();
    match busy(machine, &bus, &gpus, &[]) {
        Err(why) => return Ok(failed(Reason::GPU_USE_UNKNOWN, why)),
        Ok(busy) if !busy.is_empty() => return Ok(failed(Reason::GPU_BUSY, busy.join("; "))),
        Ok(_) => {}
    }
    let mut results = GpuResets::default();
    for (name, gpu) in &targets {
        // The resets before took their time, and somebody may have come.
        let used = if results.gpus.is_empty() { Ok(Vec::new()) } else { busy(machine, &bus, &[gpu], &[]) };
        let (reason, why) = match used {
            Ok(used) if used.is_empty() => (None, String::new()),
            Ok(used) => (Some(Reason::GPU_BUSY), used.join("; ")),
            Err(why) => (Some(Reason::GPU_USE_UNKNOWN), why),
        };
        if let Some(reason) = reason {
            look_again(machine, &mut results);
            return Ok(failed_with(reason, format!("{why}; {}", so_far(&results)), &results));
        }
        // An end between two resets tells what the first ones came to.
        if let Err(stop) = context.effect(&format!("gpu.reset {name}")) {
            match stop {
                Stop::Cancelled if !results.gpus.is_empty() => return Ok(stopped(machine, results)),
                stop => return Err(stop),
            }
        }
        let reset = machine.hardware.reset(gpu);
        if reset.is_ok() {
            resets::remember(machine, gpu.pci.as_deref().into_iter());
        }
        let (worked, why) = (reset.is_ok(), reset.err().map(|undone| undone.why));
        results.gpus.push(GpuResetOutcome { gpu: (*name).clone(), reset: worked, healthy: None, why });
    }
    look_again(machine, &mut results);
    let bad: Vec<String> =
        results.gpus.iter().filter(|gpu| gpu.healthy != Some(true) || !gpu.reset).map(line).collect();
    if bad.is_empty() {
        Ok(succeeded(&results))
    } else {
        Ok(failed_with(Reason::RESET_FAILED, bad.join("; "), &results))
    }
}

/// The GPU that a name means. One that the driver has lost is still found by its address.
fn find(gpus: &[GpuHealth], bus: &[OnBus], name: &GpuName) -> Option<GpuHealth> {
    gpus.iter().find(|gpu| gpu.is(name)).cloned().or_else(|| {
        bus.iter()
            .map(|on_bus| GpuHealth { pci: Some(on_bus.pci.clone()), ..GpuHealth::default() })
            .find(|gpu| gpu.is(name))
    })
}

/// Who uses which of the GPUs, for people; those who are `own` do not count.
pub(super) fn busy(
    machine: &Machine,
    bus: &[OnBus],
    targets: &[&GpuHealth],
    own: &[&str],
) -> Result<Vec<String>, String> {
    let passed_through = |gpu: &GpuHealth| {
        let on_bus = bus.iter().find(|on_bus| gpu.pci.as_deref() == Some(on_bus.pci.as_str()));
        on_bus.is_some_and(|on_bus| on_bus.driver.as_deref() == Some(PASSED_THROUGH))
    };
    let (guests, here): (Vec<&GpuHealth>, Vec<&GpuHealth>) =
        targets.iter().copied().partition(|gpu| passed_through(gpu));
    let mut busy: Vec<String> =
        guests.iter().map(|gpu| format!("{} is passed through to a virtual machine", gpu.name())).collect();
    for (gpu, mut users) in here.iter().zip(machine.hardware.holders(&here)?) {
        for user in &gpu.users {
            if !users.iter().any(|known| known.pid == user.pid) {
                users.push(user.clone());
            }
        }
        users.retain(|user| !own.iter().any(|name| *name == short(&user.name)));
        let name = |user: &User| match user.name.as_str() {
            "" => format!("process {}", user.pid),
            name => format!("{name} (process {})", user.pid),
        };
        let names: Vec<String> = users.iter().take(8).map(name).collect();
        if !names.is_empty() {
            busy.push(format!("{} is in use by {}", gpu.name(), names.join(", ")));
        }
    }
    Ok(busy)
}

/// A process's own name: the driver says the whole path of its program.
fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn look_again(machine: &Machine, results: &mut GpuResets) {
    let fresh = machine.hardware.health();
    for outcome in &mut results.gpus {
        let note = |outcome: &mut GpuResetOutcome, why: String| {
            outcome.why = Some(outcome.why.take().map_or_else(|| why.clone(), |first| format!("{first}; {why}")));
        };
        let Ok(health) = &fresh else {
            note(outcome, "its health could not be read afterwards".to_owned());
            continue;
        };
        let Some(gpu) = health.gpus.iter().find(|gpu| gpu.is(&outcome.gpu)) else {
            outcome.healthy = Some(false);
            note(outcome, "the driver does not know it afterwards".to_owned());
            continue;
        };
        let mut wrong: Vec<String> = gpu.lost.iter().cloned().collect();
        for check in of_gpu(gpu) {
            if matches!(check.status, CheckStatus::Fail | CheckStatus::Unknown) {
                wrong.push(check.why.unwrap_or(check.name));
            }
        }
        outcome.healthy = Some(wrong.is_empty());
        if !wrong.is_empty() {
            note(outcome, wrong.join("; "));
        }
    }
}

fn stopped(machine: &Machine, mut results: GpuResets) -> Outcome {
    look_again(machine, &mut results);
    let message = format!("cancelled; {}", so_far(&results));
    let result = Some(serde_json::to_value(&results).expect("results serialise"));
    Outcome::Cancelled { message, result }
}

fn so_far(results: &GpuResets) -> String {
    let done: Vec<&str> = results.gpus.iter().filter(|gpu| gpu.reset).map(|gpu| gpu.gpu.as_str()).collect();
    match done.as_slice() {
        [] => "none was reset before".to_owned(),
        done => format!("reset before: {}", done.join(", ")),
    }
}

fn line(outcome: &GpuResetOutcome) -> String {
    let what = if outcome.reset { "was reset and is not well" } else { "was not reset" };
    format!("{} {what}: {}", outcome.gpu, outcome.why.as_deref().unwrap_or("no reason is known"))
}

#[cfg(test)]
mod tests;
