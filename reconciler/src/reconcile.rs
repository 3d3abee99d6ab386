//! Reconcile: keys in, one step towards what should be, and a stored word about what is still missing.
//!
//! A [`Reconciler`] gets a key and nothing else. It reads what is, compares it with what should be, and acts on the
//! difference; what woke it is never a hint. It ends in an [`Outcome`]: `Done`, `Again` after a while, or `Wait` for
//! somebody else, each with the place in the code that said so; a [`Failure`] backs off from one second to five minutes.
//!
//! | module | what it does |
//! |---|---|
//! | [`worker`] | runs one role in one process: membership, leases, claims, resync, drain |
//! | [`jobs`] | the same reconcilers one deterministic pass at a time, for tests |
//! | [`nodespec`] | composes, signs and stores what a node should be |
//! | [`node`] | takes over what a node signed, and judges what follows |
//! | [`command`] | signs commands, and settles them by what nodes signed |
//! | [`sweeper`] | ends commands that are past their time |
//! | [`liveness`] | judges silence |
//! | [`housekeeping`] | forgets what nobody can ask for any more |
//!
//! Every write of a run goes through [`Context::begin`], which fences the transaction with the lease that the run was
//! started under. A worker that lost its lease without noticing changes nothing.

pub mod command;
pub mod housekeeping;
pub mod jobs;
pub mod liveness;
pub mod node;
pub mod nodespec;
pub mod outcome;
pub mod sweeper;
pub mod worker;

mod context;
mod execute;
mod registry;
#[cfg(test)]
pub(crate) mod testing;

pub use context::{Context, Shared, SpecSigner};
pub use outcome::{Failure, Outcome, WaitReason};
pub use registry::{Periodic, Reconciler, Registry, ShardBy};
pub(crate) use worker::bury_the_dead;
