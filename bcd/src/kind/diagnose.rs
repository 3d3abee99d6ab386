//! `diag.nvml`: whether the GPUs are there and without a pending fault. Every check that does not pass says why.

use std::collections::BTreeMap;

use schema::command::{
    Reason,
    payload::DiagNvml,
    result::{Check, CheckStatus, Diagnosis},
};

use super::{Machine, failed_with, resets, succeeded};
use crate::{
    command::{Context, Outcome, Stop},
    hardware::{
        health::{GpuHealth, Health, OnBus, Reading, Silence},
        xid::{self, Xid},
    },
};

/// A driver that hands a GPU on to a virtual machine: nothing on this host sees it, and nothing should.
pub(super) const PASSED_THROUGH: &str = "vfio-pci";

/// What is known about the GPUs of a machine.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) health: Result<Health, Silence>,
    pub(super) bus: Option<Vec<OnBus>>,
    pub(super) xids: Option<Vec<Xid>>,
    /// When GPUs were reset in this boot, by PCI address, in microseconds since its start.
    pub(super) resets: BTreeMap<String, u64>,
}

pub(super) fn run(machine: &Machine, context: &Context, payload: &DiagNvml) -> Result<Outcome, Stop> {
    let health = machine.hardware.health();
    context.go_on()?;
    let facts =
        Facts { health, bus: machine.hardware.bus(), xids: machine.hardware.xids(), resets: resets::of_boot(machine) };
    Ok(judged(&checks(&facts, payload.expected_gpus)))
}

/// A diagnosis as the end of a command: it succeeds when every check passed.
pub(super) fn judged(diagnosis: &Diagnosis) -> Outcome {
    if diagnosis.passed {
        return succeeded(diagnosis);
    }
    let (status, reason) = if diagnosis.any(CheckStatus::Fail) {
        (CheckStatus::Fail, Reason::CHECKS_FAILED)
    } else {
        (CheckStatus::Unknown, Reason::CHECKS_UNKNOWN)
    };
    let line = |check: &Check| {
        let gpu = check.gpu.as_deref().map(|gpu| format!(" of {gpu}")).unwrap_or_default();
        format!("{}{gpu}: {}", check.name, check.why.as_deref().unwrap_or("no reason is known"))
    };
    let lines: Vec<String> = diagnosis.checks.iter().filter(|check| check.status == status).map(line).collect();
    failed_with(reason, lines.join("; "), diagnosis)
}

fn check(name: &str, gpu: Option<&str>, verdict: Verdict) -> Check {
    let (status, why) = match verdict {
        Verdict::Pass => (CheckStatus::Pass, None),
        Verdict::Fail(why) => (CheckStatus::Fail, Some(why)),
        Verdict::Unknown(why) => (CheckStatus::Unknown, Some(why)),
        Verdict::NotSupported(why) => (CheckStatus::NotSupported, Some(why.to_owned())),
    };
    Check { name: name.to_owned(), gpu: gpu.map(str::to_owned), status, why }
}

enum Verdict {
    Pass,
    Fail(String),
    Unknown(String),
    NotSupported(&'static str),
}

/// The checks of a machine that should have so many GPUs.
pub(super) fn checks(facts: &Facts, expected: Option<u32>) -> Diagnosis {
    let none_wanted = expected == Some(0) && facts.bus.as_ref().is_some_and(Vec::is_empty);
    let mut checks = Vec::new();
    checks.push(check(
        "nvml.init",
        None,
        match &facts.health {
            Ok(_) => Verdict::Pass,
            Err(_) if none_wanted => Verdict::NotSupported("the machine has no GPU and should have none"),
            Err(silence) if silence.hung => Verdict::Unknown(silence.why.clone()),
            Err(silence) => Verdict::Fail(silence.why.clone()),
        },
    ));
    let gpus: &[GpuHealth] = facts.health.as_ref().map_or(&[], |health| health.gpus.as_slice());
    checks.push(check("gpus.visible", None, visible(facts, gpus, none_wanted)));
    if let Some(expected) = expected {
        let there = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        checks.push(check(
            "gpus.count",
            None,
            match &facts.health {
                Err(silence) if !none_wanted => Verdict::Unknown(format!("nobody counts them: {}", silence.why)),
                _ if there == expected => Verdict::Pass,
                _ => Verdict::Fail(format!("the driver knows {there}, and {expected} are expected")),
            },
        ));
    }
    for gpu in gpus {
        checks.extend(of_gpu(gpu));
        checks.push(check("xid.recent", Some(gpu.name()), recent(facts, gpu.pci.as_deref())));
    }
    // A GPU that the driver knows no more still has its history.
    for pci in unseen(facts, gpus) {
        if let verdict @ Verdict::Fail(_) = recent(facts, Some(pci)) {
            checks.push(check("xid.recent", Some(pci), verdict));
        }
    }
    let (source, driver) = match &facts.health {
        Ok(health) => (Some(health.source.clone()), health.driver.clone()),
        Err(_) => (None, None),
    };
    Diagnosis::of(source, driver, checks)
}

/// GPUs on the bus that the driver does not know, but those that are handed on.
fn unseen<'a>(facts: &'a Facts, gpus: &[GpuHealth]) -> Vec<&'a str> {
    let own = facts.bus.iter().flatten().filter(|on_bus| on_bus.driver.as_deref() != Some(PASSED_THROUGH));
    own.map(|on_bus| on_bus.pci.as_str())
        .filter(|pci| !gpus.iter().any(|gpu| gpu.pci.as_deref() == Some(*pci)))
        .collect()
}

