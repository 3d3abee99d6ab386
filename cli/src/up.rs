//! Putting a control plane together, for `up` (everything in one process) and for `serve` (some roles of it).
//!
//! ```text
//! data directory ─▶ PostgreSQL ─▶ migrations ─▶ trust domain ─▶ keys ─▶ identity row ─▶ sockets ─▶ roles ─▶ client.json
//! ```
//!
//! [`parts`] holds what runs: one set of tasks under one cancellation. When one of them ends, or a signal comes, all end;
//! PostgreSQL is stopped last.

pub mod access;
pub mod authority;
pub mod banner;
mod certificates;
pub mod clock;
mod following;
pub mod gateway_keys;
pub mod identity;
pub mod keys;
pub mod logging;
pub mod logs;
pub mod names;
mod open_files;
pub mod parts;
pub mod ports;
pub mod trust;

pub use parts::Parts;
