//! One join, from a sealed token to an answer.
//!
//! Everything that takes time (opening, reading, signing) happens first; then one short transaction takes the token, the
//! name and the hardware, stores the certificate and wakes the controllers. What loses a race there is looked at again,
//! and ends as whatever refusal the winner left.

use pki::{
    csr::{self, Csr},
    hardware::{HardwareKey, JoinClaims},
    issue::IssuedCertificate,
    statement::JoinIdentity,
    token::Token,
};
use prost::Message as _;
use proto::agent::v1 as pb;
use schema::{
    digest::Digest,
    fleet::{Node as NodeDocument, NodeOverlay, kind::Admission},
    generation::IdentityGeneration,
    id::{JoinTokenId, NodeId},
    node::{Hold, Trust},
    object::Kind,
    time::Timestamp,
};
use serde::Deserialize as _;
use serde_json::{Value, json};
use store::{
    Db, DbError, Txn, audit,
    join_tokens::{self, ConsumeError, JoinToken},
    joins::{self, JoinState, NewJoin},
    node_certs::{self, NodeCert},
    node_holds,
    nodes::{self, InsertError, NewNode},
    pools::{self, Pool},
    queue, revisions,
    revisions::{ObjectState, StoredObject},
};

use super::{
    JoinRefusal, JoinService,
    decide::{House, Knock, Place, decide},
    refusal::Standing,
    wire,
};
use crate::plan::cordon;

/// How often a join that loses a race looks again.
const ATTEMPTS: u32 = 3;

/// How a join ended without an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum JoinError {
    /// Refused, held or waiting, and stored as such.
    #[error(transparent)]
    Refused(#[from] JoinRefusal),
    /// Other joins and revisions were faster each time.
    #[error("the control plane was busy with other changes")]
    Busy,
    /// The database did not do its part.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// What is known about a join as it goes along; whatever is known when it ends is stored.
#[derive(Debug)]
struct Trace<'r> {
    request: Digest,
    peer: Option<&'r str>,
    /// The revision whose documents it is decided by.
    revision: u64,
    token: Option<JoinTokenId>,
    pool: Option<String>,
    key: Option<HardwareKey>,
    claims: Option<JoinClaims>,
    conflict: Option<NodeId>,
}

impl<'r> Trace<'r> {
    const fn new(request: Digest, peer: Option<&'r str>) -> Self {
        Self { request, peer, revision: 0, token: None, pool: None, key: None, claims: None, conflict: None }
    }

    fn row(&self, state: JoinState, reason: &str, message: &str, node: Option<NodeId>) -> NewJoin {
        NewJoin {
            csr_hash: self.request,
            state,
            reason: reason.to_owned(),
            message: message.to_owned(),
            pool: self.pool.clone(),
            token_id: self.token,
            hardware_key: self.key.as_ref().and_then(|key| key.digest),
            claims: serde_json::to_value(self.claims.clone().unwrap_or_default()).expect("claims are JSON"),
            node_id: node,
            conflict_with: self.conflict,
            peer: self.peer.map(str::to_owned),
        }
    }
}

/// A machine that may come in, with everything signed.
struct Prepared {
    node: NewNode,
    hold: Option<Hold>,
    issued: IssuedCertificate,
    answer: pb::JoinResponse,
}

/// How the transaction ended, when not by committing.
enum Lost {
    Race,
    Db(DbError),
}

