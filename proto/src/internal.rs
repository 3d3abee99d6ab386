//! The protocol between gateway and control plane.

/// Version 1.
#[rustfmt::skip]
#[path = "gen/bettercompute.internal.v1.rs"]
pub mod v1;
