//! `keys`: how far the fleet followed a rotation of keys, and what of a rotation is the database's. Rotating is for whoever
//! holds the key directory.

use std::collections::BTreeMap;

use pki::secret::Address;
use schema::{
    command::{CommandKind, kind::UNKNOWN_KIND_TIMEOUT},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{
    commands,
    identities::{self, Stragglers},
    key_holders, secrets,
};

use super::{At, Nothing, UnreadableView};
use crate::{
    api::{ApiError, App, Code, table::Mutation},
    reconcile::nodespec::decode_signature,
};

/// Who follows a new checkpoint key last: the source signs what is in force anew within seconds.
const SIGNED_BEFORE: &str = "signatures of revisions";
/// Envelopes that one call seals anew.
const RESEALED_AT_ONCE: u32 = 100;
/// Commands that are looked at in one statement.
const COMMANDS_AT_ONCE: u32 = 1_000;

/// What is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Since {
    /// The version of the trust bundle that nodes should have.
    trust_version: u64,
    /// When their certificates should have been issued, RFC 3339.
    #[schemars(with = "Option<String>")]
    issued_since: Option<Timestamp>,
}

/// Nodes that did not follow.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct StragglersView {
    /// How many.
    count: u64,
    /// The first ones, by name.
    names: Vec<String>,
}

/// How far the fleet is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Progress {
    /// All nodes.
    nodes: u64,
    /// Those that believe an older trust bundle.
    behind: StragglersView,
    /// Those whose newest certificate is older.
    old_certificates: StragglersView,
}

pub(in crate::api) async fn progress(app: &App, input: Since) -> Result<Progress, ApiError> {
    let found = identities::progress(&app.db, input.trust_version, input.issued_since).await?;
    let view = |stragglers: Stragglers| StragglersView { count: stragglers.count, names: stragglers.names };
    Ok(Progress { nodes: found.nodes, behind: view(found.behind), old_certificates: view(found.old_certificates) })
}

/// A process of the control plane, or a gateway apart.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct HolderView {
    /// Its host and process, or the gateway's name.
    name: String,
    /// It is a gateway apart.
    is_gateway: bool,
    /// The revision of the keys that it works with.
    revision: u64,
    /// When it last said so.
    seen_at: At,
    /// When the certificate of a gateway ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_ends_at: Option<At>,
    /// Who ended this gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_by: Option<String>,
    /// This gateway was away while the internal authority was replaced, and gets in no more without new keys. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    needs_keys: bool,
}

/// Who works with which keys.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Holders {
    /// The pin of the keys that this process works with.
    pin: String,
    /// Each of them.
    holders: Vec<HolderView>,
    /// Values of secrets that another key sealed than the one that this process seals with.
    sealed_before: u64,
    /// Commands that another root signed than the one that this process signs under, and that have not ended.
    commands_before: CommandsBefore,
    /// Rows of those that cannot be read: nobody knows how far they are. Absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableView>,
}

/// Commands that a command root of before signed.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct CommandsBefore {
    /// How many have not ended.
    count: u64,
    /// When the last of them has.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<At>,
}

pub(in crate::api) async fn holders(app: &App, _: Nothing) -> Result<Holders, ApiError> {
    let now = app.db.now().await?;
    let view = |holder: key_holders::Holder| HolderView {
        needs_keys: app.is_outside(&holder, now),
        name: holder.name,
        is_gateway: holder.is_gateway,
        revision: holder.revision,
        seen_at: At(holder.seen_at),
        certificate_ends_at: holder.is_gateway.then_some(At(holder.expires_at)),
        ended_by: holder.ended_by,
    };
    let mut unreadable = Vec::new();
    let known = super::readable(key_holders::list(&app.db).await?, &mut unreadable);
    let mut holders: Vec<HolderView> = known.into_iter().map(view).collect();
    if let Some(auditor) = &app.auditor
        && auditor.custody.signed_before(&app.db).await? > 0
    {
        // What the key before stands behind would count for nothing once that one is over.
        holders.push(HolderView {
            name: SIGNED_BEFORE.to_owned(),
            is_gateway: false,
            revision: 0,
            seen_at: At(now),
            certificate_ends_at: None,
            ended_by: None,
            needs_keys: false,
        });
    }
    let sealed_before = secrets::count_other_heads(&app.db, &app.secrets.head(), &app.secrets.heads()).await?;
    let commands_before = commands_before(app).await?;
    Ok(Holders { pin: app.pin.to_string(), holders, sealed_before, commands_before, unreadable })
}

