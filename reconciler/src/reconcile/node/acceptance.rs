//! What a machine has to pass before it is adopted: the checks of its pool, each one command.
//!
//! An attempt is a number; a check's command has a key made of it, so that a run that comes again finds what the one before
//! began. A check that never ran (its node was not there in time, or somebody took it back) begins another attempt; one that
//! ran and failed ends the acceptance, until somebody asks for it anew.

use std::fmt;

use schema::{
    command::{CommandKind, CommandState},
    fleet::Pool,
    id::NodeId,
    time::{Duration, Timestamp},
};
use serde_json::{Value, json};
use store::{
    Txn,
    commands::{self, Command, EnqueueError, NewCommand},
    identities,
    nodes::Node,
};

use crate::reconcile::{Context, Failure};

/// How long a check waits for its node.
const WAITS: Duration = Duration::from_secs(3_600);

/// Where the acceptance of a machine stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Acceptance {
    /// Nothing is asked, or everything passed.
    Passed,
    /// These checks have to be queued; under another attempt when some never ran.
    Begin { checks: Vec<NewCommand>, again: bool },
    /// These checks are under way.
    Running(Vec<String>),
    /// A check failed.
    Failed { check: String, why: String },
}

/// A check as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Missing,
    NeverRan,
    Running,
    Passed,
    Failed(String),
}

/// Looks at every check of the pool.
pub(super) async fn look(context: &Context, node: &Node, pool: &Pool, now: Timestamp) -> Result<Acceptance, Failure> {
    let checks = wanted(pool);
    if checks.is_empty() {
        return Ok(Acceptance::Passed);
    }
    let attempt = identities::acceptance(context.db(), node.id).await?;
    let mut standing = Vec::new();
    for (kind, payload) in checks {
        let command = commands::find_by_key(context.db(), node.id, &key(node.id, attempt, kind)).await?;
        standing.push((kind, payload, command.as_ref().map_or(Standing::Missing, of_command)));
    }
    Ok(judge(node.id, attempt, standing, now))
}

fn judge(node: NodeId, attempt: u64, standing: Vec<(CommandKind, Value, Standing)>, now: Timestamp) -> Acceptance {
    let failed = standing.iter().find_map(|(kind, _, standing)| match standing {
        Standing::Failed(why) => Some((kind.to_string(), why.clone())),
        _ => None,
    });
    if let Some((check, why)) = failed {
        return Acceptance::Failed { check, why };
    }
    let again = standing.iter().any(|(_, _, standing)| *standing == Standing::NeverRan);
    let attempt = if again { attempt + 1 } else { attempt };
    let command = |kind: CommandKind, payload: &Value| NewCommand {
        node_id: node,
        kind,
        payload: payload.clone(),
        idempotency_key: key(node, attempt, kind),
        not_after: WAITS.after(now),
        min_generation: None,
        batch_id: None,
        secrets: Vec::new(),
        created_by: "acceptance".to_owned(),
    };
    let begin: Vec<NewCommand> = standing
        .iter()
        .filter(|(_, _, standing)| again || *standing == Standing::Missing)
        .map(|(kind, payload, _)| command(*kind, payload))
        .collect();
    if !begin.is_empty() {
        return Acceptance::Begin { checks: begin, again };
    }
    let running: Vec<String> = standing
        .iter()
        .filter(|(_, _, standing)| *standing == Standing::Running)
        .map(|(kind, _, _)| kind.to_string())
        .collect();
    if running.is_empty() { Acceptance::Passed } else { Acceptance::Running(running) }
}

fn of_command(command: &Command) -> Standing {
    match command.state {
        CommandState::Succeeded => Standing::Passed,
        CommandState::Expired | CommandState::Cancelled => Standing::NeverRan,
        CommandState::Failed | CommandState::Rejected => {
            let said = [command.reason.as_deref(), command.message.as_deref()];
            Standing::Failed(said.into_iter().flatten().collect::<Vec<_>>().join(": "))
        }
        CommandState::Pending | CommandState::Dispatched | CommandState::Acked | CommandState::Running => {
            Standing::Running
        }
    }
}

/// The checks that a pool asks for. One that this version does not know is no command, and `check` refused it.
fn wanted(pool: &Pool) -> Vec<(CommandKind, Value)> {
    let Some(policy) = &pool.policy else { return Vec::new() };
    let gpus = pool.hardware.as_ref().and_then(|hardware| hardware.value.gpus.as_ref());
    let payload = |kind: CommandKind, level: Option<u32>| match kind {
        CommandKind::DiagNvml => {
            gpus.map_or_else(|| json!({}), |gpus| json!({ "expectedGpus": gpus.value.count.value }))
        }
        CommandKind::DiagDcgm => level.map_or_else(|| json!({}), |level| json!({ "level": level })),
        _ => json!({}),
    };
    let checks = policy.value.acceptance.iter();
    checks
        .filter_map(|(check, words)| {
            let kind: CommandKind = check.parse().ok()?;
            let level = words.value.level.as_ref().map(|level| level.value);
            Some((kind, payload(kind, level)))
        })
        .collect()
}

fn key(node: NodeId, attempt: u64, kind: CommandKind) -> String {
    format!("acceptance:{node}:{attempt}:{kind}")
}

/// Queues checks.
pub(super) async fn begin(txn: &mut Txn, node: NodeId, checks: &[NewCommand], again: bool) -> Result<(), Failure> {
    if again {
        identities::next_acceptance(txn, node).await?;
    }
    for check in checks {
        match commands::enqueue(txn, check).await {
            Ok(_) => {}
            Err(EnqueueError::Db(error)) => return Err(error.into()),
            Err(error) => return Err(Failure::new("check-not-queued", error)),
        }
    }
    Ok(())
}

impl fmt::Display for Acceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("accepted"),
            Self::Begin { .. } => f.write_str("the checks of its pool are queued"),
            Self::Running(checks) => write!(f, "the machine is being checked: {}", checks.join(", ")),
            Self::Failed { check, why } => write!(f, "{check} failed: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeId {
        "node_01k9m2v7t3c4w8d5e6f7g8h9ja".parse().expect("an id")
    }

    fn ask(standing: Standing) -> Acceptance {
        let now = "2026-11-29T12:00:00Z".parse().expect("a time");
        judge(node(), 3, vec![(CommandKind::DiagNvml, json!({}), standing)], now)
    }

    fn begun(acceptance: &Acceptance) -> Option<(&str, bool)> {
        match acceptance {
            Acceptance::Begin { checks, again } => Some((checks[0].idempotency_key.as_str(), *again)),
            _ => None,
        }
    }

    #[test]
    fn a_check_is_queued_once_for_an_attempt() {
        let text = format!("acceptance:{}:3:diag.nvml", node());
        assert_eq!(begun(&ask(Standing::Missing)), Some((text.as_str(), false)));
        assert_eq!(ask(Standing::Running), Acceptance::Running(vec!["diag.nvml".to_owned()]));
        assert_eq!(ask(Standing::Passed), Acceptance::Passed);
    }

    #[test]
    fn a_check_that_never_ran_begins_another_attempt() {
        let text = format!("acceptance:{}:4:diag.nvml", node());
        assert_eq!(begun(&ask(Standing::NeverRan)), Some((text.as_str(), true)));
    }

    #[test]
    fn a_check_that_failed_ends_it() {
        let failed = ask(Standing::Failed("checks-failed: GPU 3 is lost".to_owned()));
        assert_eq!(failed.to_string(), "diag.nvml failed: checks-failed: GPU 3 is lost");
    }
}
