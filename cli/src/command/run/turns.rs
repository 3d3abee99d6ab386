//! One machine after the other: the next one begins when the one before has ended well and is connected.

use std::{pin::Pin, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    Machine, Run,
    show::{self, Row},
    watch::Watch,
};
use crate::{
    client::Client,
    exit::{Exit, Failure},
    output::{Output, note, text::printable},
};

/// How often a machine that is away is looked for.
const LOOK: Duration = Duration::from_secs(1);
const BY_CTRL_C: &str = "by Ctrl-C";

/// How far the turns came.
pub(super) struct Turns {
    /// The machines that had theirs.
    pub(super) rows: Vec<Row>,
    /// Why the others did not.
    pub(super) stopped: Option<String>,
    /// The others.
    pub(super) untouched: Vec<String>,
}

impl Turns {
    /// What is said of the machines that had no turn; nothing when all had one.
    pub(super) fn farewell(&self) -> Option<String> {
        let why = self.stopped.as_ref()?;
        let others: Vec<String> = self.untouched.iter().map(|node| printable(node)).collect();
        Some(match others.as_slice() {
            [] => format!("stopped: {}", printable(why)),
            others => format!("stopped: {}; not begun on {}", printable(why), others.join(", ")),
        })
    }

    /// For programs.
    pub(super) fn in_json(&self) -> Value {
        let mut all = show::in_json(&self.rows);
        if let Some(why) = &self.stopped {
            all["stopped"] = why.as_str().into();
            all["notBegun"] = self.untouched.clone().into();
        }
        all
    }
}

/// Runs it on one machine after the other, and on none after the first that does not end well.
pub(super) async fn take(
    run: &Run,
    client: &Arc<Client>,
    nodes: Vec<Machine>,
    payload: Option<&Value>,
    output: &Output,
) -> Result<Turns, Failure> {
    let all = nodes.len();
    let mut turns = Turns { rows: Vec::new(), stopped: None, untouched: Vec::new() };
    let mut nodes = nodes.into_iter();
    let key = run.key();
    // One for all turns: whoever presses while the next command is being queued is heard, too.
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    while turns.stopped.is_none() && nodes.len() > 0 {
        if is_over(interrupt.as_mut()).await {
            turns.stopped = Some(BY_CTRL_C.to_owned());
            break;
        }
        let Some(node) = nodes.next() else { break };
        let place = format!("{} of {all}  ", turns.rows.len() + 1);
        let mut row = run.queue(client, vec![node.clone()], payload, &key).await;
        // What the turns before came to is shown though the control plane stays away.
        let watched = if is_over(interrupt.as_mut()).await {
            Ok(false)
        } else {
            Watch::new(client, output).beginning(&place).follow(&mut row).await
        };
        let ended_well = row.iter().all(Row::has_succeeded);
        if matches!(watched, Ok(false)) {
            show::interrupted(&row);
        }
        turns.rows.append(&mut row);
        turns.stopped = match (watched, ended_well) {
            (Err(failure), _) => Some(format!("what {} came to is not known: {failure}", node.name)),
            (Ok(false), _) => Some(BY_CTRL_C.to_owned()),
            (Ok(true), false) => Some(format!("{} did not end well", node.name)),
            // The last one has nobody behind it.
            (Ok(true), true) if nodes.len() == 0 => None,
            (Ok(true), true) => match back(run, client, &node, output, &place, interrupt.as_mut()).await {
                Ok(stopped) => stopped,
                Err(failure) => Some(format!("whether {} is back is not known: {failure}", node.name)),
            },
        };
    }
    turns.untouched = nodes.map(|node| node.name).collect();
    Ok(turns)
}

/// Waits until a machine is connected; why it is waited for no longer, when it is not.
async fn back(
    run: &Run,
    client: &Client,
    node: &Machine,
    output: &Output,
    place: &str,
    mut interrupt: Pin<&mut impl Future>,
) -> Result<Option<String>, Failure> {
    let patience = tokio::time::sleep(run.kind.row().timeout.to_std());
    tokio::pin!(patience);
    let mut said = false;
    loop {
        match client.call("nodes.get", &json!({ "node": node.id })).await {
            Ok(found) if is_connected(&found) => return Ok(None),
            Ok(_) => {}
            Err(failure) if failure.exit == Exit::Unreachable => {}
            // Who may not look goes by what the command came to.
            Err(failure) if failure.denied => return Ok(None),
            Err(failure) => return Err(failure),
        }
        if !said && !output.is_json() {
            note(format!("{place}{} is waited for until it is back", printable(&node.name)));
            said = true;
        }
        tokio::select! {
            _ = &mut interrupt => return Ok(Some(BY_CTRL_C.to_owned())),
            () = &mut patience => return Ok(Some(format!("{} did not come back", node.name))),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Whether something has come by now. It is waited for from the first question on.
async fn is_over(what: Pin<&mut impl Future>) -> bool {
    tokio::select! {
        biased;
        _ = what => true,
        () = std::future::ready(()) => false,
    }
}

/// Whether the answer of `nodes.get` is about a connected machine.
fn is_connected(found: &Value) -> bool {
    found["node"]["connectivity"] == "connected"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(stopped: Option<&str>, untouched: &[&str]) -> Turns {
        let row = |node: &str, state: &str| Row {
            node: node.to_owned(),
            outcome: Ok(json!({ "id": format!("cmd_{node}"), "node": node, "state": state })),
        };
        Turns {
            rows: vec![row("gpu-1", "succeeded"), row("gpu-2", "failed")],
            stopped: stopped.map(str::to_owned),
            untouched: untouched.iter().map(|node| (*node).to_owned()).collect(),
        }
    }

    #[test]
    fn whoever_had_no_turn_is_named_and_why() {
        let stopped = turns(Some("gpu-2 did not end well"), &["gpu-3", "gpu-4"]);
        let said = stopped.farewell().unwrap();
        assert_eq!(said, "stopped: gpu-2 did not end well; not begun on gpu-3, gpu-4");
        assert_eq!(stopped.in_json()["notBegun"], json!(["gpu-3", "gpu-4"]));
        assert!(turns(None, &[]).farewell().is_none() && turns(None, &[]).in_json().get("stopped").is_none());
    }

    #[tokio::test]
    async fn ctrl_c_is_heard_whenever_it_was_pressed() {
        let interrupt = tokio::signal::ctrl_c();
        tokio::pin!(interrupt);
        assert!(!is_over(interrupt.as_mut()).await);
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGINT).expect("sent");
        // Nobody listens in the meantime, as while a command is being queued.
        while !is_over(interrupt.as_mut()).await {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn only_a_connected_machine_is_back() {
        assert!(is_connected(&json!({ "node": { "connectivity": "connected" } })));
        for away in
            [json!({ "node": { "connectivity": "disconnected" } }), json!({ "connectivity": "connected" }), json!({})]
        {
            assert!(!is_connected(&away), "{away}");
        }
    }
}
