//! What vouches for a machine: a join token. It says that the machine may come in and where to; who it becomes is decided
//! afterwards and alike for all.

use pki::{csr::Csr, token::Token};
use proto::agent::v1 as pb;
use schema::{id::JoinTokenId, name::Name, time::Timestamp};
use store::{DbError, join_tokens};

use super::{JoinRefusal, JoinService, Keyring, rules::Expect, wire};

/// A machine may come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Voucher {
    /// The pool that it joins when no document says otherwise.
    pub(super) pool: Name,
    /// What it has to show besides.
    pub(super) expect: Expect,
    /// It may take back a node that has its hardware.
    pub(super) reclaim: bool,
    /// The token to use up.
    pub(super) token: JoinTokenId,
    /// Who vouches, for the audit.
    pub(super) by: String,
}

/// Why nothing vouches for a machine, with what is known by then.
#[derive(Debug, thiserror::Error)]
pub(super) enum VouchError {
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

impl JoinService {
    /// Opens the token of a request and judges it.
    pub(super) async fn voucher(
        &self,
        keyring: &Keyring,
        request: &pb::JoinRequest,
        csr: &Csr,
    ) -> Result<Voucher, VouchError> {
        let sealed = request.token.clone().ok_or(JoinRefusal::NoToken)?;
        let token = keyring.open(&wire::sealed(sealed), csr, &self.realm).map_err(JoinRefusal::from)?;
        self.good(&token, self.db.now().await?).await
    }

    async fn good(&self, token: &Token, now: Timestamp) -> Result<Voucher, VouchError> {
        let id: JoinTokenId =
            format!("{}{}", JoinTokenId::PREFIX, token.id()).parse().map_err(|_| JoinRefusal::TokenUnknown)?;
        let row = join_tokens::find(&self.db, id).await?.ok_or(JoinRefusal::TokenUnknown)?;
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
            token: id,
            by: format!("token of {}", row.token.created_by),
        })
    }
}
