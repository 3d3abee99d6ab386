//! What `cordon` and `suspend` have in common: a hold that a person places and lifts, with a reason, an owner and an end.

use clap::Args;
use schema::time::{Duration, Moment, Timestamp};
use serde_json::{Map, Value, json};

use super::{owner::Owner, token::once};
use crate::{
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{Output, text::printable},
};

/// A hold that a person places.
#[derive(Debug, Args)]
pub struct Hold {
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who answers for it
    #[command(flatten)]
    pub owner: Owner,
    /// When it ends by itself: a time, or how long from now
    #[arg(long, value_name = "TIME|DURATION")]
    pub until: Option<String>,
    /// Also when somebody else holds it so by hand; theirs is over then
    #[arg(long)]
    pub replace: bool,
}

/// What is held or let go, and how that is called.
pub(super) struct Subject<'s> {
    /// The method of the API.
    pub(super) method: &'static str,
    /// Its member that names the subject.
    pub(super) key: &'static str,
    pub(super) name: &'s str,
    /// What is so of it afterwards.
    pub(super) says: &'static str,
}

impl Hold {
    /// Places it. `lifted_by` is the command that ends it.
    pub(super) async fn place(
        &self,
        subject: &Subject<'_>,
        lifted_by: &str,
        target: &Target,
        output: &Output,
    ) -> Result<Exit, Failure> {
        let until = self.until.as_deref().map(|text| end(text, output.now)).transpose()?;
        let client = Client::new(target)?;
        let mut input = Map::new();
        for (key, value) in [
            (subject.key, Some(subject.name.to_owned())),
            ("reason", Some(self.reason.clone())),
            ("owner", self.owner.said(&client)),
            ("until", until.map(|until| until.to_string())),
            ("idempotencyKey", Some(once())),
        ] {
            input.extend(value.map(|value| (key.to_owned(), Value::from(value))));
        }
        if self.replace {
            input.insert("replace".to_owned(), true.into());
        }
        let done = client.call(subject.method, &Value::Object(input)).await?;
        if output.is_json() {
            output.json(&done)?;
            return Ok(Exit::Ok);
        }
        let name = printable(subject.name);
        let end =
            until.map_or_else(|| format!("until `better-compute {lifted_by} {name}`"), |until| output.until(until));
        output.line(format!("{name} {} {end}", subject.says))?;
        if let Some(line) = done.get("replaced").and_then(|replaced| replacing(replaced, output)) {
            output.line(line)?;
        }
        Ok(Exit::Ok)
    }
}

/// Lifts what somebody placed by hand.
pub(super) async fn lift(subject: &Subject<'_>, target: &Target, output: &Output) -> Result<Exit, Failure> {
    let input = json!({ subject.key: subject.name, "idempotencyKey": once() });
    let done = Client::new(target)?.call(subject.method, &input).await?;
    if output.is_json() {
        output.json(&done)?;
    } else {
        output.line(format!("{} {}", printable(subject.name), subject.says))?;
    }
    Ok(Exit::Ok)
}

/// What it took the place of: the end and the reason of that are gone.
fn replacing(replaced: &Value, output: &Output) -> Option<String> {
    let text = |name: &str| replaced.get(name)?.as_str();
    let end = match text("until").and_then(|until| until.parse().ok()) {
        Some(until) => output.until(until),
        None => "without an end".to_owned(),
    };
    Some(format!("it replaces: {}; {}, {end}", printable(text("reason")?), printable(text("owner")?)))
}

/// A moment, or how long from now.
fn end(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    if let Ok(duration) = text.parse::<Duration>() {
        return Ok(duration.after(now));
    }
    let end: Timestamp = text.parse().map_err(|_| {
        Failure::usage(format!("{text:?} is neither a time nor a duration"))
            .hint("write 4h, 2d, or 2026-12-01T06:00:00Z")
    })?;
    if end <= now {
        return Err(Failure::usage(format!("--until {} has passed", Moment(end))));
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_is_said_with_its_end() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let output = Output { format: crate::output::Format::Text, colour: false, width: None, now };
        let exam = json!({ "owner": "ada", "reason": "exam", "until": "2026-11-29T16:00:00Z" });
        assert_eq!(replacing(&exam, &output).unwrap(), "it replaces: exam; ada, until 2026-11-29 16:00Z (in 4h)");
        let endless = json!({ "owner": "ada", "reason": "exam" });
        assert_eq!(replacing(&endless, &output).unwrap(), "it replaces: exam; ada, without an end");
    }

    #[test]
    fn an_end_is_a_time_or_a_while() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        assert_eq!(end("4h", now).unwrap().to_string(), "2026-11-29T16:00:00Z");
        assert_eq!(end("2026-12-01T06:00:00Z", now).unwrap().to_string(), "2026-12-01T06:00:00Z");
        for wrong in ["tomorrow", "2020-01-01T00:00:00Z"] {
            assert_eq!(end(wrong, now).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
