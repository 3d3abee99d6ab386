//! `diag.dcgm`: DCGM's own diagnostics. What it finds is said GPU by GPU, with what to do about it.
//!
//! ```text
//! dcgmi discovery ─▶ which number is which GPU ─▶ from level 2 on: is one of them in use? ─▶ dcgmi diag ─▶ checks
//! ```
//!
//! From level 2 on the GPUs are put under load: the whole command is refused while one of them is in use. A diagnostic that
//! is stopped ends with its client; the engine behind it notices that nobody listens and stops some time later.

use std::time::Duration;

use schema::command::{
    Reason,
    payload::DiagDcgm,
    result::{Check, CheckStatus, Diagnosis},
};

use super::{Machine, diagnose::judged, failed, reset::busy};
use crate::{
    command::{Context, Outcome, Stop},
    hardware::health::GpuHealth,
    process::{self, RunError, Streamed},
};

mod discovery;
mod report;

use discovery::Found;

/// Its own engine holds the GPUs open all the time. The kernel cuts names at fifteen bytes.
const OWN: &[&str] = &["nv-hostengine"];
/// More than any report has.
const LONGEST_REPORT: usize = 4 * 1024 * 1024;

/// How long a level may take: a few times what it usually does.
const fn patience(level: u8) -> Duration {
    Duration::from_secs(match level {
        1 => 2 * 60,
        2 => 15 * 60,
        3 => 60 * 60,
        _ => 115 * 60,
    })
}

pub(super) fn run(machine: &Machine, context: &Context, payload: &DiagDcgm) -> Result<Outcome, Stop> {
    if machine.hardware.is_described() {
        return Ok(failed(Reason::UNSUPPORTED_HERE, "a described machine has no DCGM"));
    }
    let load = payload.level > 1;
    if load && let Err(undone) = machine.check_own() {
        return Ok(undone.into());
    }
    context.go_on()?;
    let found = match discover(machine, context) {
        Ok(found) => found,
        Err(end) => return Ok(end),
    };
    let numbers = match numbers(&found, payload) {
        Ok(numbers) => numbers,
        Err(unknown) => return Ok(failed(Reason::GPU_UNKNOWN, unknown)),
    };
    if load && let Some(end) = in_use(machine, payload) {
        return Ok(end);
    }
    context.go_on()?;
    if load {
        context.effect(&format!("dcgm.load level {}", payload.level))?;
    }
    diagnose(machine, context, payload.level, numbers.as_deref(), &found)
}

/// The GPUs as DCGM counts them, or the end when it cannot be asked.
fn discover(machine: &Machine, context: &Context) -> Result<Vec<Found>, Outcome> {
    let deadline = machine.programs.answer.min(context.remaining());
    match process::run(&machine.programs.dcgmi, &["discovery", "-l"], deadline) {
        Ok(output) if output.success => Ok(discovery::read(&String::from_utf8_lossy(&output.stdout))),
        Ok(output) => {
            let why = first_line(&String::from_utf8_lossy(&output.stdout), &output.stderr);
            Err(silent(CheckStatus::Fail, why.unwrap_or_else(|| "dcgmi ended badly and said nothing".to_owned())))
        }
        Err(error @ RunError::Start { .. }) => Err(failed(error.reason(), error.to_string())),
        Err(error @ RunError::Deadline { .. }) => Err(silent(CheckStatus::Unknown, error.to_string())),
    }
}

/// DCGM does not answer.
fn silent(status: CheckStatus, why: String) -> Outcome {
    judged(&Diagnosis::of(Some("dcgmi".to_owned()), None, vec![check("dcgm.answers", None, status, Some(why))]))
}

fn check(name: &str, gpu: Option<&str>, status: CheckStatus, why: Option<String>) -> Check {
    Check { name: name.to_owned(), gpu: gpu.map(str::to_owned), status, why }
}

/// The numbers of the GPUs that are meant; `None` for all of them.
fn numbers(found: &[Found], payload: &DiagDcgm) -> Result<Option<Vec<u32>>, String> {
    let number = |name| found.iter().find(|found| found.gpu.is(name)).map(|found| found.number);
    let unknown: Vec<&str> =
        payload.gpus.iter().filter(|name| number(name).is_none()).map(|name| name.as_str()).collect();
    if !unknown.is_empty() {
        return Err(format!("DCGM knows no {} on this machine", unknown.join(", ")));
    }
    let numbers: Vec<u32> = payload.gpus.iter().filter_map(number).collect();
    Ok((!numbers.is_empty()).then_some(numbers))
}

/// The end, when a GPU that would be loaded is in use or nobody can say whether it is.
fn in_use(machine: &Machine, payload: &DiagDcgm) -> Option<Outcome> {
    let unknown = |why: String| Some(failed(Reason::GPU_USE_UNKNOWN, why));
    let health = match machine.hardware.health() {
        Ok(health) => health,
        Err(silence) => return unknown(format!("nobody can say whether the GPUs are in use: {silence}")),
    };
    let is_meant = |gpu: &&GpuHealth| payload.gpus.is_empty() || payload.gpus.iter().any(|name| gpu.is(name));
    let meant: Vec<&GpuHealth> = health.gpus.iter().filter(is_meant).collect();
    match busy(machine, &machine.hardware.bus().unwrap_or_default(), &meant, OWN) {
        Err(why) => unknown(why),
        Ok(busy) if busy.is_empty() => None,
        Ok(busy) => Some(failed(Reason::GPU_BUSY, busy.join("; "))),
    }
}

fn diagnose(
    machine: &Machine,
    context: &Context,
    level: u8,
    numbers: Option<&[u32]>,
    found: &[Found],
) -> Result<Outcome, Stop> {
    let level_word = level.to_string();
    let mut args = vec!["diag", "-j", "-r", &level_word];
    let list = numbers.map(|numbers| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    if let Some(list) = &list {
        args.extend(["-i", list]);
    }
    let (mut stop, mut text) = (None, Vec::new());
    let deadline = patience(level).min(context.remaining());
    let ended = process::stream(&machine.programs.dcgmi, &args, deadline, |piece| {
        stop = context.go_on().err();
        let room = LONGEST_REPORT.saturating_sub(text.len());
        text.extend_from_slice(&piece[..piece.len().min(room)]);
        stop.is_none()
    });
    if let Some(stop) = stop {
        return Err(stop);
    }
    let stderr = match ended {
        Ok(Streamed::Ended { stderr, .. }) => stderr,
        Ok(Streamed::Stopped) => String::new(),
        Err(error @ RunError::Start { .. }) => return Ok(failed(error.reason(), error.to_string())),
        Err(error @ RunError::Deadline { .. }) => return Ok(silent(CheckStatus::Unknown, error.to_string())),
    };
    let text = String::from_utf8_lossy(&text);
    // It ends badly when a test fails, and its report says which.
    match report::read(&text, found, numbers) {
        Some(diagnosis) => Ok(judged(&diagnosis)),
        None => {
            let why = first_line(&text, &stderr).unwrap_or_else(|| "it said nothing".to_owned());
            Ok(silent(CheckStatus::Unknown, format!("dcgmi gave no report of level {level}: {why}")))
        }
    }
}

/// The first thing that a program said.
fn first_line(stdout: &str, stderr: &str) -> Option<String> {
    let line = stdout.lines().chain(stderr.lines()).map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|letter| !letter.is_control()).take(300).collect())
}

#[cfg(test)]
mod tests;
