//! One join, from a sealed token or evidence to an answer.
//!
//! Everything that takes time (opening, reading, signing) happens first; then one short transaction takes the token, the
//! name and the hardware, stores the certificate and wakes the controllers ([`super::enter`]). What loses a race there is
//! looked at again, and ends as whatever refusal the winner left.

use pki::{
    attest::{Binding, tpm},
    csr::{self, Csr},
    hardware::{HardwareKey, JoinClaims},
};
use prost::Message as _;
use proto::agent::v1 as pb;
use schema::{
    attested::Attested,
    digest::Digest,
    id::{JoinTokenId, NodeId},
};
use store::{
    DbError, attestations, identities, join_tokens,
    joins::{self, Approval, JoinKind, JoinState, NewJoin},
    nodes, pools, revisions,
};

use super::{
    JoinRefusal, JoinService, Keyring,
    attest::{self, Case, Evidence, Rule, Shown},
    claim::{Resident, Residents, claim},
    decide::{House, Knock, Place, decide},
    documents,
    enter::{Entry, Lost},
    refusal::Standing,
    voucher::Voucher,
    wire,
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
    attested: Vec<Attested>,
    conflict: Option<NodeId>,
}

impl<'r> Trace<'r> {
    const fn new(request: Digest, peer: Option<&'r str>) -> Self {
        Self {
            request,
            peer,
            revision: 0,
            token: None,
            pool: None,
            key: None,
            claims: None,
            attested: Vec::new(),
            conflict: None,
        }
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
            attested: self.attested.clone(),
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
        trace.revision = revisions::latest(&self.db).await?.map_or(0, |revision| revision.seq);
        let said = self.documents.of(&self.db, trace.revision).await?;
        let voucher = self.vouch(&keyring, request, &csr, &said.rules, trace).await?;
        let attested = voucher.attested();
        trace.attested.clone_from(&attested);
        let before = joins::find_by_csr(&self.db, &csr.hash()).await?;
        // A word holds for the machine that was seen.
        let is_seen = |seen: JoinClaims| seen.is_same_machine(&claims);
        let seen = before.as_ref().filter(|join| serde_json::from_value(join.join.claims.clone()).is_ok_and(is_seen));
        let approval = seen.and_then(|join| join.approval.clone());

        let knock = Knock {
            claims: &claims,
            key: &key,
            described: request.described,
            pool: voucher.pool(),
            vouched: voucher.vouched(),
            attested: &attested,
            request: csr.hash(),
            approved: approval.is_some(),
        };
        let place = decide(&knock, &House { dev: self.dev, admission: said.admission, documents: &said.nodes })?;
        trace.pool = Some(place.pool.to_string());
        let unmet = voucher.expect.unmet(&claims, &key, &place.name, &attested);
        if !unmet.is_empty() {
            return Err(JoinRefusal::TokenExpects(unmet).into());
        }
        let named: Vec<Attested> = place
            .document
            .into_iter()
            .flat_map(|document| &document.attested)
            .map(|named| named.value.clone())
            .collect();
        voucher.believed(&named, &place.pool)?;
        let missing = said.rules.iter().filter(|rule| rule.is_required() && rule.pool == place.pool);
        let missing: Vec<_> = missing.filter(|rule| !voucher.satisfies(rule, &named)).map(|rule| rule.kind).collect();
        if !missing.is_empty() {
            return Err(JoinRefusal::AttestationRequired { pool: place.pool.clone(), kinds: missing }.into());
        }
        let residents = self.residents(&place, &key, approval.as_ref(), trace).await?;
        let residents = Residents { asked: before.map(|join| join.created_at), ..residents };
        let claim = claim(&place, &key, voucher.reclaim, &residents)?;
        let pool =
            pools::find(&self.db, &place.pool).await?.ok_or_else(|| JoinRefusal::UnknownPool(place.pool.clone()))?;
        let hold = documents::git_hold(&place, &said, self.db.now().await?);

        let entry = Entry { csr: &csr, key: &key, place: &place, pool: &pool, voucher: &voucher, claim, hold };
        match self.enter(&keyring, entry, trace).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Lost::Race) => Ok(None),
            Err(Lost::Unvouched(node)) => Err(JoinRefusal::ReclaimUnvouched(node).into()),
            Err(Lost::Db(error)) => Err(error.into()),
        }
    }

    /// What vouches for the machine.
    async fn vouch(
        &self,
        keyring: &Keyring,
        request: &pb::JoinRequest,
        csr: &Csr,
        rules: &[Rule],
        trace: &mut Trace<'_>,
    ) -> Result<Voucher, JoinError> {
        let token = self.shown(keyring, request, csr).await?;
        if let Some(known) = token.as_ref().and_then(Shown::known) {
            trace.token = Some(known.id);
            trace.pool = Some(known.pool.to_string());
        }
        let evidence = self.evidence(keyring, request, csr)?;
        let case = Case {
            binding: Binding { realm: &self.realm, csr: csr.hash(), challenge: &request.challenge },
            token: token.as_ref(),
            evidence: &evidence,
            rules,
            now: self.db.now().await?,
        };
        let voucher = Voucher::weigh(attest::hear(&case)?)?;
        if trace.pool.is_none() {
            trace.pool = voucher.pool().ok().map(|pool| pool.to_string());
        }
        Ok(voucher)
    }

    /// The token of a request, with what is stored of it.
    async fn shown(&self, keyring: &Keyring, request: &pb::JoinRequest, csr: &Csr) -> Result<Option<Shown>, JoinError> {
        let Some(sealed) = request.token.clone().map(wire::sealed) else { return Ok(None) };
        let token =
            keyring.open(|key| key.open(&sealed, csr.hash(), &self.realm.fleet_id)).map_err(JoinRefusal::from)?;
        let stored = match Shown::id(&token) {
            Some(id) => join_tokens::find(&self.db, id).await?,
            None => None,
        };
        Ok(Some(Shown { token, stored }))
    }

    /// The evidence of a request, made for a challenge that was given for it.
    fn evidence(&self, keyring: &Keyring, request: &pb::JoinRequest, csr: &Csr) -> Result<Evidence, JoinRefusal> {
        let Some(sealed) = request.evidence.clone().map(wire::sealed) else { return Ok(Evidence::default()) };
        let opened = keyring.open(|key| key.open_evidence(&sealed, csr.hash(), &self.realm.fleet_id))?;
        let secret = |label: &[u8]| keyring.join_challenges.secret(&request.challenge, csr.hash().as_bytes(), label);
        let evidence = Evidence::read(&opened, secret)?;
        if evidence.needs_challenge() {
            keyring.join_challenges.check(&request.challenge, csr.hash().as_bytes(), self.clock.now())?;
        }
        Ok(evidence)
    }

    /// What evidence for this request has to be made for. Nothing is kept: what follows from it is computed again.
    pub(super) fn join_challenge(
        &self,
        request: pb::JoinChallengeRequest,
    ) -> Result<pb::JoinChallengeResponse, JoinRefusal> {
        let csr: [u8; 32] = request.csr_hash.as_slice().try_into().map_err(|_| JoinRefusal::Evidence)?;
        let keyring = self.keyring();
        let challenge = keyring.join_challenges.give(csr, self.clock.now());
        let tpm = match request.tpm.map(attest::keys_of) {
            Some(keys) => {
                let secret = keyring.join_challenges.secret(&challenge, csr, &tpm::label(&keys)?);
                let tpm::Credential { blob, secret } = tpm::credential(&keys, &secret)?;
                Some(pb::TpmCredential { blob, secret })
            }
            None => None,
        };
        Ok(pb::JoinChallengeResponse { challenge, tpm })
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
            Some(digest) if key.trusted || (approval.is_none() && trace.attested.is_empty()) => {
                nodes::find_by_hardware_key(&self.db, digest).await?
            }
            _ => None,
        };
        let by_name = nodes::find_by_name(&self.db, &place.name).await?;
        let approved = match approval.and_then(|approval| approval.as_node) {
            Some(id) => nodes::find(&self.db, id).await?,
            None => None,
        };
        let mut attested_as = Vec::new();
        for attested in &trace.attested {
            let Some(id) = attestations::node_of(&self.db, attested).await? else { continue };
            let owner = nodes::find(&self.db, id).await?;
            attested_as.extend(self.resident(owner.as_ref()).await?.map(|owner| (owner, attested.kind)));
        }
        let owner = attested_as.first().map(|(owner, _)| owner.id);
        trace.conflict = owner.or(by_hardware.as_ref().or(by_name.as_ref()).map(|node| node.id));
        Ok(Residents {
            by_hardware: self.resident(by_hardware.as_ref()).await?,
            by_name: self.resident(by_name.as_ref()).await?,
            approved: self.resident(approved.as_ref()).await?.zip(approval.map(|approval| approval.at)),
            attested_as,
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
        let row = trace.row(state, refusal.code(), &message, None);
        // The others have a good token, and somebody looks for them.
        if joins::is_anybodys(&row) && !self.knocks.take(self.clock.now()) {
            return Ok(());
        }
        let mut txn = self.db.begin().await?;
        joins::upsert(&mut txn, &row).await?;
        txn.commit().await
    }
}
