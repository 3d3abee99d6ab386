//! Opening a session: signed time and trust first, then the row.

use std::sync::Arc;

use pki::verify::NodeIdentity;
use schema::cause::chain;
use store::sessions::SessionOpen;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{OpenRequest, Opened};
use crate::{claims, policies::Given, refusal::Refusal, shared::Shared};

const NO_AUTHORITY: Refusal = Refusal::Unavailable("the control plane is not reachable");

/// Opens the session's row, unless the session is over before its turn comes.
pub(super) async fn open(
    shared: Arc<Shared>,
    identity: NodeIdentity,
    request: OpenRequest,
    over: CancellationToken,
) -> Result<Opened, Refusal> {
    let node_id = request.node_id;
    let permit = tokio::select! {
        permit = shared.asking.acquire() => permit.map_err(|_| NO_AUTHORITY)?,
        () = over.cancelled() => return Err(NO_AUTHORITY),
    };
    let (time, trust) = tokio::try_join!(
        shared.control_plane.server_time(node_id, request.nonce),
        shared.trust.give(&*shared.control_plane, request.trust_version),
    )
    .map_err(|status| authority(&status))?;
    drop(permit);
    if request.policy_epoch.is_some() {
        shared.policies.fresh(&shared).await.map_err(|error| {
            tracing::warn!(error = %chain(&error), "trust policies could not be looked at");
            Refusal::Unavailable("the control plane's database is not reachable")
        })?;
    }
    // A node that reads no policies is up to date with all of them.
    let nothing = || Given { version: u64::MAX, frames: Vec::new() };
    let policies = request.policy_epoch.map_or_else(nothing, |epoch| shared.policies.give(epoch));

    let session = SessionOpen {
        node_id,
        gateway_id: shared.gateway_id,
        serial: identity.serial.to_bytes(),
        boot_id: request.boot_id,
        journal_id: request.journal_id,
        version: request.agent_version,
        described: request.described,
        commands: request.commands,
        marks: request.marks,
    };
    let (opened, replay) = shared.opens.open(session, over).await?;
    Ok(Opened {
        epoch: opened.epoch,
        identity_generation: opened.identity_generation,
        generation: opened.generation,
        inventory: opened.inventory,
        time,
        trust_version: trust.version,
        bundle: trust.newest,
        trust_steps: trust.steps,
        policies: policies.frames,
        policy_epoch: request.policy_epoch.unwrap_or(0),
        policies_version: policies.version,
        replay: replay.into_iter().filter_map(claims::dispatch).collect(),
        allowed: opened.allowed_kinds,
    })
}

fn authority(status: &Status) -> Refusal {
    tracing::warn!(code = ?status.code(), message = status.message(), "a session could not be opened");
    NO_AUTHORITY
}
