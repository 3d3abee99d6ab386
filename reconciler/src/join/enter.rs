//! The one transaction in which a machine comes in: as a node of its own, or as one that was here before.
//!
//! Everything is signed before it begins, for what was read; when that is not so any more, nothing happens and the join is
//! looked at again.

use pki::{csr::Csr, hardware::HardwareKey, issue::IssuedCertificate, statement::JoinIdentity};
use prost::Message as _;
use proto::agent::v1 as pb;
use schema::{
    fleet::NodeOverlay,
    generation::IdentityGeneration,
    id::NodeId,
    name::Name,
    node::{Hold, Trust},
};
use serde_json::json;
use store::{
    DbError, Txn,
    attestations::{self, RecordError},
    audit,
    identities::{self, Hardware, TakeOverError},
    join_tokens::{self, ConsumeError},
    joins::{self, JoinState},
    node_certs::{self, NodeCert},
    node_holds,
    nodes::{self, InsertError, NewNode},
    placements,
    pools::{self, Pool},
    queue, revisions,
};

use super::{
    JoinService, Keyring,
    admit::Trace,
    claim::{Claim, Ground, Resident},
    decide::Place,
    documents,
    voucher::Voucher,
    wire,
};

/// A machine that may come in.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) csr: &'a Csr,
    pub(super) key: &'a HardwareKey,
    pub(super) place: &'a Place<'a>,
    pub(super) pool: &'a Pool,
    pub(super) voucher: &'a Voucher,
    pub(super) claim: Claim,
    pub(super) hold: Option<Hold>,
}

/// How the transaction ended, when not by committing.
pub(super) enum Lost {
    Race,
    /// No process of this control plane wrote the name of the node that the machine is.
    Unvouched(Name),
    Db(DbError),
}

impl From<DbError> for Lost {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

/// What is signed before the transaction.
struct Signed {
    id: NodeId,
    issued: IssuedCertificate,
    answer: pb::JoinResponse,
}

/// The identity that a machine gets when it joins for the first time.
const FIRST_IDENTITY: IdentityGeneration = IdentityGeneration(1);

impl JoinService {
    /// Signs, and lets the machine in.
    pub(super) async fn enter(
        &self,
        keyring: &Keyring,
        entry: Entry<'_>,
        trace: &Trace<'_>,
    ) -> Result<pb::JoinResponse, Lost> {
        let (id, name, generation) = match &entry.claim {
            Claim::New => (NodeId::generate(), entry.place.name.clone(), FIRST_IDENTITY),
            Claim::TakeOver(resident, _) => {
                let node = nodes::find(&self.db, resident.id).await?.ok_or(Lost::Race)?;
                (node.id, node.name, IdentityGeneration(node.identity_generation.0 + 1))
            }
        };
        let signed = self.sign(keyring, &entry, id, name.as_str(), generation);
        let mut txn = self.db.begin().await?;
        // Serialised with apply, which locks the pools first: pool and documents are still those that were read.
        let current = pools::find_shared(&mut txn, &entry.pool.name).await?;
        if current.as_ref() != Some(entry.pool) || revisions::latest_seq(&mut txn).await? != trace.revision {
            return Err(Lost::Race);
        }
        let (action, message) = match &entry.claim {
            Claim::New => {
                insert(&mut txn, &entry, id).await?;
                ("nodes.join", format!("joined as {name}"))
            }
            Claim::TakeOver(resident, ground) => {
                take_over(&mut txn, &entry, resident, *ground, generation).await?;
                ("nodes.reclaim", format!("came back as {name}, {}", ground.as_str()))
            }
        };
        use_voucher(&mut txn, entry.voucher, trace, &signed).await?;
        let certified = Certified { name: Some(name.as_str()), kinds: entry.voucher.kinds.as_deref() };
        node_certs::insert(&mut txn, &certified.row(id, &signed.issued, generation)).await?;
        node_certs::keep_chain(&mut txn, &signed.issued.serial.to_bytes(), &chain(&signed.issued)).await?;
        if let (Claim::New, Some(hold)) = (&entry.claim, &entry.hold) {
            node_holds::place(&mut txn, id, hold).await?;
        }
        joins::upsert(&mut txn, &trace.row(JoinState::Admitted, "admitted", &message, Some(id))).await?;
        let detail = json!({
            "name": name, "pool": entry.place.pool, "token": entry.voucher.token, "by": entry.voucher.by,
            "attested": entry.voucher.attested(),
            "serial": signed.issued.serial, "peer": trace.peer, "identityGeneration": generation,
        });
        audit::append(&mut txn, "join", action, &id.to_string(), &detail).await?;
        wake(&mut txn, id).await?;
        txn.commit().await?;
        tracing::info!(node = %id, %name, pool = %entry.place.pool, serial = %signed.issued.serial, "{message}");
        Ok(signed.answer)
    }

