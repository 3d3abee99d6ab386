//! Who a control plane is: keys in a directory and a row in the database, which must belong together.

use std::time::Duration;

use pki::{
    Realm,
    keys::{Keys, SigningKeys, SourceKeys},
};
use schema::{id::FleetId, time::Timestamp};
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
        Some(keys) if keys.fleet_id().is_some() => return Err(missing(Some(place))),
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
    // Only now: keys that name a fleet whose row is not there are refused.
    let keys = keys.of_fleet(row.fleet_id);
    place.store_control_plane(&keys)?;
    belong_together(keys, &row)
}

/// The database says nothing of whose it is: it is new, or that row was taken away.
#[must_use]
pub fn missing(place: Option<&KeyDir>) -> Failure {
    match place.and_then(|place| Some((place, place.fleet_id()?))) {
        Some((place, fleet)) => Failure::failed(format!(
            "table control_plane of the database has no row, and the keys in {} are for the fleet {fleet}",
            place.path().display()
        ))
        .hint(format!(
            "somebody took that row away, or this is another database: put it back from a backup (its fleet_id is {}); \
             a new control plane gets keys of its own",
            fleet.as_uuid()
        )),
        None => {
            Failure::failed("the database belongs to no control plane yet").hint("`better-compute keys init` makes one")
        }
    }
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
        tracing::warn!(
            "this database was restored from a backup: what was done since then is undone, revocations too; \
             `better-compute why database-restored` says what to look at"
        );
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
        Failure { exit, ..Failure::because(what, &error) }.or_hint(|| error.remedy().map(str::to_owned))
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
    let identity = belong_together(keys, row)?;
    Ok(Identity { keys: bound(place, identity.keys, row.fleet_id), ..identity })
}

/// Has keys from before keys named their fleet do so: from now on another one is refused. A directory that cannot be written
/// keeps nobody from starting.
fn bound(place: &KeyDir, keys: Keys, fleet: FleetId) -> Keys {
    if keys.fleet_id().is_some() {
        return keys;
    }
    let bind = || {
        let _held = place.hold()?;
        let keys = place.control_plane()?.unwrap_or(keys.clone()).of_fleet(fleet);
        place.store_control_plane(&keys).map(|()| keys)
    };
    bind().unwrap_or_else(|failure| {
        tracing::warn!(error = %failure, "these keys do not name their fleet yet; the database is believed");
        keys
    })
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
    let realm = realm(keys.trust_domain(), keys.fleet_id(), row)?;
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
    let realm = realm(keys.trust_domain(), keys.fleet_id(), row)?;
    Ok((keys, realm))
}

/// Whom a process names that has no keys.
///
/// # Errors
/// When the database belongs to nobody yet.
pub fn named(row: &ControlPlane) -> Result<Realm, Failure> {
    let trust_domain = row.trust_domain.as_deref().ok_or_else(|| missing(None))?;
    realm(trust_domain, None, row)
}

fn belong_together(keys: Keys, row: &ControlPlane) -> Result<Identity, Failure> {
    let realm = realm(keys.trust_domain(), keys.fleet_id(), row)?;
    Ok(Identity { keys, realm, dev: row.dev })
}

/// The realm of keys and of the row that belongs to them.
///
/// # Errors
/// When the row is of another control plane, or was changed.
pub fn realm(trust_domain: &str, fleet: Option<FleetId>, row: &ControlPlane) -> Result<Realm, Failure> {
    let stored = row.trust_domain.as_deref().unwrap_or(trust_domain);
    if stored != trust_domain {
        let message = format!("the keys are for the trust domain {trust_domain} and the database is for {stored}");
        return Err(Failure::failed(message).hint("keys and database of one control plane belong together"));
    }
    if let Some(fleet) = fleet.filter(|fleet| *fleet != row.fleet_id) {
        let message = format!(
            "the keys are for the fleet {fleet}, and the row of control_plane in the database says {}",
            row.fleet_id
        );
        return Err(Failure::failed(message).hint(format!(
            "somebody changed fleet_id in that row, or this is another control plane's database: put back {}, \
             or start with the database that belongs to these keys",
            fleet.as_uuid()
        )));
    }
    Ok(Realm::new(trust_domain, row.fleet_id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-29T12:00:00Z".parse().unwrap()
    }

    fn row(fleet_id: FleetId) -> ControlPlane {
        ControlPlane { fleet_id, trust_domain: Some("bc.local".to_owned()), dev: false, created_at: now() }
    }

    fn place(dir: &tempfile::TempDir) -> KeyDir {
        pki::install_provider();
        let place = KeyDir::at(dir.path());
        place.store_control_plane(&Keys::generate("bc.local", now()).unwrap()).unwrap();
        place
    }

    #[test]
    fn keys_that_worked_with_one_fleet_refuse_a_row_of_another_and_name_it() {
        let dir = tempfile::tempdir().unwrap();
        let (place, one, two) = (place(&dir), FleetId::generate(), FleetId::generate());
        assert_eq!(open(&place, &row(one)).unwrap().realm.fleet_id, one.to_string());
        let refused = [
            open(&place, &row(two)).map(drop),
            open_signing(&place, &row(two)).map(drop),
            open_source(&place, &row(two)).map(drop),
        ];
        for refused in refused {
            let failure = refused.unwrap_err();
            assert!(failure.message.contains("the row of control_plane"), "{failure}");
            assert!(failure.message.contains(&one.to_string()) && failure.message.contains(&two.to_string()));
            assert!(failure.hint.is_some_and(|hint| hint.contains(&one.as_uuid().to_string())));
        }
        assert_eq!(open(&place, &row(one)).unwrap().realm.fleet_id, one.to_string());
    }

    #[test]
    fn a_row_that_is_gone_is_told_of_by_whoever_has_keys_of_its_fleet() {
        let dir = tempfile::tempdir().unwrap();
        let (place, fleet) = (place(&dir), FleetId::generate());
        assert!(missing(Some(&place)).message.contains("no control plane yet"), "nobody ever worked with these");
        open(&place, &row(fleet)).unwrap();
        let failure = missing(Some(&place));
        assert!(failure.message.contains("control_plane") && failure.message.contains(&fleet.to_string()), "{failure}");
    }

    #[test]
    fn keys_that_cannot_be_written_start_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (place, fleet) = (place(&dir), FleetId::generate());
        let _held = place.hold().unwrap();
        assert_eq!(open(&place, &row(fleet)).unwrap().realm.fleet_id, fleet.to_string());
        assert_eq!(place.fleet_id(), None);
    }
}
