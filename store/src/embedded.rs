//! The private PostgreSQL of `up`: found, initialised, started, watched and stopped by this process.
//!
//! It listens on a Unix socket only, in a process group of its own, and never outlives its parent by more than its own
//! shutdown: the kernel tells it when the parent dies, however that happens. A lock file keeps two parents apart; the
//! server of a parent that was killed is waited for, then stopped. When the server dies, it is started again at the same
//! socket, so that pools reconnect.
//!
//! This is the only place that runs a database server; with `DATABASE_URL` nothing here is used.

mod binaries;
mod cluster;
mod identity;
mod leftovers;
mod supervisor;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

use crate::{DbConfig, DbError, migrate};

use cluster::Cluster;
use supervisor::Supervisor;

/// The user and the database that are ours.
const NAME: &str = "better_compute";

/// How to run a private PostgreSQL.
#[derive(Debug, Clone)]
pub struct Config {
    /// A directory for nothing but this server: data, socket, password, log.
    pub dir: PathBuf,
    /// Give up durability for speed. For tests.
    pub fast: bool,
}

/// Why no private PostgreSQL runs.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// No usable server binaries.
    #[error(
        "no postgresql server of version 15 or later was found ({looked}): install one, for example with `apt-get install postgresql`, set BETTER_COMPUTE_PG_BINDIR, or set DATABASE_URL"
    )]
    NotFound {
        /// Where was looked.
        looked: String,
    },
    /// The data was made by a major version that is not installed.
    #[error(
        "the data in {dir} was made by postgresql {data}, and only {found} is installed: install postgresql-{data}, or move that directory away to start empty"
    )]
    OtherMajor {
        /// The data directory.
        dir: String,
        /// The version that made it.
        data: u32,
        /// What was found.
        found: String,
    },
    /// Another process runs a server here.
    #[error("another better-compute uses {0}")]
    InUse(String),
    /// PostgreSQL refuses to run as root, and no other way was open.
    #[error(
        "postgresql does not run as root, and neither the user {user} nor a user namespace works for {dir}: use a directory that {user} can reach, for example below /var/lib, or run as another user"
    )]
    Root {
        /// The user that was tried.
        user: String,
        /// The directory.
        dir: String,
    },
    /// The server or one of its tools failed; its last words are in the text.
    #[error("{tool} failed: {output}")]
    Tool {
        /// Which.
        tool: &'static str,
        /// What it said.
        output: String,
    },
    /// The file with the password is not the one that was written when the data was made.
    #[error("the private postgresql refuses the password in its directory: the file `password` was changed")]
    Password,
    /// A file or a directory was in the way.
    #[error("{path} is not usable")]
    Io {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The server runs and refuses.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl EmbeddedError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.display().to_string(), source }
    }
}

/// A running private PostgreSQL. Stop it with [`Embedded::stop`], last of all; dropped, it is told to stop and not waited
/// for.
#[derive(Debug)]
pub struct Embedded {
    supervisor: Supervisor,
    config: DbConfig,
}

impl Embedded {
    /// Finds, initialises and starts a server, and creates the database.
    ///
    /// # Errors
    /// [`EmbeddedError`] says what is missing and what to do about it.
    pub async fn start(config: Config) -> Result<Self, EmbeddedError> {
        let (supervisor, options) = tokio::task::spawn_blocking(move || -> Result<_, EmbeddedError> {
            let cluster = Cluster::prepare(&config)?;
            let options = cluster.options();
            Ok((Supervisor::start(cluster)?, options))
        })
        .await
        .map_err(|e| EmbeddedError::Db(DbError::other(format!("the starter of postgresql ended early: {e}"))))??;
        let mut conn = supervisor.wait_ready(&options.clone().database("postgres")).await?;
        ensure_database(&mut conn).await?;
        conn.close().await.map_err(DbError::from)?;
        Ok(Self { supervisor, config: DbConfig::from_options(options.database(NAME)) })
    }

    /// How to connect to it.
    #[must_use]
    pub fn db_config(&self) -> DbConfig {
        self.config.clone()
    }

    /// The process id of the server; it changes when the server had to be started again. `None` in between.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.supervisor.pid()
    }

    /// Shuts the server down and waits for it. Close every pool before.
    pub async fn stop(mut self) {
        let done = self.supervisor.stop();
        if tokio::time::timeout(Duration::from_secs(30), done).await.is_err() {
            tracing::warn!("postgresql did not stop in time; it goes on shutting down by itself");
        }
    }
}

async fn ensure_database(conn: &mut PgConnection) -> Result<(), EmbeddedError> {
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(NAME)
        .fetch_one(&mut *conn)
        .await
        .map_err(DbError::from)?;
    if !exists {
        migrate::create_database(conn, NAME, None).await?;
    }
    Ok(())
}

fn socket_options(socket: &Path, password: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass().socket(socket).port(5432).username(NAME).password(password)
}
