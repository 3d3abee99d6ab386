//! Attempts to join that people should see: waiting, held, refused, and what became of them.

use std::{fmt, str::FromStr};

use schema::{
    attested::Attested,
    digest::Digest,
    id::{JoinId, JoinTokenId, NodeId},
    time::Timestamp,
};

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinState {
    /// A document or a person must admit the machine.
    Waiting,
    /// The machine looks like another one; somebody must decide.
    Held,
    /// It was turned away.
    Refused,
    /// It is a node now.
    Admitted,
}

impl JoinState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Held, Self::Refused, Self::Admitted];

    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Refused => "refused",
            Self::Admitted => "admitted",
        }
    }
}

impl fmt::Display for JoinState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// No state and no kind has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no state and no kind of a join")]
pub struct UnknownJoinWord(String);

impl FromStr for JoinState {
    type Err = UnknownJoinWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| UnknownJoinWord(text.chars().take(40).collect()))
    }
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// To come in.
    Join,
    /// A new certificate, later than a machine gets one by itself.
    Renewal,
}

impl JoinKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Join, Self::Renewal];

    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Renewal => "renewal",
        }
    }
}

impl FromStr for JoinKind {
    type Err = UnknownJoinWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| UnknownJoinWord(text.chars().take(40).collect()))
    }
}

/// Somebody looked, and the next try of the same request is let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
    /// The node that the machine becomes, in place.
    pub as_node: Option<NodeId>,
}

/// An attempt, as the join service saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJoin {
    /// What was asked for.
    pub kind: JoinKind,
    /// What became of it.
    pub state: JoinState,
    /// Why, kebab-case and stable.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// The pool that the token names.
    pub pool: Option<String>,
    /// The token; `None` when it could not be opened.
    pub token_id: Option<JoinTokenId>,
    /// The digest of the certificate request: one row each.
    pub csr_hash: Digest,
    /// SHA-256 over the machine's normalised identifiers.
    pub hardware_key: Option<Digest>,
    /// What the machine claims to be, canonical JSON.
    pub claims: serde_json::Value,
    /// What it proved to be.
    pub attested: Vec<Attested>,
    /// The node it became or asks to be.
    pub node_id: Option<NodeId>,
    /// The node that it collides with.
    pub conflict_with: Option<NodeId>,
    /// Where it called from.
    pub peer: Option<String>,
}

/// A stored attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// Its id.
    pub id: JoinId,
    /// What was seen last.
    pub join: NewJoin,
    /// That somebody let it through, while that was not used.
    pub approval: Option<Approval>,
    /// How often the same request came.
    pub attempts: u32,
    /// When it came first.
    pub created_at: Timestamp,
    /// When it came last.
    pub updated_at: Timestamp,
}

// The columns of a Row, once.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT id, state, reason, message, pool, token_id, csr_hash, hardware_key, claims, node_id, conflict_with, peer,
                      kind, approved_at, approved_by, approved_as, attempts, attested, created_at, updated_at
               FROM joins "# + $tail
            $(, $arg)*
        )
    };
}

/// Whether anybody at all can have caused it: it was turned away, or waits without a good token.
#[must_use]
pub fn is_anybodys(join: &NewJoin) -> bool {
    let waits = join.state == JoinState::Waiting && join.kind == JoinKind::Join;
    join.state == JoinState::Refused || waits && join.token_id.is_none()
}

