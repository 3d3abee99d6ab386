//! Apply: a plan becomes the state in force, in one transaction.
//!
//! The revision, its objects, the pools and their targets, what documents say about machines, their assignment and the
//! wake-ups for all of it are written together or not at all, fenced by the lease of the source, and so are the revision's
//! files, from which it can be planned again without git. A gate holds removals and machines, each as a stored hold: a held
//! machine learns its target and keeps what it is assigned. The facts that the plan was made of are read again under lock: when a machine joined or
//! somebody else changed one in between, nothing is written and the caller plans again. Doing it twice changes nothing.

mod observe;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use observe::brake_by_hand;
pub use observe::{ObserveError, observe, renamed_since};
pub(crate) use write::makes_revision;
pub use write::{Applied, ApplyError, Cause, Named, Target, apply};
