//! `commands`: one-shot work for one node, with a deadline.

mod batch;
mod check;
mod view;

use schema::{
    command::{CommandKind, CommandState, PayloadError},
    generation::Generation,
    id::CommandId,
    time::Duration,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use store::commands::{self, EnqueueError, NewCommand, Unsigned};

use super::{PageOf, UnreadableView};
use crate::{
    api::{ApiError, App, Code, table::Mutation, text},
    batch::resolve::Trust,
    reconcile::{
        command::{BatchRequired, QuorumPolicy, may_queue},
        node::HARDWARE_CHANGED,
    },
};

pub(in crate::api) use check::check;
pub(in crate::api) use view::CommandView;

const SHORTEST: u32 = 10;
const LONGEST: u32 = 3_600;
const USUAL: u32 = 600;
const MOST: u32 = 200;

/// A command to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Run {
    /// The node's id or name.
    node: String,
    /// What to do, such as `inventory.refresh`.
    kind: String,
    /// What to do it with; the kind says which members it takes. Absent: nothing said.
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    payload: Option<Value>,
    /// How long the command may wait for its node before it expires, 10 to 3600 seconds; 600 when it is absent.
    not_after_seconds: Option<u32>,
    /// The generation that the node must have applied before it begins.
    min_generation: Option<Generation>,
    /// The destructive batch that the command is part of: its name or its id. It binds the payload, which is left out then.
    batch: Option<String>,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
}

/// Which command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Which {
    /// Its id.
    command: String,
}

/// Which commands.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Filter {
    /// Of this node: its id or name.
    node: Option<String>,
    /// In this state, such as `pending` or `failed`.
    state: Option<String>,
    /// Of this kind.
    kind: Option<String>,
    /// Exactly these, 200 at most; with nothing else.
    commands: Option<Vec<String>>,
    /// The `next` of the page before.
    before: Option<String>,
    /// How many items, 1 to 200; 100 when it is absent.
    limit: Option<u32>,
}

pub(in crate::api) async fn run(mutation: Mutation<'_>, input: Run) -> Result<CommandView, ApiError> {
    let Mutation { app, txn, caller, key, after } = mutation;
    let kind = kind(&input.kind)?;
    let seconds = input.not_after_seconds.unwrap_or(USUAL);
    if !(SHORTEST..=LONGEST).contains(&seconds) {
        return Err(ApiError::field("notAfterSeconds", format!("a command waits {SHORTEST} to {LONGEST} seconds")));
    }
    let batch_id = match &input.batch {
        Some(said) => Some(super::batches::find(app, said).await?.id),
        None => None,
    };
    let payload = input.payload;
    kind.check_callers(payload.as_ref().unwrap_or(&Value::Null)).map_err(not_the_callers)?;
    let created_by = super::brakes::owner(caller, input.owner)?;
    let node = super::nodes::find(app, &input.node).await?;
    // Without a pinned anchor there is no quorum to ask for.
    let policy = match batch_id {
        None if kind.row().destructive => super::batches::trust(app).await?.map(|trust| quorum(&trust)),
        _ => None,
    };
    may_queue(kind, batch_id, policy.as_ref()).map_err(batch_required)?;
    let place = match batch_id {
        Some(id) => Some(batch::place(app, txn, id, node.id, kind, payload.as_ref()).await?),
        None => None,
    };
    let payload = match &place {
        Some(place) => place.payload.clone(),
        None => payload.unwrap_or(Value::Null),
    };
    let new = NewCommand {
        node_id: node.id,
        kind,
        payload,
        idempotency_key: format!("api:{}:{key}", caller.identity),
        not_after: match &place {
            Some(place) if place.held => place.not_after,
            _ => Duration::from_secs(u64::from(seconds)).after(txn.now().await?),
        },
        min_generation: input.min_generation.max(place.as_ref().and_then(|place| place.min_generation)),
        batch_id,
        secrets: Vec::new(),
        created_by,
    };
    let queued = match app.signer {
        Some(_) => commands::enqueue_to_sign(txn, &new).await,
        None => commands::enqueue(txn, &new).await,
    }
    .map_err(refused)?;
    let mut queued = queued;
    if let Some(place) = &place
        && queued.fresh
    {
        batch::took(txn, place, &mut queued.command).await?;
    }
    // Before a destructive one is signed people's approval is asked for, and which machine it is; the reconciler does that.
    let asks = kind.row().destructive
        && (app.pinned.get().is_some() || node.has_condition(HARDWARE_CHANGED) || is_behind_pin(app).await?);
    if queued.fresh && queued.command.not_before.is_some() && !asks {
        after.sign.push(Unsigned { id: queued.command.id, node_id: node.id, body: queued.body });
    }
    CommandView::of(&queued.command)
}

pub(in crate::api) async fn get(app: &App, input: Which) -> Result<CommandView, ApiError> {
    let id: CommandId = super::parse("command", &input.command)?;
    let command = commands::find(&app.db, id).await?.ok_or_else(|| ApiError::not_found(format!("command {id}")))?;
    CommandView::of(&command)
}

