//! A gateway over real TLS and real PostgreSQL, seen from the node's side of the wire.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod abuse;
mod authority;
mod faults;
mod node;
mod refusals;
mod sessions;
mod world;
