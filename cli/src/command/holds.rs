//! `holds`: everything that keeps a change, a removal or a booking away, for whom, why and until when.

use std::collections::BTreeMap;

use clap::Args;
use reconciler::plan::PlanBrake;
use schema::{effect::EffectClass, time::Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::plan;
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{
        Output,
        text::{Style, count, printable},
    },
};

const EXAMPLES: &str = "\
Examples:
  better-compute holds
  better-compute holds --active              without those that begin later
  better-compute holds --format json

Freezes, pins, suspensions and cordons, removals that a gate holds, and commits in quarantine.";

/// See everything that is held, by whom, why and until when.
///
/// Lists every freeze, pin, suspension and cordon, what a gate holds, and commits in quarantine: who answers for it, the
/// reason, the end, how many machines it covers, and what goes on when it ends.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Holds {
    /// Without those that do not hold now
    #[arg(long)]
    pub active: bool,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// What `fleet.holds` answers, as far as people look at it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Held {
    pub(super) items: Vec<Hold>,
    pub(super) quarantined: Vec<Quarantined>,
}

/// One hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Hold {
    subject: String,
    gate: String,
    by: String,
    source: String,
    owner: String,
    reason: String,
    place: Option<String>,
    until: Option<Timestamp>,
    next: Option<Timestamp>,
    since: Option<Timestamp>,
    active: bool,
    machines: u64,
}

/// One commit in quarantine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Quarantined {
    commit: String,
    owner: String,
    reason: String,
    at: Option<Timestamp>,
}

impl Holds {
    /// Asks and shows.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.target)?;
        let mut answer = client.call("fleet.holds", &json!({})).await?;
        let mut held = Held::deserialize(&answer)
            .during("the control plane's holds are in a form that this version does not know")?;
        if self.active {
            held.items.retain(|hold| hold.active);
            if let Some(Value::Array(items)) = answer.get_mut("items") {
                items.retain(|item| item.get("active").and_then(Value::as_bool) == Some(true));
            }
        }
        let brakes = newest_brakes(&client).await;
        if output.is_json() {
            answer["brakes"] = serde_json::to_value(&brakes).during("cannot write the brakes")?;
            output.json(&answer)?;
        } else {
            output.line(held.render(&brakes, output))?;
        }
        Ok(Exit::Ok)
    }
}

/// What the newest plan says of freezes, pins and suspensions: what goes when they end. Without it, or without the right to
/// see plans, holds are shown without that.
async fn newest_brakes(client: &Client) -> Vec<PlanBrake> {
    let Ok(list) = client.call("plans.list", &json!({ "limit": 1 })).await else { return Vec::new() };
    let Some(id) = list.pointer("/items/0/id") else { return Vec::new() };
    let Ok(stored) = client.call("plans.get", &json!({ "id": id })).await else { return Vec::new() };
    plan::document(&stored).map(|plan| plan.brakes).unwrap_or_default()
}

impl Held {
    fn render(&self, brakes: &[PlanBrake], output: &Output) -> String {
        if self.items.is_empty() && self.quarantined.is_empty() {
            return "nothing is held".to_owned();
        }
        let mut parts: Vec<String> = self.items.iter().map(|hold| hold.block(brakes, output)).collect();
        parts.extend(self.quarantined.iter().map(|commit| commit.block(output)));
        parts.join("\n")
    }

    /// What keeps something now, a line each, for a look at the whole.
    pub(super) fn lines(&self, most: usize, output: &Output) -> Vec<String> {
        let waiting: Vec<&Hold> = self.items.iter().filter(|hold| hold.keeps_something()).collect();
        let mut lines: Vec<String> = waiting.iter().take(most).map(|hold| hold.line(output)).collect();
        if waiting.len() > most {
            lines.push(format!("and {} more", waiting.len() - most));
        }
        lines.extend(self.quarantined.iter().take(3).map(|commit| commit.line(output)));
        lines
    }
}

impl Hold {
    /// Whether anything waits for it now: a cordon keeps work away, not changes, and is in every list of machines.
    fn keeps_something(&self) -> bool {
        self.active && self.gate != "cordon" && (self.since.is_some() || self.gate == "suspend")
    }

    fn name(&self) -> String {
        match self.gate.as_str() {
            "freeze" => self.by.clone(),
            gate => format!("{gate} {}", self.by),
        }
    }

    fn end(&self, output: &Output) -> String {
        match (self.active, self.until, self.next) {
            (true, Some(until), _) => output.until(until),
            (true, None, Some(next)) => format!("lets go {}", output.ago(next)),
            (true, None, None) => "without an end".to_owned(),
            (false, _, Some(next)) => format!("begins {}", output.ago(next)),
            (false, _, None) => "does not hold".to_owned(),
        }
    }

