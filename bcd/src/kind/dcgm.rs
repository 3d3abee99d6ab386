//! `diag.dcgm`: whether DCGM is installed and answers. The levels that load GPUs are not run by this version.

use schema::command::{
    Reason,
    payload::DiagDcgm,
    result::{Check, CheckStatus, Diagnosis},
};

use super::{Machine, diagnose::judged, failed};
use crate::{
    command::{Context, Outcome, Stop},
    process::{self, RunError},
};

pub(super) fn run(machine: &Machine, context: &Context, payload: &DiagDcgm) -> Result<Outcome, Stop> {
    if machine.hardware.is_described() {
        return Ok(failed(Reason::UNSUPPORTED_HERE, "a described machine has no DCGM"));
    }
    if payload.level > 1 {
        let why = format!("level {} puts load on the GPUs, and this version runs level 1 only", payload.level);
        return Ok(failed(Reason::UNSUPPORTED_HERE, why));
    }
    context.go_on()?;
    let deadline = machine.programs.answer.min(context.remaining());
    let check = |name: &str, status, why: Option<String>| Check { name: name.to_owned(), gpu: None, status, why };
    let (installed, answers) = match process::run(&machine.programs.dcgmi, &["discovery", "--list"], deadline) {
        Ok(output) if output.success => {
            (check("dcgm.installed", CheckStatus::Pass, None), check("dcgm.answers", CheckStatus::Pass, None))
        }
        Ok(output) => {
            let out = String::from_utf8_lossy(&output.stdout);
            let why = out.lines().chain(output.stderr.lines()).map(str::trim).find(|line| !line.is_empty());
            let why = why.unwrap_or("dcgmi ended badly and said nothing").chars().take(300).collect();
            let answers = check("dcgm.answers", CheckStatus::Fail, Some(why));
            (check("dcgm.installed", CheckStatus::Pass, None), answers)
        }
        Err(error @ RunError::Start { .. }) => return Ok(failed(error.reason(), error.to_string())),
        Err(error @ RunError::Deadline { .. }) => {
            let answers = check("dcgm.answers", CheckStatus::Unknown, Some(error.to_string()));
            (check("dcgm.installed", CheckStatus::Pass, None), answers)
        }
    };
    Ok(judged(&Diagnosis::of(Some("dcgmi".to_owned()), None, vec![installed, answers])))
}
