//! Ways back that people asked for. The source carries one out in the transaction that brings the revision into force.

use schema::{
    digest::Digest,
    id::{RevisionId, RollbackId},
    time::Timestamp,
};

use crate::{
    Db, DbError, Txn, convert,
    poke::Poke,
    rows::{self, Stored},
};

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RollbackState {
    /// The source has not come to it yet.
    Requested,
    /// The revision is in force again.
    Done,
    /// It cannot be carried out; the message says why.
    Refused,
    /// Another one took its place before it was carried out.
    Withdrawn,
}

impl RollbackState {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Withdrawn => "withdrawn",
        }
    }

    fn read(text: &str) -> Result<Self, DbError> {
        [Self::Requested, Self::Done, Self::Refused, Self::Withdrawn]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| DbError::other(format!("{text:?} is no state of a rollback")))
    }
}

/// A rollback to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRollback {
    /// Its id.
    pub id: RollbackId,
    /// The source.
    pub source: String,
    /// The revision to go back to.
    pub revision: RevisionId,
    /// The commit that is in force.
    pub from_commit: String,
    /// The plan that was shown, for effects that are bound to one.
    pub plan: Option<Digest>,
    /// Who answers for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// Who asked.
    pub requested_by: String,
    /// The commits that the request put in quarantine.
    pub quarantined: Vec<String>,
}

/// A rollback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollback {
    /// What was asked.
    pub new: NewRollback,
    /// When.
    pub requested_at: Timestamp,
    /// What became of it.
    pub state: RollbackState,
    /// Why it was refused.
    pub message: String,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

// The columns of a Row, once.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT id, source, revision, from_commit, plan, owner, reason, requested_by, quarantined, requested_at, state, message, ended_at
               FROM rollbacks "# + $tail
            $(, $arg)*
        )
    };
}

/// Asks for a rollback and withdraws one that still waits. Wakes the source.
///
/// # Errors
/// When a statement fails.
pub async fn request(txn: &mut Txn, rollback: &NewRollback) -> Result<(), DbError> {
    let before = sqlx::query_scalar!(
        "UPDATE rollbacks SET state = 'withdrawn', ended_at = compute_now() WHERE source = $1 AND state = 'requested' RETURNING quarantined",
        rollback.source
    )
    .fetch_optional(txn.conn())
    .await?;
    let mut quarantined = rollback.quarantined.clone();
    quarantined.extend(before.into_iter().flatten());
    sqlx::query!(
        r#"INSERT INTO rollbacks (id, source, revision, from_commit, plan, owner, reason, requested_by, quarantined)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"#,
        rollback.id.as_uuid(),
        rollback.source,
        rollback.revision.as_uuid(),
        rollback.from_commit,
        rollback.plan.as_ref().map(convert::digest_column),
        rollback.owner,
        rollback.reason,
        rollback.requested_by,
        &quarantined,
    )
    .execute(txn.conn())
    .await?;
    txn.poke(Poke::Source(rollback.source.clone()));
    Ok(())
}

/// The one that waits.
///
/// # Errors
/// When the statement fails.
pub async fn waiting(db: &Db, source: &str) -> Result<Option<Rollback>, DbError> {
    rows::find(db.pool(), select!("WHERE source = $1 AND state = 'requested'", source)).await
}

/// The same inside a transaction.
///
/// # Errors
/// When the statement fails.
pub async fn waiting_in(txn: &mut Txn, source: &str) -> Result<Option<Rollback>, DbError> {
    rows::find(txn.conn(), select!("WHERE source = $1 AND state = 'requested'", source)).await
}

/// The newest one, whatever became of it.
///
/// # Errors
/// When the statement fails.
pub async fn latest(db: &Db, source: &str) -> Result<Option<Rollback>, DbError> {
    rows::find(db.pool(), select!("WHERE source = $1 ORDER BY seq DESC LIMIT 1", source)).await
}

/// The newest one that was carried out.
///
/// # Errors
/// When the statement fails.
pub async fn latest_done(db: &Db, source: &str) -> Result<Option<Rollback>, DbError> {
    rows::find(db.pool(), select!("WHERE source = $1 AND state = 'done' ORDER BY seq DESC LIMIT 1", source)).await
}

/// Says what became of one that waits; `false` when it waits no more.
///
/// # Errors
/// When the statement fails.
pub async fn end(txn: &mut Txn, id: RollbackId, state: RollbackState, message: &str) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "UPDATE rollbacks SET state = $2, message = $3, ended_at = compute_now() WHERE id = $1 AND state = 'requested'",
        id.as_uuid(),
        state.as_str(),
        message,
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    source: String,
    revision: uuid::Uuid,
    from_commit: String,
    plan: Option<Vec<u8>>,
    owner: String,
    reason: String,
    requested_by: String,
    quarantined: Vec<String>,
    requested_at: jiff_sqlx::Timestamp,
    state: String,
    message: String,
    ended_at: Option<jiff_sqlx::Timestamp>,
}

impl Stored for Row {
    type Item = Rollback;
    const TABLE: &'static str = "rollbacks";
    const KEY: &'static [&'static str] = &["id"];

    fn read(self) -> Result<Rollback, DbError> {
        Ok(Rollback {
            new: NewRollback {
                id: RollbackId::from_uuid(self.id),
                source: self.source,
                revision: RevisionId::from_uuid(self.revision),
                from_commit: self.from_commit,
                plan: convert::maybe_digest(self.plan)?,
                owner: self.owner,
                reason: self.reason,
                requested_by: self.requested_by,
                quarantined: self.quarantined,
            },
            requested_at: self.requested_at.to_jiff(),
            state: RollbackState::read(&self.state)?,
            message: self.message,
            ended_at: convert::time(self.ended_at),
        })
    }
}
