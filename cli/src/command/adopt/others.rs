//! Which other machines an edit changes.

use std::collections::BTreeSet;

use schema::{
    fleet::{self, Fleet, Sources},
    report::DriftEntry,
};
use serde_json::Value;

use super::{
    super::{
        drift,
        get::{self, Kind},
    },
    edit::Machine,
};
use crate::{client::Client, exit::Failure};

/// How many are named.
const NAMED: usize = 5;

/// The other machines.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Those that get another value.
    pub(super) names: Vec<String>,
    /// How many have that very value already.
    pub(super) agree: usize,
}

impl Others {
    /// For people; `None` when there is none.
    pub(super) fn in_words(&self, layer: &str) -> Option<String> {
        if self.names.is_empty() && self.agree == 0 {
            return None;
        }
        let mut text = match self.names.len() {
            0 => format!("note: {layer} is shared, and no other machine changes"),
            1 => format!("note: {layer} is shared: one other machine changes, too: {}", self.names[0]),
            n => format!(
                "note: {layer} is shared: {n} other machines change, too: {}",
                self.names[..n.min(NAMED)].join(", ")
            ),
        };
        if self.names.len() > NAMED {
            text.push_str(", …");
        }
        if self.agree > 0 {
            text.push_str(&format!("; {} more drifted to this value already", self.agree));
        }
        Some(text)
    }
}

/// Asks for the machines there are and composes each under both trees.
pub(super) async fn count(
    client: &Client,
    before: &Sources,
    after: &Sources,
    machine: &Machine,
    entries: &[DriftEntry],
) -> Result<Others, Failure> {
    let (Some(before), Some(after)) = (fleet::load(before).fleet, fleet::load(after).fleet) else {
        return Ok(Others::default());
    };
    let machines = machines(client, machine).await?;
    let changed = changed(&before, &after, &machines);
    let agree = agreeing(client, entries).await?;
    let (agree, names) = changed.into_iter().partition::<Vec<_>, _>(|name| agree.contains(name));
    Ok(Others { names, agree: agree.len() })
}

async fn machines(client: &Client, except: &Machine) -> Result<Vec<Machine>, Failure> {
    let listed = get::list(client, Kind::Nodes, None, None).await?;
    let text = |item: &Value, key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
    let machine = |item: &Value| Some(Machine { name: text(item, "name")?, pool: text(item, "pool") });
    Ok(listed.iter().filter_map(machine).filter(|machine| machine.name != except.name).collect())
}

fn changed(before: &Fleet, after: &Fleet, machines: &[Machine]) -> Vec<String> {
    let differs = |machine: &&Machine| machine.spec(before) != machine.spec(after);
    machines.iter().filter(differs).map(|machine| machine.name.clone()).collect()
}

/// Machines that drifted to the very values that are taken over.
async fn agreeing(client: &Client, entries: &[DriftEntry]) -> Result<BTreeSet<String>, Failure> {
    let mut agree: Option<BTreeSet<String>> = None;
    for entry in entries {
        let same = drift::read(&drift::ask(client, None, None, Some(&entry.path)).await?)?;
        let same = same.into_iter().filter(|other| {
            other.entry.path == entry.path
                && !other.entry.corrected
                && other.entry.observed_digest == entry.observed_digest
        });
        let same: BTreeSet<String> = same.map(|other| other.node).collect();
        agree = Some(match agree {
            Some(before) => before.intersection(&same).cloned().collect(),
            None => same,
        });
    }
    Ok(agree.unwrap_or_default())
}
