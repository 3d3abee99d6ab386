//! Brings a database to the shape that this binary knows. Forward only.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, migrate::Migrator};

use crate::{DbConfig, DbError};

static MIGRATOR: Migrator = sqlx::migrate!("../migrations");

/// Why a database was not migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A newer version of Better Compute has been here.
    #[error(
        "the database is at migration {found}, this binary knows up to {known}: use the newer version of better-compute"
    )]
    TooNew {
        /// The database's last migration.
        found: i64,
        /// This binary's last migration.
        known: i64,
    },
    /// A migration that was applied differs from the one in this binary.
    #[error("migration {0} was applied with other contents than this binary has")]
    Changed(i64),
    /// A statement of a migration failed.
    #[error("a migration failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// PostgreSQL is older than what the statements need.
    #[error("postgresql {0} is too old: 15 or later is needed")]
    ServerTooOld(i32),
    /// The server is not reachable or refused.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// The last migration that this binary knows.
#[must_use]
pub fn known_version() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Applies what is missing and answers how many migrations that were. Two runners at once wait for one another.
///
/// # Errors
/// When the database is newer than this binary, or a statement fails; what was applied before stays applied.
pub async fn run(config: &DbConfig) -> Result<usize, MigrateError> {
    let mut conn = PgConnection::connect_with(&config.options).await.map_err(DbError::from)?;
    let server = server_version(&mut conn).await?;
    if server < 150_000 {
        return Err(MigrateError::ServerTooOld(server / 10_000));
    }
    let before = applied(&mut conn).await?;
    let (found, known) = (before.iter().max().copied().unwrap_or(0), known_version());
    if found > known {
        return Err(MigrateError::TooNew { found, known });
    }
    MIGRATOR.run(&mut conn).await.map_err(|error| match error {
        sqlx::migrate::MigrateError::VersionMismatch(version) => MigrateError::Changed(version),
        sqlx::migrate::MigrateError::VersionMissing(found) => MigrateError::TooNew { found, known },
        error => MigrateError::Failed(Box::new(error)),
    })?;
    let after = applied(&mut conn).await?;
    conn.close().await.map_err(DbError::from)?;
    Ok(after.len().saturating_sub(before.len()))
}

/// Whether the database has exactly the migrations of this binary.
///
/// # Errors
/// When the server is not reachable, or the database is newer.
pub async fn is_current(config: &DbConfig) -> Result<bool, MigrateError> {
    let mut conn = PgConnection::connect_with(&config.options).await.map_err(DbError::from)?;
    let found = applied(&mut conn).await?.into_iter().max().unwrap_or(0);
    conn.close().await.map_err(DbError::from)?;
    let known = known_version();
    if found > known { Err(MigrateError::TooNew { found, known }) } else { Ok(found == known) }
}

async fn server_version(conn: &mut PgConnection) -> Result<i32, DbError> {
    Ok(sqlx::query_scalar::<_, i32>("SELECT current_setting('server_version_num')::int").fetch_one(conn).await?)
}

async fn applied(conn: &mut PgConnection) -> Result<Vec<i64>, DbError> {
    let exists: bool =
        sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(&mut *conn).await?;
    if !exists {
        return Ok(Vec::new());
    }
    Ok(sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success").fetch_all(conn).await?)
}

/// A text that differs when any migration does.
pub(crate) fn fingerprint() -> Vec<u8> {
    MIGRATOR.iter().flat_map(|migration| migration.checksum.to_vec()).collect()
}

/// Creates a database, for the private server and for tests.
pub(crate) async fn create_database(
    conn: &mut PgConnection,
    name: &str,
    template: Option<&str>,
) -> Result<(), DbError> {
    let statement = template.map_or_else(
        || format!("CREATE DATABASE {name}"),
        |template| format!("CREATE DATABASE {name} TEMPLATE {template}"),
    );
    conn.execute(AssertSqlSafe(statement)).await?;
    Ok(())
}
