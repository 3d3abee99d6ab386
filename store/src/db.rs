//! The connection pool and the transaction that every write goes through.

use std::{collections::BTreeSet, fmt, str::FromStr, sync::Arc, time::Duration};

use schema::time::Timestamp;
use sqlx::{
    ConnectOptions, Connection as _, Executor as _, PgConnection, PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{
    DbError,
    dedicated::Dedicated,
    marks::{Marker, Slot},
    poke::{self, Poke},
};

/// Where PostgreSQL is and how many connections this process takes of it.
#[derive(Clone)]
pub struct DbConfig {
    pub(crate) options: PgConnectOptions,
    max_connections: u32,
    warm_connections: u32,
    plans_once: bool,
    pub(crate) silence: Duration,
}

impl DbConfig {
    /// A server named by a URL, as in `DATABASE_URL`. Statements are prepared and pokes are listened for, so behind PgBouncer
    /// it takes session mode, or transaction mode with `max_prepared_statements` set; pokes are then lost, which costs time only.
    ///
    /// # Errors
    /// When the URL does not parse.
    pub fn from_url(url: &str) -> Result<Self, DbError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|e| DbError::other(format!("the database URL is not usable: {e}")))?;
        Ok(Self::from_options(options))
    }

    /// The URL of this server and database, password included: for the environment of another process, never for a log.
    #[must_use]
    pub fn url(&self) -> String {
        let mut url = self.options.to_url_lossy().to_string();
        if let Some(socket) = self.options.get_socket() {
            url.push_str("&host=");
            for byte in socket.as_os_str().as_encoded_bytes() {
                url.push_str(&format!("%{byte:02X}"));
            }
        }
        url
    }

    pub(crate) fn from_options(options: PgConnectOptions) -> Self {
        Self {
            options: options.application_name("better-compute"),
            max_connections: 20,
            warm_connections: 0,
            plans_once: false,
            silence: SILENCE,
        }
    }

    #[cfg(test)]
    pub(crate) const fn with_silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// The same server with connections that are opened ahead and kept: a login costs more than most statements, and a burst
    /// of work would wait for many of them.
    #[must_use]
    pub const fn with_warm_connections(mut self, warm_connections: u32) -> Self {
        self.warm_connections = warm_connections;
        self
    }

    /// The same server with another number of connections.
    #[must_use]
    pub const fn with_max_connections(mut self, max_connections: u32) -> Self {
        self.max_connections = max_connections;
        self
    }

    /// The same server, where each statement is planned once for a connection, whatever it is asked with. For whoever runs few
    /// statements very often, each of which looks up what it is asked for: left to itself, the server sees how short a list is
    /// and plans again each time, which costs more than the work.
    #[must_use]
    pub const fn planning_once(mut self) -> Self {
        self.plans_once = true;
        self
    }

    /// The same server, another database.
    #[must_use]
    pub(crate) fn with_database(mut self, name: &str) -> Self {
        self.options = self.options.database(name);
        self
    }
}

impl fmt::Debug for DbConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self
            .options
            .get_socket()
            .map_or_else(|| self.options.get_host().to_owned(), |socket| socket.display().to_string());
        f.debug_struct("DbConfig")
            .field("place", &place)
            .field("database", &self.options.get_database())
            .finish_non_exhaustive()
    }
}

/// The database: a pool of connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Db {
    pool: PgPool,
    config: DbConfig,
    marker: Slot,
}

/// Whoever stops in the middle of a transaction (frozen, or behind a wire that is dead and does not say so) keeps its locks
/// for so long and no longer.
const GIVEN_UP: &str = "SET idle_in_transaction_session_timeout = '15s'; SET tcp_user_timeout = '20s'";

/// A wire that says nothing for so long when it is asked whether it is still there is dead. The kernel of whoever waits for an
/// answer on it finds out after a quarter of an hour.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// Who gave a connection back asked it. Where statements run very often, one that rested no longer than this is not asked again.
pub(crate) const JUST_NOW: Duration = Duration::from_secs(1);

/// A gateway asks for few rows of many, and a plan that was made while a table was small is kept when it has grown.
const PLANS_ONCE: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off";

impl Db {
    /// Connects.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses the user.
    pub async fn connect(config: &DbConfig) -> Result<Self, DbError> {
        let db = Self::lazy(config);
        db.ping().await?;
        Ok(db)
    }

