//! `suspend` and `resume`: a part of the fleet that stands still until somebody, or a time, lets it go on.

use clap::Args;
use schema::time::{Duration, Timestamp};
use serde_json::{Map, Value, json};

use super::{owner::owner, token::once};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{Output, text::printable},
};

const SUSPEND_EXAMPLES: &str = "\
Examples:
  better-compute suspend pool/h100 --reason \"benchmark runs\" --until 4h
  better-compute suspend site/fra1 --reason \"power works\" --owner ada --until 2026-12-01T06:00:00Z
  better-compute suspend fleet --reason \"something is wrong\"
  better-compute resume pool/h100

What waits meanwhile is in every plan; it goes when the suspension ends. A suspension can also stand in a document.";

const RESUME_EXAMPLES: &str = "\
Examples:
  better-compute resume pool/h100
  better-compute holds                        what is suspended, by whom and why";

/// Let a part of the fleet stand still.
///
/// No machine in it is told anything new until the suspension ends or is lifted with `resume`. Commits come into force
/// meanwhile, and what they mean for these machines waits.
#[derive(Debug, Args)]
#[command(after_help = SUSPEND_EXAMPLES)]
pub struct Suspend {
    /// `fleet`, or a site, pool or node as KIND/NAME
    #[arg(value_name = "SCOPE")]
    pub scope: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who answers for it [default: you, or the name of the token]
    #[arg(long, value_name = "WHO")]
    pub owner: Option<String>,
    /// When it ends by itself: a time, or how long from now
    #[arg(long, value_name = "TIME|DURATION")]
    pub until: Option<String>,
    /// Also when somebody else suspends it by hand; theirs is over then
    #[arg(long)]
    pub replace: bool,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// Let a part of the fleet go on.
///
/// Lifts a suspension that was made with `suspend`. One that stands in a document is lifted by a commit.
#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub struct Resume {
    /// `fleet`, or a site, pool or node as KIND/NAME
    #[arg(value_name = "SCOPE")]
    pub scope: String,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Suspend {
    /// Does it.
    ///
    /// # Errors
    /// When the end is no time, or the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let until = self.until.as_deref().map(|text| end(text, output.now)).transpose()?;
        let client = Client::new(&self.target)?;
        let mut input = Map::new();
        for (key, value) in [
            ("scope", Some(self.scope.clone())),
            ("reason", Some(self.reason.clone())),
            ("owner", owner(self.owner.as_ref(), &client)),
            ("until", until.map(|until| until.to_string())),
            ("idempotencyKey", Some(once())),
        ] {
            if let Some(value) = value {
                input.insert(key.to_owned(), value.into());
            }
        }
        if self.replace {
            input.insert("replace".to_owned(), true.into());
        }
        let done = client.call("fleet.suspend", &Value::Object(input)).await?;
        if output.is_json() {
            output.json(&done)?;
        } else {
            let end = until.map_or_else(
                || format!("until `better-compute resume {}`", self.scope),
                |until| format!("until {until}, {}", output.ago(until)),
            );
            output.line(format!("{} stands still {end}", self.scope))?;
            replaced(&done, output)?;
        }
        Ok(Exit::Ok)
    }
}

impl Resume {
    /// Does it.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let input = json!({ "scope": self.scope, "idempotencyKey": once() });
        let done = Client::new(&self.target)?.call("fleet.resume", &input).await?;
        if output.is_json() {
            output.json(&done)?
        } else {
            output.line(format!("{} goes on", self.scope))?
        }
        Ok(Exit::Ok)
    }
}

/// Says what a suspension or a cordon took the place of: its end and its reason are gone.
pub(super) fn replaced(done: &Value, output: &Output) -> Result<(), Failure> {
    match done.get("replaced").and_then(|replaced| replacing(replaced, output)) {
        Some(line) => output.line(line),
        None => Ok(()),
    }
}

fn replacing(replaced: &Value, output: &Output) -> Option<String> {
    let text = |name: &str| replaced.get(name)?.as_str();
    let end = match text("until").and_then(|until| until.parse().ok()) {
        Some(until) => format!("until {until}, {}", output.ago(until)),
        None => "without an end".to_owned(),
    };
    Some(format!("it replaces: {} ({}, {end})", printable(text("reason")?), printable(text("owner")?)))
}

/// A moment, or how long from now.
pub(super) fn end(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    if let Ok(duration) = text.parse::<Duration>() {
        return Ok(duration.after(now));
    }
    text.parse().map_err(|_| {
        Failure::usage(format!("{text:?} is neither a time nor a duration"))
            .hint("write 4h, 2d, or 2026-12-01T06:00:00Z")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_is_said_with_its_end() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let output = Output { format: crate::output::Format::Text, colour: false, width: None, now };
        let exam = json!({ "owner": "ada", "reason": "exam", "until": "2026-11-29T16:00:00Z" });
        assert_eq!(replacing(&exam, &output).unwrap(), "it replaces: exam (ada, until 2026-11-29T16:00:00Z, in 4h)");
        let endless = json!({ "owner": "ada", "reason": "exam" });
        assert_eq!(replacing(&endless, &output).unwrap(), "it replaces: exam (ada, without an end)");
    }

    #[test]
    fn an_end_is_a_time_or_a_while() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        assert_eq!(end("4h", now).unwrap().to_string(), "2026-11-29T16:00:00Z");
        assert_eq!(end("2026-12-01T06:00:00Z", now).unwrap().to_string(), "2026-12-01T06:00:00Z");
        assert_eq!(end("tomorrow", now).unwrap_err().exit, Exit::Usage);
    }
}
