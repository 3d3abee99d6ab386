//! The agent protocol: join, session, signed things and the NodeSpec message.

/// Version 1.
#[rustfmt::skip]
#[path = "gen/bettercompute.agent.v1.rs"]
pub mod v1;