    /// A pool that connects at its first use.
    #[must_use]
    pub fn lazy(config: &DbConfig) -> Self {
        let DbConfig { plans_once, silence, .. } = *config;
        let just_now = if plans_once { JUST_NOW } else { Duration::ZERO };
        let pool = PgPoolOptions::new()
            .max_connections(config.max_connections)
            .min_connections(config.warm_connections)
            .acquire_timeout(Duration::from_secs(10))
            .test_before_acquire(false)
            .before_acquire(move |connection, meta| {
                Box::pin(async move { Ok(meta.idle_for < just_now || answers(connection, silence).await?) })
            })
            // Who gave up waiting for an answer gives a connection back that may say nothing any more.
            .after_release(move |connection, _| Box::pin(answers(connection, silence)))
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    connection.execute(GIVEN_UP).await?;
                    if plans_once {
                        connection.execute(PLANS_ONCE).await?;
                    }
                    Ok(())
                })
            })
            .connect_lazy_with(config.options.clone());
        Self { pool, config: config.clone(), marker: Slot::default() }
    }

    /// Tags what this process writes and others act on, from now on. A process has one marker; a second one changes nothing.
    pub fn set_marker(&self, marker: Arc<dyn Marker>) {
        self.marker.set(marker).ok();
    }

    /// The same database over at most so many connections of its own, as [`DbConfig::planning_once`] says. Half of them are
    /// opened ahead.
    #[must_use]
    pub fn planning_once(&self, connections: u32) -> Self {
        let config = self.config.clone().planning_once().with_max_connections(connections);
        Self { marker: Arc::clone(&self.marker), ..Self::lazy(&config.with_warm_connections(connections / 2)) }
    }

    /// A connection of this pool for one loop. It connects at its first use.
    #[must_use]
    pub fn dedicated(&self) -> Dedicated {
        Dedicated::new(self.clone())
    }

    pub(crate) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(crate) const fn config(&self) -> &DbConfig {
        &self.config
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// When no connection is to be had.
    pub async fn begin(&self) -> Result<Txn, DbError> {
        Ok(self.transaction(self.pool.begin().await?))
    }

    /// Begins a transaction that reads everything as it was at one moment, and writes nothing.
    ///
    /// # Errors
    /// When no connection is to be had.
    pub async fn snapshot(&self) -> Result<Txn, DbError> {
        let inner = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
        Ok(self.transaction(inner))
    }

    fn transaction(&self, inner: Transaction<'static, Postgres>) -> Txn {
        Txn { inner, pool: self.pool.clone(), pokes: BTreeSet::new(), marker: self.marker.get().cloned() }
    }

    /// Asks whether the server answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), DbError> {
        sqlx::query_scalar!("SELECT 1").fetch_one(&self.pool).await?;
        Ok(())
    }

    /// The database's time, the one that leases, tokens and deadlines are judged by.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn now(&self) -> Result<Timestamp, DbError> {
        let now = sqlx::query_scalar!(r#"SELECT compute_now() AS "now!""#).fetch_one(&self.pool).await?;
        Ok(now.to_jiff())
    }

    /// What this connection's user may do.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn rights(&self) -> Result<Rights, DbError> {
        let rights = sqlx::query!(
            r#"SELECT has_table_privilege('join_tokens', 'SELECT') AS "control!",
                      (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS "superuser!""#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(Rights { control: rights.control, superuser: rights.superuser })
    }

    /// Sends pokes outside a transaction. A lost poke costs time only, so a failure is not an error.
    pub async fn poke(&self, pokes: impl IntoIterator<Item = Poke>) {
        poke::send(&self.pool, pokes.into_iter().collect()).await;
    }

    /// Closes every connection after its current use.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Whether the server answers on this connection, soon.
async fn answers(connection: &mut PgConnection, silence: Duration) -> Result<bool, sqlx::Error> {
    in_time(silence, connection.ping()).await.map(|()| true)
}

/// What PostgreSQL answers, unless it says nothing for longer than that: then it is not reachable, and what was asked may have
/// happened or not.
///
/// # Errors
/// When it fails or takes too long.
pub async fn in_time<T, E: From<sqlx::Error>>(
    patience: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    match tokio::time::timeout(patience, answer).await {
        Ok(answer) => answer,
        Err(late) => Err(sqlx::Error::Io(late.into()).into()),
    }
}

/// What a database user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// More than a gateway needs: it can read join tokens.
    pub control: bool,
    /// Everything.
    pub superuser: bool,
}

/// A transaction. Dropped without [`Txn::commit`] it changes nothing.
#[must_use = "a transaction that is not committed changes nothing"]
#[derive(Debug)]
pub struct Txn {
    inner: Transaction<'static, Postgres>,
    pool: PgPool,
    pokes: BTreeSet<Poke>,
    marker: Option<Arc<dyn Marker>>,
}

impl Txn {
    pub(crate) fn conn(&mut self) -> &mut PgConnection {
        &mut self.inner
    }

    /// What this process tags rows with; `None` when it has nothing for it.
    pub(crate) fn marker(&self) -> Option<Arc<dyn Marker>> {
        self.marker.clone()
    }

    /// Remembers a poke; it is sent after the commit.
    pub fn poke(&mut self, poke: Poke) {
        self.pokes.insert(poke);
    }

    /// The database's time at this statement.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn now(&mut self) -> Result<Timestamp, DbError> {
        let now = sqlx::query_scalar!(r#"SELECT compute_now() AS "now!""#).fetch_one(self.conn()).await?;
        Ok(now.to_jiff())
    }

