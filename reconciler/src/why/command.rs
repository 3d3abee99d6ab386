//! Why a command waits, or how it ended.

use schema::{
    command::{CommandState, Refusal},
    id::CommandId,
    node::Connectivity,
    time::Timestamp,
};
use store::{commands::Command, nodes::Node, outcomes::Outcome};

use super::{Area, Keeps, Lifter, Wait, for_node, in_order, node::session};
use crate::reconcile::command::{IS_ANOTHER, JOURNAL_UNKNOWN, NO_JOURNAL, NOT_ALLOWED, OTHER_HARDWARE};

/// What is known of a command.
#[derive(Debug)]
pub struct CommandFacts<'a> {
    /// Its row.
    pub command: &'a Command,
    /// Its node; `None` when that is gone.
    pub node: Option<&'a Node>,
    /// What of its lane is under way on the node or waits before it.
    pub ahead: &'a [CommandId],
    /// Whether the node's last session spoke commands; `None` when there was none.
    pub speaks_commands: Option<bool>,
    /// The node's last word came and is not verified.
    pub has_update: bool,
    /// Why people do not allow it, when whoever signs looked at it.
    pub withheld: Option<&'a str>,
    /// What the gateway said last of the node's session.
    pub session: Option<&'a Outcome>,
}

/// Everything that the command waits for; how it ended, once it has.
#[must_use]
pub fn command(facts: &CommandFacts<'_>, now: Timestamp) -> Vec<Wait> {
    let command = facts.command;
    let mut waits = match command.state {
        CommandState::Pending => pending(facts, now),
        CommandState::Dispatched | CommandState::Acked | CommandState::Running => {
            away(facts).into_iter().chain([under_way(facts)]).collect()
        }
        CommandState::Succeeded => Vec::new(),
        CommandState::Failed | CommandState::Rejected | CommandState::Expired | CommandState::Cancelled => {
            vec![ended(command)]
        }
    };
    if !command.state.is_terminal() {
        // Why the machine is not there, or takes nothing, stands in front.
        waits.extend(facts.session.and_then(session));
    }
    if let Some(at) = command.cancel_requested_at
        && !command.state.is_terminal()
    {
        waits.push(wait("cancel-requested", "somebody cancelled it").since(at));
    }
    if let Some(node) = facts.node {
        waits = for_node(waits, node.name.as_str());
    }
    in_order(waits)
}

fn pending(facts: &CommandFacts<'_>, now: Timestamp) -> Vec<Wait> {
    let command = facts.command;
    let mut waits = Vec::new();
    if command.not_before.is_none() {
        waits.push(wait("awaiting-approval", "its batch has not its approvals").since(command.created_at));
    } else if command.signed_at.is_none() {
        let unsigned = match facts.withheld {
            Some(why @ NO_JOURNAL) => wait(JOURNAL_UNKNOWN, format!("it may not run twice and is not signed: {why}")),
            Some(why @ IS_ANOTHER) => wait(OTHER_HARDWARE, format!("it is destructive and is not signed: {why}")),
            Some(why) => wait(NOT_ALLOWED, format!("it is destructive and is not signed: {why}")),
            None => wait("unsigned", "it is not signed yet"),
        };
        waits.push(unsigned.since(command.created_at));
    }
    match facts.node {
        Some(node) if node.connectivity != Connectivity::Connected => {
            let mut wait = Wait::new(
                Area::Command,
                "no-session",
                Keeps::Contact,
                format!("node/{} is {}", node.name, node.connectivity),
            );
            wait = wait.since(node.connectivity_since).remedy(format!(
                "better-compute why node/{}; the command goes as soon as the machine is back",
                node.name
            ));
            waits.push(wait);
        }
        Some(node) if facts.speaks_commands == Some(false) => {
            waits.push(wait("daemon-too-old", format!("the daemon of node/{} knows no commands", node.name)));
        }
        _ => {}
    }
    if let Some(not_before) = command.not_before.filter(|at| *at > now) {
        let times = if command.busy_count == 1 { "once".to_owned() } else { format!("{} times", command.busy_count) };
        let mut wait = match command.busy_reason.as_deref() {
            Some(reason @ "journal-full") => wait(reason, format!("the machine had no room for it {times}")),
            Some(reason @ "journal-unusable") => wait(reason, format!("the machine could not write it down {times}")),
            Some(reason @ "approvals-spoilt") => {
                wait(reason, format!("other approvals reached the machine than were sent {times}"))
            }
            _ => wait("back-off", format!("the machine was busy {times}")),
        };
        wait.until = Some(not_before);
        waits.push(wait);
    }
    if !facts.ahead.is_empty() {
        let named: Vec<String> = facts.ahead.iter().take(3).map(ToString::to_string).collect();
        let more = facts.ahead.len().saturating_sub(named.len());
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let says = format!("{}{more} of the lane {} go before it", named.join(", "), command.lane);
        waits.push(wait("lane-full", says));
    }
    if waits.is_empty() {
        waits.push(wait("dispatching", "nothing is in its way").since(command.created_at));
    }
    for wait in &mut waits {
        wait.until = wait.until.or(Some(command.not_after));
    }
    waits
}