    fn sign(
        &self,
        keyring: &Keyring,
        entry: &Entry<'_>,
        id: NodeId,
        name: &str,
        generation: IdentityGeneration,
    ) -> Signed {
        let now = self.clock.now();
        let issued = keyring
            .issuer
            .issue(entry.csr, id, entry.voucher.kinds.as_deref(), now)
            .expect("a checked request and an own authority make a certificate");
        let identity = JoinIdentity {
            node_id: id,
            node_name: name.to_owned(),
            pool: Some(entry.place.pool.to_string()),
            trust_domain: self.realm.trust_domain.clone(),
            fleet_id: self.realm.fleet_id.clone(),
            identity_generation: generation,
            kinds: entry.voucher.kinds.clone(),
            csr: entry.csr.hash(),
        };
        let (bytes, signature) = self.signer.worker(now).sign_identity(&identity);
        let answer = pb::JoinResponse {
            identity: bytes,
            signature: Some(wire::signature(signature)),
            certificate_chain: wire::chain(&issued.chain),
            trust_bundle: Some(wire::bundle(keyring.newest())),
        };
        Signed { id, issued, answer }
    }
}

async fn insert(txn: &mut Txn, entry: &Entry<'_>, id: NodeId) -> Result<(), Lost> {
    let Entry { place, pool, key, .. } = entry;
    let overlay = place.document.map(NodeOverlay::of).unwrap_or_default();
    let node = NewNode {
        id,
        name: place.name.clone(),
        site: Some(pool.site.clone()),
        pool: Some(place.pool.clone()),
        owner_tenant: pool.owner_tenant.clone(),
        role: pool.class.role(),
        trust: if pool.owner_tenant.is_some() { Trust::TenantOwned } else { Trust::Platform },
        labels: (*overlay.labels).clone(),
        declared: place.document.is_some(),
        hardware_key: key.digest,
        hardware_key_trusted: key.trusted,
        target: documents::target(pool, &overlay),
        overlay: documents::overlay_text(&overlay),
    };
    match nodes::insert(txn, &node).await {
        Ok(()) => Ok(()),
        Err(InsertError::NameTaken(_) | InsertError::HardwareTaken) => Err(Lost::Race),
        Err(InsertError::Db(error)) => Err(error.into()),
    }
}

/// The node stays, with its name, its place and its history; whoever was it before is nobody from now on.
async fn take_over(
    txn: &mut Txn,
    entry: &Entry<'_>,
    resident: &Resident,
    ground: Ground,
    generation: IdentityGeneration,
) -> Result<(), Lost> {
    let node = nodes::lock(txn, resident.id).await?.ok_or(Lost::Race)?;
    let presence = identities::presence_of_locked(txn, node.id).await?;
    if Resident::of(&node, presence) != *resident || node.identity_generation.0 + 1 != generation.0 {
        return Err(Lost::Race);
    }
    if !placements::is_vouched(txn, node.id).await? {
        return Err(Lost::Unvouched(node.name));
    }
    let hardware = Hardware { key: entry.key.digest, trusted: entry.key.trusted };
    if node.hardware_key != hardware.key {
        // What the machine before it proved to be is not this one; what this one proved is recorded with its voucher.
        attestations::forget(txn, node.id, None).await?;
    }
    match identities::take_over(txn, &node, hardware, ground.as_str()).await {
        Ok(()) => Ok(()),
        Err(TakeOverError::Change(nodes::ChangeError::Db(error))) => Err(error.into()),
        Err(TakeOverError::HardwareTaken | TakeOverError::Change(_)) => Err(Lost::Race),
    }
}

async fn use_voucher(txn: &mut Txn, voucher: &Voucher, trace: &Trace<'_>, signed: &Signed) -> Result<(), Lost> {
    let answer = signed.answer.encode_to_vec();
    match voucher.token {
        Some(token) => match join_tokens::consume(txn, token, &trace.request, signed.id, &answer).await {
            Ok(()) => {}
            Err(ConsumeError::Db(error)) => return Err(error.into()),
            Err(_) => return Err(Lost::Race),
        },
        None if join_tokens::answer(txn, &trace.request, signed.id, &answer).await? => {}
        None => return Err(Lost::Race),
    }
    for attested in voucher.attested() {
        match attestations::record(txn, &attested, signed.id).await {
            Ok(()) => {}
            Err(RecordError::Db(error)) => return Err(error.into()),
            Err(RecordError::Elsewhere) => return Err(Lost::Race),
        }
    }
    Ok(())
}

async fn wake(txn: &mut Txn, id: NodeId) -> Result<(), DbError> {
    queue::enqueue(txn, &queue::NODE, [id]).await?;
    queue::enqueue(txn, &queue::NODESPEC, [id]).await
}

pub(super) fn chain(issued: &IssuedCertificate) -> Vec<Vec<u8>> {
    issued.chain.iter().map(|certificate| certificate.to_vec()).collect()
}

/// What goes with the certificates of an identity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Certified<'a> {
    /// What the machine is told that it is called; `None` where it is not told.
    pub(super) name: Option<&'a str>,
    /// The kinds of commands that it accepts.
    pub(super) kinds: Option<&'a [String]>,
}

impl Certified<'_> {
    pub(super) fn row(self, node: NodeId, issued: &IssuedCertificate, generation: IdentityGeneration) -> NodeCert {
        NodeCert {
            serial: issued.serial.to_bytes(),
            node_id: node,
            public_key: issued.public_key.as_bytes().to_vec(),
            identity_generation: generation,
            not_before: issued.not_before,
            not_after: issued.not_after,
            revoked_at: None,
            allowed_kinds: self.kinds.map(<[String]>::to_vec),
            node_name: self.name.map(str::to_owned),
        }
    }
}
