//! A gateway over real TLS and real PostgreSQL, seen from the node's side of the wire.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod abuse;
mod authority;
mod commands;
mod faults;
mod node;
mod policies;
mod refusals;
mod runner;
mod sessions;
mod wire;
mod world;