/// Stores an attempt, or what became of the same request since, and answers its id. One that was admitted stays so; a renewal
/// that was let through may wait anew. An approval is for the machine that was seen: it ends when the next try shows another
/// one, or is refused. Of those that anybody can cause the newest thousand are kept: anybody may knock.
///
/// # Errors
/// When the statement fails.
pub async fn upsert(txn: &mut Txn, join: &NewJoin) -> Result<JoinId, DbError> {
    let id = sqlx::query_scalar!(
        r#"INSERT INTO joins AS j (id, state, reason, message, pool, token_id, csr_hash, hardware_key, claims, node_id, conflict_with, peer, kind, attested)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
           ON CONFLICT (csr_hash) DO UPDATE
           SET state = EXCLUDED.state, reason = EXCLUDED.reason, message = EXCLUDED.message, pool = EXCLUDED.pool,
               token_id = EXCLUDED.token_id, hardware_key = EXCLUDED.hardware_key, claims = EXCLUDED.claims,
               attested = EXCLUDED.attested, node_id = EXCLUDED.node_id, conflict_with = EXCLUDED.conflict_with, peer = EXCLUDED.peer,
               attempts = j.attempts + 1,
               updated_at = CASE WHEN 'admitted' = ALL (ARRAY[EXCLUDED.state, j.state]) THEN j.updated_at ELSE compute_now() END,
               approved_at = CASE
                   WHEN EXCLUDED.state IN ('admitted', 'refused') OR j.state = 'admitted'
                     OR EXCLUDED.claims -> 'dmi' IS DISTINCT FROM j.claims -> 'dmi'
                     OR jsonb_path_query_array(EXCLUDED.claims, '$.nics[*].mac')
                        <> jsonb_path_query_array(j.claims, '$.nics[*].mac')
                   THEN NULL ELSE j.approved_at END
           WHERE j.state <> 'admitted' OR j.kind = 'renewal'
           RETURNING id"#,
        JoinId::generate().as_uuid(),
        join.state.as_str(),
        join.reason,
        join.message,
        join.pool,
        join.token_id.map(JoinTokenId::as_uuid),
        convert::digest_column(&join.csr_hash),
        join.hardware_key.as_ref().map(convert::digest_column),
        join.claims,
        join.node_id.map(NodeId::as_uuid),
        join.conflict_with.map(NodeId::as_uuid),
        join.peer,
        join.kind.as_str(),
        &join.attested.iter().map(ToString::to_string).collect::<Vec<_>>(),
    )
    .fetch_optional(txn.conn())
    .await?;
    if is_anybodys(join) {
        sqlx::query!(
            r#"DELETE FROM joins
               WHERE id IN (SELECT id FROM joins
                            WHERE state = 'refused' OR state = 'waiting' AND token_id IS NULL AND kind = 'join' AND approved_at IS NULL
                            ORDER BY updated_at DESC, id DESC OFFSET 1000)"#,
        )
        .execute(txn.conn())
        .await?;
    }
    let id = match id {
        Some(id) => id,
        None => {
            sqlx::query_scalar!("SELECT id FROM joins WHERE csr_hash = $1", convert::digest_column(&join.csr_hash))
                .fetch_one(txn.conn())
                .await?
        }
    };
    Ok(JoinId::from_uuid(id))
}

/// Lets the next try of the same request through, as this node when one is named; `false` when it neither waits nor is held.
///
/// # Errors
/// When the statement fails.
pub async fn approve(txn: &mut Txn, id: JoinId, by: &str, as_node: Option<NodeId>) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"UPDATE joins SET approved_at = compute_now(), approved_by = $2, approved_as = $3
           WHERE id = $1 AND state IN ('waiting', 'held')"#,
        id.as_uuid(),
        by,
        as_node.map(NodeId::as_uuid),
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// What the machine claimed to be whose late renewal somebody let through, while it did not get through yet. An answer may be
/// lost on its way, so for a day the same certificate is good again, until its node opens a session.
///
/// # Errors
/// When the statement fails.
pub async fn let_through(db: &Db, csr_hash: &Digest) -> Result<Option<serde_json::Value>, DbError> {
    read_let_through(db.pool(), csr_hash).await
}

/// As [`let_through`], for the transaction that holds the node.
///
/// # Errors
/// When the statement fails.
pub async fn still_let_through(txn: &mut Txn, csr_hash: &Digest) -> Result<Option<serde_json::Value>, DbError> {
    read_let_through(txn.conn(), csr_hash).await
}

async fn read_let_through(
    executor: impl sqlx::PgExecutor<'_>,
    csr_hash: &Digest,
) -> Result<Option<serde_json::Value>, DbError> {
    let found = sqlx::query_scalar!(
        r#"SELECT j.claims
           FROM joins j
           WHERE j.csr_hash = $1 AND j.kind = 'renewal'
             AND (j.state = 'waiting' AND j.approved_at IS NOT NULL
                  OR j.state = 'admitted' AND j.updated_at > compute_now() - interval '24 hours'
                     AND NOT EXISTS (SELECT FROM sessions s WHERE s.node_id = j.node_id AND s.connected_at > j.updated_at))"#,
        convert::digest_column(csr_hash),
    )
    .fetch_optional(executor)
    .await?;
    Ok(found)
}