    fn line(&self, output: &Output) -> String {
        let name = Style::Attention.paint(&printable(&self.name()), output.colour);
        format!("{name} {}: {} ({})", self.end(output), printable(&self.reason), printable(&self.owner))
    }

    fn block(&self, brakes: &[PlanBrake], output: &Output) -> String {
        let style = if self.active { Style::Attention } else { Style::Dim };
        let mut text = format!(
            "{} {}\n  {}: {}",
            style.paint(&printable(&self.name()), output.colour),
            self.end(output),
            printable(&self.owner),
            printable(&self.reason)
        );
        let mut facts = Vec::new();
        if self.gate == "freeze" {
            facts.push(printable(&self.subject));
        }
        if self.machines > 0 {
            facts.push(count(self.machines, "machine"));
        }
        if let Some(since) = self.since {
            facts.push(format!("held for {}", output.ago(since).trim_end_matches(" ago")));
        }
        let known = brakes.iter().find(|brake| brake.kind.as_str() == self.gate && brake.name == self.by);
        if let Some(brake) = known.filter(|brake| !brake.returns.is_empty()) {
            facts.push(format!("when it ends: {}", returning(&brake.returns)));
        }
        facts.push(match (&self.place, self.source.as_str()) {
            (Some(place), _) => printable(place),
            (None, "api") => "by hand".to_owned(),
            (None, source) => printable(source),
        });
        text.push_str(&format!("\n  {}", Style::Dim.paint(&facts.join(" · "), output.colour)));
        text
    }
}

impl Quarantined {
    fn line(&self, output: &Output) -> String {
        let short: String = self.commit.chars().take(10).collect();
        let name = Style::Bad.paint(&format!("commit {} is in quarantine", printable(&short)), output.colour);
        format!("{name}: {} ({})", printable(&self.reason), printable(&self.owner))
    }

    fn block(&self, output: &Output) -> String {
        let at = self.at.map_or_else(String::new, |at| format!(" since {}", output.ago(at)));
        format!(
            "{} in quarantine{at}\n  {}: {}",
            Style::Bad.paint(&printable(&self.commit), output.colour),
            printable(&self.owner),
            printable(&self.reason)
        )
    }
}

fn returning(classes: &BTreeMap<EffectClass, usize>) -> String {
    let words: Vec<String> = classes.iter().rev().map(|(class, count)| format!("{count} {class}")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn held() -> Held {
        let answer = json!({
            "items": [
                { "subject": "pool/l40s", "gate": "freeze", "by": "freeze/year-end", "source": "git", "owner": "ada", "reason": "nobody watches", "place": "fleet.kdl:12",
                  "until": "2027-01-02T08:00:00Z", "since": "2026-11-29T10:00:00Z", "active": true, "machines": 36 },
                { "subject": "pool/h100", "gate": "suspend", "by": "pool/h100", "source": "api", "owner": "bob", "reason": "benchmark\u{1b}[2J", "active": true, "machines": 8 },
                { "subject": "node/fra1-r12", "gate": "cordon", "by": "node/fra1-r12", "source": "health", "owner": "health", "reason": "fan", "since": "2026-11-29T11:00:00Z", "active": true, "machines": 1 },
                { "subject": "fleet", "gate": "freeze", "by": "freeze/weekend", "source": "git", "owner": "ada", "reason": "weekend", "place": "fleet.kdl:20",
                  "next": "2026-12-05T22:00:00Z", "active": false, "machines": 100 } ],
            "quarantined": [{ "commit": "4f1c2d9".repeat(6), "owner": "ada", "reason": "breaks chrony", "at": "2026-11-29T11:50:00Z" }],
        });
        Held::deserialize(&answer).unwrap()
    }

    fn output() -> Output {
        Output { format: Format::Text, colour: false, width: Some(100), now: "2026-11-29T12:10:00Z".parse().unwrap() }
    }

    #[test]
    fn a_hold_says_who_why_until_when_and_what_comes_back() {
        let brakes: Vec<PlanBrake> = serde_json::from_value(
            json!([{ "kind": "freeze", "name": "freeze/year-end", "owner": "ada", "reason": "nobody watches",
            "active": true, "machines": 36, "returns": { "live": 24, "reboot": 12 } }]),
        )
        .unwrap();
        insta::assert_snapshot!(held().render(&brakes, &output()));
    }

    #[test]
    fn a_look_at_the_whole_names_what_keeps_something_now() {
        insta::assert_snapshot!(held().lines(10, &output()).join("\n"));
    }
}
