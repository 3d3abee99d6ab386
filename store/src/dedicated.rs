//! A connection of one's own, for a loop that asks hundreds of times a second.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use schema::time::Timestamp;
use sqlx::{PgConnection, Postgres, pool::PoolConnection};

use crate::{
    Db, DbError,
    db::JUST_NOW,
    poke::{self, Poke},
};

/// A connection that its owner keeps between two statements. A pool asks a connection whether it still answers whenever it is
/// given back, which costs as much as a small statement; this one goes back to the pool when a statement failed, when its owner
/// gave up in the middle, and when it was not used for a second. Whoever asks while it is in use takes another one of the pool.
pub struct Dedicated {
    db: Db,
    kept: Mutex<Option<(PoolConnection<Postgres>, Instant)>>,
}

impl fmt::Debug for Dedicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dedicated").field("db", &self.db).finish_non_exhaustive()
    }
}

impl Dedicated {
    pub(crate) const fn new(db: Db) -> Self {
        Self { db, kept: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(PoolConnection<Postgres>, Instant)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its pool, for what is asked seldom.
    #[must_use]
    pub const fn pooled(&self) -> &Db {
        &self.db
    }

    /// The connection, for one statement.
    pub(crate) async fn take(&self) -> Result<Taken<'_>, DbError> {
        // One that rested for too long is back in the pool before another one is asked of it, which may have no other.
        let kept = self.lock().take().filter(|(_, used)| used.elapsed() < JUST_NOW);
        let connection = match kept {
            Some((connection, _)) => connection,
            None => self.db.pool().acquire().await?,
        };
        Ok(Taken { connection, owner: self })
    }

    /// The database's time, as [`Db::now`].
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn now(&self) -> Result<Timestamp, DbError> {
        let mut taken = self.take().await?;
        let now = sqlx::query_scalar!(r#"SELECT compute_now() AS "now!""#).fetch_one(taken.conn()).await?;
        taken.done();
        Ok(now.to_jiff())
    }

    /// Sends pokes, as [`Db::poke`].
    pub(crate) async fn poke(&self, pokes: impl IntoIterator<Item = Poke>) {
        if let Ok(mut taken) = self.take().await
            && poke::send(taken.conn(), pokes.into_iter().collect()).await
        {
            taken.done();
        }
    }
}

/// The connection while it is used. Dropped before [`Taken::done`] it goes back to the pool.
pub(crate) struct Taken<'a> {
    connection: PoolConnection<Postgres>,
    owner: &'a Dedicated,
}

impl Taken<'_> {
    pub(crate) fn conn(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// What was asked was answered: it is kept for the next statement.
    pub(crate) fn done(self) {
        let Self { connection, owner } = self;
        *owner.lock() = Some((connection, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_rested_for_too_long_is_asked_again_also_where_the_pool_has_no_other() {
        let test = crate::testing::TestDb::create().await;
        let config = test.config().with_max_connections(1);
        let line = Db::connect(&config).await.expect("a pool").dedicated();
        line.now().await.expect("a connection");
        let rested = Instant::now().checked_sub(2 * JUST_NOW).expect("a machine that runs for longer");
        line.lock().as_mut().expect("it is kept").1 = rested;
        line.now().await.expect("the same one, by way of the pool");
    }
}
