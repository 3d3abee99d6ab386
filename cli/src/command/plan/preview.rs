//! The way in which a control plane plans files that it does not have: the commit's id first, then what changes against the
//! commit in force, then the whole tree. Nothing else than `plans.preview` is called, so that its scope is enough.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reconciler::plan::Plan;
use schema::fleet::{SourceBlob, Sources};
use serde_json::{Map, Value, json};

use super::{Head, document};
use crate::{client::Client, exit::Failure, output::note};

/// What a control plane says of files.
pub(in crate::command) enum Answer {
    /// What would happen.
    Plan(Box<Plan>),
    /// They are no fleet.
    Invalid(Value),
}

/// The plan of a tree of this repository.
pub(super) async fn of_head(client: &Client, head: &Head, base: Option<&str>) -> Result<Answer, Failure> {
    let first = match &head.commit {
        Some(commit) => json!({ "commit": commit }),
        None => against(head, base.unwrap_or("HEAD")).unwrap_or_else(|| whole(&head.files)),
    };
    let mut answer = ask(client, &first).await?;
    if let Some(in_force) = unknown(&answer) {
        let next = in_force.and_then(|commit| against(head, commit)).unwrap_or_else(|| whole(&head.files));
        answer = ask(client, &next).await?;
    }
    if unknown(&answer).is_some() {
        answer = ask(client, &whole(&head.files)).await?;
    }
    read(answer, head.commit.as_deref())
}

/// The forward plan of a revision that was in force.
pub(in crate::command) async fn of_revision(client: &Client, revision: &str) -> Result<Answer, Failure> {
    let answer = client.call("plans.preview", &json!({ "revision": revision })).await?;
    if unknown(&answer).is_some() {
        return Err(Failure::failed(format!("the control plane has no files of {revision}")));
    }
    read(answer, None)
}

async fn ask(client: &Client, input: &Value) -> Result<Value, Failure> {
    client.call("plans.preview", input).await.map_err(|failure| {
        if failure.denied {
            failure.hint(
                "the token needs the scope plans:preview; `better-compute token api create --plan-only` makes one",
            )
        } else {
            failure
        }
    })
}

/// The commit in force, when the answer is that files are not known.
fn unknown(answer: &Value) -> Option<Option<&str>> {
    answer.get("unknown").filter(|unknown| !unknown.is_null())?;
    Some(answer.get("inForce").and_then(Value::as_str))
}

fn read(answer: Value, commit: Option<&str>) -> Result<Answer, Failure> {
    if answer.get("valid").and_then(Value::as_bool) != Some(true) {
        let findings = answer.get("diagnostics").cloned().unwrap_or(Value::Null);
        return Ok(Answer::Invalid(findings));
    }
    if let Some(refused) = answer.get("refused").and_then(Value::as_str) {
        note(format!("note: the control plane would refuse the whole of it: {refused}"));
    }
    let mut plan = document(&answer)?;
    plan.commit = plan.commit.or_else(|| commit.map(str::to_owned));
    Ok(Answer::Plan(Box::new(plan)))
}

/// What changes in a commit's files, when this repository has it.
fn against(head: &Head, commit: &str) -> Option<Value> {
    let (id, before) = (head.resolve(commit)?, head.at(commit)?);
    let changed: Vec<Value> = head
        .files
        .iter()
        .filter(|(path, blob)| before.get(path) != Some(*blob))
        .filter_map(|(path, blob)| file(path, blob))
        .collect();
    let removed: Vec<&str> =
        before.iter().filter(|(path, _)| head.files.get(path).is_none()).map(|(path, _)| &**path).collect();
    Some(json!({ "base": id, "changed": changed, "removed": removed }))
}

fn whole(files: &Sources) -> Value {
    json!({ "changed": files.iter().filter_map(|(path, blob)| file(path, blob)).collect::<Vec<_>>() })
}

fn file(path: &str, blob: &SourceBlob) -> Option<Value> {
    let SourceBlob::Bytes(bytes) = blob else { return None };
    let mut file = Map::new();
    file.insert("path".to_owned(), path.into());
    match std::str::from_utf8(bytes) {
        Ok(text) => file.insert("text".to_owned(), text.into()),
        Err(_) => file.insert("base64".to_owned(), BASE64_STANDARD.encode(&bytes[..]).into()),
    };
    Some(Value::Object(file))
}