    /// Makes everything permanent, then sends the pokes in one statement.
    ///
    /// # Errors
    /// When the commit fails, or when its answer was lost: the caller cannot know then, and looks again.
    pub async fn commit(self) -> Result<(), DbError> {
        self.inner.commit().await?;
        poke::send(&self.pool, self.pokes).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_who_stops_in_the_middle_keeps_its_locks_for_good() {
        let test = crate::testing::TestDb::create().await;
        let db = Db::connect(&test.config()).await.expect("a pool");
        let mut txn = db.begin().await.expect("a transaction");
        let setting = sqlx::query_scalar::<_, String>("SHOW idle_in_transaction_session_timeout");
        let after = setting.fetch_one(txn.conn()).await.expect("a setting");
        assert_eq!(after, "15s");
    }

    #[tokio::test]
    async fn nobody_is_poked_before_there_is_something_to_see() {
        let test = crate::testing::TestDb::create().await;
        let db = test.db();
        let mut listener = poke::Listener::connect(db).await.expect("a listener");
        // A commit that waits for whoever has the lock.
        let slow = "CREATE TABLE slow (id int);
                    CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
                    CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION waits()";
        sqlx::raw_sql(slow).execute(db.pool()).await.expect("a slow table");
        let mut holder = db.begin().await.expect("begin");
        sqlx::raw_sql("SELECT pg_advisory_xact_lock(1)").execute(holder.conn()).await.expect("the lock");
        let mut txn = db.begin().await.expect("begin");
        sqlx::raw_sql("INSERT INTO slow VALUES (1)").execute(txn.conn()).await.expect("a row");
        let [of_this, of_another] = ["this", "another"].map(|name| Poke::Source(name.to_owned()));
        txn.poke(of_this.clone());
        let others = async {
            crate::testing::probes::somebody_waits(db).await.expect("the commit waits");
            db.poke([of_another.clone()]).await;
            assert_eq!(listener.next().await, poke::Heard::Poke(of_another));
            holder.commit().await.expect("commit");
            assert_eq!(listener.next().await, poke::Heard::Poke(of_this));
        };
        let (committed, ()) = tokio::join!(txn.commit(), others);
        committed.expect("commit");
    }

    /// A wire before a server's socket. Once it is silent nothing comes through on any connection that it had by then; later ones
    /// are sound.
    fn wire(config: &DbConfig) -> (DbConfig, tokio::sync::watch::Sender<bool>, tempfile::TempDir) {
        const NAME: &str = ".s.PGSQL.5432";
        let socket = config.options.get_socket().expect("a socket").join(NAME);
        let dir = tempfile::tempdir().expect("a directory");
        let listener = tokio::net::UnixListener::bind(dir.path().join(NAME)).expect("a socket");
        let (silent, _) = tokio::sync::watch::channel(false);
        let dies = silent.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (socket, mut dies) = (socket.clone(), dies.subscribe());
                tokio::spawn(async move {
                    let mut far = tokio::net::UnixStream::connect(socket).await.expect("the server");
                    let died = dies.changed();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = died => std::future::pending().await,
                    }
                });
            }
        });
        let mut through = config.clone().with_max_connections(1).with_silence(Duration::from_millis(50));
        through.options = config.options.clone().socket(dir.path());
        (through, silent, dir)
    }

    #[tokio::test]
    async fn who_gives_up_on_a_silent_wire_gives_its_connection_back() {
        let test = crate::testing::TestDb::create().await;
        let (config, silent, _dir) = wire(&test.config());
        let db = Db::connect(&config).await.expect("a pool");
        let mut txn = db.begin().await.expect("a transaction");
        silent.send_replace(true);
        let late = in_time(Duration::from_millis(50), async { txn.now().await }).await.expect_err("nothing is said");
        assert!(late.is_unavailable());
        drop(txn);
        db.ping().await.expect("another connection takes its place");

        silent.send_replace(true);
        db.ping().await.expect("one that is dead when it is taken is not used");
    }

    #[tokio::test]
    async fn a_dedicated_connection_is_kept_until_its_owner_gives_up_in_the_middle() {
        let test = crate::testing::TestDb::create().await;
        let (config, silent, _dir) = wire(&test.config());
        let line = Db::connect(&config).await.expect("a pool").dedicated();
        let backend = async || {
            let mut taken = line.take().await.expect("a connection");
            let pid: i32 =
                sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(taken.conn()).await.expect("an answer");
            taken.done();
            pid
        };
        let first = backend().await;
        assert_eq!(backend().await, first);
        assert_eq!(line.pooled().pool().num_idle(), 0, "nobody else gets it");

        silent.send_replace(true);
        let late = in_time(Duration::from_millis(50), line.now()).await.expect_err("nothing is said");
        assert!(late.is_unavailable());
        assert_ne!(backend().await, first, "another connection takes its place");
    }

    #[tokio::test]
    async fn a_listener_whose_wire_says_nothing_any_more_listens_on_another_one() {
        let test = crate::testing::TestDb::create().await;
        let (config, silent, _dir) = wire(&test.config());
        let mut listener =
            poke::Listener::connect(&Db::lazy(&config)).await.expect("a listener").quiet(Duration::from_millis(50));
        silent.send_replace(true);
        assert_eq!(listener.next().await, poke::Heard::Reconnected);
        test.db().poke([Poke::Source("fleet".to_owned())]).await;
        assert_eq!(listener.next().await, poke::Heard::Poke(Poke::Source("fleet".to_owned())));
    }
}
