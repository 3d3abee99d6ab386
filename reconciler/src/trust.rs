//! What the parts of a control plane know of its trust anchor, and of the policies that follow from it.
//!
//! No row is believed: the first policy is recognised by the digest in the keys, and each that follows by the statements beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, RwLock},
};

use pki::{
    keys::TrustPin,
    trust::{
        policy::{self, Policy},
        revoked::Revocations,
        walk::Memory,
    },
};
use store::{Db, DbError, control_plane, trust::Epoch};

use crate::source::FLEET;

/// The pin as it is at this moment. It comes from the keys of this process, never from the database, and is set once for all.
#[derive(Debug, Clone, Default)]
pub struct Pinned(Arc<RwLock<Option<TrustPin>>>);

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
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what the keys say. Nothing unpins.
    pub fn set(&self, pin: Option<TrustPin>) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            *held = pin;
        }
    }
}

/// The policies that follow from what is pinned, by epoch, as far as the stored ones do.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn policies(db: &Db, pin: &TrustPin) -> Result<BTreeMap<u64, Policy>, DbError> {
    let domain = control_plane::find(db).await?.and_then(|row| row.trust_domain).unwrap_or_default();
    policies_in(db, pin, &domain).await
}

/// The same for a process that knows its trust domain.
pub(crate) async fn policies_in(db: &Db, pin: &TrustPin, domain: &str) -> Result<BTreeMap<u64, Policy>, DbError> {
    Ok(standing(db, pin, domain).await?.0)
}

/// The names of the keys that do not count any more: those that people revoked, and those that a policy calls compromised.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn revoked(db: &Db, pin: &TrustPin) -> Result<BTreeSet<String>, DbError> {
    let domain = control_plane::find(db).await?.and_then(|row| row.trust_domain).unwrap_or_default();
    let (policies, revoked) = standing(db, pin, &domain).await?;
    let declared = policies.values().flat_map(Policy::compromised).map(|(key, _)| key);
    let mut denied: BTreeSet<String> = revoked.names().chain(declared).map(str::to_owned).collect();
    // What the verified history remembers, though its policy may not be in force or the statement be gone. It only takes away.
    let reached = store::trust::checkpoint(db, FLEET).await?;
    let remembered = reached.and_then(|reached| serde_json::from_slice::<Remembers>(&reached.body).ok());
    denied.extend(remembered.into_iter().flat_map(|remembers| remembers.memory.denied()));
    Ok(denied)
}

/// The part of a checkpoint that says what is known of keys.
#[derive(serde::Deserialize)]
struct Remembers {
    memory: Memory,
}

/// Policies and revocations, each judged in the order in which it came.
async fn standing(db: &Db, pin: &TrustPin, domain: &str) -> Result<(BTreeMap<u64, Policy>, Revocations), DbError> {
    let epochs = store::trust::epochs(db).await?;
    let mut said = store::trust::statements_of(db, &["revoke/v1"], None).await?.into_iter().peekable();
    let (mut policies, mut revoked) = (BTreeMap::new(), Revocations::default());
    for epoch in &epochs {
        if let Some(newest) = policies.values().next_back() {
            while let Some(one) = said.next_if(|one| one.first_seen_at < epoch.at) {
                revoked.hear([one.raw.as_slice()], domain, pin.fleet, newest, None);
            }
        }
        match follow(&policies, epoch, domain, pin, &revoked) {
            Some(policy) => policies.insert(policy.epoch(), policy),
            None => break,
        };
    }
    if let Some(newest) = policies.values().next_back() {
        for one in said {
            revoked.hear([one.raw.as_slice()], domain, pin.fleet, newest, None);
        }
    }
    Ok((policies, revoked))
}

/// The stored policy, when it follows.
fn follow(
    policies: &BTreeMap<u64, Policy>,
    epoch: &Epoch,
    domain: &str,
    pin: &TrustPin,
    revoked: &Revocations,
) -> Option<Policy> {
    let followed = match policies.values().next_back() {
        None => policy::first(&epoch.policy, pin.digest),
        Some(old) => policy::step(old, &epoch.policy, &epoch.statements, domain, pin.fleet, revoked),
    };
    followed
        .inspect_err(|error| tracing::error!(epoch = epoch.epoch, %error, "a stored trust policy does not follow"))
        .ok()
}
