//! The agent protocol: join, session, signed things and the NodeSpec message.

/// Version 1.
#[expect(clippy::large_enum_variant, reason = "a session has one Hello, and its frames are not kept")]
#[rustfmt::skip]
#[path = "gen/bettercompute.agent.v1.rs"]
pub mod v1;
