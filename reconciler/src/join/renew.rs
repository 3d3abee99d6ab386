//! Renewal: the next certificate for a node that proves possession of the key in its present one, over a challenge. The key
//! stays; a machine with another key joins.
//!
//! An expired certificate is no dead end: for 30 days it still renews by itself, and later once somebody let it, as long as
//! the identity was not revoked. Nor is one whose authority is over, or one that a restored database does not know yet.

use pki::{
    csr::Csr,
    hardware::JoinClaims,
    issue::CertifiedKinds,
    report::RenewalAsked,
    statement::JoinIdentity,
    verify::{NodeIdentity, Validity},
};
use proto::agent::v1 as pb;
use rustls_pki_types::CertificateDer;
use schema::{digest::Digest, generation::IdentityGeneration, node::ProvisionState, time::Duration};
use store::{
    DbError, identities,
    joins::{self, JoinKind, JoinState, NewJoin},
    node_certs, nodes, placements, queue,
};

use super::{
    JoinService, Keyring, RenewRefusal,
    enter::{Certified, chain},
    wire,
};

/// How long after its end a certificate renews without anybody looking.
const UNATTENDED: Duration = Duration::from_secs(30 * 86_400);

/// How many certificates a node is issued within an hour: each is kept for months.
const MOST_AN_HOUR: u64 = 60;

/// How a renewal ended without an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum RenewError {
    /// Refused, or waiting and stored as such.
    #[error(transparent)]
    Refused(#[from] RenewRefusal),
    /// The database did not do its part.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl JoinService {
    /// What a renewal of this certificate has to be signed over; with the time, for a machine that does not know it, and with
    /// the trust bundles that it missed.
    pub(super) fn challenge(
        &self,
        request: &pb::RenewChallengeRequest,
    ) -> Result<pb::RenewChallengeResponse, RenewRefusal> {
        let keyring = self.keyring();
        let old = certificate(&keyring, &request.certificate)?;
        let (time, signature) = self.server_time(old.node_id, &request.nonce);
        Ok(pb::RenewChallengeResponse {
            challenge: keyring.challenges.give(&old.serial, time),
            server_time: Some(pb::SignedTime {
                time: time.to_string(),
                nonce: request.nonce.clone(),
                signature: Some(wire::signature(signature)),
            }),
            trust_steps: keyring.since(request.trust_version).iter().map(wire::bundle).collect(),
        })
    }

    /// Issues the next certificate, or says why not.
    pub(super) async fn reissue(
        &self,
        request: &pb::RenewRequest,
        peer: Option<&str>,
    ) -> Result<pb::RenewResponse, RenewError> {
        let now = self.clock.now();
        let keyring = self.keyring();
        let csr = Csr::parse(&request.csr).map_err(RenewRefusal::from)?;
        let old = certificate(&keyring, &request.certificate)?;
        keyring.challenges.check(&request.challenge, &old.serial, now).map_err(RenewRefusal::from)?;
        let asked = RenewalAsked {
            csr: csr.hash(),
            serial: &old.serial,
            challenge: &request.challenge,
            claims: &request.claims,
        };
        old.public_key
            .verify_possession(&self.realm, &asked, &request.possession)
            .map_err(|_| RenewRefusal::Possession)?;
        if *csr.public_key() != old.public_key {
            return Err(RenewRefusal::OtherKey.into());
        }
        let late = Late { old: &old, claims: JoinClaims::from_bytes(&request.claims).unwrap_or_default(), peer };
        let known = self.known(&old).await?;
        let is_late = UNATTENDED.after(old.not_after) < now;
        if is_late && !late.is_let_through(joins::let_through(&self.db, &late.key()).await?.as_ref()) {
            return Err(self.wait(&late).await?.into());
        }

        let issued = keyring
            .issuer
            .issue(&csr, old.node_id, known.kinds.as_deref(), now)
            .expect("a checked request and an own authority make a certificate");
        let mut txn = self.db.begin().await?;
        let node = nodes::lock(&mut txn, old.node_id).await?.ok_or(RenewRefusal::Revoked)?;
        if node.identity_generation != known.generation || node.provision == ProvisionState::Retired {
            return Err(RenewRefusal::Revoked.into());
        }
        if is_late && !late.is_let_through(joins::still_let_through(&mut txn, &late.key()).await?.as_ref()) {
            drop(txn);
            return Err(self.wait(&late).await?.into());
        }
        if node_certs::issued_lately(&mut txn, node.id).await? >= MOST_AN_HOUR {
            return Err(RenewRefusal::TooOften.into());
        }
        if !identities::use_challenge(&mut txn, &request.challenge, node.id).await? {
            return Err(RenewRefusal::ChallengeUsed.into());
        }
        // The name may be another one since, and is told to whoever keeps it, when it was given here: what somebody else wrote
        // into the row makes no machine another one.
        let vouched = placements::is_vouched(&mut txn, node.id).await?;
        let told = (request.keeps_identity && vouched).then(|| node.name.to_string()).or(known.name);
        let certified = Certified { name: told.as_deref(), kinds: known.kinds.as_deref() };
        node_certs::insert(&mut txn, &certified.row(node.id, &issued, node.identity_generation)).await?;
        node_certs::keep_chain(&mut txn, &issued.serial.to_bytes(), &chain(&issued)).await?;
        if !vouched {
            // Whoever composes for it finds it out, and says so.
            queue::enqueue(&mut txn, &queue::NODESPEC, [node.id]).await?;
        }
        if is_late {
            let row = late.row(&node);
            let row = NewJoin { state: JoinState::Admitted, reason: "renewed".to_owned(), ..row };
            joins::upsert(&mut txn, &row).await?;
        }
        txn.commit().await?;
        tracing::info!(node = %old.node_id, serial = %issued.serial, until = %issued.not_after, late = is_late, "renewed a node certificate");
        let mut answer = pb::RenewResponse {
            certificate_chain: wire::chain(&issued.chain),
            trust_bundle: Some(wire::bundle(keyring.newest())),
            ..pb::RenewResponse::default()
        };
        if !vouched {
            tracing::error!(node = %node.id, name = %node.name, code = "place-unproven", "a machine keeps the name that it had: no process of this control plane wrote the one in its row");
            return Ok(answer);
        }
        let identity = JoinIdentity {
            node_id: node.id,
            node_name: node.name.to_string(),
            pool: node.pool.as_ref().map(ToString::to_string),
            trust_domain: self.realm.trust_domain.clone(),
            fleet_id: self.realm.fleet_id.clone(),
            identity_generation: node.identity_generation,
            kinds: known.kinds,
            csr: csr.hash(),
        };
        let (identity, signature) = self.signer.worker(now).sign_identity(&identity);
        (answer.identity, answer.signature) = (identity, Some(wire::signature(signature)));
        Ok(answer)
    }

    /// Stores that a renewal waits for somebody.
    async fn wait(&self, late: &Late<'_>) -> Result<RenewRefusal, RenewError> {
        let mut txn = self.db.begin().await?;
        let node = nodes::lock(&mut txn, late.old.node_id).await?.ok_or(RenewRefusal::Revoked)?;
        // Somebody may have let it through meanwhile; then the next try goes.
        if !late.is_let_through(joins::still_let_through(&mut txn, &late.key()).await?.as_ref()) {
            joins::upsert(&mut txn, &late.row(&node)).await?;
            txn.commit().await?;
        }
        Ok(RenewRefusal::Late(late.old.not_after))
    }

    /// The identity that a certificate is of. One that is not recorded was issued after the backup that this database was
    /// restored from: it still counts when its key is one that the node's present identity has, however old its certificate is.
    async fn known(&self, old: &NodeIdentity) -> Result<Known, RenewError> {
        if let Some(known) = node_certs::find(&self.db, &old.serial.to_bytes()).await? {
            return match known.revoked_at {
                _ if known.node_id != old.node_id => Err(RenewRefusal::UnknownCertificate.into()),
                Some(_) => Err(RenewRefusal::Revoked.into()),
                None => Ok(Known {
                    generation: known.identity_generation,
                    kinds: certified(old, known.allowed_kinds),
                    name: known.node_name,
                }),
            };
        }
        let node = nodes::find(&self.db, old.node_id).await?.ok_or(RenewRefusal::UnknownCertificate)?;
        if !node_certs::is_key_of(&self.db, node.id, old.public_key.as_bytes()).await? {
            return Err(RenewRefusal::UnknownCertificate.into());
        }
        let kinds = certified(old, node_certs::allowed_kinds(&self.db, node.id).await?);
        Ok(Known { generation: node.identity_generation, kinds, name: None })
    }
}

