//! Opening a session: the certificate's record, signed time and trust bundle, then the row in one short transaction.

use std::sync::Arc;

use pki::verify::NodeIdentity;
use schema::cause::chain;
use store::{
    DbError, node_certs, node_inventory,
    sessions::{self, OpenError, SessionOpen},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{OpenRequest, Opened};
use crate::{refusal::Refusal, shared::Shared};

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
    let certificate = node_certs::find(&shared.db, &identity.serial.to_bytes())
        .await
        .map_err(|error| database(&error))?
        .filter(|certificate| certificate.node_id == node_id)
        .ok_or(Refusal::UnknownCertificate)?;
    if certificate.revoked_at.is_some() {
        return Err(Refusal::CertificateRevoked);
    }
    let inventory = node_inventory::digests(&shared.db, node_id).await.map_err(|error| database(&error))?;
    let (time, bundle) = tokio::try_join!(
        shared.control_plane.server_time(node_id, request.nonce),
        shared.control_plane.trust_bundle(),
    )
    .map_err(|status| authority(&status))?;

    let session = SessionOpen {
        node_id,
        gateway_id: shared.gateway_id,
        boot_id: request.boot_id,
        journal_id: request.journal_id,
        identity_generation: certificate.identity_generation,
        version: request.agent_version,
        described: request.described,
    };
    let opened = open_row(&shared, &session).await.map_err(|error| match error {
        OpenError::Unknown(_) | OpenError::Retired => Refusal::NodeGone,
        OpenError::Revoked { .. } => Refusal::IdentityReplaced,
        OpenError::Db(error) => database(&error),
    })?;
    Ok(Opened {
        epoch: opened.epoch,
        identity_generation: certificate.identity_generation,
        generation: opened.generation,
        inventory,
        time,
        bundle,
    })
}

async fn open_row(shared: &Shared, session: &SessionOpen) -> Result<sessions::Opened, OpenError> {
    let mut txn = shared.db.begin().await?;
    let opened = sessions::open(&mut txn, session).await?;
    // The gateway that held the node before, if another one did, looks at its row.
    txn.poke(store::poke::Poke::Node(session.node_id));
    txn.commit().await?;
    Ok(opened)
}

fn database(error: &DbError) -> Refusal {
    tracing::warn!(error = %chain(&error), "a session could not be opened");
    NO_DATABASE
}

fn authority(status: &Status) -> Refusal {
    tracing::warn!(code = ?status.code(), message = status.message(), "a session could not be opened");
    NO_AUTHORITY
}
