//! `commandBatches.create`: a batch that nobody commits by hand. Where nobody has to approve it is written down for audit, and the
//! commands that name it go at once; where people have to, it becomes a proposal, which this control plane signs as a service.

mod propose;

use schema::{
    command::CommandKind,
    digest::Digest,
    id::BatchId,
    name::Name,
    time::{Duration, Timestamp},
};
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

/// A batch to ask for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Create {
    /// Its name; used once. Made from its id when it is absent.
    name: Option<String>,
    /// Why it is asked for.
    reason: String,
    /// What is done to which machine; one kind, each machine once. Where people approve, all are told the same.
    scope: Vec<Member>,
    /// Nothing of it begins before; at once when it is absent.
    #[schemars(with = "Option<String>")]
    not_before: Option<Timestamp>,
    /// How long after that anything of it may begin, 60 seconds to 14 days; a day when it is absent, or as long as people's approvals
    /// hold at most when that is less.
    expires_seconds: Option<u32>,
    /// Machines at a time: 1 when it is absent. Where nobody approves, whoever queues the commands sees to it.
    max_in_flight: Option<u32>,
    /// Machines on which it may fail before nothing more of it begins; 0 when it is absent.
    max_failures: Option<u32>,
    /// The label whose values are failure domains: machines of two of them are never at it at once.
    spread: Option<String>,
    /// The principal of the trust policy for whom it is asked, if any: their own approval does not count.
    proposer: Option<String>,
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

/// What a request comes to.
struct Asked {
    name: Name,
    owner: String,
    why: String,
    kind: CommandKind,
    /// By name.
    leaves: Vec<NewLeaf>,
    now: Timestamp,
}

pub(in crate::api) async fn create(mutation: Mutation<'_>, input: Create) -> Result<BatchView, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let owner = groups::brakes::owner(caller, input.owner.clone())?;
    let why = line("reason", &input.reason)?;
    if input.expires_seconds.is_some_and(|seconds| !(SHORTEST..=LONGEST).contains(&seconds)) {
        return Err(ApiError::field("expiresSeconds", format!("{SHORTEST} to {LONGEST} seconds")));
    }
    if input.scope.is_empty() || input.scope.len() > MOST_NODES {
        return Err(ApiError::field("scope", format!("1 to {MOST_NODES} machines")));
    }
    if input.max_in_flight == Some(0) {
        return Err(ApiError::field("maxInFlight", "one machine at least"));
    }
    let word = &input.scope[0].kind;
    let kind = groups::commands::kind(word)?;
    if !kind.row().destructive {
        return Err(ApiError::field("scope", format!("{kind} does no harm and needs no batch")));
    }
    let mut leaves: Vec<NewLeaf> = Vec::new();
    for (at, member) in input.scope.iter().enumerate() {
        let field = |name: &str| format!("scope[{at}].{name}");
        if member.kind != *word {
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
    if name.as_str() == "all" || name.as_str().starts_with("breakglass") {
        return Err(ApiError::field("name", "emergencies are called so; choose another name")
            .why("name-reserved: a batch of another origin has another name"));
    }
    let now = txn.now().await?;
    if input.not_before.is_some_and(|at| at > Duration::from_secs(u64::from(LONGEST)).after(now)) {
        return Err(ApiError::field("notBefore", "within 14 days"));
    }
    let asked = Asked { name, owner, why, kind, leaves, now };
    if app.pinned.get().is_some() {
        return propose::propose(app, txn, &input, asked).await;
    }
    if let Some(proposer) = &input.proposer {
        let message = format!("nobody has to approve in this fleet, so that no approval of {proposer} is left out");
        return Err(ApiError::field("proposer", message));
    }
    let new = written_down(&input, &asked)?;
    match batches::put(txn, &new, &asked.leaves, Some("written down for audit: nobody has to approve it")).await? {
        Put::Fresh(_) => fresh(txn, &new, asked.leaves.len()).await,
        Put::Again(_) | Put::Same(_) | Put::Used { .. } => Err(used(&new.name)),
    }
}

/// A batch that is written down for audit only.
fn written_down(input: &Create, asked: &Asked) -> Result<NewBatch, ApiError> {
    let Asked { name, owner, why, kind, leaves, now } = asked;
    let (not_before, expires) = window(input, *now, USUAL);
    let doc = json!({ "kind": "batch", "name": name, "command": kind.as_str(), "reason": why, "expires": expires.to_string(),
        "nodes": leaves.iter().map(|leaf| leaf.node.as_str()).collect::<Vec<_>>() });
    Ok(NewBatch {
        name: name.clone(),
        origin: Origin::Api,
        quorum: false,
        kind: kind.as_str().to_owned(),
        doc: String::from_utf8(schema::canonical::to_vec(&doc).map_err(ApiError::internal)?)
            .map_err(ApiError::internal)?,
        place: None,
        why: why.clone(),
        plan: None,
        signed: None,
        proposer: None,
        evidence: None,
        created_by: owner.clone(),
        not_before,
        expires,
        max_in_flight: input.max_in_flight.unwrap_or_else(|| u32::try_from(leaves.len()).unwrap_or(u32::MAX)),
        max_failures: input.max_failures.unwrap_or(u32::MAX >> 1),
        spread: input.spread.clone(),
    })
}

/// From when, and until when.
fn window(input: &Create, now: Timestamp, usual: u32) -> (Timestamp, Timestamp) {
    let begins = input.not_before.map_or(now, |at| at.max(now));
    let seconds = input.expires_seconds.unwrap_or(usual);
    (begins, Duration::from_secs(u64::from(seconds)).after(begins))
}

/// As the transaction that wrote it shows it.
async fn fresh(txn: &mut store::Txn, new: &NewBatch, machines: usize) -> Result<BatchView, ApiError> {
    let batch = batches::find_for_update(txn, new.name.as_str()).await?;
    let batch = batch.ok_or_else(|| ApiError::not_found(format!("batch {}", new.name)))?;
    BatchView::fresh(&batch, machines)
}

fn used(name: &Name) -> ApiError {
    ApiError::new(Code::Conflict, format!("the name batch/{name} was used"))
        .why("batch-name-used: names of batches are used once; choose another one")
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