/// What is known of the certificate that is renewed; all of it stays.
struct Known {
    generation: IdentityGeneration,
    kinds: Option<Vec<String>>,
    name: Option<String>,
}

/// The kinds that a certificate says; those of its row where it is from before certificates said any.
fn certified(old: &NodeIdentity, row: Option<Vec<String>>) -> Option<Vec<String>> {
    match &old.kinds {
        CertifiedKinds::Unsaid => row,
        CertifiedKinds::All => None,
        CertifiedKinds::Only(kinds) => Some(kinds.clone()),
    }
}

fn certificate(keyring: &Keyring, der: &[u8]) -> Result<NodeIdentity, RenewRefusal> {
    let old = [CertificateDer::from(der)];
    Ok(keyring.renewals.identify(&old, Validity::Open)?)
}

/// A renewal that needs somebody's word, as it is shown to them.
struct Late<'r> {
    old: &'r NodeIdentity,
    /// What the machine is made of, signed with the key that renews.
    claims: JoinClaims,
    peer: Option<&'r str>,
}

impl Late<'_> {
    /// The row of a late renewal is the certificate's: its requests differ from each other.
    fn key(&self) -> Digest {
        Digest::of(["bc/late-renewal/v1", self.old.serial.as_str()].join("\0"))
    }

    /// Whether what was let through is this machine: a word holds for the hardware that was seen.
    fn is_let_through(&self, seen: Option<&serde_json::Value>) -> bool {
        let seen = seen.and_then(|claims| serde_json::from_value::<JoinClaims>(claims.clone()).ok());
        seen.is_some_and(|seen| seen.is_same_machine(&self.claims))
    }

    fn row(&self, node: &nodes::Node) -> NewJoin {
        let refusal = RenewRefusal::Late(self.old.not_after);
        let shown = self.claims.hardware_key().digest;
        let hardware = match (shown, node.hardware_key) {
            (None, _) => "it shows no hardware",
            (shown, known) if shown == known => "it shows the node's hardware",
            (Some(_), _) => "it shows other hardware than the node's",
        };
        NewJoin {
            kind: JoinKind::Renewal,
            state: JoinState::Waiting,
            reason: refusal.code().to_owned(),
            message: format!("node {}: {refusal}; {hardware}", node.name),
            pool: node.pool.as_ref().map(ToString::to_string),
            token_id: None,
            attested: Vec::new(),
            csr_hash: self.key(),
            hardware_key: shown,
            claims: serde_json::to_value(&self.claims).expect("claims are JSON"),
            node_id: Some(node.id),
            conflict_with: None,
            peer: self.peer.map(str::to_owned),
        }
    }
}
