//! The commit that a fleet's trust begins with, as an operator confirmed it.
//!
//! It lies with the keys and not in the database: whoever steals the database cannot unpin a fleet, or pin it to a history of their
//! own. It is set once, and there is no way back.

use schema::digest::Digest;
use serde::{Deserialize, Serialize};

use super::{Keys, SigningKeys, SourceKeys};
use crate::trust::{object::ObjectId, statement::FleetId};

/// What was confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrustPin {
    /// The anchor: the first commit that holds a policy.
    pub commit: ObjectId,
    /// The fleet that begins with it.
    pub fleet: FleetId,
    /// The digest of its policy.
    pub digest: Digest,
}

/// Why a fleet is not pinned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinRefusal {
    /// It is pinned to another anchor.
    #[error("the fleet is pinned to {at} already, and a pin is never moved", at = .0.commit)]
    Pinned(TrustPin),
    /// The fleet id is not that of the trust domain and the commit.
    #[error("the fleet id {0} is not that of this trust domain and commit")]
    OtherFleet(FleetId),
}

impl Keys {
    /// What was confirmed; `None` while the fleet is unverified.
    #[must_use]
    pub const fn trust_pin(&self) -> Option<TrustPin> {
        self.trust
    }

    /// Pins the fleet, for ever. Counts as a step of the keys, so that processes take it over as they do rotations.
    ///
    /// # Errors
    /// When it is pinned to something else, or the fleet is another one.
    pub fn pin_trust(&mut self, pin: TrustPin) -> Result<(), PinRefusal> {
        if pin.fleet != FleetId::of(&self.trust_domain, &pin.commit) {
            return Err(PinRefusal::OtherFleet(pin.fleet));
        }
        match self.trust {
            Some(held) if held == pin => Ok(()),
            Some(held) => Err(PinRefusal::Pinned(held)),
            None => {
                self.trust = Some(pin);
                self.revision += 1;
                Ok(())
            }
        }
    }
}

impl SigningKeys {
    /// What was confirmed; `None` while the fleet is unverified.
    #[must_use]
    pub const fn trust_pin(&self) -> Option<TrustPin> {
        self.trust
    }
}

impl SourceKeys {
    /// What was confirmed; `None` while the fleet is unverified.
    #[must_use]
    pub const fn trust_pin(&self) -> Option<TrustPin> {
        self.trust
    }
}
