//! What a plan means for those who book machines. Typed so that readers know the sections; absent until somebody books.

use schema::{effect::EffectClass, name::Name, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A booking on machines that move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservationImpact {
    /// The booking's id.
    pub reservation: String,
    /// Who booked.
    pub tenant: Name,
    /// Its machines that move.
    pub machines: Vec<Name>,
    /// The hardest effect on one of them.
    pub effect: EffectClass,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
}

/// A tenant with bookings on machines that move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantImpact {
    /// Who.
    pub tenant: Name,
    /// Its machines that move.
    pub machines: usize,
    /// The hardest effect on one of them.
    pub effect: EffectClass,
}

/// What can be booked in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityImpact {
    /// The pool.
    pub pool: Name,
    /// Machines that can be booked now.
    pub before: usize,
    /// The same afterwards.
    pub after: usize,
}
