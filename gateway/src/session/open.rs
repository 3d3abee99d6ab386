//! Opening a session: signed time and trust first, then the row, and what is in flight, in one short transaction.
//!
//! Four round trips to the database: the two statements, and the two that make them one.

use std::sync::Arc;

use pki::verify::NodeIdentity;
use schema::cause::chain;
use store::{
    DbError, commands,
    sessions::{self, OpenError, SessionOpen},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{OpenRequest, Opened};
use crate::{claims, refusal::Refusal, shared::Shared};

const NO_DATABASE: Refusal = Refusal::Unavailable("the database is not reachable");
const NO_AUTHORITY: Refusal = Refusal::Unavailable("the control plane is not reachable");

/// Opens the session's row, unless the session is over before its turn comes.
pub(super) async fn open(
    shared: Arc<Shared>,
    identity: NodeIdentity,
    request: OpenRequest,
    over: CancellationToken,
) -> Result<Opened, Refusal> {
    let _permit = tokio::select! {
        permit = shared.opens.acquire() => permit.map_err(|_| NO_DATABASE)?,
        () = over.cancelled() => return Err(NO_DATABASE),
    };
    let node_id = request.node_id;
    let (time, trust) = tokio::try_join!(
        shared.control_plane.server_time(node_id, request.nonce),
        shared.trust.give(&*shared.control_plane, request.trust_version),
    )
    .map_err(|status| authority(&status))?;

    let session = SessionOpen {
        node_id,
        gateway_id: shared.gateway_id,
        serial: identity.serial.to_bytes(),
        boot_id: request.boot_id,
        journal_id: request.journal_id,
        version: request.agent_version,
        described: request.described,
        commands: request.commands,
    };
    let (opened, replay) = open_row(&shared, &session).await.map_err(|error| match error {
        // The certificates of a node go with it.
        OpenError::Unknown(_) | OpenError::Uncertified => Refusal::UnknownCertificate,
        OpenError::Retired => Refusal::NodeGone,
        OpenError::CertificateRevoked => Refusal::CertificateRevoked,
        OpenError::Replaced { .. } => Refusal::IdentityReplaced,
        OpenError::Db(error) => database(&error),
    })?;
    Ok(Opened {
        epoch: opened.epoch,
        identity_generation: opened.identity_generation,
        generation: opened.generation,
        inventory: opened.inventory,
        time,
        trust_version: trust.version,
        bundle: trust.newest,
        trust_steps: trust.steps,
        replay: replay.into_iter().filter_map(claims::dispatch).collect(),
        allowed: opened.allowed_kinds,
    })
}

async fn open_row(
    shared: &Shared,
    session: &SessionOpen,
) -> Result<(sessions::Opened, Vec<commands::Dispatch>), OpenError> {
    let mut txn = shared.db.begin().await?;
    let opened = sessions::open(&mut txn, session).await?;
    let SessionOpen { node_id, boot_id, journal_id, .. } = *session;
    let replay = commands::resume(&mut txn, node_id, opened.epoch, boot_id, journal_id).await?;
    txn.commit().await?;
    if opened.taken_over {
        // The gateway that holds the node, as far as the database knows, looks at its row.
        shared.pokes.put(node_id);
    }
    Ok((opened, replay))
}

fn database(error: &DbError) -> Refusal {
    tracing::warn!(error = %chain(&error), "a session could not be opened");
    NO_DATABASE
}

fn authority(status: &Status) -> Refusal {
    tracing::warn!(code = ?status.code(), message = status.message(), "a session could not be opened");
    NO_AUTHORITY
}
