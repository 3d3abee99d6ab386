//! What `status --wait` can wait for, and what is still missing. Pure.

use std::fmt;

use clap::ValueEnum;

use super::report::Report;
use crate::output::text::count;

/// A state of the fleet that can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// The commit is applied
    Applied,
    /// The commit is applied, and every machine has observed what it asks for
    Converged,
    /// The commit was seen and cannot be applied
    Refused,
    /// The machines have a session
    Connected,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Applied => "applied",
            Self::Converged => "converged",
            Self::Refused => "refused",
            Self::Connected => "connected",
        })
    }
}

/// A goal with what it is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim<'a> {
    /// The goal.
    pub(super) goal: Goal,
    /// The commit; whatever the remote has when none is named.
    pub(super) commit: Option<&'a str>,
    /// Machines at least.
    pub(super) nodes: u64,
}

impl Aim<'_> {
    /// What is missing in words; `None` when the goal is reached.
    pub(super) fn missing(&self, report: &Report) -> Option<String> {
        match self.goal {
            Goal::Applied => self.not_applied(report),
            Goal::Refused => self.not_refused(report),
            Goal::Connected => self.too_few("connected", report.connected(), report),
            Goal::Converged => {
                self.not_applied(report).or_else(|| self.too_few("converged", report.converged(), report))
            }
        }
    }

    fn too_few(&self, what: &str, have: u64, report: &Report) -> Option<String> {
        let missing = too_few(what, have, self.nodes.max(report.expected()))?;
        let revoked = report.revoked();
        let apart = format!("; {} without an identity (revoked) left out", count(revoked, "machine"));
        Some(if revoked > 0 { missing + &apart } else { missing })
    }

    fn is_meant(&self, commit: &str) -> bool {
        self.commit.is_none_or(|wanted| commit.starts_with(wanted))
    }

    fn not_applied(&self, report: &Report) -> Option<String> {
        let Some(source) = report.sources.first() else { return Some("there is no fleet repository".to_owned()) };
        let applied = source.applied.as_ref().map(|at| at.commit.as_str());
        let wanted = self.commit.or(source.remote.as_ref().map(|at| at.commit.as_str()));
        match (applied, wanted) {
            (Some(applied), Some(wanted)) if applied.starts_with(wanted) => None,
            (Some(applied), _) => Some(format!("applied is {}, the source is {}", short(applied), source.state)),
            (None, _) => Some(format!("nothing is applied, the source is {}", source.state)),
        }
    }

    fn not_refused(&self, report: &Report) -> Option<String> {
        let Some(source) = report.sources.first() else { return Some("there is no fleet repository".to_owned()) };
        match &source.remote {
            Some(remote) if self.is_meant(&remote.commit) && !source.is_ok() => None,
            Some(remote) => Some(format!("remote is {}, the source is {}", short(&remote.commit), source.state)),
            None if self.commit.is_none() && !source.is_ok() => None,
            None => Some("no commit was seen".to_owned()),
        }
    }
}

fn too_few(what: &str, have: u64, want: u64) -> Option<String> {
    if want == 0 {
        return Some("there are no machines".to_owned());
    }
    (have < want).then(|| format!("{have} of {} {what}", count(want, "machine")))
}

/// A commit id as people read it.
pub(super) fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(state: &str, remote: &str, applied: &str, converged: u64) -> Report {
        Report::read(&json!({
            "sources": [{ "state": state, "remote": { "commit": remote, "at": "2026-11-29T12:00:00Z" }, "applied": { "commit": applied, "at": "2026-11-29T12:00:00Z" } }],
            "pools": [{ "name": "h100", "total": 3, "converged": converged, "connected": 3 }],
        })).unwrap()
    }

    #[test]
    fn an_old_commit_is_not_convergence() {
        let aim = Aim { goal: Goal::Converged, commit: Some("bbb"), nodes: 3 };
        assert_eq!(
            aim.missing(&report("ok", "aaa111", "aaa111", 3)).as_deref(),
            Some("applied is aaa111, the source is ok")
        );
        assert_eq!(aim.missing(&report("ok", "bbb222", "bbb222", 2)).as_deref(), Some("2 of 3 machines converged"));
        assert_eq!(aim.missing(&report("ok", "bbb222", "bbb222", 3)), None);
        assert_eq!(too_few("connected", 0, 1).as_deref(), Some("0 of 1 machine connected"));
    }

    #[test]
    fn a_machine_whose_identity_was_revoked_is_not_waited_for() {
        let document = |converged: u64| {
            json!({
                "sources": [{ "state": "ok", "applied": { "commit": "aaa111", "at": "2026-11-29T12:00:00Z" }, "remote": { "commit": "aaa111", "at": "2026-11-29T12:00:00Z" } }],
                "pools": [{ "name": "h100", "total": 7, "converged": converged, "connected": 6, "revoked": 1 }],
            })
        };
        let missing = |goal, converged| {
            let aim = Aim { goal, commit: None, nodes: 0 };
            aim.missing(&Report::read(&document(converged)).unwrap())
        };
        assert_eq!((missing(Goal::Converged, 6), missing(Goal::Connected, 0)), (None, None));
        let left_out = "5 of 6 machines converged; 1 machine without an identity (revoked) left out";
        assert_eq!(missing(Goal::Converged, 5).as_deref(), Some(left_out));
    }

    #[test]
    fn a_refusal_is_about_the_commit_that_was_named() {
        let aim = Aim { goal: Goal::Refused, commit: Some("bbb"), nodes: 0 };
        assert!(aim.missing(&report("fleet-invalid", "aaa111", "aaa000", 3)).is_some());
        assert_eq!(aim.missing(&report("fleet-invalid", "bbb222", "aaa000", 3)), None);
    }
}
