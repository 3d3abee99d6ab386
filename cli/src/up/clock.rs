//! The clock that everything in this process goes by, kept at PostgreSQL's.

use std::{sync::Arc, time::Duration};

use schema::{cause::chain, clock::SharedClock};
use store::{
    Db,
    clock::{Apart, DatabaseClock},
    db,
};
use tokio_util::sync::CancellationToken;

use super::identity;
use crate::exit::Failure;

/// How often PostgreSQL is asked: somebody may set its clock, or another server may take its place.
const ASKED_EVERY: Duration = Duration::from_secs(4);
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);

/// The clock of a database.
///
/// # Errors
/// When the database does not answer.
pub async fn of(db: &Db, host: SharedClock) -> Result<Arc<DatabaseClock>, Failure> {
    let clock = DatabaseClock::ask(db, host).await;
    Ok(Arc::new(clock.map_err(identity::database("cannot ask the database for the time"))?))
}

/// Follows until cancelled, and says when the host's clock is another one.
pub(super) async fn follow(clock: Arc<DatabaseClock>, db: Db, cancel: CancellationToken) {
    let mut said: Option<Apart> = None;
    loop {
        let apart = Apart::of(clock.host_is_off());
        match (said, apart) {
            (None, Some(apart)) => tracing::error!(code = Apart::CODE, "{apart}"),
            (Some(_), None) => tracing::info!("the clock of this host is PostgreSQL's again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        said = apart;
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(ASKED_EVERY) => {}
        }
        if let Err(error) = db::in_time(PATIENCE, clock.follow(&db)).await {
            tracing::debug!(error = chain(&error), "PostgreSQL is asked for the time later");
        }
    }
}
