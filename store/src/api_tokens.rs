//! API tokens: hashed, scoped, expiring.

use schema::{digest::Digest, id::ApiTokenId, time::Timestamp};

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// A token to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApiToken {
    /// Its public part.
    pub id: ApiTokenId,
    /// SHA-256 of its secret.
    pub hash: Digest,
    /// What it is for, for people.
    pub name: String,
    /// What it may do, for example `nodes:read`.
    pub scopes: Vec<String>,
    /// Until when; `None` for ever.
    pub expires_at: Option<Timestamp>,
    /// Who made it.
    pub created_by: String,
}

/// A stored token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    /// What was created.
    pub token: NewApiToken,
    /// When it was revoked; `None` while it is not.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Creates a token.
///
/// # Errors
/// When the statement fails.
pub async fn create(txn: &mut Txn, token: &NewApiToken) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO api_tokens (id, hash, name, scopes, expires_at, created_by) VALUES ($1, $2, $3, $4, $5, $6)",
        token.id.as_uuid(),
        convert::digest_column(&token.hash),
        token.name,
        &token.scopes,
        convert::time_column(token.expires_at) as _,
        token.created_by,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// A token that works now: it exists, is not revoked and has not expired.
///
/// # Errors
/// When the statement fails.
pub async fn find_valid(db: &Db, id: ApiTokenId) -> Result<Option<ApiToken>, DbError> {
    rows::find(
        db.pool(),
        sqlx::query_as!(
            Row,
            r#"SELECT id, hash, name, scopes, expires_at, revoked_at, last_used_at, created_by, created_at
           FROM api_tokens
           WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > compute_now())"#,
            id.as_uuid(),
        ),
    )
    .await
}

/// Every token, newest first.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db) -> Result<Listed<ApiToken>, DbError> {
    rows::list(
        db.pool(),
        sqlx::query_as!(
            Row,
            r#"SELECT id, hash, name, scopes, expires_at, revoked_at, last_used_at, created_by, created_at
           FROM api_tokens
           ORDER BY id DESC
           LIMIT 1000"#,
        ),
    )
    .await
}

/// Revokes a token; `false` when there is none or it was revoked before.
///
/// # Errors
/// When the statement fails.
pub async fn revoke(txn: &mut Txn, id: ApiTokenId) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "UPDATE api_tokens SET revoked_at = compute_now() WHERE id = $1 AND revoked_at IS NULL",
        id.as_uuid()
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Notes that a token was used, at most once a minute.
///
/// # Errors
/// When the statement fails.
pub async fn touch(db: &Db, id: ApiTokenId) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE api_tokens SET last_used_at = compute_now()
           WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < compute_now() - interval '1 minute')"#,
        id.as_uuid(),
    )
    .execute(db.pool())
    .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    hash: Vec<u8>,
    name: String,
    scopes: Vec<String>,
    expires_at: Option<jiff_sqlx::Timestamp>,
    revoked_at: Option<jiff_sqlx::Timestamp>,
    last_used_at: Option<jiff_sqlx::Timestamp>,
    created_by: String,
    created_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = ApiToken;
    const TABLE: &'static str = "api_tokens";
    const KEY: &'static [&'static str] = &["name", "id"];

    fn read(self) -> Result<ApiToken, DbError> {
        Ok(ApiToken {
            token: NewApiToken {
                id: ApiTokenId::from_uuid(self.id),
                hash: convert::digest(&self.hash)?,
                name: self.name,
                scopes: self.scopes,
                expires_at: convert::time(self.expires_at),
                created_by: self.created_by,
            },
            revoked_at: convert::time(self.revoked_at),
            last_used_at: convert::time(self.last_used_at),
            created_at: self.created_at.to_jiff(),
        })
    }
}
