//! Plans that were made, kept as they were shown.

use schema::{digest::Digest, id::PlanId, time::Timestamp};

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// What became of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlanState {
    /// It waits for its gates, or to be applied.
    Open,
    /// It was carried out.
    Applied,
    /// A newer commit took its place.
    Superseded,
    /// It was made to be looked at.
    Shown,
}

impl PlanState {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Applied => "applied",
            Self::Superseded => "superseded",
            Self::Shown => "shown",
        }
    }

    /// The state of a stored word.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(text: &str) -> Result<Self, DbError> {
        match text {
            "open" => Ok(Self::Open),
            "applied" => Ok(Self::Applied),
            "superseded" => Ok(Self::Superseded),
            "shown" => Ok(Self::Shown),
            other => Err(DbError::other(format!("{other:?} is no state of a plan"))),
        }
    }
}

/// A plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its id.
    pub id: PlanId,
    /// The source.
    pub source: String,
    /// The commit it leads to; `None` for one that was made of files.
    pub commit: Option<String>,
    /// The commit that was in force; `None` for the first.
    pub base_commit: Option<String>,
    /// The digest of what the plan was made of.
    pub digest: Digest,
    /// What became of it.
    pub state: PlanState,
    /// The plan, canonical JSON.
    pub doc: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A plan without its document.
#[derive(Debug, Clone)]
pub struct NewPlan {
    /// Its id.
    pub id: PlanId,
    /// The source.
    pub source: String,
    /// The commit it leads to; `None` for one that is made of files.
    pub commit: Option<String>,
    /// The commit that was in force.
    pub base_commit: Option<String>,
    /// The digest of what the plan is made of.
    pub digest: Digest,
    /// The plan, canonical JSON.
    pub doc: String,
}

/// Stores a plan as open and marks the open ones of the source before it as superseded.
///
/// # Errors
/// When a statement fails.
pub async fn insert(txn: &mut Txn, plan: &NewPlan) -> Result<(), DbError> {
    sqlx::query!("UPDATE plans SET state = 'superseded' WHERE source = $1 AND state = 'open'", plan.source)
        .execute(txn.conn())
        .await?;
    sqlx::query!(
        "INSERT INTO plans (id, source, commit, base_commit, digest, state, doc) VALUES ($1, $2, $3, $4, $5, 'open', $6)",
        plan.id.as_uuid(),
        plan.source,
        plan.commit,
        plan.base_commit,
        convert::digest_column(&plan.digest),
        plan.doc,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// How many shown plans are kept for each who asked for them, and how many bytes of them.
pub const MAX_SHOWN: u32 = 200;
const MAX_SHOWN_BYTES: i64 = 64 << 20;

/// Stores a plan that was made to be looked at, and forgets the oldest of those that the same one asked for when there are
/// too many: nobody pushes out what another was shown. The same one again keeps its id.
///
/// # Errors
/// When a statement fails.
pub async fn show(txn: &mut Txn, plan: &NewPlan, by: &str) -> Result<PlanId, DbError> {
    let known = sqlx::query_scalar!(
        "UPDATE plans SET created_at = compute_now() WHERE state = 'shown' AND digest = $1 AND doc = $2 AND shown_by = $3 RETURNING id",
        convert::digest_column(&plan.digest),
        plan.doc,
        by,
    )
    .fetch_optional(txn.conn())
    .await?;
    if let Some(id) = known {
        return Ok(PlanId::from_uuid(id));
    }
    sqlx::query!(
        "INSERT INTO plans (id, source, commit, base_commit, digest, state, doc, shown_by) VALUES ($1, $2, $3, $4, $5, 'shown', $6, $7)",
        plan.id.as_uuid(),
        plan.source,
        plan.commit,
        plan.base_commit,
        convert::digest_column(&plan.digest),
        plan.doc,
        by,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"DELETE FROM plans
           WHERE id IN (SELECT id
                        FROM (SELECT id, row_number() OVER newest AS number,
                                     sum(pg_column_size(doc)) OVER newest AS bytes
                              FROM plans WHERE state = 'shown' AND shown_by = $3
                              WINDOW newest AS (ORDER BY created_at DESC, id DESC)) AS kept
                        WHERE number > $1 OR (bytes > $2 AND number > 1))"#,
        i64::from(MAX_SHOWN),
        MAX_SHOWN_BYTES,
        by,
    )
    .execute(txn.conn())
    .await?;
    Ok(plan.id)
}

/// Says what became of a plan.
///
/// # Errors
/// When the statement fails.
pub async fn set_state(txn: &mut Txn, id: PlanId, state: PlanState) -> Result<(), DbError> {
    sqlx::query!("UPDATE plans SET state = $2 WHERE id = $1", id.as_uuid(), state.as_str()).execute(txn.conn()).await?;
    Ok(())
}

/// Forgets superseded and shown plans after 30 days and answers how many; what was applied or may yet be is kept.
///
/// # Errors
/// When the statement fails.
pub async fn prune(db: &Db) -> Result<u64, DbError> {
    let done = sqlx::query!(
        "DELETE FROM plans WHERE state IN ('superseded', 'shown') AND created_at < compute_now() - interval '30 days'"
    )
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected())
}

/// One plan.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, id: PlanId) -> Result<Option<Plan>, DbError> {
    rows::find(
        db.pool(),
        sqlx::query_as!(
            Row,
            "SELECT id, source, commit, base_commit, digest, state, doc, created_at FROM plans WHERE id = $1",
            id.as_uuid()
        ),
    )
    .await
}

