//! Certificates that this process shows: made anew before they are too old, and whenever the keys change.

use std::{sync::Arc, time::Duration};

use pki::{issue::TlsIdentity, keys::Keys};
use schema::{clock::SharedClock, time::Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::exit::{During as _, Failure};

/// What the internal service is called in its certificate.
const INTERNAL: &str = "control-plane";
/// How often it is looked whether they are too old: a clock that is set back makes them not valid yet.
const LOOK: Duration = Duration::from_secs(10);

/// Makes a certificate for the API and for machines, under these names.
///
/// # Errors
/// When a name cannot stand in a certificate.
pub(super) fn serving(keys: &Keys, names: &[String], now: Timestamp) -> Result<TlsIdentity, Failure> {
    keys.issue_serving(names, now).during("cannot make a serving certificate")
}

/// Makes a certificate for the internal service.
///
/// # Errors
/// When nothing can be issued.
pub(super) fn internal(keys: &Keys, now: Timestamp) -> Result<TlsIdentity, Failure> {
    keys.issue_internal(INTERNAL, now).during("cannot make the internal certificate")
}

/// Keeps a certificate fresh until cancelled. `replace` makes the next one and shows it.
pub(super) async fn renew(
    mut keys: Arc<Keys>,
    mut changed: watch::Receiver<Option<Arc<Keys>>>,
    clock: SharedClock,
    mut current: TlsIdentity,
    replace: impl Fn(&Keys, Timestamp) -> Result<TlsIdentity, Failure>,
    cancel: CancellationToken,
) {
    let mut made = clock.now();
    loop {
        let rotated = tokio::select! {
            () = cancel.cancelled() => return,
            // The sender lives as long as the parts; without it there is nothing to follow.
            Ok(()) = changed.changed() => true,
            () = tokio::time::sleep(LOOK) => false,
        };
        let now = clock.now();
        let half = current.not_after().map_or(0, |end| (end.as_second() - made.as_second()) / 2);
        if !rotated && (0..half).contains(&(now.as_second() - made.as_second())) {
            continue;
        }
        if let Some(next) = changed.borrow_and_update().clone() {
            keys = next;
        }
        match replace(&keys, now) {
            Ok(next) => {
                tracing::info!("made the next certificate");
                (current, made) = (next, now);
            }
            Err(error) => tracing::error!(%error, "the certificate of before stays in use"),
        }
    }
}
