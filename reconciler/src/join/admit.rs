//! One join, from a sealed token to an answer.
//!
//! Everything that takes time (opening, reading, signing) happens first; then one short transaction takes the token, the
//! name and the hardware, stores the certificate and wakes the controllers ([`super::enter`]). What loses a race there is
//! looked at again, and ends as whatever refusal the winner left.

use pki::{
    csr::{self, Csr},
    hardware::{HardwareKey, JoinClaims},
};
use prost::Message as _;
use proto::agent::v1 as pb;
use schema::{
    digest::Digest,
    fleet::Node as NodeDocument,
    id::{JoinTokenId, NodeId},
    object::Kind,
};
use store::{
    DbError, identities, join_tokens,
    joins::{self, Approval, JoinKind, JoinState, NewJoin},
    nodes, pools, revisions,
};

use super::{
    JoinRefusal, JoinService, Keyring,
    claim::{Resident, Residents, claim},
    decide::{House, Knock, Place, decide},
    documents,
    enter::{Entry, Lost},
    refusal::Standing,
    voucher::{VouchError, Voucher},
};

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
pub(super) struct Trace<'r> {
    pub(super) request: Digest,
    pub(super) peer: Option<&'r str>,
    /// The revision whose documents it is decided by.
    pub(super) revision: u64,
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

    pub(super) fn row(&self, state: JoinState, reason: &str, message: &str, node: Option<NodeId>) -> NewJoin {
        NewJoin {
            kind: JoinKind::Join,
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
        let keyring = self.keyring();
        let csr = Csr::parse(&request.csr).map_err(JoinRefusal::from)?;
        let claims = JoinClaims::from_bytes(&request.claims).map_err(|_| JoinRefusal::Claims)?;
        let key = claims.hardware_key();
        trace.claims = Some(claims.clone());
        trace.key = Some(key.clone());
        let voucher = self.vouch(&keyring, request, &csr, trace).await?;
        let before = joins::find_by_csr(&self.db, &csr.hash()).await?;
        let approval = before.as_ref().and_then(|join| join.approval.clone());

        trace.revision = revisions::latest(&self.db).await?.map_or(0, |revision| revision.seq);
        let documents = documents::in_force::<NodeDocument>(&self.db, Kind::Node).await?;
        let admission = documents::admission(&self.db).await?;
        let plain: Vec<NodeDocument> = documents.iter().map(|(document, _)| document.clone()).collect();
        let knock = Knock {
            claims: &claims,
            key: &key,
            described: request.described,
            token_pool: &voucher.pool,
            request: csr.hash(),
            approved: approval.is_some(),
        };
        let place = decide(&knock, &House { dev: self.dev, admission, documents: &plain })?;
        trace.pool = Some(place.pool.to_string());
        let unmet = voucher.expect.unmet(&claims, &key, &place.name);
        if !unmet.is_empty() {
            return Err(JoinRefusal::TokenExpects(unmet).into());
        }
        let residents = self.residents(&place, &key, approval.as_ref(), trace).await?;
        let residents = Residents { asked: before.map(|join| join.created_at), ..residents };
        let claim = claim(&place, &key, voucher.reclaim, &residents)?;
        let pool =
            pools::find(&self.db, &place.pool).await?.ok_or_else(|| JoinRefusal::UnknownPool(place.pool.clone()))?;
        let hold = documents::git_hold(&place, &documents, self.db.now().await?);

        let entry = Entry { csr: &csr, key: &key, place: &place, pool: &pool, voucher: &voucher, claim, hold };
        match self.enter(&keyring, entry, trace).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Lost::Race) => Ok(None),
            Err(Lost::Db(error)) => Err(error.into()),
        }
    }

    /// What vouches for the machine.
    async fn vouch(
        &self,
        keyring: &Keyring,
        request: &pb::JoinRequest,
        csr: &Csr,
        trace: &mut Trace<'_>,
    ) -> Result<Voucher, JoinError> {
        let vouched = self.voucher(keyring, request, csr).await;
        let (token, pool) = match &vouched {
            Ok(voucher) => (Some(voucher.token), Some(&voucher.pool)),
            Err(VouchError::Refused { token, pool, .. }) => (*token, pool.as_ref()),
            Err(VouchError::Db(_)) => (None, None),
        };
        trace.token = token;
        trace.pool = pool.map(ToString::to_string);
        vouched.map_err(|error| match error {
            VouchError::Refused { refusal, .. } => refusal.into(),
            VouchError::Db(error) => error.into(),
        })
    }

    /// Who has this hardware or this name already, and who a person said that this machine is.
    async fn residents(
        &self,
        place: &Place<'_>,
        key: &HardwareKey,
        approval: Option<&Approval>,
        trace: &mut Trace<'_>,
    ) -> Result<Residents, DbError> {
        let by_hardware = match &key.digest {
            // A weak key is shared by many machines that have nothing else in common.
            Some(digest) if key.trusted || approval.is_none() => nodes::find_by_hardware_key(&self.db, digest).await?,
            _ => None,
        };
        let by_name = nodes::find_by_name(&self.db, &place.name).await?;
        let approved = match approval.and_then(|approval| approval.as_node) {
            Some(id) => nodes::find(&self.db, id).await?,
            None => None,
        };
        trace.conflict = by_hardware.as_ref().or(by_name.as_ref()).map(|node| node.id);
        Ok(Residents {
            by_hardware: self.resident(by_hardware.as_ref()).await?,
            by_name: self.resident(by_name.as_ref()).await?,
            approved: self.resident(approved.as_ref()).await?.zip(approval.map(|approval| approval.at)),
            asked: None,
        })
    }

    async fn resident(&self, node: Option<&nodes::Node>) -> Result<Option<Resident>, DbError> {
        let Some(node) = node else { return Ok(None) };
        Ok(Some(Resident::of(node, identities::presence(&self.db, node.id).await?)))
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
