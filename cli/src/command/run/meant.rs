//! The machines that a command is meant for, looked up before it is queued for any: who is not there, who would refuse, and
//! what somebody placed over them.

use std::collections::BTreeSet;

use schema::command::CommandKind;
use serde::Deserialize;
use serde_json::json;

use super::Machine;
use crate::{
    client::Client,
    exit::{During as _, Exit, Failure},
    output::text::{count, printable},
};

/// How many the control plane looks up at once.
const AT_ONCE: usize = 200;

/// One machine that was said.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Meant {
    said: String,
    id: Option<String>,
    name: Option<String>,
    refused: Option<Refused>,
    #[serde(default)]
    held: Vec<Hold>,
}

#[derive(Debug, Clone, Deserialize)]
struct Refused {
    code: String,
    message: String,
    why: Option<String>,
}

impl Refused {
    fn line(&self, of: &Meant) -> String {
        let who = printable(of.name.as_deref().unwrap_or(&of.said));
        match self.code.as_str() {
            "NOT_FOUND" => format!("there is no node {who}"),
            code => format!("{who}: {} ({code})", printable(&self.message)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Hold {
    gate: String,
    by: String,
    owner: String,
    reason: String,
}

#[derive(Deserialize)]
struct Answer {
    nodes: Vec<Meant>,
}

impl Meant {
    fn unseen(said: &str) -> Self {
        let said = said.to_owned();
        Self { id: Some(said.clone()), name: Some(said.clone()), said, refused: None, held: Vec::new() }
    }

    /// The machine; `None` when there is none.
    pub(super) fn machine(&self) -> Option<Machine> {
        Some(Machine { id: self.id.clone()?, name: self.name.clone()? })
    }
}

/// Looks all of them up.
pub(super) async fn look_up(client: &Client, kind: CommandKind, said: &[String]) -> Result<Vec<Meant>, Failure> {
    let mut all = Vec::with_capacity(said.len());
    for some in said.chunks(AT_ONCE) {
        let answer = match client.call("commands.check", &json!({ "kind": kind, "nodes": some })).await {
            // Who may not look is answered by the call that queues.
            Err(failure) if failure.denied => {
                all.extend(some.iter().map(|said| Meant::unseen(said)));
                continue;
            }
            answer => answer?,
        };
        let answer: Answer =
            serde_json::from_value(answer).during("the control plane answers commands.check strangely")?;
        all.extend(answer.nodes);
    }
    Ok(all)
}

/// Those that are asked, and a line about each of the others: nobody named them, they came with their pool, and they would
/// refuse it. Where all that came would, none is left out.
pub(super) fn leave_out(meant: Vec<Meant>, named: &[String]) -> (Vec<Meant>, Vec<String>) {
    let (refusing, asked): (Vec<Meant>, Vec<Meant>) =
        meant.into_iter().partition(|one| one.refused.is_some() && !named.contains(&one.said));
    if asked.is_empty() {
        return (refusing, Vec::new());
    }
    let line = |one: &Meant| Some(format!("note: left out: {}", one.refused.as_ref()?.line(one)));
    let lines = refusing.iter().filter_map(line).collect();
    (asked, lines)
}

/// Why nothing is queued: machines that are not there, or would refuse it.
pub(super) fn wrong(kind: CommandKind, meant: &[Meant]) -> Option<Failure> {
    let refused: Vec<(&Meant, &Refused)> = meant.iter().filter_map(|one| Some((one, one.refused.as_ref()?))).collect();
    let first = refused.first()?;
    let lines: Vec<String> = refused.iter().map(|(one, refused)| refused.line(one)).collect();
    let absent = |(_, refused): &(&Meant, &Refused)| refused.code == "NOT_FOUND";
    let exit = if refused.iter().all(absent) { Exit::Failed } else { Exit::Refused };
    let mut failure = Failure::new(exit, lines.join("; "));
    let why = first.1.why.clone().filter(|_| refused.len() == 1);
    let others = meant.len() - refused.len();
    failure.hint = match (why, others) {
        (why, 0) => why,
        (why, _) => {
            let why = why.map_or_else(String::new, |why| format!("{why}; "));
            let all = count(meant.len() as u64, "machine");
            Some(format!("{why}{kind} was queued for none of the {all} that were said"))
        }
    };
    Some(failure)
}

/// What stands over machines that a command harms.
#[derive(Debug, Default)]
pub(super) struct Held {
    still: Vec<(String, Hold)>,
    cordoned: Vec<(String, Hold)>,
}

/// What stands over these.
pub(super) fn held(meant: &[Meant]) -> Held {
    let all = meant.iter().flat_map(|one| {
        let who = one.name.clone().unwrap_or_else(|| one.said.clone());
        one.held.iter().map(move |hold| (who.clone(), hold.clone()))
    });
    let (cordoned, still) = all.partition(|(_, hold)| hold.gate == "cordon");
    Held { still, cordoned }
}

impl Held {
    /// Somebody said that these stand still, which whoever runs this may not know.
    pub(super) fn refusal(&self, kind: CommandKind) -> Option<Failure> {
        let (who, hold) = self.still.first()?;
        let others =
            self.still.iter().map(|(other, _)| other).filter(|other| *other != who).collect::<BTreeSet<_>>().len();
        let more = if others == 0 { String::new() } else { format!(", and {others} more like it") };
        Some(
            Failure::new(
                Exit::Refused,
                format!("{kind} harms what runs on a machine that stands still: {}{more}", said(who, hold)),
            )
            .hint("say --even-if-held when that is meant; nothing was queued"),
        )
    }

    /// What is said when it is queued nevertheless.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.still.iter().chain(&self.cordoned).map(|(who, hold)| format!("note: {}", said(who, hold)))
    }
}

fn said(who: &str, hold: &Hold) -> String {
    let word = match hold.gate.as_str() {
        "suspend" => "is suspended",
        "freeze" => "is frozen",
        "cordon" => "is cordoned",
        _ => "is held",
    };
    let own = format!("node/{who}");
    let by = if hold.by == own { String::new() } else { format!(" by {}", printable(&hold.by)) };
    format!("{} {word}{by}: {} ({})", printable(who), printable(&hold.reason), printable(&hold.owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(more: serde_json::Value) -> Meant {
        let mut one = json!({ "said": "gpu-1", "id": "node_1", "name": "gpu-1", "held": [] });
        for (key, value) in more.as_object().unwrap() {
            one[key] = value.clone();
        }
        serde_json::from_value(one).unwrap()
    }

    fn typo() -> Meant {
        let refused = json!({ "code": "NOT_FOUND", "message": "there is no node typo" });
        meant(json!({ "said": "typo", "id": null, "name": null, "refused": refused }))
    }

    #[test]
    fn one_machine_that_is_not_there_stops_all() {
        assert!(wrong(CommandKind::NodeReboot, &[meant(json!({}))]).is_none());
        let failure = wrong(CommandKind::NodeReboot, &[meant(json!({})), typo()]).unwrap();
        assert_eq!((failure.exit, failure.message.as_str()), (Exit::Failed, "there is no node typo"));
        let hint = failure.hint.unwrap();
        assert_eq!(hint, "node.reboot was queued for none of the 2 machines that were said");
    }

    fn revoked() -> serde_json::Value {
        json!({ "code": "INVALID_STATE", "message": "the node's identity was revoked: sold", "why": "a token" })
    }

    #[test]
    fn who_came_with_its_pool_and_would_refuse_is_left_out_unless_it_was_named_or_nobody_is_left() {
        let sold = meant(json!({ "said": "node_2", "id": "node_2", "name": "gpu-2", "refused": revoked() }));
        let pool = || vec![meant(json!({})), sold.clone()];
        let (asked, lines) = leave_out(pool(), &[]);
        assert_eq!(asked.iter().map(|one| one.said.as_str()).collect::<Vec<_>>(), ["gpu-1"]);
        assert_eq!(lines, ["note: left out: gpu-2: the node's identity was revoked: sold (INVALID_STATE)"]);
        assert!(wrong(CommandKind::NodeReboot, &asked).is_none());

        let named = leave_out(pool(), &["node_2".to_owned()]);
        assert!(wrong(CommandKind::NodeReboot, &named.0).is_some() && named.1.is_empty());
        let alone = leave_out(vec![sold.clone()], &[]);
        assert!(wrong(CommandKind::NodeReboot, &alone.0).is_some() && alone.1.is_empty());
    }

    #[test]
    fn a_machine_that_would_refuse_says_why() {
        let failure = wrong(CommandKind::DiagNvml, &[meant(json!({ "refused": revoked() }))]).unwrap();
        assert_eq!(failure.message, "gpu-1: the node's identity was revoked: sold (INVALID_STATE)");
        assert_eq!((failure.exit, failure.hint.as_deref()), (Exit::Refused, Some("a token")));
    }

    #[test]
    fn what_stands_still_is_asked_about_and_a_cordon_is_said() {
        let hold = |gate: &str, by: &str| json!({ "gate": gate, "by": by, "owner": "ada", "reason": "exam" });
        let cordoned = held(&[meant(json!({ "held": [hold("cordon", "node/gpu-1")] }))]);
        assert!(cordoned.refusal(CommandKind::NodeReboot).is_none());
        assert_eq!(cordoned.lines().collect::<Vec<_>>(), ["note: gpu-1 is cordoned: exam (ada)"]);
        let still = held(&[meant(json!({ "held": [hold("suspend", "pool/h100")] }))]);
        let failure = still.refusal(CommandKind::NodeReboot).unwrap();
        assert!(failure.message.ends_with("gpu-1 is suspended by pool/h100: exam (ada)"), "{}", failure.message);
        assert_eq!(failure.exit, Exit::Refused);
        assert!(failure.hint.unwrap().contains("--even-if-held"));
    }
}
