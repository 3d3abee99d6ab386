//! The only SQL of Better Compute, and the private PostgreSQL that `up` runs.
//!
//! One module per table (or per few tables that change together), free async functions named resource first:
//! [`nodes::lock`], [`queue::claim`]. Reads take a [`Db`], writes take a [`Txn`], which its caller begins and commits in
//! one visible function and never holds across network, git or signing; what a loop says hundreds of times a second, each time
//! in one statement, takes a [`Dedicated`] connection. Rows stay private; what comes out are types of
//! `schema` and plain structs. Time is PostgreSQL's, through `compute_now()` only.
//!
//! Three ideas carry everything. Work is level-triggered: whoever changes state enqueues a key in the same transaction
//! ([`queue`]), and what is lost is only time. Writers are fenced: shards and singletons are [`leases`] with an epoch,
//! sessions have one too, and a write that names an old one changes nothing. Pokes ([`poke`]) go out after commit and
//! carry no truth.

pub mod api_tokens;
pub mod attestations;
pub mod audit;
pub mod batches;
pub mod clock;
pub mod commands;
pub mod control_plane;
pub mod db;
pub mod dedicated;
pub mod embedded;
pub mod error;
pub mod fleet_holds;
pub mod idempotency;
pub mod identities;
pub mod join_tokens;
pub mod joins;
pub mod key_holders;
pub mod leases;
pub mod manifests;
pub mod marks;
pub mod migrate;
pub mod node_certs;
pub mod node_drift;
pub mod node_holds;
pub mod node_inventory;
pub mod node_reports;
pub mod node_sections;
pub mod nodes;
pub mod outbox;
pub mod outcomes;
pub mod page;
pub mod placements;
pub mod plans;
pub mod poke;
pub mod pools;
pub mod quarantine;
pub mod queue;
pub mod renames;
pub mod revision_files;
pub mod revisions;
pub mod role;
pub mod rollbacks;
pub mod rows;
pub mod secrets;
pub mod sessions;
pub mod sources;
pub mod suspensions;
pub mod testing;
pub mod trust;
pub mod workers;

mod convert;

pub use db::{Db, DbConfig, Txn};
pub use dedicated::Dedicated;
pub use error::DbError;
pub use page::Page;
pub use role::Role;
pub use rows::{Listed, Unreadable};