/// Its machine went away with it.
fn away(facts: &CommandFacts<'_>) -> Option<Wait> {
    let node = facts.node.filter(|node| node.connectivity != Connectivity::Connected)?;
    let says = format!("node/{} is {}", node.name, node.connectivity);
    Some(Wait::new(Area::Command, "out-of-contact", Keeps::Contact, says).since(node.connectivity_since))
}

fn under_way(facts: &CommandFacts<'_>) -> Wait {
    let command = facts.command;
    let applied = facts.node.map(|node| node.applied);
    if let (Some(wanted), Some(applied)) = (command.min_generation, applied)
        && applied < wanted
        && matches!(command.state, CommandState::Dispatched | CommandState::Acked)
    {
        let says = format!("it waits for generation {wanted} of the spec; the machine has applied {applied}");
        let mut wait = wait("waits-for-generation", says);
        wait.since = command.dispatched_at;
        wait.until = Some(command.not_after);
        return wait;
    }
    let (code, says, since) = match command.state {
        _ if facts.has_update => ("unbelieved-result", "its last word came and is being verified", command.started_at),
        CommandState::Running => ("under-way", "the machine is at it", command.started_at),
        CommandState::Acked => ("under-way", "the machine has it in its journal and has not begun", command.acked_at),
        _ => (
            "sent",
            "it was sent, and the machine has not said that it has it; when nothing comes it is given up as timed out",
            command.dispatched_at,
        ),
    };
    let mut wait = wait(code, says);
    wait.since = since;
    wait.until = command.known_kind().map(|kind| kind.row().timeout.after(command.not_after));
    wait
}

fn ended(command: &Command) -> Wait {
    let reason = command.reason.as_deref().unwrap_or("failed");
    let says = match (&command.message, command.state) {
        (Some(message), _) if !message.is_empty() => message.clone(),
        (_, CommandState::Cancelled) => "it was cancelled".to_owned(),
        (_, CommandState::Expired) => "it expired before the machine had it".to_owned(),
        (_, state) => format!("it {state}: {reason}"),
    };
    let mut wait = wait(reason, says);
    wait.since = command.settled_at;
    wait.ended = true;
    // A kind's own words are not in the catalogue of what is common to all.
    if wait.means.is_empty() && reason.parse::<Refusal>().is_err() {
        wait = wait
            .lifted_by(Lifter::Caller)
            .remedy(format!("see better-compute commands show {}, mend the cause and send it again", command.id));
    }
    if let Some(late) = &command.late {
        wait.says = format!("{}; after that the machine said {}", wait.says, late.state);
    }
    wait
}

fn wait(code: &str, says: impl Into<String>) -> Wait {
    Wait::new(Area::Command, code, Keeps::Command, says)
}
