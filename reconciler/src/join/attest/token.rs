//! The join token: somebody gave it to this machine.

use pki::token;
use schema::id::JoinTokenId;
use store::join_tokens;

use super::{Attestor, Case, JoinRefusal, Testimony};

/// A token that a machine has, with what is stored of it.
#[derive(Debug)]
pub(in crate::join) struct Shown {
    pub(in crate::join) token: token::Token,
    pub(in crate::join) stored: Option<join_tokens::JoinToken>,
}

impl Shown {
    /// The id that a token's text names.
    pub(in crate::join) fn id(token: &token::Token) -> Option<JoinTokenId> {
        format!("{}{}", JoinTokenId::PREFIX, token.id()).parse().ok()
    }

    /// What is stored of it, once its secret is right.
    pub(in crate::join) fn known(&self) -> Option<&join_tokens::NewJoinToken> {
        let stored = self.stored.as_ref()?;
        self.token.matches(&stored.token.hash).then_some(&stored.token)
    }
}

pub(super) struct Token;

impl Attestor for Token {
    fn attest(&self, case: &Case<'_>) -> Result<Option<Testimony>, JoinRefusal> {
        let Some(shown) = case.token else { return Ok(None) };
        let stored = shown.stored.as_ref().ok_or(JoinRefusal::TokenUnknown)?;
        let token = shown.known().ok_or(JoinRefusal::TokenWrong)?;
        if stored.revoked_at.is_some() {
            return Err(JoinRefusal::TokenRevoked);
        }
        if token.expires_at <= case.now {
            return Err(JoinRefusal::TokenExpired(token.expires_at));
        }
        if stored.uses_left == 0 {
            return Err(JoinRefusal::TokenUsed);
        }
        // Rules that another version wrote and this one cannot read admit nobody.
        let expect = serde_json::from_value(token.expect.clone())
            .map_err(|error| JoinRefusal::TokenExpects(vec![format!("what cannot be read here ({error})")]))?;
        Ok(Some(Testimony::Token {
            id: token.id,
            pool: token.pool.clone(),
            expect,
            reclaim: token.reclaim,
            kinds: token.kinds.clone(),
            by: format!("token of {}", token.created_by),
        }))
    }
}