async fn commands_before(app: &App) -> Result<CommandsBefore, ApiError> {
    let Some(auditor) = &app.auditor else { return Ok(CommandsBefore::default()) };
    // A worker signs many of them.
    let mut workers: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    let (mut count, mut until, mut after) = (0, None, None);
    loop {
        let some = commands::signed_open(&app.db, after, COMMANDS_AT_ONCE).await?;
        let Some(last) = some.last() else { return Ok(CommandsBefore { count, until: until.map(At) }) };
        after = Some(last.id);
        for command in &some {
            let Some(signature) = decode_signature(&command.signature) else { continue };
            let worker = [&signature.worker[..], &signature.root_signature].concat();
            if *workers.entry(worker).or_insert_with(|| auditor.joins.signs_like(&signature)) {
                continue;
            }
            let kind = command.kind.parse::<CommandKind>().ok();
            let timeout = kind.map_or(UNKNOWN_KIND_TIMEOUT, |kind| kind.row().timeout);
            let ends = if command.waits { command.not_after } else { timeout.after(command.not_after) };
            count += 1;
            until = until.max(Some(ends));
        }
    }
}

/// With which key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Reseal {
    /// The name of the key that is to seal: a process that seals with another one has no part in this.
    key: String,
}

/// What was sealed anew.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Resealed {
    /// How many values.
    resealed: u64,
    /// How many are left that another key sealed.
    left: u64,
}

pub(in crate::api) async fn reseal(mutation: Mutation<'_>, input: Reseal) -> Result<Resealed, ApiError> {
    let Mutation { app, txn, after, .. } = mutation;
    let head = app.secrets.head();
    if app.secrets.key_name() != input.key {
        let error = ApiError::new(Code::InvalidState, "this process seals with another key than the one that is named");
        return Err(error.why(
            "a process takes a step over within seconds; where it has a copy of the key directory, copy the files anew",
        ));
    }
    let opens = app.secrets.heads();
    let closed = secrets::list_closed(&app.db, &opens).await?;
    if !closed.is_empty() {
        let names: Vec<&str> = closed.iter().map(|(name, _)| name.as_str()).collect();
        let what = format!("the newest version of {} does not open: {}", counted(names.len()), names.join(", "));
        return Err(ApiError::new(Code::InvalidState, what).why(
            "the control plane has other keys than the one that sealed it; put each of them again with `better-compute \
             secrets put`, or delete it, and then go on with the rotation",
        ));
    }
    let others = secrets::count_other_heads(&app.db, &head, &opens).await?;
    let found = secrets::lock_other_heads(txn, &head, &opens, RESEALED_AT_ONCE).await?;
    let resealed = found.len() as u64;
    for mut sealed in found {
        let address = Address { name: &sealed.name, version: sealed.version, tenant: None };
        sealed.envelope = app.secrets.reseal(address, &sealed.envelope).map_err(|refusal| {
            let what = format!("version {} of {} does not open", sealed.version, sealed.name);
            ApiError::new(Code::InvalidState, what).why(format!(
                "{refusal}; put it again and delete what cannot be opened, and then go on with the rotation"
            ))
        })?;
        secrets::replace_envelope(txn, &sealed).await?;
    }
    after.audit = Some(json!({ "resealed": resealed }));
    Ok(Resealed { resealed, left: others.saturating_sub(resealed) })
}

fn counted(secrets: usize) -> String {
    if secrets == 1 { "one secret".to_owned() } else { format!("{secrets} secrets") }
}

/// Which gateway.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct EndGateway {
    /// Its name, as `keys.holders` says it.
    name: String,
}

/// The gateway that was ended.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct EndedGateway {
    /// Its name.
    name: String,
}

pub(in crate::api) async fn end_gateway(mutation: Mutation<'_>, input: EndGateway) -> Result<EndedGateway, ApiError> {
    let Mutation { txn, caller, .. } = mutation;
    if !key_holders::end_gateway(txn, &input.name, &caller.identity).await? {
        return Err(ApiError::new(Code::NotFound, format!("no gateway {:?} was ever seen", input.name)));
    }
    Ok(EndedGateway { name: input.name })
}
