//! Holds that keep parts of a plan from going: what a gate stored about a target or a removal.

use schema::{
    id::HoldId,
    node::{Hold, HoldSource},
    time::Timestamp,
};

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// A stored hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetHold {
    /// What is held, as `kind/name` or a plan's step.
    pub subject: String,
    /// The gate that holds it, kebab-case and stable.
    pub gate: String,
    /// By whom, why, until when.
    pub hold: Hold,
    /// When it was placed.
    pub created_at: Timestamp,
}

/// A hold to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFleetHold {
    /// What is held.
    pub subject: String,
    /// By whom, why, until when. Its source is ignored: the call names it.
    pub hold: Hold,
}

/// Makes the holds of one gate and source exactly these; one that stays keeps its time.
///
/// # Errors
/// When a statement fails.
pub async fn replace(txn: &mut Txn, gate: &str, source: HoldSource, holds: &[NewFleetHold]) -> Result<(), DbError> {
    let ids: Vec<uuid::Uuid> = holds.iter().map(|_| HoldId::generate().as_uuid()).collect();
    let subjects: Vec<String> = holds.iter().map(|h| h.subject.clone()).collect();
    let owners: Vec<String> = holds.iter().map(|h| h.hold.owner.clone()).collect();
    let reasons: Vec<String> = holds.iter().map(|h| h.hold.reason.clone()).collect();
    let places: Vec<Option<String>> = holds.iter().map(|h| h.hold.place.clone()).collect();
    let untils: Vec<Option<jiff_sqlx::Timestamp>> = holds.iter().map(|h| convert::time_column(h.hold.until)).collect();
    sqlx::query!(
        "DELETE FROM holds WHERE gate = $1 AND source = $2 AND subject <> ALL ($3)",
        gate,
        source.as_str(),
        &subjects
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"INSERT INTO holds AS h (id, subject, gate, source, owner, reason, place, until)
           SELECT id, subject, $7, $8, owner, reason, place, until
           FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
                AS n (id, subject, owner, reason, place, until)
           ON CONFLICT (subject, gate, source) DO UPDATE
           SET owner = EXCLUDED.owner, reason = EXCLUDED.reason, place = EXCLUDED.place, until = EXCLUDED.until
           WHERE (h.owner, h.reason, h.place, h.until) IS DISTINCT FROM (EXCLUDED.owner, EXCLUDED.reason, EXCLUDED.place, EXCLUDED.until)"#,
        &ids,
        &subjects,
        &owners,
        &reasons,
        &places as &[Option<String>],
        &untils as _,
        gate,
        source.as_str(),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Every hold whose end has not passed, by subject.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db) -> Result<Listed<FleetHold>, DbError> {
    select(db.pool()).await
}

/// The same inside a transaction.
///
/// # Errors
/// When the statement fails.
pub async fn list_in(txn: &mut Txn) -> Result<Listed<FleetHold>, DbError> {
    select(txn.conn()).await
}

async fn select(db: impl sqlx::PgExecutor<'_>) -> Result<Listed<FleetHold>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT subject, gate, source, owner, reason, place, until, created_at
           FROM holds
           WHERE until IS NULL OR until > compute_now()
           ORDER BY subject, gate, source"#,
    );
    rows::list(db, statement).await
}

#[derive(sqlx::FromRow)]
struct Row {
    subject: String,
    gate: String,
    source: String,
    owner: String,
    reason: String,
    place: Option<String>,
    until: Option<jiff_sqlx::Timestamp>,
    created_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = FleetHold;
    const TABLE: &'static str = "holds";
    const KEY: &'static [&'static str] = &["subject", "gate", "source"];

    fn read(self) -> Result<FleetHold, DbError> {
        Ok(FleetHold {
            subject: self.subject,
            gate: self.gate,
            hold: Hold {
                source: convert::word("hold source", &self.source)?,
                owner: self.owner,
                reason: self.reason,
                until: convert::time(self.until),
                place: self.place,
            },
            created_at: self.created_at.to_jiff(),
        })
    }
}
