//! `rollback`: back to a revision that was in force, as a forward plan of its stored files.

use clap::Args;
use serde_json::{Value, json};

use super::{history, owner::Owner, plan, token::once};
use crate::{
    args::{FormatArg, Sure},
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{
        Output, note,
        text::{count, printable},
    },
};

const EXAMPLES: &str = "\
Examples:
  better-compute history                                find the revision
  better-compute rollback rev_01k9m2v7t3c4w8d5e6f7g8h9ja --reason \"chrony does not start\"
  better-compute rollback 4f1c2d9 --reason \"bad image\" --owner ada --yes
  better-compute rollback --previous --reason \"slower\"  to what was in force before; HEAD~2 is the one before that
  better-compute rollback 4f1c2d9 --dry-run             the plan alone

The commit in force goes into quarantine, so that it does not come back by itself; a newer commit goes as always.
The files are the control plane's own: the git host may be down.";

/// Go back to what was in force before.
///
/// Shows the plan that leads back to a revision, asks, and lets the control plane carry it out from the files that it
/// keeps. The commit in force is put in quarantine; the next commit on the branch goes as always.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Rollback {
    /// A revision's id, a commit or its beginning, or HEAD~N: the Nth commit before the one in force
    #[arg(value_name = "REV", required_unless_present = "previous")]
    pub revision: Option<String>,
    /// To the commit that was in force before this one, as HEAD~1
    #[arg(long, conflicts_with = "revision")]
    pub previous: bool,
    /// Why
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    pub reason: Option<String>,
    /// Who answers for it
    #[command(flatten)]
    pub owner: Owner,
    /// Whether somebody is asked
    #[command(flatten)]
    pub sure: Sure,
    /// Show the plan and do nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Name everything in the plan
    #[arg(long)]
    pub all: bool,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Rollback {
    /// Shows the plan, asks, and goes back.
    ///
    /// # Errors
    /// When the revision is not there, its files are no fleet for this version, nobody agrees, or a call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.target)?;
        let wanted = match (&self.revision, self.previous) {
            (Some(revision), _) => revision.as_str(),
            (None, _) => "HEAD~1",
        };
        let wanted = match back(wanted)? {
            Some(steps) => before(&history::newest(&client, 1_000).await?, steps)?,
            None => wanted.to_owned(),
        };
        let detail = client.call("revisions.get", &json!({ "revision": wanted })).await?;
        let id = detail.pointer("/revision/id").and_then(Value::as_str).unwrap_or(&wanted).to_owned();
        let preview = match plan::of_revision(&client, &id).await? {
            plan::Answer::Plan(plan) => plan,
            plan::Answer::Invalid(findings) => {
                return Err(Failure::new(Exit::InvalidFleet, format!("{id} is no fleet for this version: {findings}")));
            }
        };
        if !output.is_json() {
            output.line(format!("Back to {}\n\n{}\n", said(&detail), plan::in_words(&preview, self.all, output)))?;
            if let (Some(from), false) = (&preview.base, preview.is_empty()) {
                note(comes_back(&detail, from));
            }
        } else if self.dry_run {
            output.json(&json!(preview))?;
        }
        if self.dry_run {
            return Ok(Exit::Ok);
        }
        if !self.sure.ask(output, "Go back?", "nothing was done")? {
            return Ok(Exit::Failed);
        }
        // From the commit that the plan was made against, and by the plan that was shown: nothing else is taken back.
        let input = json!({
            "revision": id, "reason": self.reason, "owner": self.owner.said(&client), "from": preview.base,
            "plan": preview.digest(), "idempotencyKey": once(),
        });
        let done = client.call("fleet.rollback", &input).await?;
        if output.is_json() {
            output.json(&done)?;
        } else {
            let text = |key: &str| printable(done.get(key).and_then(Value::as_str).unwrap_or("-"));
            output.line(format!("{} asks for {}; the source carries it out.", text("id"), text("revision")))?;
            for commit in
                done.get("quarantined").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
            {
                output.line(format!("in quarantine: {}", printable(commit)))?;
            }
            note("`better-compute status` shows when it is in force.");
        }
        Ok(Exit::Ok)
    }
}

