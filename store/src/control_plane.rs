//! Who this control plane is: one row, made when the database is created.

use schema::{id::FleetId, time::Timestamp};

use crate::{
    Db, DbError, Txn,
    rows::{self, Stored},
};

/// The identity of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlane {
    /// Random at creation; every signed thing names it.
    pub fleet_id: FleetId,
    /// The trust domain; `None` until a fleet was loaded.
    pub trust_domain: Option<String>,
    /// Described hardware is admitted. Fixed at creation.
    pub dev: bool,
    /// When the database was created.
    pub created_at: Timestamp,
}

/// The fleet names another trust domain than the one its certificates were issued for.
#[derive(Debug, thiserror::Error)]
pub enum TrustDomainError {
    /// It was set before, to something else.
    #[error("the trust domain is {stored:?} and cannot become {wanted:?}")]
    Differs {
        /// What is stored.
        stored: String,
        /// What was asked.
        wanted: String,
    },
    /// There is no row yet.
    #[error("the control plane was not initialised")]
    Missing,
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Creates the row unless it exists, and answers what is stored: an earlier `dev` wins.
///
/// # Errors
/// When the statement fails.
pub async fn ensure(txn: &mut Txn, dev: bool, trust_domain: Option<&str>) -> Result<ControlPlane, DbError> {
    sqlx::query!(
        "INSERT INTO control_plane (fleet_id, trust_domain, dev) VALUES ($1, $2, $3) ON CONFLICT (only_one) DO NOTHING",
        FleetId::generate().as_uuid(),
        trust_domain,
        dev,
    )
    .execute(txn.conn())
    .await?;
    let row = sqlx::query_as!(Row, "SELECT fleet_id, trust_domain, dev, created_at FROM control_plane");
    let row = rows::find(txn.conn(), row).await?;
    row.ok_or_else(|| DbError::other("the row of the control plane was taken away while it was put down".to_owned()))
}

/// What is stored; `None` before [`ensure`].
///
/// # Errors
/// When the statement fails, or the row cannot be read.
pub async fn find(db: &Db) -> Result<Option<ControlPlane>, DbError> {
    let row = sqlx::query_as!(Row, "SELECT fleet_id, trust_domain, dev, created_at FROM control_plane");
    rows::find(db.pool(), row).await
}

/// Sets the trust domain once; the same one again is no error.
///
/// # Errors
/// [`TrustDomainError::Differs`] when another one is stored.
pub async fn set_trust_domain(txn: &mut Txn, wanted: &str) -> Result<(), TrustDomainError> {
    let stored = sqlx::query_scalar!(
        r#"UPDATE control_plane SET trust_domain = COALESCE(trust_domain, $1) RETURNING trust_domain AS "trust_domain!""#,
        wanted,
    )
    .fetch_optional(txn.conn())
    .await
    .map_err(DbError::from)?
    .ok_or(TrustDomainError::Missing)?;
    if stored == wanted { Ok(()) } else { Err(TrustDomainError::Differs { stored, wanted: wanted.to_owned() }) }
}

/// Gives a control plane another trust domain while nothing depends on the old one: no machine joined and no revision was
/// applied. `false` when it is too late.
///
/// # Errors
/// When the statement fails.
pub async fn rename(txn: &mut Txn, wanted: &str) -> Result<bool, DbError> {
    let done = sqlx::query(
        r"UPDATE control_plane SET trust_domain = $1
          WHERE NOT EXISTS (SELECT FROM nodes) AND NOT EXISTS (SELECT FROM sources WHERE applied_commit IS NOT NULL)",
    )
    .bind(wanted)
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

#[derive(sqlx::FromRow)]
struct Row {
    fleet_id: uuid::Uuid,
    trust_domain: Option<String>,
    dev: bool,
    created_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = ControlPlane;
    const TABLE: &'static str = "control_plane";
    const KEY: &'static [&'static str] = &["fleet_id"];

    fn read(self) -> Result<ControlPlane, DbError> {
        let Self { fleet_id, trust_domain, dev, created_at } = self;
        let (fleet_id, created_at) = (FleetId::from_uuid(fleet_id), created_at.to_jiff());
        Ok(ControlPlane { fleet_id, trust_domain, dev, created_at })
    }
}
