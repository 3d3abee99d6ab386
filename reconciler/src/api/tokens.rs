//! Making API tokens, for the API itself and for whoever starts the control plane.

use pki::token::{Token, TokenKind};
use schema::{id::ApiTokenId, time::Timestamp};
use store::{Db, DbError, api_tokens, audit};

use super::groups::tokens::bare;

/// A token that is not stored yet.
#[derive(Debug)]
pub(super) struct Minted {
    pub(super) row: api_tokens::NewApiToken,
    pub(super) text: String,
}

pub(super) fn mint(name: String, scopes: Vec<String>, expires_at: Option<Timestamp>, created_by: &str) -> Minted {
    let id = ApiTokenId::generate();
    let token = Token::mint(TokenKind::Api, bare(&id.to_string(), ApiTokenId::PREFIX));
    let row =
        api_tokens::NewApiToken { id, hash: token.hash(), name, scopes, expires_at, created_by: created_by.to_owned() };
    Minted { row, text: token.reveal().to_string() }
}

/// Makes an API token outside the API, for the first caller of a new control plane, and answers its text.
///
/// # Errors
/// When the database does not answer.
pub async fn bootstrap(db: &Db, name: &str, scopes: &[&str], actor: &str) -> Result<String, DbError> {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    let minted = mint(name.to_owned(), scopes, None, actor);
    let mut txn = db.begin().await?;
    api_tokens::create(&mut txn, &minted.row).await?;
    let detail = serde_json::json!({ "name": name, "scopes": minted.row.scopes });
    audit::append(&mut txn, actor, "tokens.bootstrap", &minted.row.id.to_string(), &detail).await?;
    txn.commit().await?;
    Ok(minted.text)
}
