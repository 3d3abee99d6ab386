//! What a machine has to pass before it is adopted: the checks of its pool, each one command.
//!
//! An attempt is a number; a check's command has a key made of it, so that a run that comes again finds what the one before
//! began. A check that its node was not there for, or that somebody took back, begins another attempt. One that the machine had
//! and did not bring to an end (it refused it as too late, its daemon died under it, its answer never came) is tried again
//! after a rest, a few times. One that ran and failed ends the acceptance, until somebody asks for it anew.

use std::fmt;

use schema::{
    command::{CommandKind, CommandState, Reason, Refusal},
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

/// How often a check is tried that the machine does not bring to an end.
const TRIES: u32 = 5;

/// How long such a check rests before it is tried the second time; twice as long before each further try.
const REST: Duration = Duration::from_secs(60);

/// Where the acceptance of a machine stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Acceptance {
    /// Nothing is asked, or everything passed.
    Passed,
    /// These checks have to be queued; under another attempt when some never ran.
    Begin { checks: Vec<NewCommand>, again: bool },
    /// These checks are under way.
    Running(Vec<String>),
    /// These checks came to no end and are tried again.
    Resting { checks: Vec<String>, until: Timestamp },
    /// A check failed.
    Failed { check: String, why: String },
}

/// A check as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Missing,
    NeverRan,
    Unfinished { tries: u32, at: Timestamp, why: String },
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
        let mut found = Standing::Missing;
        for tries in 1..=TRIES {
            let key = key(node.id, attempt, kind, tries);
            let Some(command) = commands::find_by_key(context.db(), node.id, &key).await? else { break };
            found = of_command(&command, tries);
            if !matches!(found, Standing::Unfinished { .. }) {
                break;
            }
        }
        standing.push((kind, payload, found));
    }
    Ok(judge(node.id, attempt, standing, now))
}

fn judge(node: NodeId, attempt: u64, standing: Vec<(CommandKind, Value, Standing)>, now: Timestamp) -> Acceptance {
    let failed = standing.iter().find_map(|(kind, _, standing)| match standing {
        Standing::Failed(why) => Some((kind.to_string(), why.clone())),
        Standing::Unfinished { tries, why, .. } if *tries >= TRIES => {
            Some((kind.to_string(), format!("it came to no end in {tries} tries; the last one: {why}")))
        }
        _ => None,
    });
    if let Some((check, why)) = failed {
        return Acceptance::Failed { check, why };
    }
    let again = standing.iter().any(|(_, _, standing)| *standing == Standing::NeverRan);
    let attempt = if again { attempt + 1 } else { attempt };
    let command = |kind: CommandKind, payload: &Value, tries: u32| NewCommand {
        node_id: node,
        kind,
        payload: payload.clone(),
        idempotency_key: key(node, attempt, kind, tries),
        not_after: WAITS.after(now),
        min_generation: None,
        batch_id: None,
        secrets: Vec::new(),
        created_by: "acceptance".to_owned(),
    };
    let begin: Vec<NewCommand> = standing
        .iter()
        .filter_map(|(kind, payload, standing)| match standing {
            _ if again => Some(command(*kind, payload, 1)),
            Standing::Missing => Some(command(*kind, payload, 1)),
            Standing::Unfinished { tries, at, .. } if rested(*tries, *at) <= now => {
                Some(command(*kind, payload, tries + 1))
            }
            _ => None,
        })
        .collect();
    if !begin.is_empty() {
        return Acceptance::Begin { checks: begin, again };
    }
    let resting = standing.iter().filter_map(|(kind, _, standing)| match standing {
        Standing::Unfinished { tries, at, .. } => Some((rested(*tries, *at), kind.to_string())),
        _ => None,
    });
    let resting: Vec<(Timestamp, String)> = resting.collect();
    if let Some(until) = resting.iter().map(|(until, _)| *until).min() {
        return Acceptance::Resting { checks: resting.into_iter().map(|(_, check)| check).collect(), until };
    }
    let running: Vec<String> = standing
        .iter()
        .filter(|(_, _, standing)| *standing == Standing::Running)
        .map(|(kind, _, _)| kind.to_string())
        .collect();
    if running.is_empty() { Acceptance::Passed } else { Acceptance::Running(running) }
}

