//! Who calls, and whether they may.
//!
//! [`identify`] turns a token into a [`Caller`]; [`authorize`] is the one place that decides. Policies from the fleet
//! repository decide there one day; scopes of tokens decide there until then.

use axum::http::{HeaderMap, header::AUTHORIZATION};
use pki::token::{Token, TokenKind};
use schema::id::ApiTokenId;
use store::{Db, api_tokens};

use super::{ApiError, Code};

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The stable identity, for idempotency and audit: `token/tok_…`.
    pub identity: String,
    /// The name that the token was given.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<String>,
}

/// Finds the caller behind a request.
///
/// # Errors
/// UNAUTHENTICATED, in the same words whatever is wrong with a token that is not known here.
pub async fn identify(db: &Db, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let refuse = |message: &str| ApiError::new(Code::Unauthenticated, message);
    let unknown = || refuse("the token is not known, has expired or was revoked");
    let header = headers.get(AUTHORIZATION).ok_or_else(|| {
        refuse("this needs an API token").why("send it as `Authorization: Bearer bcat_…`; `tokens.createApi` makes one")
    })?;
    let text = header.to_str().ok().and_then(bearer).ok_or_else(unknown)?;
    let token = Token::parse(TokenKind::Api, text).map_err(|_| unknown())?;
    let id: ApiTokenId = format!("{}{}", ApiTokenId::PREFIX, token.id()).parse().map_err(|_| unknown())?;
    let stored = api_tokens::find_valid(db, id).await?.ok_or_else(unknown)?;
    if !token.matches(&stored.token.hash) {
        return Err(unknown());
    }
    api_tokens::touch(db, id).await?;
    Ok(Caller { identity: format!("token/{id}"), name: stored.token.name, scopes: stored.token.scopes })
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Decides whether `caller` may do what needs `scope` to `subject`.
///
/// # Errors
/// ACCESS_DENIED, with the scope that is missing.
pub fn authorize(caller: &Caller, scope: &str, subject: &str) -> Result<(), ApiError> {
    if caller.scopes.iter().any(|held| covers(held, scope)) {
        return Ok(());
    }
    let message = format!("this token may not do that to {subject}");
    let held = if caller.scopes.is_empty() { "none".to_owned() } else { caller.scopes.join(", ") };
    Err(ApiError::new(Code::AccessDenied, message)
        .why(format!("it needs the scope {scope}; the token {} has {held}", caller.name)))
}

/// Whether a text can be a scope: `*`, `group:*`, `group:read`, `group:write`, or `plans:preview`, which is of no other use.
#[must_use]
pub fn is_scope(text: &str) -> bool {
    text == "*"
        || text == "plans:preview"
        || text.split_once(':').is_some_and(|(group, access)| {
            group.starts_with(|letter: char| letter.is_ascii_lowercase())
                && group.bytes().all(|byte| byte.is_ascii_alphabetic())
                && ["*", "read", "write"].contains(&access)
        })
}

/// Whether a held scope covers a wanted one. Who may write may also read.
#[must_use]
pub fn covers(held: &str, wanted: &str) -> bool {
    if held == "*" || held == wanted {
        return true;
    }
    let (Some((held_group, held_access)), Some((group, access))) = (held.split_once(':'), wanted.split_once(':'))
    else {
        return false;
    };
    held_group == group && (held_access == "*" || (held_access == "write" && access == "read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_covers_its_group_and_nothing_else() {
        for (held, wanted, covered) in [
            ("*", "tokens:write", true),
            ("nodes:*", "nodes:write", true),
            ("nodes:write", "nodes:read", true),
            ("nodes:read", "nodes:write", false),
            ("nodes:*", "tokens:read", false),
            ("nodes", "nodes:read", false),
            ("", "nodes:read", false),
            ("plans:preview", "plans:preview", true),
            ("plans:preview", "plans:read", false),
            ("plans:read", "plans:preview", false),
            ("plans:write", "plans:preview", false),
            ("plans:*", "plans:preview", true),
        ] {
            assert_eq!(covers(held, wanted), covered, "{held} {wanted}");
        }
    }

    #[test]
    fn only_known_forms_are_scopes() {
        for good in ["*", "nodes:read", "nodes:write", "tokens:*", "plans:preview"] {
            assert!(is_scope(good), "{good}");
        }
        for bad in ["", "nodes", "nodes:", ":read", "nodes:delete", "nodes:preview", "Nodes:read", "**"] {
            assert!(!is_scope(bad), "{bad}");
        }
    }
}
