//! What the API of this process is opened with: its token, and who may poke the source.

use std::path::Path;

use pki::token::{Token, TokenKind};
use reconciler::{api, source};
use schema::id::ApiTokenId;
use store::{Db, api_tokens};

use super::identity::database;
use crate::{data_dir::ClientFile, exit::Failure};

/// The token in a client file when it still works, else a fresh one that may do everything.
///
/// # Errors
/// When the database does not answer.
pub async fn api_token(db: &Db, file: &Path, actor: &str) -> Result<String, Failure> {
    let what = "cannot make an API token";
    match ClientFile::read(file) {
        Ok(Some(client)) if still_works(db, &client.token).await.map_err(database(what))? => return Ok(client.token),
        Ok(_) => {}
        Err(failure) => tracing::warn!(error = %failure, "the client file is made anew"),
    }
    api::tokens::bootstrap(db, "client.json", &["*"], actor).await.map_err(database(what))
}

async fn still_works(db: &Db, text: &str) -> Result<bool, store::DbError> {
    let Ok(token) = Token::parse(TokenKind::Api, text) else { return Ok(false) };
    let Ok(id) = format!("{}{}", ApiTokenId::PREFIX, token.id()).parse() else { return Ok(false) };
    Ok(api_tokens::find_valid(db, id).await?.is_some_and(|stored| token.matches(&stored.token.hash)))
}

/// Who may poke the source over HTTP: whoever has `BETTER_COMPUTE_WEBHOOK_SECRET`.
#[must_use]
pub fn webhook() -> Option<api::Webhook> {
    let secret = std::env::var("BETTER_COMPUTE_WEBHOOK_SECRET").ok().filter(|secret| !secret.is_empty())?;
    Some(api::Webhook { source: source::FLEET.to_owned(), secret })
}
