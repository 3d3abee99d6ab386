//! Gateway: the end of a node's session that the node dials.
//!
//! It holds no CA and no signing key: it can delay, drop and read frames, and author none. What needs authority is
//! forwarded ([`ControlPlane`]); what a node says is stored as the bytes that the node signed; what a node gets are the
//! bytes that the control plane signed. Gateway and reconciler meet in rows only, and a lost poke costs time.
//!
//! A socket side ([`serve`], `accept`, `join`, `session::driver`) and a pure side ([`session::SessionCore`], `limit`).

pub mod authority;
pub mod config;
pub mod limit;
pub mod recorder;
pub mod refusal;
pub mod serve;
pub mod session;

mod accept;
mod claims;
mod connection;
mod facts;
mod gate;
mod join;
mod lanes;
mod last_words;
mod leaps;
mod liveness;
mod opens;
mod places;
mod pokes;
mod policies;
mod registry;
mod reports;
mod secrets;
mod shared;
mod steps;
mod trust;
mod writer;

pub use authority::{AuthorityClient, ControlPlane, InProcess};
pub use config::{Config, Limits, Timing};
pub use refusal::Refusal;
pub use serve::{GatewayError, run};