impl From<DbError> for Lost {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

impl JoinService {
    /// Lets a machine in, or says why not.
    pub(super) async fn admit(
        &self,
        request: pb::JoinRequest,
        peer: Option<&str>,
    ) -> Result<pb::JoinResponse, JoinError> {
        let hash = csr::hash(&request.csr);
        let mut attempt = 0;
        loop {
            attempt += 1;
            if let Some(answer) = self.earlier_answer(&hash).await? {
                return Ok(answer);
            }
            let mut trace = Trace::new(hash, peer);
            match self.attempt(&request, &mut trace).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) if attempt < ATTEMPTS => {}
                Ok(None) => return Err(JoinError::Busy),
                Err(JoinError::Refused(refusal)) => {
                    // The same request, admitted by another call meanwhile, is its own duplicate.
                    if let Some(answer) = self.earlier_answer(&hash).await? {
                        return Ok(answer);
                    }
                    self.record(&trace, &refusal).await?;
                    return Err(refusal.into());
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn earlier_answer(&self, hash: &Digest) -> Result<Option<pb::JoinResponse>, DbError> {
        let stored = join_tokens::find_use(&self.db, hash).await?;
        Ok(stored.and_then(|used| pb::JoinResponse::decode(used.answer.as_slice()).ok()))
    }

    /// One try; `None` when another join was faster and everything has to be read again.
    async fn attempt(
        &self,
        request: &pb::JoinRequest,
        trace: &mut Trace<'_>,
    ) -> Result<Option<pb::JoinResponse>, JoinError> {
        let csr = Csr::parse(&request.csr).map_err(JoinRefusal::from)?;
        let claims = JoinClaims::from_bytes(&request.claims).map_err(|_| JoinRefusal::Claims)?;
        let key = claims.hardware_key();
        trace.claims = Some(claims.clone());
        trace.key = Some(key.clone());

        let sealed = wire::sealed(request.token.clone().unwrap_or_default());
        let token = self.join_key.open(&sealed, csr.hash(), &self.realm.fleet_id).map_err(JoinRefusal::from)?;
        let token = self.good_token(&token, trace).await?;

        trace.revision = revisions::latest(&self.db).await?.map_or(0, |revision| revision.seq);
        let documents = in_force::<NodeDocument>(&self.db, Kind::Node).await?;
        let admission = admission(&self.db).await?;
        let plain: Vec<NodeDocument> = documents.iter().map(|(document, _)| document.clone()).collect();
        let knock = Knock { claims: &claims, key: &key, described: request.described, token_pool: &token.token.pool };
        let house = House { dev: self.dev, admission, documents: &plain };
        let place = decide(&knock, &house)?;
        trace.pool = Some(place.pool.to_string());
        self.no_conflict(&place, &key, trace).await?;
        let pool =
            pools::find(&self.db, &place.pool).await?.ok_or_else(|| JoinRefusal::UnknownPool(place.pool.clone()))?;
        let hold = git_hold(&place, &documents, self.db.now().await?);

        let admission = self.prepare(&csr, &key, &place, &pool, hold);
        match self.store(&token, &pool, &admission, trace).await {
            Ok(()) => {
                let NewNode { id, name, .. } = &admission.node;
                tracing::info!(node = %id, name = %name, pool = %place.pool, serial = %admission.issued.serial, "a machine joined");
                Ok(Some(admission.answer))
            }
            Err(Lost::Race) => Ok(None),
            Err(Lost::Db(error)) => Err(error.into()),
        }
    }

    async fn good_token(&self, token: &Token, trace: &mut Trace<'_>) -> Result<JoinToken, JoinError> {
        let id: JoinTokenId =
            format!("{}{}", JoinTokenId::PREFIX, token.id()).parse().map_err(|_| JoinRefusal::TokenUnknown)?;
        let row = join_tokens::find(&self.db, id).await?.ok_or(JoinRefusal::TokenUnknown)?;
        if !token.matches(&row.token.hash) {
            return Err(JoinRefusal::TokenWrong.into());
        }
        trace.token = Some(id);
        trace.pool = Some(row.token.pool.to_string());
        if row.revoked_at.is_some() {
            return Err(JoinRefusal::TokenRevoked.into());
        }
        if row.token.expires_at <= self.db.now().await? {
            return Err(JoinRefusal::TokenExpired(row.token.expires_at).into());
        }
        if row.uses_left == 0 {
            return Err(JoinRefusal::TokenUsed.into());
        }
        Ok(row)
    }

    /// Nobody has this hardware or this name.
    async fn no_conflict(&self, place: &Place<'_>, key: &HardwareKey, trace: &mut Trace<'_>) -> Result<(), JoinError> {
        if let Some(digest) = &key.digest
            && let Some(other) = nodes::find_by_hardware_key(&self.db, digest).await?
        {
            trace.conflict = Some(other.id);
            return Err(JoinRefusal::DuplicateHardware(other.name).into());
        }
        if let Some(other) = nodes::find_by_name(&self.db, &place.name).await? {
            trace.conflict = Some(other.id);
            return Err(JoinRefusal::NameTaken(other.name).into());
        }
        Ok(())
    }

    fn prepare(&self, csr: &Csr, key: &HardwareKey, place: &Place<'_>, pool: &Pool, hold: Option<Hold>) -> Prepared {
        let (id, now) = (NodeId::generate(), self.clock.now());
        let issued =
            self.issuer.issue(csr, id, now).expect("a checked request and an own authority make a certificate");
        let identity = JoinIdentity {
            node_id: id,
            node_name: place.name.to_string(),
            pool: Some(place.pool.to_string()),
            trust_domain: self.realm.trust_domain.clone(),
            fleet_id: self.realm.fleet_id.clone(),
            identity_generation: FIRST_IDENTITY,
            csr: csr.hash(),
        };
        let (bytes, signature) = self.signer.worker(now).sign_identity(&identity);
        let answer = pb::JoinResponse {
            identity: bytes,
            signature: Some(wire::signature(signature)),
            certificate_chain: wire::chain(&issued.chain),
            trust_bundle: Some(wire::bundle(&self.bundle)),
        };
        let overlay = place.document.map(NodeOverlay::of).unwrap_or_default();
        let node = NewNode {
            id,
            name: place.name.clone(),
            site: Some(pool.site.clone()),
            pool: Some(place.pool.clone()),
            owner_tenant: pool.owner_tenant.clone(),
            role: pool.class.role(),
            trust: if pool.owner_tenant.is_some() { Trust::TenantOwned } else { Trust::Platform },
            labels: overlay.labels.clone(),
            declared: place.document.is_some(),
            hardware_key: key.digest,
            hardware_key_trusted: key.trusted,
            target: target(pool, &overlay),
            overlay: overlay_text(&overlay),
        };
        Prepared { node, hold, issued, answer }
    }

    async fn store(&self, token: &JoinToken, pool: &Pool, admission: &Prepared, trace: &Trace<'_>) -> Result<(), Lost> {
        let Prepared { node, hold, issued, answer } = admission;
        let mut txn = self.db.begin().await?;
        // Serialised with apply, which locks the pools first: pool and documents are still those that were read.
        let current = pools::find_shared(&mut txn, &pool.name).await?;
        if current.as_ref() != Some(pool) || revisions::latest_seq(&mut txn).await? != trace.revision {
            return Err(Lost::Race);
        }
        match nodes::insert(&mut txn, node).await {
            Ok(()) => {}
            Err(InsertError::NameTaken(_) | InsertError::HardwareTaken) => return Err(Lost::Race),
            Err(InsertError::Db(error)) => return Err(error.into()),
        }
        match join_tokens::consume(&mut txn, token.token.id, &trace.request, node.id, &answer.encode_to_vec()).await {
            Ok(()) => {}
            Err(ConsumeError::Db(error)) => return Err(error.into()),
            Err(_) => return Err(Lost::Race),
        }
        node_certs::insert(&mut txn, &certificate_row(node.id, issued, FIRST_IDENTITY)).await?;
        if let Some(hold) = hold {
            node_holds::place(&mut txn, node.id, hold).await?;
        }
        let message = format!("joined as {}", node.name);
        joins::upsert(&mut txn, &trace.row(JoinState::Admitted, "admitted", &message, Some(node.id))).await?;
        let detail = json!({ "name": node.name, "pool": node.pool, "token": token.token.id, "serial": issued.serial, "peer": trace.peer });
        audit::append(&mut txn, "join", "nodes.join", &node.id.to_string(), &detail).await?;
        wake(&mut txn, node.id).await?;
        txn.commit().await?;
        Ok(())
    }

    async fn record(&self, trace: &Trace<'_>, refusal: &JoinRefusal) -> Result<(), DbError> {
        let state = match refusal.standing() {
            Standing::Refused => JoinState::Refused,
            Standing::Held => JoinState::Held,
            Standing::Waiting => JoinState::Waiting,
        };
        let message = refusal.to_string();
        tracing::warn!(
            reason = refusal.code(),
            peer = trace.peer,
            pool = trace.pool,
            "a machine did not join: {message}"
        );
        // Held and waiting machines have a good token, and somebody looks for them.
        if state == JoinState::Refused && !self.knocks.take(self.clock.now()) {
            return Ok(());
        }
        let mut txn = self.db.begin().await?;
        joins::upsert(&mut txn, &trace.row(state, refusal.code(), &message, None)).await?;
        txn.commit().await
    }
}

/// The identity that a machine gets when it joins.
const FIRST_IDENTITY: IdentityGeneration = IdentityGeneration(1);

async fn wake(txn: &mut Txn, id: NodeId) -> Result<(), DbError> {
    queue::enqueue(txn, &queue::NODE, [id]).await?;
    queue::enqueue(txn, &queue::NODESPEC, [id]).await
}

pub(super) fn certificate_row(node: NodeId, issued: &IssuedCertificate, generation: IdentityGeneration) -> NodeCert {
    NodeCert {
        serial: issued.serial.to_bytes(),
        node_id: node,
        public_key: issued.public_key.as_bytes().to_vec(),
        identity_generation: generation,
        not_before: issued.not_before,
        not_after: issued.not_after,
        revoked_at: None,
    }
}

/// The pool's target, or the one that the pool has under the profile that the document names.
fn target(pool: &Pool, overlay: &NodeOverlay) -> Option<Digest> {
    match &overlay.profile {
        Some(profile) => pool.profile_targets.get(profile).copied(),
        None => pool.target,
    }
}

fn overlay_text(overlay: &NodeOverlay) -> String {
    let bytes = schema::canonical::to_vec(overlay).expect("an overlay serialises");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// What apply would hold the machine by; a stored document knows only where it begins.
fn git_hold(place: &Place<'_>, documents: &[(NodeDocument, StoredObject)], now: Timestamp) -> Option<Hold> {
    let document = place.document?;
    let hold = cordon(document, Some(now))?;
    let object = documents.iter().find(|(other, _)| other.name == document.name).map(|(_, object)| object);
    Some(Hold { place: object.map(|object| format!("{}:{}", object.file, object.line)), ..hold })
}

async fn admission(db: &Db) -> Result<Admission, DbError> {
    let objects = revisions::objects_of(db, Kind::Fleet).await?;
    let Some(fleet) = objects.into_iter().find(|object| object.state != ObjectState::Removed) else {
        return Ok(Admission::Token);
    };
    // What another version wrote and this one cannot read lets nobody in whom no document describes.
    let said = serde_json::from_str::<Value>(&fleet.doc).and_then(|document| match document.get("admission") {
        Some(word) => Admission::deserialize(word),
        None => Ok(Admission::Token),
    });
    Ok(said.unwrap_or_else(|error| {
        tracing::warn!(object = ?fleet.object, %error, "the admission in force is not readable and is taken as strict");
        Admission::Strict
    }))
}

/// The documents of a kind that are in force. One that this version cannot read describes nobody.
async fn in_force<T: serde::de::DeserializeOwned>(db: &Db, kind: Kind) -> Result<Vec<(T, StoredObject)>, DbError> {
    let objects = revisions::objects_of(db, kind).await?;
    let readable = objects.into_iter().filter(|object| object.state != ObjectState::Removed).filter_map(|object| {
        match serde_json::from_str(&object.doc) {
            Ok(document) => Some((document, object)),
            Err(error) => {
                tracing::warn!(object = ?object.object, %error, "a stored document is not readable");
                None
            }
        }
    });
    Ok(readable.collect())
}
