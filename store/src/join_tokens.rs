//! Join tokens: only a hash is stored. A use is recorded in the transaction that stores the issued certificate.

use jiff_sqlx::ToSqlx;
use schema::{
    digest::Digest,
    id::{JoinTokenId, NodeId},
    name::Name,
    time::Timestamp,
};

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// A token to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJoinToken {
    /// Its public part.
    pub id: JoinTokenId,
    /// SHA-256 of its secret.
    pub hash: Digest,
    /// The pool it admits to.
    pub pool: Name,
    /// How many machines it admits.
    pub uses: u32,
    /// Until when.
    pub expires_at: Timestamp,
    /// What a machine must be, canonical JSON; `{}` for anything.
    pub expect: serde_json::Value,
    /// A machine that is known by its hardware takes its old node back.
    pub reclaim: bool,
    /// The kinds of commands that machines accept which come in by it; `None` for every kind.
    pub kinds: Option<Vec<String>>,
    /// Who made it.
    pub created_by: String,
}

/// A stored token.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinToken {
    /// What was created.
    pub token: NewJoinToken,
    /// How many more machines it admits.
    pub uses_left: u32,
    /// When it was revoked; `None` while it is not.
    pub revoked_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What a certificate request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUse {
    /// The token that was used; `None` when something else vouched.
    pub token_id: Option<JoinTokenId>,
    /// The node that came of it.
    pub node_id: NodeId,
    /// The exact answer.
    pub answer: Vec<u8>,
}

/// Why a token admits nobody.
#[derive(Debug, thiserror::Error)]
pub enum ConsumeError {
    /// No such token.
    #[error("there is no such token")]
    Unknown,
    /// It was revoked.
    #[error("the token was revoked")]
    Revoked,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// It was used as often as it may be.
    #[error("the token has no uses left")]
    Exhausted,
    /// The same certificate request was answered before, or is being answered now: read the answer with [`find_use`].
    #[error("the certificate request was answered before")]
    Answered,
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

// The columns of a Row, once.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT id, hash, pool, uses_max, uses_left, expires_at, revoked_at, expect, reclaim, kinds, created_by, created_at
               FROM join_tokens "# + $tail
            $(, $arg)*
        )
    };
}

/// Creates a token.
///
/// # Errors
/// When the statement fails.
pub async fn create(txn: &mut Txn, token: &NewJoinToken) -> Result<(), DbError> {
    sqlx::query!(
        r#"INSERT INTO join_tokens (id, hash, pool, uses_max, uses_left, expires_at, expect, reclaim, kinds, created_by)
           VALUES ($1, $2, $3, $4, $4, $5, $6, $7, $8, $9)"#,
        token.id.as_uuid(),
        convert::digest_column(&token.hash),
        token.pool.as_str(),
        convert::int(token.uses),
        token.expires_at.to_sqlx() as _,
        token.expect,
        token.reclaim,
        token.kinds.as_deref(),
        token.created_by,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// One token, whatever its state.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, id: JoinTokenId) -> Result<Option<JoinToken>, DbError> {
    rows::find(db.pool(), select!("WHERE id = $1", id.as_uuid())).await
}

/// Every token, newest first.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db) -> Result<Listed<JoinToken>, DbError> {
    rows::list(db.pool(), select!("ORDER BY id DESC LIMIT 1000")).await
}

/// Revokes a token; `false` when there is none or it was revoked before.
///
/// # Errors
/// When the statement fails.
pub async fn revoke(txn: &mut Txn, id: JoinTokenId) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "UPDATE join_tokens SET revoked_at = compute_now() WHERE id = $1 AND revoked_at IS NULL",
        id.as_uuid()
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// What a certificate request was answered; `None` when it was not.
///
/// # Errors
/// When the statement fails.
pub async fn find_use(db: &Db, csr_hash: &Digest) -> Result<Option<TokenUse>, DbError> {
    let row = sqlx::query!(
        "SELECT token_id, node_id, answer FROM token_uses WHERE csr_hash = $1",
        convert::digest_column(csr_hash)
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(|row| TokenUse {
        token_id: row.token_id.map(JoinTokenId::from_uuid),
        node_id: NodeId::from_uuid(row.node_id),
        answer: row.answer,
    }))
}

/// Takes one use of a token and records the answer to the certificate request. The node is inserted before, in the same
/// transaction. The caller has compared the secret with the token's hash.
///
/// # Errors
/// [`ConsumeError`] says why the token admits nobody; the transaction is to be dropped then.
pub async fn consume(
    txn: &mut Txn,
    id: JoinTokenId,
    csr_hash: &Digest,
    node: NodeId,
    answer: &[u8],
) -> Result<(), ConsumeError> {
    let taken = sqlx::query!(
        r#"UPDATE join_tokens
           SET uses_left = uses_left - 1
           WHERE id = $1 AND uses_left > 0 AND revoked_at IS NULL AND expires_at > compute_now()"#,
        id.as_uuid(),
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    let inserted = sqlx::query!(
        "INSERT INTO token_uses (csr_hash, token_id, node_id, answer) SELECT $1, id, $3, $4 FROM join_tokens WHERE id = $2 ON CONFLICT (csr_hash) DO NOTHING",
        convert::digest_column(csr_hash),
        id.as_uuid(),
        node.as_uuid(),
        answer,
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    if taken.rows_affected() == 1 {
        return if inserted.rows_affected() == 1 { Ok(()) } else { Err(ConsumeError::Answered) };
    }
    let row = sqlx::query!(
        r#"SELECT revoked_at IS NOT NULL AS "revoked!", expires_at <= compute_now() AS "expired!" FROM join_tokens WHERE id = $1"#,
        id.as_uuid(),
    )
    .fetch_optional(txn.conn())
    .await
    .map_err(DbError::from)?;
    Err(match row {
        None => ConsumeError::Unknown,
        Some(row) if row.revoked => ConsumeError::Revoked,
        Some(row) if row.expired => ConsumeError::Expired,
        Some(_) => ConsumeError::Exhausted,
    })
}

/// Records the answer to a certificate request for which no token vouched; `false` when it was answered before, or is being
/// answered.
///
/// # Errors
/// When the statement fails.
pub async fn answer(txn: &mut Txn, csr_hash: &Digest, node: NodeId, answer: &[u8]) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "INSERT INTO token_uses (csr_hash, node_id, answer) VALUES ($1, $2, $3) ON CONFLICT (csr_hash) DO NOTHING",
        convert::digest_column(csr_hash),
        node.as_uuid(),
        answer,
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    hash: Vec<u8>,
    pool: String,
    uses_max: i32,
    uses_left: i32,
    expires_at: jiff_sqlx::Timestamp,
    revoked_at: Option<jiff_sqlx::Timestamp>,
    expect: serde_json::Value,
    reclaim: bool,
    kinds: Option<Vec<String>>,
    created_by: String,
    created_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = JoinToken;
    const TABLE: &'static str = "join_tokens";
    const KEY: &'static [&'static str] = &["id"];

    fn read(self) -> Result<JoinToken, DbError> {
        Ok(JoinToken {
            token: NewJoinToken {
                id: JoinTokenId::from_uuid(self.id),
                hash: convert::digest(&self.hash)?,
                pool: convert::word("pool", &self.pool)?,
                uses: convert::count(self.uses_max),
                expires_at: self.expires_at.to_jiff(),
                expect: self.expect,
                reclaim: self.reclaim,
                kinds: self.kinds,
                created_by: self.created_by,
            },
            uses_left: convert::count(self.uses_left),
            revoked_at: convert::time(self.revoked_at),
            created_at: self.created_at.to_jiff(),
        })
    }
}
