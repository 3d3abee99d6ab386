//! What a process may do with keys: everything, or what one role needs. Prepared here; nothing runs yet.

use std::sync::Arc;

use pki::{
    Realm,
    keys::{SigningKeys, SourceKeys},
};
use reconciler::{
    api,
    custody::{Custody, SourceCustody},
    join::{JoinConfig, JoinService, Signer},
};
use schema::clock::SharedClock;
use store::Db;

use super::identity::Identity;

/// What has authority: it lets machines in and signs.
#[derive(Debug, Clone)]
pub struct Authority {
    /// Signs specs, answers and time.
    pub signer: Arc<Signer>,
    /// Lets machines in.
    pub joins: Arc<JoinService>,
    /// Knows what rows have to follow from.
    pub custody: Arc<Custody>,
    /// Signs revisions.
    pub source: Arc<SourceCustody>,
}

impl Authority {
    /// Prepares it, and has the database mark what this process queues.
    #[must_use]
    pub fn new(db: &Db, clock: &SharedClock, identity: &Identity) -> Self {
        let realm = identity.realm.clone();
        let signer = Arc::new(Signer::new(identity.keys.command_root().clone(), realm.clone(), clock.now()));
        let custody = Custody::new(&identity.keys.signing(), &realm.fleet_id);
        let source = SourceCustody::new(&identity.keys.source(), &realm.fleet_id);
        db.set_marker(Arc::clone(&custody) as _);
        let joins = JoinService::new(JoinConfig {
            db: db.clone(),
            keys: &identity.keys,
            realm,
            dev: identity.dev,
            clock: Arc::clone(clock),
            signer: Arc::clone(&signer),
        });
        Self { signer, joins: Arc::new(joins), custody, source }
    }

    /// What exports of the audit log are made with.
    #[must_use]
    pub fn auditor(&self) -> api::Auditor {
        api::Auditor { custody: Arc::clone(&self.custody), joins: Arc::clone(&self.joins) }
    }
}

/// What a process has that only runs controllers, or follows the fleet, or both.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Signs specs and commands, and knows what rows have to follow from.
    pub signing: Option<(Arc<Signer>, Arc<Custody>)>,
    /// Signs revisions.
    pub source: Option<Arc<SourceCustody>>,
}

impl Part {
    /// Prepares it for a process that does nothing else with keys, and has the database mark what this process queues.
    #[must_use]
    pub fn new(
        db: &Db,
        clock: &SharedClock,
        signing: Option<&SigningKeys>,
        source: Option<&SourceKeys>,
        realm: &Realm,
    ) -> Self {
        let signing = signing.map(|keys| {
            let signer = Signer::new(keys.command_root().clone(), realm.clone(), clock.now());
            (Arc::new(signer), Custody::new(keys, &realm.fleet_id))
        });
        let source = source.map(|keys| SourceCustody::new(keys, &realm.fleet_id));
        match (&signing, &source) {
            (Some((_, custody)), _) => db.set_marker(Arc::clone(custody) as _),
            (None, Some(source)) => db.set_marker(Arc::clone(source) as _),
            (None, None) => {}
        }
        Self { signing, source }
    }
}

impl From<&Authority> for Part {
    fn from(authority: &Authority) -> Self {
        let Authority { signer, custody, source, joins: _ } = authority;
        Self { signing: Some((Arc::clone(signer), Arc::clone(custody))), source: Some(Arc::clone(source)) }
    }
}
