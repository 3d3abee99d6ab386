//! Databases for tests: real PostgreSQL, one server for the process, each test in a clone of a migrated template.
//!
//! The server is a private one that gives up durability for speed, or the one that `BETTER_COMPUTE_TEST_PG` names by URL.
//! Always compiled, so that there is no feature flag; nothing else uses it.

use std::{
    io,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use nix::{errno::Errno, sys::signal, unistd::Pid};
use schema::digest::Digest;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::{
    Db, DbConfig,
    embedded::{Config, Embedded},
    migrate,
    outbox::{self, Cursor, Event},
};

mod dump;
pub mod probes;

pub use dump::dump;
pub use probes::{spoil, steal, tables};

/// Names the server that tests share, as a URL of a user who may create databases.
const SHARED: &str = "BETTER_COMPUTE_TEST_PG";

/// A database of one test. Once this is dropped, or the process that made it is gone, the next [`TestDb::create`] of any
/// process on the server removes it: a run of all tests leaves no more behind than tests that run at a time.
#[derive(Debug)]
pub struct TestDb {
    db: Db,
    config: DbConfig,
    name: String,
    offset: tokio::sync::Mutex<Duration>,
}

impl TestDb {
    /// A fresh, migrated database.
    ///
    /// # Panics
    /// When there is no PostgreSQL: a test that needs one cannot go on.
    pub async fn create() -> Self {
        let server = tokio::task::spawn_blocking(server).await.expect("the test server starts");
        let name = format!("test_{}_{}", std::process::id(), uuid::Uuid::new_v4().simple());
        let mut admin = admin(server).await;
        for old in ended(&mut admin).await {
            let drop = format!("DROP DATABASE IF EXISTS {old} WITH (FORCE)");
            admin.execute(AssertSqlSafe(drop)).await.expect("a database is dropped");
        }
        migrate::create_database(&mut admin, &name, Some(&server.template)).await.expect("a template is cloned");
        admin.close().await.expect("a connection closes");
        let config = server.config.clone().with_database(&name);
        let db = Db::connect(&config).await.expect("a clone accepts connections");
        Self { db, config, name, offset: tokio::sync::Mutex::default() }
    }

    /// Its pool.
    #[must_use]
    pub const fn db(&self) -> &Db {
        &self.db
    }

    /// How to connect to it, for another pool or process of the same test.
    #[must_use]
    pub fn config(&self) -> DbConfig {
        self.config.clone()
    }

    /// Moves the database's clock forward, for every connection: the open ones are cut, pools connect again.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn advance(&self, by: Duration) {
        let mut offset = self.offset.lock().await;
        *offset += by;
        let mut admin = admin(tokio::task::spawn_blocking(server).await.expect("the test server runs")).await;
        let set =
            format!("ALTER DATABASE {} SET compute.clock_offset = '{} milliseconds'", self.name, offset.as_millis());
        admin.execute(AssertSqlSafe(set)).await.expect("the clock moves");
        loop {
            let left: i64 =
                sqlx::query_scalar("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1")
                    .bind(&self.name)
                    .fetch_one(&mut admin)
                    .await
                    .expect("connections are cut");
            if left == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        admin.close().await.expect("a connection closes");
    }
}

impl TestDb {
    /// Whether a statement waits for a lock that another transaction holds.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn waits_for_a_lock(&self) -> bool {
        let waiting = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock')",
        )
        .bind(&self.name)
        .fetch_one(self.db.pool());
        waiting.await.expect("activity is listed")
    }
}

/// The events after a place, of these kinds (none: all), once there are so many at least: a transaction of any database on
/// the server that began before them keeps events back for a moment.
///
/// # Panics
/// When the server does not answer.
pub async fn events(db: &Db, after: Cursor, kinds: &[&str], wanted: usize) -> Vec<Event> {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    loop {
        let events = outbox::list(db, after, &kinds, 1_000).await.expect("events are listed");
        let events = events.events.whole().expect("events that can be read");
        if events.len() >= wanted {
            return events;
        }
        tokio::task::yield_now().await;
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        DONE.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.name));
    }
}

/// The databases of this process's tests that have ended.
static DONE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The databases that no test uses any more: of this process, and of those that are gone. Where one process runs one test,
/// there are only the latter.
async fn ended(admin: &mut PgConnection) -> Vec<String> {
    let mut ended = std::mem::take(&mut *DONE.lock().unwrap_or_else(PoisonError::into_inner));
    let all: Vec<String> = sqlx::query_scalar("SELECT datname FROM pg_database WHERE datname LIKE 'test\\_%'")
        .fetch_all(admin)
        .await
        .expect("databases are listed");
    ended.extend(all.into_iter().filter(|name| {
        let process = name.split('_').nth(1).and_then(|pid| pid.parse().ok()).map(Pid::from_raw);
        process.is_some_and(|pid| signal::kill(pid, None) == Err(Errno::ESRCH))
    }));
    ended
}

#[derive(Debug)]
struct Server {
    config: DbConfig,
    template: String,
    // Lives as long as the process: the server follows it, then the sweeper removes the directory.
    _private: Option<(Embedded, Child)>,
}

async fn admin(server: &Server) -> PgConnection {
    PgConnection::connect_with(&server.config.options).await.expect("the test server accepts connections")
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        // A thread with a runtime of its own: tests each have theirs, and this outlives them.
        thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
            runtime.block_on(start())
        })
        .join()
        .expect("the test server starts")
    })
}

async fn start() -> Server {
    let (config, private) = match std::env::var(SHARED) {
        Ok(url) => (DbConfig::from_url(&url).expect("BETTER_COMPUTE_TEST_PG is a URL"), None),
        Err(_) => {
            let dir = std::env::temp_dir().join(format!("better-compute-test-{}", std::process::id()));
            let sweeper = sweeper(&dir).expect("a shell starts");
            let embedded = Embedded::start(Config { dir, fast: true }).await.expect("a private postgresql for tests");
            (embedded.db_config(), Some((embedded, sweeper)))
        }
    };
    let template = template(&config).await;
    Server { config, template, _private: private }
}

/// Removes the directory once this process is gone: its end of the pipe closes then, however it ends.
fn sweeper(dir: &PathBuf) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let script = r#"cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do rm -rf "$0" 2>/dev/null; [ -e "$0" ] || exit 0; sleep 0.2; done"#;
    Command::new("sh")
        .arg("-c")
        .arg(script)
        .arg(dir)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// A migrated database to clone, made once per server and set of migrations.
async fn template(config: &DbConfig) -> String {
    let name = format!("template_{}", Digest::of(migrate::fingerprint()).short());
    let mut admin = PgConnection::connect_with(&config.options).await.expect("the test server accepts connections");
    // Test processes that share a server take turns.
    admin.execute("SELECT pg_advisory_lock(727274)").await.expect("a lock");
    let ready: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)")
            .bind(&name)
            .fetch_one(&mut admin)
            .await
            .expect("databases are listed");
    if !ready {
        admin
            .execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name}")))
            .await
            .expect("a half template is dropped");
        migrate::create_database(&mut admin, &name, None).await.expect("a database is created");
        migrate::run(&config.clone().with_database(&name)).await.expect("migrations run");
        admin
            .execute(AssertSqlSafe(format!("ALTER DATABASE {name} IS_TEMPLATE true")))
            .await
            .expect("a template is marked");
    }
    admin.close().await.expect("a connection closes");
    name
}
