//! `why`: what a machine or a command waits for, since when, and who can lift it; or what a code means.

use clap::{Args, builder::NonEmptyStringValueParser};
use reconciler::why::{Keeps, Lifter, catalogue};
use schema::{
    diagnostic::codes::Code,
    fleet::similar,
    id::JoinId,
    object::{Kind, ObjectRef},
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Value, json};

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
  better-compute why node/fra1-r12-u04       what keeps it from what it should be, and from work
  better-compute why cmd_01k3…               why a command waits, or how it ended
  better-compute why batch/2026-12-kernel    who has to approve it, and which machines it waits for
  better-compute why audit                   whether the audit log is chained and signed
  better-compute why STALE_GENERATION        what a code means, and who can lift it";

/// Say why something has not happened: what it waits for, since when, and who can lift it.
///
/// Asks the control plane about a machine, a batch or a command. What stands in front of everything else comes first. A code is
/// explained without a control plane; docs/reference/codes.md has them all.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Why {
    /// A machine, a batch, a command, the audit log, or a code
    #[arg(value_name = "node/NAME|batch/NAME|COMMAND|audit|CODE", value_parser = NonEmptyStringValueParser::new())]
    pub subject: String,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// What `fleet.why` answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    subject: String,
    summary: String,
    waits: Vec<Wait>,
}

/// One thing in the way. Words that this version does not know are shown as they come.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wait {
    code: String,
    #[serde(default)]
    ended: bool,
    keeps: String,
    says: String,
    means: String,
    lifted_by: String,
    remedy: String,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    owner: Option<String>,
    place: Option<String>,
}

impl Why {
    /// Asks and shows.
    ///
    /// # Errors
    /// When there is no such thing, or the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let entries = catalogue::of_code(&self.subject);
        if !entries.is_empty() {
            return codes(&entries, output);
        }
        if let Some(failure) = elsewhere(&self.subject) {
            return Err(failure);
        }
        let client = Client::new(&self.target)?;
        let value = client.call("fleet.why", &json!({ "subject": self.subject })).await;
        let value = value.map_err(|failure| failure.or_hint(|| near(&self.subject)))?;
        let answer = Answer::deserialize(&value)
            .during("the control plane's answer is in a form that this version does not know")?;
        if output.is_json() {
            output.json(&value)?;
        } else {
            output.line(answer.render(output))?;
        }
        Ok(Exit::Ok)
    }
}

/// The code that was probably meant, for a word that is nothing.
fn near(subject: &str) -> Option<String> {
    let codes = catalogue::all().map(|entry| entry.code);
    similar(subject, codes).map(|code| format!("did you mean the code {code}? docs/reference/codes.md has all of them"))
}

/// What another verb tells.
fn elsewhere(subject: &str) -> Option<Failure> {
    let hint = if subject.parse::<Code>().is_ok() {
        format!("that is a mistake in a fleet file: better-compute explain {subject}")
    } else if subject.starts_with(JoinId::PREFIX) {
        format!("a machine that wants to join says why itself: better-compute joins show {subject}")
    } else {
        match subject.parse::<ObjectRef>() {
            Ok(object) if !matches!(object.kind, Kind::Node | Kind::Batch) => {
                "holds name what keeps a pool or a site: better-compute holds; its machines: better-compute get nodes"
                    .to_owned()
            }
            // What asks for a batch and is none may be called anything.
            Err(_) if subject.contains('/') && !subject.starts_with("batch/") => {
                "write node/NAME, batch/NAME, a command's id (cmd_…) or a code".to_owned()
            }
            _ => return None,
        }
    };
    Some(Failure::usage(format!("{subject:?} is not a machine, a command or a code of a refusal")).hint(hint))
}

fn codes(entries: &[&catalogue::Entry], output: &Output) -> Result<Exit, Failure> {
    if output.is_json() {
        let list: Vec<Value> = entries
            .iter()
            .map(|entry| {
                json!({ "area": entry.area, "code": entry.code, "means": entry.means, "liftedBy": entry.lifted_by,
                        "remedy": entry.remedy })
            })
            .collect();
        output.json(&Value::Array(list))?;
        return Ok(Exit::Ok);
    }
    for entry in entries {
        let title = format!("{} ({})", entry.code, entry.area.about());
        output.line(format!(
            "{}\n{}\n{}",
            Style::Bold.paint(&title, output.colour),
            output.indented(entry.means, "  "),
            output.hanging(&format!("→ {}: {}", entry.lifted_by.in_words(), entry.remedy), "  "),
        ))?;
    }
    Ok(Exit::Ok)
}

impl Answer {
    fn render(&self, output: &Output) -> String {
        let title = Style::Bold.paint(&printable(&self.subject), output.colour);
        let mut text = format!("{title}  {}", printable(&self.summary));
        let ended = self.waits.iter().any(|wait| wait.ended);
        let in_the_way = self.waits.iter().filter(|wait| wait.keeps != word(Keeps::Nothing)).count();
        text.push_str(&match in_the_way {
            _ if ended => "\nit is over".to_owned(),
            0 => format!("\n{}", Style::Good.paint("nothing stands in its way", output.colour)),
            1 => "\none thing stands in its way".to_owned(),
            many => format!("\n{} stand in its way, the one in front first", count(many as u64, "thing")),
        });
        for wait in &self.waits {
            text.push_str("\n\n");
            text.push_str(&wait.render(output));
        }
        text
    }
}

