//! What the parts of a control plane know of its trust anchor, and of the policies that follow from it.
//!
//! No row is believed: the first policy is recognised by the digest in the keys, and each that follows by the statements beside it. Rows
//! that are the same as those that were judged are not judged again.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use pki::{
    keys::TrustPin,
    trust::{
        policy::{self, Policy},
        revoked::Revocations,
        walk::Memory,
    },
};
use store::{
    Db, DbError, control_plane,
    trust::{Epoch, Revocation},
};

use crate::source::FLEET;

/// The pin as it is at this moment, and what follows from it. The pin comes from the keys of this process, never from the database, and is
/// set once for all.
#[derive(Debug, Clone, Default)]
pub struct Pinned(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    pin: RwLock<Option<TrustPin>>,
    /// What was judged last. The same rows are not judged again.
    judged: Mutex<Option<(Rows, Arc<Follows>)>>,
}

/// What policies and revocations are judged from.
#[derive(Debug, PartialEq)]
struct Rows {
    pin: TrustPin,
    domain: String,
    epochs: Vec<Epoch>,
    revocations: Vec<Revocation>,
}

/// What follows from the pin, as far as the stored rows do.
#[derive(Debug)]
pub(crate) struct Follows {
    /// The policies, by epoch.
    pub(crate) policies: BTreeMap<u64, Policy>,
    /// The keys that one person revoked.
    revoked: Revocations,
}

impl Pinned {
    /// A fleet that is unverified, until somebody pins it.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// What the keys of this process say.
    #[must_use]
    pub fn new(pin: Option<TrustPin>) -> Self {
        let this = Self::none();
        this.set(pin);
        this
    }

    /// The pin; `None` while the fleet is unverified.
    #[must_use]
    pub fn get(&self) -> Option<TrustPin> {
        *self.0.pin.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what the keys say. Nothing unpins.
    pub fn set(&self, pin: Option<TrustPin>) {
        let mut held = self.0.pin.write().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            *held = pin;
        }
    }

    /// Policies and revocations, each judged in the order in which it came.
    pub(crate) async fn follows(&self, db: &Db, pin: &TrustPin, domain: &str) -> Result<Arc<Follows>, DbError> {
        let rows = Rows {
            pin: *pin,
            domain: domain.to_owned(),
            epochs: store::trust::epochs(db).await?,
            revocations: store::trust::revocations(db).await?,
        };
        let mut judged = self.0.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, follows)) = judged.as_ref().filter(|(known, _)| *known == rows) {
            return Ok(Arc::clone(follows));
        }
        let follows = Arc::new(rows.judge());
        *judged = Some((rows, Arc::clone(&follows)));
        Ok(follows)
    }
}

/// The policies that follow from what is pinned, by epoch, as far as the stored ones do, and the names of the keys that do not count any
/// more: those that people revoked, and those that a policy calls compromised. `None` while nothing is pinned.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn in_force(db: &Db, pinned: &Pinned) -> Result<Option<(BTreeMap<u64, Policy>, BTreeSet<String>)>, DbError> {
    let Some(pin) = pinned.get() else { return Ok(None) };
    let domain = control_plane::find(db).await?.and_then(|row| row.trust_domain).unwrap_or_default();
    let follows = pinned.follows(db, &pin, &domain).await?;
    let declared = follows.policies.values().flat_map(Policy::compromised).map(|(key, _)| key);
    let mut denied: BTreeSet<String> = follows.revoked.names().chain(declared).map(str::to_owned).collect();
    // What the verified history remembers, though its policy may not be in force or the statement be gone. It only takes away.
    let reached = store::trust::checkpoint(db, FLEET).await?;
    let remembered = reached.and_then(|reached| serde_json::from_slice::<Remembers>(&reached.body).ok());
    denied.extend(remembered.into_iter().flat_map(|remembers| remembers.memory.denied()));
    Ok(Some((follows.policies.clone(), denied)))
}

/// The part of a checkpoint that says what is known of keys.
#[derive(serde::Deserialize)]
struct Remembers {
    memory: Memory,
}

impl Rows {
    /// In the order in which it came, as machines do.
    fn judge(&self) -> Follows {
        let Self { pin, domain, epochs, revocations } = self;
        let mut heard = revocations.iter().peekable();
        let (mut policies, mut revoked) = (BTreeMap::new(), Revocations::default());
        for epoch in epochs {
            if let Some(newest) = policies.values().next_back() {
                while let Some(one) = heard.next_if(|one| one.epoch < epoch.epoch) {
                    revoked.hear([one.raw.as_slice()], domain, pin.fleet, newest, None);
                }
            }
            match follow(&policies, epoch, domain, pin, &mut revoked) {
                Some(policy) => policies.insert(policy.epoch(), policy),
                None => break,
            };
        }
        if let Some(newest) = policies.values().next_back() {
            for one in heard {
                revoked.hear([one.raw.as_slice()], domain, pin.fleet, newest, None);
            }
        }
        Follows { policies, revoked }
    }
}

/// The stored policy, when it follows.
fn follow(
    policies: &BTreeMap<u64, Policy>,
    epoch: &Epoch,
    domain: &str,
    pin: &TrustPin,
    revoked: &mut Revocations,
) -> Option<Policy> {
    let followed = match policies.values().next_back() {
        None => policy::first(&epoch.policy, pin.digest),
        Some(old) => policy::step(old, &epoch.policy, &epoch.statements, domain, pin.fleet, revoked),
    };
    followed
        .inspect_err(|error| tracing::error!(epoch = epoch.epoch, %error, "a stored trust policy does not follow"))
        .ok()
}