fn visible(facts: &Facts, gpus: &[GpuHealth], none_wanted: bool) -> Verdict {
    let lost = gpus.iter().filter_map(|gpu| Some(format!("{}: {}", gpu.name(), gpu.lost.as_deref()?)));
    let unseen: Vec<&str> = if facts.health.is_ok() { unseen(facts, gpus) } else { Vec::new() };
    let unseen = unseen.into_iter().map(|pci| format!("{pci} is on the bus and the driver does not know it"));
    let bad: Vec<String> = lost.chain(unseen).collect();
    match (&facts.health, &facts.bus) {
        _ if !bad.is_empty() => Verdict::Fail(bad.join("; ")),
        _ if none_wanted => Verdict::NotSupported("the machine has no GPU and should have none"),
        (Err(silence), _) => Verdict::Unknown(format!("nobody names them: {}", silence.why)),
        (Ok(_), None) => {
            Verdict::Unknown("the bus cannot be seen, so that nothing says what should be there".to_owned())
        }
        (Ok(_), Some(_)) if gpus.is_empty() => Verdict::Fail("the driver knows no GPU".to_owned()),
        (Ok(_), Some(_)) => Verdict::Pass,
    }
}

/// The checks of one GPU that need no history.
pub(super) fn of_gpu(gpu: &GpuHealth) -> Vec<Check> {
    let name = Some(gpu.name());
    let ecc = judge(&gpu.ecc_uncorrectable, |count| {
        (*count > 0).then(|| format!("{count} memory errors since the driver was loaded could not be corrected"))
    });
    let pending = judge(&gpu.remap_pending, |pending| {
        pending.then(|| "faulty memory waits to be replaced; a reset of the GPU does it".to_owned())
    });
    let failure = judge(&gpu.remap_failure, |failed| {
        failed.then(|| "faulty memory could not be replaced; the GPU has no spare rows left there".to_owned())
    });
    // Only the width: an idle link is slow on purpose.
    let link = match (&gpu.link_width, &gpu.link_max) {
        (Reading::Known(now), Reading::Known(max)) if now < max => {
            Verdict::Fail(format!("the PCI link has {now} of {max} lanes"))
        }
        (Reading::Known(_), Reading::Known(_)) => Verdict::Pass,
        (Reading::Unknown(said), _) | (_, Reading::Unknown(said)) => {
            Verdict::Unknown(format!("the driver says {said:?}"))
        }
        (Reading::NotSupported, _) | (_, Reading::NotSupported) => Verdict::NotSupported(NOT_SAID),
    };
    vec![
        check("ecc.uncorrectable", name, ecc),
        check("row-remap.pending", name, pending),
        check("row-remap.failure", name, failure),
        check("pcie.link", name, link),
    ]
}

const NOT_SAID: &str = "this GPU, or its driver, does not say";

fn judge<T>(reading: &Reading<T>, wrong: impl Fn(&T) -> Option<String>) -> Verdict {
    match reading {
        Reading::Known(value) => wrong(value).map_or(Verdict::Pass, Verdict::Fail),
        Reading::NotSupported => Verdict::NotSupported(NOT_SAID),
        Reading::Unknown(said) => Verdict::Unknown(format!("the driver says {said:?}")),
    }
}

fn recent(facts: &Facts, pci: Option<&str>) -> Verdict {
    let Some(xids) = &facts.xids else {
        return Verdict::Unknown("the kernel's log cannot be read".to_owned());
    };
    let Some(pci) = pci else {
        return Verdict::Unknown("the GPU has no address to look for".to_owned());
    };
    let since = facts.resets.get(pci).copied().unwrap_or(0);
    let events = xids.iter().filter(|event| event.is_on(pci) && event.at >= since);
    let standing = xid::conditions(events);
    let (Some(last), count) = (standing.last(), standing.len()) else { return Verdict::Pass };
    let mut codes: Vec<u32> = standing.iter().map(|event| event.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let codes: Vec<String> = codes.iter().map(u32::to_string).collect();
    Verdict::Fail(format!("XID {} in this boot, {count} times; the last: {}", codes.join(", "), last.text))
}

#[cfg(test)]
mod tests;