/// The newest plan that was made of what this digest says, shown or not.
///
/// # Errors
/// When the statement fails.
pub async fn find_by_digest(db: &Db, source: &str, digest: &Digest) -> Result<Option<Plan>, DbError> {
    rows::find(db.pool(), sqlx::query_as!(
        Row,
        "SELECT id, source, commit, base_commit, digest, state, doc, created_at FROM plans WHERE source = $1 AND digest = $2 ORDER BY created_at DESC, id DESC LIMIT 1",
        source,
        convert::digest_column(digest),
    )).await
}

/// The newest plan of a commit that the source made; previews are left out.
///
/// # Errors
/// When the statement fails.
pub async fn find_by_commit(db: &Db, source: &str, commit: &str) -> Result<Option<Plan>, DbError> {
    rows::find(db.pool(), sqlx::query_as!(
        Row,
        "SELECT id, source, commit, base_commit, digest, state, doc, created_at FROM plans WHERE source = $1 AND commit = $2 AND state <> 'shown' ORDER BY created_at DESC, id DESC LIMIT 1",
        source,
        commit,
    )).await
}

/// The newest plans of one state, newest first; without a state those that the source made, and no previews. `before`
/// continues a list after its last plan.
///
/// # Errors
/// When the statement fails.
pub async fn list(
    db: &Db,
    state: Option<PlanState>,
    before: Option<PlanId>,
    limit: u32,
) -> Result<Listed<Plan>, DbError> {
    rows::list(
        db.pool(),
        sqlx::query_as!(
            Row,
            r#"SELECT id, source, commit, base_commit, digest, state, doc, created_at
           FROM plans
           WHERE ($1::uuid IS NULL OR id < $1)
             AND CASE WHEN $3::text IS NULL THEN state <> 'shown' ELSE state = $3 END
           ORDER BY id DESC
           LIMIT $2"#,
            before.map(PlanId::as_uuid),
            i64::from(limit.clamp(1, crate::page::MAX_LIMIT)),
            state.map(PlanState::as_str),
        ),
    )
    .await
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    source: String,
    commit: Option<String>,
    base_commit: Option<String>,
    digest: Vec<u8>,
    state: String,
    doc: String,
    created_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Plan;
    const TABLE: &'static str = "plans";
    const KEY: &'static [&'static str] = &["id"];

    fn read(self) -> Result<Plan, DbError> {
        Ok(Plan {
            id: PlanId::from_uuid(self.id),
            source: self.source,
            commit: self.commit,
            base_commit: self.base_commit,
            digest: convert::digest(&self.digest)?,
            state: PlanState::read(&self.state)?,
            doc: self.doc,
            created_at: self.created_at.to_jiff(),
        })
    }
}