pub(in crate::api) async fn list(app: &App, input: Filter) -> Result<PageOf<CommandView>, ApiError> {
    if let Some(wanted) = &input.commands {
        return exactly(app, wanted, &input).await;
    }
    let limit = super::limit_up_to(MOST, input.limit)?;
    let before: Option<CommandId> = input.before.as_deref().map(|text| super::parse("before", text)).transpose()?;
    let node = match &input.node {
        Some(node) => Some(super::nodes::find(app, node).await?.id),
        None => None,
    };
    let state: Option<CommandState> = input.state.as_deref().map(|text| super::parse("state", text)).transpose()?;
    let filter = commands::Filter { node, state, kind: input.kind };
    let page = commands::list(&app.db, &filter, before, limit).await?;
    let items = page.items.iter().map(CommandView::of).collect::<Result<_, _>>()?;
    Ok(PageOf { items, next: page.next, unreadable: UnreadableView::all(page.unreadable) })
}

async fn exactly(app: &App, wanted: &[String], input: &Filter) -> Result<PageOf<CommandView>, ApiError> {
    let others = [&input.node, &input.state, &input.kind, &input.before];
    if others.iter().any(|other| other.is_some()) || input.limit.is_some() {
        return Err(ApiError::field("commands", "with ids nothing else narrows the list"));
    }
    if wanted.len() > MOST as usize {
        return Err(ApiError::field("commands", format!("{MOST} at most")));
    }
    let ids: Vec<CommandId> = wanted.iter().map(|text| super::parse("commands", text)).collect::<Result<_, _>>()?;
    let found = commands::find_many(&app.db, &ids).await?;
    let items = found.items.iter().map(CommandView::of).collect::<Result<_, _>>()?;
    Ok(PageOf { items, next: None, unreadable: UnreadableView::all(found.unreadable) })
}

pub(in crate::api) async fn cancel(mutation: Mutation<'_>, input: Which) -> Result<CommandView, ApiError> {
    let id: CommandId = super::parse("command", &input.command)?;
    let command = commands::cancel(mutation.txn, id).await?;
    CommandView::of(&command.ok_or_else(|| ApiError::not_found(format!("command {id}")))?)
}

/// What the policy in force allows without a batch.
fn quorum(trust: &Trust) -> QuorumPolicy {
    let most = trust.present().map_or(0, |policy| policy.unbatched_destructive_per_hour());
    QuorumPolicy { unbatched_destructive_per_hour: most }
}

/// A kind that people may run.
pub(super) fn kind(word: &str) -> Result<CommandKind, ApiError> {
    let allowed = || CommandKind::by_run().map(CommandKind::as_str);
    let list = || allowed().collect::<Vec<_>>().join(", ");
    let unsupported = |message: String| ApiError::new(Code::Unsupported, message);
    let Ok(kind) = word.parse::<CommandKind>() else {
        let word: String = word.chars().take(80).collect();
        let error = unsupported(format!("there is no kind of command {word}"));
        return Err(match text::closest(&word, allowed()) {
            Some(closest) => error.why(format!("did you mean {closest}?")),
            None => error.why(format!("commands.run takes {}", list())),
        });
    };
    if kind.row().by_run {
        return Ok(kind);
    }
    Err(unsupported(format!("{kind} is not run by hand"))
        .why(format!("the control plane queues it itself; commands.run takes {}", list())))
}

fn batch_required(error: BatchRequired) -> ApiError {
    let why = format!("{}: make a batch, have it approved, and name it with --batch NAME", BatchRequired::CODE);
    ApiError::new(Code::InvalidState, error.to_string()).why(why)
}

fn in_payload(error: PayloadError) -> ApiError {
    let path = if error.path == "." { "payload".to_owned() } else { format!("payload.{}", error.path) };
    ApiError::field(path, error.expected)
}

/// What the control plane alone says, such as where logs are uploaded: whoever may run a command shall not send a
/// machine's logs to a place of their own.
fn not_the_callers(error: PayloadError) -> ApiError {
    in_payload(error).why("without it a bundle stays on the machine, and the result says where")
}

fn refused(error: EnqueueError) -> ApiError {
    match error {
        EnqueueError::Db(error) => error.into(),
        EnqueueError::Payload(error) => in_payload(error),
        error @ EnqueueError::TooLate => ApiError::field("notAfterSeconds", error.to_string()),
        EnqueueError::UnknownNode(id) => ApiError::not_found(format!("node {id}")),
        error @ EnqueueError::Conflict { .. } => ApiError::new(Code::Conflict, error.to_string())
            .why("a key stands for one command; choose a new one for a new command"),
        error @ EnqueueError::Retired => ApiError::new(Code::InvalidState, error.to_string())
            .why("node-retired: a retired machine gets no session and so no command"),
        error @ EnqueueError::Revoked(_) => ApiError::new(Code::InvalidState, error.to_string())
            .why("a machine comes in for it again with a token of `better-compute token create --pool POOL --reclaim`"),
        error @ EnqueueError::Restricted { .. } => ApiError::new(Code::InvalidState, error.to_string())
            .why("restricted-identity: the token by which the machine joined names the kinds that it accepts"),
        error @ EnqueueError::Role { .. } => ApiError::new(Code::InvalidState, error.to_string())
            .why("role: `better-compute kinds` says which roles run a kind"),
    }
}

/// Whether the keys of this process are from before the fleet was pinned.
async fn is_behind_pin(app: &App) -> Result<bool, ApiError> {
    Ok(match &app.auditor {
        Some(auditor) => auditor.custody.is_behind_pin(&app.db).await?,
        None => false,
    })
}
