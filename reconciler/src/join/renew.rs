//! Renewal: the next certificate for a node that proves possession of the key in its present one.
//!
//! An expired certificate is no dead end: for 30 days it still renews, as long as the identity was not revoked. Nor is one
//! that a restored database does not know yet.

use pki::{
    csr::Csr,
    verify::{NodeIdentity, Validity},
};
use proto::agent::v1 as pb;
use rustls_pki_types::CertificateDer;
use schema::{generation::IdentityGeneration, node::ProvisionState, time::Duration};
use store::{DbError, node_certs, nodes};

use super::{JoinService, RenewRefusal, admit::certificate_row, wire};

/// How long after its end a certificate still renews.
const OFFLINE: Duration = Duration::from_secs(30 * 86_400);

/// How a renewal ended without an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum RenewError {
    /// Refused.
    #[error(transparent)]
    Refused(#[from] RenewRefusal),
    /// The database did not do its part.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl JoinService {
    /// Issues the next certificate, or says why not.
    pub(super) async fn reissue(&self, request: &pb::RenewRequest) -> Result<pb::RenewResponse, RenewError> {
        let now = self.clock.now();
        let csr = Csr::parse(&request.csr).map_err(RenewRefusal::from)?;
        let old = [CertificateDer::from(request.certificate.as_slice())];
        let old = self.verifier.identify(&old, Validity::Open).map_err(RenewRefusal::from)?;
        if OFFLINE.after(old.not_after) < now {
            return Err(RenewRefusal::TooOld(old.not_after).into());
        }
        old.public_key
            .verify_possession(&self.realm, csr.hash(), &old.serial, &request.possession)
            .map_err(|_| RenewRefusal::Possession)?;
        let identity = self.identity(&old).await?;

        let issued = self
            .issuer
            .issue(&csr, old.node_id, now)
            .expect("a checked request and an own authority make a certificate");
        let mut txn = self.db.begin().await?;
        let node = nodes::lock(&mut txn, old.node_id).await?.ok_or(RenewRefusal::Revoked)?;
        if node.identity_generation != identity || node.provision == ProvisionState::Retired {
            return Err(RenewRefusal::Revoked.into());
        }
        node_certs::insert(&mut txn, &certificate_row(node.id, &issued, node.identity_generation)).await?;
        txn.commit().await?;
        tracing::info!(node = %old.node_id, serial = %issued.serial, until = %issued.not_after, "renewed a node certificate");
        Ok(pb::RenewResponse {
            certificate_chain: wire::chain(&issued.chain),
            trust_bundle: Some(wire::bundle(&self.bundle)),
        })
    }

    /// The identity that a certificate is of. One that is not recorded was issued after the backup that this database was
    /// restored from: it still counts when its key is one that the node has in a good certificate.
    async fn identity(&self, old: &NodeIdentity) -> Result<IdentityGeneration, RenewError> {
        if let Some(known) = node_certs::find(&self.db, &old.serial.to_bytes()).await? {
            return match known.revoked_at {
                _ if known.node_id != old.node_id => Err(RenewRefusal::UnknownCertificate.into()),
                Some(_) => Err(RenewRefusal::Revoked.into()),
                None => Ok(known.identity_generation),
            };
        }
        let node = nodes::find(&self.db, old.node_id).await?.ok_or(RenewRefusal::UnknownCertificate)?;
        let keys = node_certs::keys(&self.db, node.id).await?;
        if !keys.iter().any(|key| key == old.public_key.as_bytes()) {
            return Err(RenewRefusal::UnknownCertificate.into());
        }
        Ok(node.identity_generation)
    }
}
