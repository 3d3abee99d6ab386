//! The certificate of the internal service: made anew before it is old, and whenever the keys change.

use std::{sync::Arc, time::Duration};

use pki::{keys::Keys, tls::InternalServer};
use schema::{cause::chain, clock::SharedClock, time::Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::exit::{During as _, Failure};

const NAME: &str = "control-plane";
const LOOKED_AT: Duration = Duration::from_secs(3_600);

/// What the service shows and believes with these keys.
///
/// # Errors
/// When nothing can be issued.
pub(super) fn server(keys: &Keys, clock: &SharedClock) -> Result<Arc<InternalServer>, Failure> {
    let what = "cannot make the internal certificate";
    let identity = keys.issue_internal(NAME, clock.now()).during(what)?;
    InternalServer::new(&identity, &keys.internal_authorities(), Arc::clone(clock)).during(what)
}

/// Keeps it fresh until cancelled.
pub(super) async fn follow(
    server: Arc<InternalServer>,
    mut keys: Arc<Keys>,
    mut changed: watch::Receiver<Option<Arc<Keys>>>,
    clock: SharedClock,
    cancel: CancellationToken,
) {
    let mut made = clock.now();
    loop {
        let rotated = tokio::select! {
            () = cancel.cancelled() => return,
            // The sender lives as long as the parts; without it there is nothing to follow.
            Ok(()) = changed.changed() => true,
            () = tokio::time::sleep(LOOKED_AT) => false,
        };
        let now = clock.now();
        if !rotated && !is_old(made, now) {
            continue;
        }
        if let Some(next) = changed.borrow_and_update().clone() {
            keys = next;
        }
        match keys.issue_internal(NAME, now) {
            Ok(identity) => match server.replace(&identity, &keys.internal_authorities(), Arc::clone(&clock)) {
                Ok(()) => made = now,
                Err(error) => tracing::error!(error = chain(&error), "cannot use the next internal certificate"),
            },
            Err(error) => tracing::error!(error = chain(&error), "cannot make the next internal certificate"),
        }
    }
}

/// Past half of its life.
fn is_old(made: Timestamp, now: Timestamp) -> bool {
    let life = i64::try_from(pki::issue::SERVING_LIFE.as_secs()).unwrap_or(i64::MAX);
    now.as_second() - made.as_second() >= life / 2
}
