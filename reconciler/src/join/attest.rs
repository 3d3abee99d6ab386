//! What vouches for a machine: a join token, or evidence that an attestor checks.
//!
//! An attestor only says that the machine may come in and where to; who it becomes is decided afterwards and alike for all.
//! It is asked when a request brings evidence of its kind instead of a token; without one such a request is refused.

use async_trait::async_trait;
use pki::{Realm, csr::Csr, token::Token};
use proto::agent::v1 as pb;
use schema::{id::JoinTokenId, name::Name, time::Timestamp};
use store::{Db, DbError, join_tokens};

use super::{JoinRefusal, JoinService, Keyring, rules::Expect, wire};

/// Why an attestation does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttestationRefusal {
    /// No attestor of that kind is configured here.
    #[error("this control plane has no attestor {0:?}")]
    NotConfigured(String),
    /// The attestor says no.
    #[error("{0}")]
    Refused(String),
}

impl AttestationRefusal {
    /// The stored word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotConfigured(_) => "attestation-not-configured",
            Self::Refused(_) => "attestation-refused",
        }
    }
}

/// What an attestor looks at.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The request that everything has to be bound to.
    pub csr: &'a Csr,
    /// Trust domain and fleet.
    pub realm: &'a Realm,
    /// The evidence, as it came.
    pub document: &'a [u8],
    /// Now.
    pub now: Timestamp,
}

/// A machine may come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voucher {
    /// The pool that it joins when no document says otherwise.
    pub pool: Name,
    /// What it has to show besides.
    pub expect: Expect,
    /// It may take back a node that has its hardware.
    pub reclaim: bool,
    /// The token to use up.
    pub token: Option<JoinTokenId>,
    /// Who or what vouches, for the audit.
    pub by: String,
}

/// Why nothing vouches for a machine, with what is known by then.
#[derive(Debug, thiserror::Error)]
pub enum VouchError {
    /// It was refused.
    #[error("{refusal}")]
    Refused {
        /// Why.
        refusal: JoinRefusal,
        /// The token, once its secret was right.
        token: Option<JoinTokenId>,
        /// Its pool.
        pool: Option<Name>,
    },
    /// The database did not do its part.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl<R: Into<JoinRefusal>> From<R> for VouchError {
    fn from(refusal: R) -> Self {
        Self::Refused { refusal: refusal.into(), token: None, pool: None }
    }
}

/// Checks one kind of evidence.
#[async_trait]
pub trait Attestor: std::fmt::Debug + Send + Sync {
    /// The word in the request.
    fn kind(&self) -> &'static str;

    /// Says whether the evidence counts, for this request, now.
    async fn vouch(&self, ask: &Ask<'_>) -> Result<Voucher, VouchError>;
}

/// Finds the attestor for a request and asks it.
pub(super) async fn vouch(
    service: &JoinService,
    keyring: &Keyring,
    request: &pb::JoinRequest,
    csr: &Csr,
) -> Result<Voucher, VouchError> {
    let now = service.db.now().await?;
    let ask = |document| Ask { csr, realm: &service.realm, document, now };
    match (&request.token, &request.attestation) {
        (Some(sealed), _) => {
            let token = keyring.open(&wire::sealed(sealed.clone()), csr, &service.realm).map_err(JoinRefusal::from)?;
            JoinTokens { db: &service.db }.good(&token, now).await
        }
        (None, Some(evidence)) => {
            let attestor = service.attestors.iter().find(|attestor| attestor.kind() == evidence.kind);
            let word = || evidence.kind.chars().take(40).collect();
            let attestor = attestor.ok_or_else(|| JoinRefusal::from(AttestationRefusal::NotConfigured(word())))?;
            attestor.vouch(&ask(&evidence.document)).await
        }
        (None, None) => Err(JoinRefusal::NothingVouches.into()),
    }
}

/// Join tokens vouch for whoever has them.
struct JoinTokens<'a> {
    db: &'a Db,
}

impl JoinTokens<'_> {
    async fn good(&self, token: &Token, now: Timestamp) -> Result<Voucher, VouchError> {
        let id: JoinTokenId =
            format!("{}{}", JoinTokenId::PREFIX, token.id()).parse().map_err(|_| JoinRefusal::TokenUnknown)?;
        let row = join_tokens::find(self.db, id).await?.ok_or(JoinRefusal::TokenUnknown)?;
        if !token.matches(&row.token.hash) {
            return Err(JoinRefusal::TokenWrong.into());
        }
        let refuse = |refusal| VouchError::Refused { refusal, token: Some(id), pool: Some(row.token.pool.clone()) };
        if row.revoked_at.is_some() {
            return Err(refuse(JoinRefusal::TokenRevoked));
        }
        if row.token.expires_at <= now {
            return Err(refuse(JoinRefusal::TokenExpired(row.token.expires_at)));
        }
        if row.uses_left == 0 {
            return Err(refuse(JoinRefusal::TokenUsed));
        }
        // Rules that another version wrote and this one cannot read admit nobody.
        let expect = serde_json::from_value(row.token.expect.clone())
            .map_err(|error| refuse(JoinRefusal::TokenExpects(vec![format!("what cannot be read here ({error})")])))?;
        Ok(Voucher {
            pool: row.token.pool.clone(),
            expect,
            reclaim: row.token.reclaim,
            token: Some(id),
            by: format!("token of {}", row.token.created_by),
        })
    }
}