/// When a check that came to no end is tried again.
fn rested(tries: u32, at: Timestamp) -> Timestamp {
    Duration::from_secs(REST.as_secs() << tries.saturating_sub(1)).after(at)
}

/// The ends of a check that say nothing about the machine.
fn is_unfinished(state: CommandState, reason: Option<&str>) -> bool {
    let Some(reason) = reason else { return false };
    match state {
        // A machine that cannot make a check at all does not learn it by being asked again.
        CommandState::Rejected => reason != Refusal::Unsupported.as_str(),
        CommandState::Failed => [
            Reason::TIMEOUT,
            Reason::INTERRUPTED,
            Reason::JOURNAL_LOST,
            Reason::IDENTITY_REPLACED,
            Reason::NODE_DELETED,
        ]
        .iter()
        .any(|word| word.as_str() == reason),
        _ => false,
    }
}

fn of_command(command: &Command, tries: u32) -> Standing {
    let said = || {
        let said = [command.reason.as_deref(), command.message.as_deref()];
        said.into_iter().flatten().collect::<Vec<_>>().join(": ")
    };
    match command.state {
        state if is_unfinished(state, command.reason.as_deref()) => {
            Standing::Unfinished { tries, at: command.settled_at.unwrap_or(command.created_at), why: said() }
        }
        CommandState::Succeeded => Standing::Passed,
        CommandState::Expired | CommandState::Cancelled => Standing::NeverRan,
        CommandState::Failed | CommandState::Rejected => Standing::Failed(said()),
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

fn key(node: NodeId, attempt: u64, kind: CommandKind, tries: u32) -> String {
    match tries {
        1 => format!("acceptance:{node}:{attempt}:{kind}"),
        _ => format!("acceptance:{node}:{attempt}:{kind}:{tries}"),
    }
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
            Self::Resting { checks, .. } => {
                write!(
                    f,
                    "the machine did not bring these checks to an end, and they are tried again: {}",
                    checks.join(", ")
                )
            }
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

    fn now() -> Timestamp {
        "2026-11-29T12:00:00Z".parse().expect("a time")
    }

    fn ask(standing: Standing) -> Acceptance {
        judge(node(), 3, vec![(CommandKind::DiagNvml, json!({}), standing)], now())
    }

    fn unfinished(tries: u32, ago: i64) -> Standing {
        let at = Timestamp::from_second(now().as_second() - ago).expect("a time");
        Standing::Unfinished { tries, at, why: "timeout".to_owned() }
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
    fn a_check_without_an_end_is_tried_again_after_a_rest_that_doubles() {
        let text = |tries| format!("acceptance:{}:3:diag.nvml:{tries}", node());
        for (tries, rest) in [(1, 60), (2, 120), (4, 480)] {
            assert_eq!(begun(&ask(unfinished(tries, rest))), Some((text(tries + 1).as_str(), false)));
            let until = Timestamp::from_second(now().as_second() + 1).expect("a time");
            let resting = Acceptance::Resting { checks: vec!["diag.nvml".to_owned()], until };
            assert_eq!(ask(unfinished(tries, rest - 1)), resting);
        }
        let failed = ask(unfinished(TRIES, 0));
        assert_eq!(failed.to_string(), "diag.nvml failed: it came to no end in 5 tries; the last one: timeout");
    }

    #[test]
    fn only_what_ran_says_something_about_the_machine() {
        let said = |state, reason: &str| is_unfinished(state, Some(reason));
        for refusal in ["EXPIRED", "BAD_SIGNATURE", "BUSY", "STALE_GENERATION"] {
            assert!(said(CommandState::Rejected, refusal), "{refusal}");
        }
        for reason in ["timeout", "interrupted", "journal-lost", "identity-replaced"] {
            assert!(said(CommandState::Failed, reason), "{reason}");
        }
        assert!(!said(CommandState::Rejected, "UNSUPPORTED"));
        assert!(!said(CommandState::Failed, "checks-failed"));
        assert!(!said(CommandState::Succeeded, "timeout"));
        assert!(!is_unfinished(CommandState::Failed, None));
    }

    #[test]
    fn a_check_that_failed_ends_it() {
        let failed = ask(Standing::Failed("checks-failed: GPU 3 is lost".to_owned()));
        assert_eq!(failed.to_string(), "diag.nvml failed: checks-failed: GPU 3 is lost");
    }
}
