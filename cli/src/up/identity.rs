//! Who a control plane is: keys in a directory and a row in the database, which must belong together.

use std::time::Duration;

use pki::{
    Realm,
    keys::{Keys, SigningKeys, SourceKeys},
};
use schema::time::Timestamp;
use store::{
    Db, DbError,
    control_plane::{self, ControlPlane},
};

use super::keys::KeyDir;
use crate::exit::{Exit, Failure};

/// How long a database may be away while everything starts.
const PATIENCE: Duration = Duration::from_secs(30);

/// A control plane that knows who it is.
#[derive(Debug)]
pub struct Identity {
    /// Its keys.
    pub keys: Keys,
    /// Its trust domain and fleet.
    pub realm: Realm,
    /// Whether it admits described hardware.
    pub dev: bool,
}

/// What is stored about the control plane; `None` before it was made.
///
/// # Errors
/// When the database does not answer.
pub async fn stored(db: &Db) -> Result<Option<ControlPlane>, Failure> {
    control_plane::find(db).await.map_err(database("cannot read who the control plane is"))
}

/// Makes the keys and the row of a new control plane.
///
/// # Errors
/// When the trust domain is none, or something cannot be written.
pub async fn create(
    db: &Db,
    place: &KeyDir,
    trust_domain: &str,
    dev: bool,
    now: Timestamp,
) -> Result<Identity, Failure> {
    let keys = match place.control_plane()? {
        Some(keys) => keys,
        None => {
            let keys = Keys::generate(trust_domain, now).map_err(|error| Failure::usage(error.to_string()))?;
            place.store_control_plane(&keys)?;
            keys
        }
    };
    let what = "cannot store who the control plane is";
    let mut txn = db.begin().await.map_err(database(what))?;
    let row = control_plane::ensure(&mut txn, dev, Some(keys.trust_domain())).await.map_err(database(what))?;
    txn.commit().await.map_err(database(what))?;
    belong_together(keys, &row)
}

/// Gives the row the trust domain of keys that were made anew, while that is possible.
///
/// # Errors
/// When the database does not answer.
pub async fn rename(db: &Db, place: &KeyDir) -> Result<(), Failure> {
    let what = "cannot store the trust domain";
    let Some(keys) = place.control_plane()? else { return Ok(()) };
    let mut txn = db.begin().await.map_err(database(what))?;
    let renamed = control_plane::rename(&mut txn, keys.trust_domain()).await.map_err(database(what))?;
    txn.commit().await.map_err(database(what))?;
    if renamed { place.settle() } else { Ok(()) }
}

/// Notices a database that was restored: what happened before then comes before what happens from now on.
///
/// # Errors
/// When the database does not answer.
pub async fn begin_life(db: &Db) -> Result<(), Failure> {
    if store::outbox::begin_life(db).await.map_err(database("cannot note which server this is"))? {
        tracing::warn!("this database is on another server than before: it was restored");
    }
    Ok(())
}

/// Tries again for a while what failed because the database is away, as it is while everything starts at once.
///
/// # Errors
/// What `attempt` says once it is not that, or once the patience is over.
pub async fn patiently<T>(mut attempt: impl AsyncFnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        match attempt().await {
            Err(failure) if failure.exit == Exit::Unreachable && tokio::time::Instant::now() < until => {
                tracing::warn!(error = %failure, "the database is not there yet");
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            done => return done,
        }
    }
}

/// A failure of the database; one that may pass is told from one that will not.
pub fn database(what: &str) -> impl FnOnce(DbError) -> Failure + '_ {
    move |error| {
        let exit = if error.is_unavailable() { Exit::Unreachable } else { Exit::Failed };
        Failure { exit, ..Failure::because(what, &error) }
    }
}

/// The keys of a control plane that was made before.
///
/// # Errors
/// When there are none, or they are another control plane's.
pub fn open(place: &KeyDir, row: &ControlPlane) -> Result<Identity, Failure> {
    let keys = place.control_plane()?.ok_or_else(|| {
        Failure::failed(format!(
            "the database belongs to a control plane whose keys are not in {}",
            place.path().display()
        ))
        .hint("bring its key directory here; nodes believe those keys and no others")
    })?;
    belong_together(keys, row)
}

/// What signs for a control plane that was made before.
///
/// # Errors
/// When there is none, or it is another control plane's.
pub fn open_signing(place: &KeyDir, row: &ControlPlane) -> Result<(SigningKeys, Realm), Failure> {
    let keys = place.signing()?.ok_or_else(|| {
        Failure::failed(format!("{} holds no keys that sign", place.path().display()))
            .hint("make them where the control plane's keys are: better-compute keys signing --keys DIR --out DIR")
    })?;
    let realm = realm(keys.trust_domain(), row)?;
    Ok((keys, realm))
}

/// What signs revisions for a control plane that was made before.
///
/// # Errors
/// When there is none, or it is another control plane's.
pub fn open_source(place: &KeyDir, row: &ControlPlane) -> Result<(SourceKeys, Realm), Failure> {
    let keys = place.source()?.ok_or_else(|| {
        Failure::failed(format!("{} holds no keys that sign revisions", place.path().display()))
            .hint("make them where the control plane's keys are: better-compute keys source --keys DIR --out DIR")
    })?;
    let realm = realm(keys.trust_domain(), row)?;
    Ok((keys, realm))
}

/// Whom a process names that has no keys.
///
/// # Errors
/// When the database belongs to nobody yet.
pub fn named(row: &ControlPlane) -> Result<Realm, Failure> {
    let trust_domain = row.trust_domain.as_deref().ok_or_else(|| {
        Failure::failed("the database belongs to no control plane yet").hint("`better-compute keys init` makes one")
    })?;
    realm(trust_domain, row)
}

fn belong_together(keys: Keys, row: &ControlPlane) -> Result<Identity, Failure> {
    let realm = realm(keys.trust_domain(), row)?;
    Ok(Identity { keys, realm, dev: row.dev })
}

fn realm(trust_domain: &str, row: &ControlPlane) -> Result<Realm, Failure> {
    let stored = row.trust_domain.as_deref().unwrap_or(trust_domain);
    if stored != trust_domain {
        let message = format!("the keys are for the trust domain {trust_domain} and the database is for {stored}");
        return Err(Failure::failed(message).hint("keys and database of one control plane belong together"));
    }
    Ok(Realm::new(trust_domain, row.fleet_id.to_string()))
}