impl Wait {
    fn render(&self, output: &Output) -> String {
        let style = match self.keeps.as_str() {
            "contact" | "command" | "log" => Style::Bad,
            "nothing" => Style::Dim,
            _ => Style::Attention,
        };
        let keeps = match self.keeps.as_str() {
            _ if self.ended => "how it ended".to_owned(),
            "nothing" => "worth knowing".to_owned(),
            keeps => format!("keeps back {}", keeps_in_words(keeps)),
        };
        let mut text = format!(
            "{}  {}\n{}",
            style.paint(&printable(&self.code), output.colour),
            Style::Dim.paint(&keeps, output.colour),
            output.indented(&printable(&self.says), "  ")
        );
        if !self.means.is_empty() && self.means != self.says {
            text.push_str(&format!("\n{}", output.indented(&printable(&self.means), "  ")));
        }
        let mut facts = Vec::new();
        facts.extend(self.since.map(|since| format!("since {}", output.ago(since.min(output.now)))));
        facts.extend(self.until.map(|until| output.until(until)));
        facts.extend(self.owner.as_deref().map(printable));
        facts.extend(self.place.as_deref().map(printable));
        if !facts.is_empty() {
            text.push_str(&format!(
                "\n{}",
                Style::Dim.paint(&output.indented(&facts.join(" · "), "  "), output.colour)
            ));
        }
        let remedy = format!("→ {}: {}", lifter_in_words(&self.lifted_by), printable(&self.remedy));
        text.push_str(&format!("\n{}", output.hanging(&remedy, "  ")));
        text
    }
}

fn word(keeps: Keeps) -> String {
    serde_json::to_value(keeps).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn keeps_in_words(text: &str) -> String {
    let known = [Keeps::Contact, Keeps::Command, Keeps::DesiredState, Keeps::NewWork, Keeps::Log, Keeps::Nothing];
    match known.into_iter().find(|keeps| word(*keeps) == text) {
        Some(Keeps::Contact) => "everything: nothing reaches the machine".to_owned(),
        Some(keeps) => keeps.in_words().to_owned(),
        None => printable(text),
    }
}

fn lifter_in_words(text: &str) -> String {
    let same = |lifter: &Lifter| serde_json::to_value(lifter).is_ok_and(|value| value == text);
    Lifter::ALL.into_iter().find(same).map_or_else(|| printable(text), |lifter| lifter.in_words().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn output() -> Output {
        Output { format: Format::Text, colour: false, width: Some(100), now: "2026-11-29T12:10:00Z".parse().unwrap() }
    }

    fn answer(waits: Value) -> Answer {
        Answer::deserialize(&json!({
            "subject": "node/fra1-r12-u04", "summary": "pool/h100, adopted, unreachable, generation 3 of 4 observed",
            "clear": false, "waits": waits,
        }))
        .unwrap()
    }

    #[test]
    fn what_stands_in_front_comes_first_and_says_who_can_lift_it() {
        let waits = json!([
            { "area": "session", "code": "unreachable", "keeps": "contact", "says": "the machine is unreachable: it has no session",
              "means": "Nothing was heard from the machine for 90 seconds.", "liftedBy": "machine",
              "remedy": "see that the machine has power and network", "since": "2026-11-29T12:04:00Z" },
            { "area": "gate", "code": "freeze", "keeps": "desired-state", "says": "freeze/year-end holds it back: nobody\u{1b}[2J watches",
              "means": "Nothing in its scope changes while the freeze holds.", "liftedBy": "author", "remedy": "wait for its end",
              "until": "2027-01-02T08:00:00Z", "owner": "ada", "place": "fleet.kdl:12" },
            { "area": "command", "code": "open-commands", "keeps": "nothing", "says": "one command has not ended",
              "means": "Commands of the machine have not ended.", "liftedBy": "a-word-of-tomorrow", "remedy": "better-compute commands fra1-r12-u04" },
        ]);
        insta::assert_snapshot!(answer(waits).render(&output()));
    }

    #[test]
    fn what_is_no_machine_is_not_looked_for_as_one() {
        for subject in ["secret/x", "pool/h100", "BC0203", "join_01k9m2v7t3c4w8d5e6f7g8h9ja"] {
            let failure = elsewhere(subject).expect("refused");
            assert!(failure.exit == Exit::Usage && failure.hint.is_some(), "{subject}");
        }
        for subject in ["fra1-r12-u04", "node/fra1-r12-u04", "cmd_01k3"] {
            assert!(elsewhere(subject).is_none(), "{subject}");
        }
    }

    #[test]
    fn nothing_in_the_way_is_said() {
        insta::assert_snapshot!(answer(json!([])).render(&output()));
    }
}