/// How many commits back `HEAD~N` goes, when that is what is written.
fn back(text: &str) -> Result<Option<usize>, Failure> {
    let Some(rest) = text.strip_prefix("HEAD") else { return Ok(None) };
    let steps = match rest.strip_prefix('~') {
        Some("") => Some(1),
        Some(number) => number.parse().ok(),
        None if !rest.is_empty() && rest.chars().all(|c| c == '^') => Some(rest.len()),
        None => None,
    };
    match steps.filter(|steps| *steps > 0) {
        Some(steps) => Ok(Some(steps)),
        None => {
            Err(Failure::usage(format!("{text} is not before the commit in force")).hint("write HEAD~1, or --previous"))
        }
    }
}

/// The newest revision of the commit so many commits before the one in force. Commits in quarantine are passed over, and so
/// is one that came into force again.
fn before(newest_first: &[Value], steps: usize) -> Result<String, Failure> {
    let text = |item: &Value, key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut passed: Vec<String> = newest_first.iter().take(1).map(|item| text(item, "commit")).collect();
    for item in newest_first {
        let commit = text(item, "commit");
        if passed.contains(&commit) || item.get("quarantined").and_then(Value::as_bool) == Some(true) {
            continue;
        }
        if passed.len() == steps {
            return Ok(text(item, "id"));
        }
        passed.push(commit);
    }
    let before = count(passed.len().saturating_sub(1) as u64, "other commit");
    Err(Failure::failed(format!("in force before this one: {before}, so that nothing lies {steps} back"))
        .hint("`better-compute history` lists what was in force"))
}

/// The revision in a line.
fn said(detail: &Value) -> String {
    let text =
        |key: &str| printable(detail.pointer(&format!("/revision/{key}")).and_then(Value::as_str).unwrap_or("-"));
    let commit: String = text("commit").chars().take(10).collect();
    format!("{} ({commit}, {}: {})", text("id"), text("author"), text("subject"))
}

/// What the branch still does afterwards.
fn comes_back(detail: &Value, from: &str) -> String {
    let short = |commit: &str| printable(&commit.chars().take(10).collect::<String>());
    let to = detail.pointer("/revision/commit").and_then(Value::as_str).unwrap_or("-");
    format!(
        "The branch keeps what is taken back here: its next commit, whatever that changes, brings it into force again, unless what came after {} up to {} is reverted first.",
        short(to),
        short(from)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> Vec<Value> {
        let one = |id: &str, commit: &str, quarantined: bool| json!({ "id": id, "commit": commit, "quarantined": quarantined });
        vec![
            one("rev_6", "b", false),
            one("rev_5", "d", true),
            one("rev_4", "c", false),
            one("rev_3", "c", false),
            one("rev_2", "b", false),
            one("rev_1", "a", false),
        ]
    }

    #[test]
    fn what_the_next_commit_brings_back_is_said() {
        let detail = json!({ "revision": { "commit": "a81be0221e55aa990b1c" } });
        let text = comes_back(&detail, "3f2a91c0d17e0b7a9b1e");
        assert!(text.contains("next commit, whatever that changes, brings it into force again"), "{text}");
        assert!(text.contains("after a81be0221e up to 3f2a91c0d1 is reverted"), "{text}");
    }

    #[test]
    fn the_previous_one_is_another_commit_that_may_come_back() {
        assert_eq!(before(&history(), 1).unwrap(), "rev_4");
        assert_eq!(before(&history(), 2).unwrap(), "rev_1");
        assert!(before(&history(), 3).is_err() && before(&[], 1).is_err());
    }

    #[test]
    fn steps_back_are_written_as_in_git() {
        assert_eq!(
            (back("HEAD~2").unwrap(), back("HEAD~").unwrap(), back("HEAD^^").unwrap()),
            (Some(2), Some(1), Some(2))
        );
        assert_eq!((back("4f1c2d9").unwrap(), back("rev_1").unwrap()), (None, None));
        for wrong in ["HEAD", "HEAD~0", "HEAD~x", "HEADS"] {
            assert_eq!(back(wrong).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
