//! A command as it is shown.

use schema::{command::CommandState, generation::Generation};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use store::commands::Command;

use super::super::At;
use crate::api::ApiError;

/// One command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct CommandView {
    /// Its id.
    id: String,
    /// The id of its node.
    node_id: String,
    /// The node's name; absent when it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Counts the node's commands.
    seq: u64,
    /// What it does.
    kind: String,
    /// What it shares its workers with: `control`, `provision` or `bulk`.
    lane: String,
    /// What it is told, defaults filled in; without what the control plane adds, such as where logs are uploaded.
    payload: Value,
    /// `pending`, `dispatched`, `acked`, `running`, or how it ended: `succeeded`, `failed`, `rejected`, `expired`, `cancelled`.
    state: CommandState,
    /// Why it ended so, a stable word.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Why it ended so, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// What came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    /// Running it twice does no more than running it once. Absent for a kind that this version does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_safe: Option<bool>,
    /// Not sent before; absent while it waits for approvals.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<At>,
    /// Never begun from here on.
    not_after: At,
    /// It waits until its batch is approved.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    awaiting_approval: bool,
    /// What the node must have applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_generation: Option<Generation>,
    /// The destructive batch that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<String>,
    /// How often its node had no room for it.
    #[serde(skip_serializing_if = "is_zero")]
    busy_count: u32,
    /// Why, the last time: `journal-full`; absent when its lane was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    busy_reason: Option<String>,
    /// The node's signature is kept with the result.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    attested: bool,
    /// When somebody asked to cancel it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel_requested_at: Option<At>,
    /// What the node said after the end. It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<LateView>,
    /// Who waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Who queued it.
    created_by: String,
    /// When.
    created_at: At,
    /// When it was last sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatched_at: Option<At>,
    /// When the node journaled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    acked_at: Option<At>,
    /// When the node began.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<At>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_at: Option<At>,
}

/// A node's word after the end.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LateView {
    /// The state that it named.
    state: String,
    /// Its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// When it came.
    at: At,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl CommandView {
    pub(in crate::api) fn of(command: &Command) -> Result<Self, ApiError> {
        let json = |text: &String| serde_json::from_str(text).map_err(ApiError::internal);
        Ok(Self {
            id: command.id.to_string(),
            node_id: command.node_id.to_string(),
            node: command.node.as_ref().map(ToString::to_string),
            seq: command.seq,
            kind: command.kind.clone(),
            lane: command.lane.to_string(),
            payload: match (json(&command.payload)?, command.known_kind()) {
                (payload, Some(kind)) => kind.shown(&payload),
                (payload, None) => payload,
            },
            state: command.state,
            reason: command.reason.clone(),
            message: command.message.clone(),
            result: command.result.as_ref().map(json).transpose()?,
            retry_safe: command.known_kind().map(|kind| kind.row().retry_safe),
            not_before: command.not_before.map(At),
            not_after: At(command.not_after),
            awaiting_approval: command.not_before.is_none(),
            min_generation: command.min_generation,
            batch: command.batch_id.map(|id| id.to_string()),
            busy_count: command.busy_count,
            busy_reason: command.busy_reason.clone(),
            attested: command.has_evidence,
            cancel_requested_at: command.cancel_requested_at.map(At),
            late: command.late.as_ref().map(|late| LateView {
                state: late.state.clone(),
                reason: late.reason.clone(),
                at: At(late.at),
            }),
            owner: command.owner.clone(),
            created_by: command.created_by.clone(),
            created_at: At(command.created_at),
            dispatched_at: command.dispatched_at.map(At),
            acked_at: command.acked_at.map(At),
            started_at: command.started_at.map(At),
            settled_at: command.settled_at.map(At),
        })
    }
}