/// Says what became of a machine after it was let in.
///
/// # Errors
/// When the statement fails.
pub async fn note(txn: &mut Txn, node: NodeId, message: &str) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE joins SET message = $2, updated_at = compute_now()
           WHERE node_id = $1 AND kind = 'join' AND state = 'admitted' AND message <> $2"#,
        node.as_uuid(),
        message,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Forgets attempts of which nothing was heard for 90 days and answers how many.
///
/// # Errors
/// When the statement fails.
pub async fn prune(db: &Db) -> Result<u64, DbError> {
    let done = sqlx::query!("DELETE FROM joins WHERE updated_at < compute_now() - interval '90 days'")
        .execute(db.pool())
        .await?;
    Ok(done.rows_affected())
}

/// One attempt.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, id: JoinId) -> Result<Option<Join>, DbError> {
    rows::find(db.pool(), select!("WHERE id = $1", id.as_uuid())).await
}

/// The attempt of one certificate request.
///
/// # Errors
/// When the statement fails.
pub async fn find_by_csr(db: &Db, csr_hash: &Digest) -> Result<Option<Join>, DbError> {
    rows::find(db.pool(), select!("WHERE csr_hash = $1", convert::digest_column(csr_hash))).await
}

/// The renewal of a node that waits for somebody, when one does.
///
/// # Errors
/// When the statement fails.
pub async fn waiting_renewal(db: &Db, node: NodeId) -> Result<Option<Join>, DbError> {
    let statement = select!(
        "WHERE node_id = $1 AND kind = 'renewal' AND state = 'waiting' ORDER BY updated_at DESC, id DESC LIMIT 1",
        node.as_uuid(),
    );
    rows::find(db.pool(), statement).await
}

/// Attempts, the latest first; of one state, or of all.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, state: Option<JoinState>, limit: u32) -> Result<Listed<Join>, DbError> {
    rows::list(
        db.pool(),
        select!(
            "WHERE $1::text IS NULL OR state = $1 ORDER BY updated_at DESC, id DESC LIMIT $2",
            state.map(JoinState::as_str),
            i64::from(limit.clamp(1, crate::page::MAX_LIMIT)),
        ),
    )
    .await
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    state: String,
    reason: String,
    message: String,
    pool: Option<String>,
    token_id: Option<uuid::Uuid>,
    csr_hash: Vec<u8>,
    hardware_key: Option<Vec<u8>>,
    claims: serde_json::Value,
    node_id: Option<uuid::Uuid>,
    conflict_with: Option<uuid::Uuid>,
    peer: Option<String>,
    attested: Vec<String>,
    kind: String,
    approved_at: Option<jiff_sqlx::Timestamp>,
    approved_by: Option<String>,
    approved_as: Option<uuid::Uuid>,
    attempts: i32,
    created_at: jiff_sqlx::Timestamp,
    updated_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Join;
    const TABLE: &'static str = "joins";
    const KEY: &'static [&'static str] = &["id"];

    fn read(self) -> Result<Join, DbError> {
        Ok(Join {
            id: JoinId::from_uuid(self.id),
            approval: convert::time(self.approved_at).map(|at| Approval {
                at,
                by: self.approved_by.unwrap_or_default(),
                as_node: self.approved_as.map(NodeId::from_uuid),
            }),
            join: NewJoin {
                kind: convert::word("join kind", &self.kind)?,
                state: convert::word("join state", &self.state)?,
                reason: self.reason,
                message: self.message,
                pool: self.pool,
                token_id: self.token_id.map(JoinTokenId::from_uuid),
                csr_hash: convert::digest(&self.csr_hash)?,
                hardware_key: convert::maybe_digest(self.hardware_key)?,
                claims: self.claims,
                attested: self
                    .attested
                    .iter()
                    .map(|text| convert::word("attested identity", text))
                    .collect::<Result<_, _>>()?,
                node_id: self.node_id.map(NodeId::from_uuid),
                conflict_with: self.conflict_with.map(NodeId::from_uuid),
                peer: self.peer,
            },
            attempts: convert::count(self.attempts),
            created_at: self.created_at.to_jiff(),
            updated_at: self.updated_at.to_jiff(),
        })
    }
}
