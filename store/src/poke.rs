//! Pokes: "look again" over LISTEN and NOTIFY. They carry no truth; a lost one costs time only.
//!
//! A poke is never sent inside the writing transaction (that would serialise all writers at commit): [`crate::Txn`]
//! collects them and sends one statement afterwards.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use schema::id::NodeId;
use sqlx::{
    Executor as _, PgExecutor, PgPool,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    Db, DbConfig, DbError, Role,
    db::{SILENCE, in_time},
};

const CHANNEL: &str = "better_compute";

/// What to look at again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Poke {
    /// The node's row changed in a way its gateway must see: a spec, a revocation.
    Node(NodeId),
    /// Commands of the node can be sent.
    Commands(NodeId),
    /// The work queue of a role has something due.
    Work(Role),
    /// A source should be fetched at once.
    Source(String),
    /// People agreed to a trust policy, or revoked a key: nodes are told.
    Policies,
}

impl fmt::Display for Poke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(id) => write!(f, "node:{id}"),
            Self::Commands(id) => write!(f, "commands:{id}"),
            Self::Work(role) => write!(f, "work:{role}"),
            Self::Source(name) => write!(f, "source:{name}"),
            Self::Policies => f.write_str("policies"),
        }
    }
}

/// The payload is no poke of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no poke")]
pub struct ParsePokeError(String);

impl FromStr for Poke {
    type Err = ParsePokeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParsePokeError(text.chars().take(80).collect());
        match text.split_once(':') {
            None if text == "policies" => Ok(Self::Policies),
            Some(("node", id)) => id.parse().map(Self::Node).map_err(|_| refuse()),
            Some(("commands", id)) => id.parse().map(Self::Commands).map_err(|_| refuse()),
            Some(("work", role)) => role.parse().map(Self::Work).map_err(|_| refuse()),
            Some(("source", name)) => Ok(Self::Source(name.to_owned())),
            _ => Err(refuse()),
        }
    }
}

/// Sends pokes; `false` when they were lost.
pub(crate) async fn send(over: impl PgExecutor<'_>, pokes: BTreeSet<Poke>) -> bool {
    if pokes.is_empty() {
        return true;
    }
    let payloads: Vec<String> = pokes.iter().map(ToString::to_string).collect();
    let sent = sqlx::query!(
        // A notification takes a transaction id, and its commit would wait for the disk.
        r#"WITH quick AS MATERIALIZED (
               SELECT set_config('synchronous_commit', 'off', true)
           )
           SELECT count(pg_notify($1, payload)) AS "count!" FROM quick, UNNEST($2::text[]) AS payload"#,
        CHANNEL,
        &payloads
    )
    .fetch_one(over);
    let sent = in_time(SILENCE, sent).await;
    if let Err(error) = &sent {
        tracing::debug!(%error, "a poke was lost");
    }
    sent.is_ok()
}

/// What a listener heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A poke.
    Poke(Poke),
    /// The connection was lost and is back: pokes may be missing, so look at everything once.
    Reconnected,
}

/// Hears pokes on a connection of its own, and reconnects by itself.
#[derive(Debug)]
pub struct Listener {
    // A pool of one, apart from the database's: closing that one must not wait for this connection.
    pool: PgPool,
    listener: Option<PgListener>,
    config: DbConfig,
    quiet: Duration,
    /// When something was heard last.
    heard: Instant,
    /// When the server was asked whether it is still there, and has not answered.
    asked: Option<Instant>,
}

/// When nothing was heard for so long, the server is asked whether it is still there.
const QUIET: Duration = Duration::from_secs(30);

impl Listener {
    /// Begins to listen with the first [`Listener::next`], which answers [`Heard::Reconnected`] as soon as the server can be
    /// reached.
    #[must_use]
    pub fn new(db: &Db) -> Self {
        let config = db.config().clone();
        Self { pool: pool_of_one(&config), listener: None, config, quiet: QUIET, heard: Instant::now(), asked: None }
    }

    /// Begins to listen now.
    ///
    /// # Errors
    /// When the server cannot be reached now.
    pub async fn connect(db: &Db) -> Result<Self, DbError> {
        let mut this = Self::new(db);
        this.listener = Some(this.listen().await?);
        Ok(this)
    }

    #[cfg(test)]
    pub(crate) const fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    fn heard(&mut self) {
        self.heard = Instant::now();
        self.asked = None;
    }

    async fn listen(&self) -> Result<PgListener, sqlx::Error> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen(CHANNEL).await?;
        Ok(listener)
    }

    /// Waits for the next poke. Safe to cancel; never fails, only waits longer while PostgreSQL is away.
    pub async fn next(&mut self) -> Heard {
        loop {
            let Some(listener) = self.listener.as_mut() else {
                match self.listen().await {
                    Ok(listener) => {
                        self.listener = Some(listener);
                        self.heard();
                        return Heard::Reconnected;
                    }
                    Err(error) => {
                        tracing::debug!(%error, "pokes are not heard at the moment");
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        continue;
                    }
                }
            };
            match timeout_at(self.heard + self.quiet, listener.try_recv()).await {
                Ok(Ok(Some(notification))) => {
                    self.heard();
                    if let Ok(poke) = notification.payload().parse() {
                        return Heard::Poke(poke);
                    }
                }
                Ok(Ok(None) | Err(_)) => self.listener = None,
                Err(_) => {
                    let asked = *self.asked.get_or_insert_with(Instant::now);
                    if let Ok(Ok(_)) = timeout_at(asked + self.config.silence, listener.execute("")).await {
                        self.heard();
                    } else {
                        // Its connection is given back when the wire says so, which a dead one never does.
                        self.listener = None;
                        self.pool = pool_of_one(&self.config);
                    }
                }
            }
        }
    }
}

/// A pool that lends one connection.
fn pool_of_one(config: &DbConfig) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect_lazy_with(config.options.clone())
}
