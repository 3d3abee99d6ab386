//! The wire: generated protobuf code and nothing clever.
//!
//! The `.proto` files beside this crate are the contract. The code under `src/gen` is generated from them without `protoc`
//! and committed; `tests/generated.rs` makes it anew, fails when it is stale, and rewrites it under
//! `BETTER_COMPUTE_REGENERATE=1`. Wire types stop in `gateway`, `bcd::session`, `reconciler::join` and here.

pub mod agent;
pub mod internal;

/// The largest frame that either side takes, in bytes.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;
