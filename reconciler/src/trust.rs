//! What the parts of a control plane know of its trust anchor.

use std::sync::{Arc, PoisonError, RwLock};

use pki::keys::TrustPin;

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
