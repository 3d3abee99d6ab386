//! `quarantine`: a commit that does not come into force, whatever the branch says.

use clap::Args;
use serde_json::{Map, Value, json};

use super::{owner::Owner, token::once};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{Output, text::printable},
};

const EXAMPLES: &str = "\
Examples:
  better-compute quarantine 4f1c2d9 --reason \"breaks chrony\"
  better-compute quarantine --release 4f1c2d9
  better-compute holds                        what is in quarantine, and why

A newer commit goes as always. What is in force stays; `better-compute rollback` goes back.";

/// Keep a commit from coming into force, or let it go again.
///
/// A commit in quarantine is never applied, also when it is the tip of the branch: what is in force stays until a newer
/// commit comes. It has an owner and a reason.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Quarantine {
    /// The commit, or its beginning when the control plane has seen it
    #[arg(value_name = "COMMIT")]
    pub commit: String,
    /// Let it go again
    #[arg(long, conflicts_with_all = ["reason", "owner"])]
    pub release: bool,
    /// Why
    #[arg(long, value_name = "TEXT", required_unless_present = "release")]
    pub reason: Option<String>,
    /// Who answers for it
    #[command(flatten)]
    pub owner: Owner,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Quarantine {
    /// Does it.
    ///
    /// # Errors
    /// When the commit is not known by its beginning, or a call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.target)?;
        let commit = whole(&client, &self.commit).await?;
        let mut input = Map::new();
        input.insert("commit".to_owned(), commit.as_str().into());
        input.insert("idempotencyKey".to_owned(), once().into());
        let method = if self.release { "fleet.release" } else { "fleet.quarantine" };
        if !self.release {
            for (key, value) in [("reason", self.reason.clone()), ("owner", self.owner.said(&client))] {
                if let Some(value) = value {
                    input.insert(key.to_owned(), value.into());
                }
            }
        }
        let done = client.call(method, &Value::Object(input)).await?;
        if output.is_json() {
            output.json(&done)?;
        } else if self.release {
            output.line(format!("{commit} may come into force again"))?;
        } else {
            output.line(format!(
                "{commit} is in quarantine: it does not come into force again; what is in force stays, and what waits of it goes on"
            ))?;
        }
        Ok(Exit::Ok)
    }
}

/// The whole id of a commit: as it was typed, or one that the control plane has seen and that begins like this.
async fn whole(client: &Client, text: &str) -> Result<String, Failure> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::usage(format!("{} is no commit's id, nor the beginning of one", printable(text)))
            .hint("`better-compute history` lists the commits that were in force; the first is the one that is"));
    }
    let text = text.to_ascii_lowercase();
    if matches!(text.len(), 40 | 64) {
        return Ok(text);
    }
    if text.len() < 7 {
        return Err(Failure::usage(format!("{} is too short; name at least 7 digits of the commit", printable(&text))));
    }
    let status = client.call("fleet.status", &json!({})).await?;
    let mut seen: Vec<&str> = Vec::new();
    for source in status.get("sources").and_then(Value::as_array).into_iter().flatten() {
        let stages = ["remote", "verified", "planned", "applied"];
        seen.extend(stages.iter().filter_map(|stage| source.pointer(&format!("/{stage}/commit"))?.as_str()));
    }
    let held = status.pointer("/held/quarantined").and_then(Value::as_array).into_iter().flatten();
    seen.extend(held.filter_map(|one| one.get("commit")?.as_str()));
    seen.retain(|commit| commit.starts_with(&text));
    seen.sort_unstable();
    seen.dedup();
    match seen.as_slice() {
        [one] => return Ok((*one).to_owned()),
        [] => {}
        _ => return Err(Failure::usage(format!("several commits begin with {}", printable(&text)))),
    }
    let detail = client.call("revisions.get", &json!({ "revision": text })).await?;
    let commit = detail.pointer("/revision/commit").and_then(Value::as_str);
    commit.map(str::to_owned).ok_or_else(|| Failure::failed("the answer names no commit"))
}
