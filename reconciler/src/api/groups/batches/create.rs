//! `commandBatches.create`: a batch that no document asks for. Where nobody has to approve it is written down for audit, and the
//! commands that name it go at once; where people have to, a batch is a signed commit, and this says how to make it.

use schema::{command::CommandKind, digest::Digest, id::BatchId, name::Name, time::Duration};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use store::batches::{self, NewBatch, NewLeaf, Origin, Put};

use super::{BatchView, line};
use crate::api::{ApiError, Code, groups, table::Mutation};

const SHORTEST: u32 = 60;
const LONGEST: u32 = 14 * 86_400;
const USUAL: u32 = 86_400;
const MOST_NODES: usize = 1_000;

/// A batch to write down.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Create {
    /// Its name; used once. Made from its id when it is absent.
    name: Option<String>,
    /// Why it is asked for.
    reason: String,
    /// What is done to which machine; one kind, each machine once.
    scope: Vec<Member>,
    /// How long commands may name it, 60 seconds to 14 days; a day when it is absent.
    expires_seconds: Option<u32>,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
}

/// One machine of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Member {
    /// The machine, by id or name.
    subject: String,
    /// What is done, such as `node.reboot`.
    kind: String,
    /// What the command is told; nothing when it is absent.
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    payload: Option<Value>,
    /// The digest that the canonical payload has to have, in hexadecimal digits.
    payload_sha256: Option<String>,
}

pub(in crate::api) async fn create(mutation: Mutation<'_>, input: Create) -> Result<BatchView, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let owner = groups::brakes::owner(caller, input.owner)?;
    let why = line("reason", &input.reason)?;
    let seconds = input.expires_seconds.unwrap_or(USUAL);
    if !(SHORTEST..=LONGEST).contains(&seconds) {
        return Err(ApiError::field("expiresSeconds", format!("{SHORTEST} to {LONGEST} seconds")));
    }
    if input.scope.is_empty() || input.scope.len() > MOST_NODES {
        return Err(ApiError::field("scope", format!("1 to {MOST_NODES} machines")));
    }
    let word = input.scope[0].kind.clone();
    let kind = groups::commands::kind(&word)?;
    if !kind.row().destructive {
        return Err(ApiError::field("scope", format!("{kind} does no harm and needs no batch")));
    }
    let mut leaves: Vec<NewLeaf> = Vec::new();
    for (at, member) in input.scope.iter().enumerate() {
        let field = |name: &str| format!("scope[{at}].{name}");
        if member.kind != word {
            return Err(ApiError::field(
                field("kind"),
                format!("a batch has one kind of command, and the first is {word}"),
            ));
        }
        let node = groups::nodes::find(app, &member.subject).await?;
        if leaves.iter().any(|leaf| leaf.node_id == node.id) {
            return Err(ApiError::field(field("subject"), "each machine once"));
        }
        let payload = payload(kind, member, &field)?;
        leaves.push(NewLeaf { node_id: node.id, node: node.name, leaf: None, payload });
    }
    leaves.sort_by(|a, b| a.node.cmp(&b.node));
    let name: Name = match &input.name {
        Some(name) => groups::parse("name", name)?,
        None => groups::parse("name", &format!("api-{}", &BatchId::generate().to_string()["batch_".len()..]))?,
    };
    let now = txn.now().await?;
    let expires = Duration::from_secs(u64::from(seconds)).after(now);
    if app.pinned.get().is_some() {
        return Err(needs_people(&name, kind, &why, &leaves, expires));
    }
    let doc = json!({ "kind": "batch", "name": name, "command": word, "reason": why, "expires": expires.to_string(),
        "nodes": leaves.iter().map(|leaf| leaf.node.as_str()).collect::<Vec<_>>() });
    let new = NewBatch {
        name: name.clone(),
        origin: Origin::Api,
        quorum: false,
        kind: word,
        doc: String::from_utf8(schema::canonical::to_vec(&doc).map_err(ApiError::internal)?)
            .map_err(ApiError::internal)?,
        place: None,
        why,
        plan: None,
        signed: None,
        proposer: None,
        evidence: None,
        created_by: owner,
        not_before: now,
        expires,
        max_in_flight: u32::try_from(leaves.len()).unwrap_or(u32::MAX),
        max_failures: u32::MAX >> 1,
        spread: None,
    };
    match batches::put(txn, &new, &leaves, Some("written down for audit: nobody has to approve it")).await? {
        Put::Fresh(id) => {
            let batch = batches::find_for_update(txn, name.as_str()).await?;
            let batch = batch.ok_or_else(|| ApiError::not_found(format!("batch {id}")))?;
            BatchView::fresh(&batch, leaves.len())
        }
        Put::Again(_) | Put::Same(_) | Put::Used { .. } => {
            Err(ApiError::new(Code::Conflict, format!("the name batch/{name} was used"))
                .why("batch-name-used: names of batches are used once; choose another one"))
        }
    }
}

fn payload(kind: CommandKind, member: &Member, field: &dyn Fn(&str) -> String) -> Result<String, ApiError> {
    let told = member.payload.clone().unwrap_or(Value::Null);
    let whole = kind.check_payload(&told).map_err(|error| ApiError::field(field("payload"), error.to_string()))?;
    let bytes = schema::canonical::to_vec(&whole).map_err(ApiError::internal)?;
    if let Some(wanted) = &member.payload_sha256
        && *wanted != hex::encode(Digest::of(&bytes).as_bytes())
    {
        return Err(ApiError::field(field("payloadSha256"), "the payload has another digest; say the whole payload"));
    }
    String::from_utf8(bytes).map_err(ApiError::internal)
}

/// Where people have to approve, a batch is a commit that they can sign for.
fn needs_people(
    name: &Name,
    kind: CommandKind,
    why: &str,
    leaves: &[NewLeaf],
    expires: schema::time::Timestamp,
) -> ApiError {
    let nodes: Vec<String> = leaves.iter().map(|leaf| Value::from(leaf.node.as_str()).to_string()).collect();
    let text = Value::from(why).to_string();
    let expires = schema::time::Timestamp::from_second(expires.as_second()).unwrap_or(expires);
    let document = format!(
        "batch \"{name}\" {{ command \"{kind}\"; reason {text}; expires \"{expires}\"; scope {{ nodes {} }} }}",
        nodes.join(" ")
    );
    ApiError::new(Code::Unsupported, "people approve batches of this fleet, and what they approve is a signed commit").why(
        format!("batch-is-a-commit: no process of this control plane has a key that signs commits. Commit it as batches/{name}.kdl, or let a service push it below refs/heads/bc/proposals/ (docs/guides/approvals.md): {document}"),
    )
}
