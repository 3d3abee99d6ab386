//! Apply: a plan becomes the state in force, in one transaction.
//!
//! The revision, its objects, the pools and their targets, what documents say about machines, their assignment and the
//! wake-ups for all of it are written together or not at all, fenced by the lease of the source. A gate holds removals
//! only, each as a stored hold. The facts that the plan was made of are read again under lock: when a machine joined or
//! somebody else changed one in between, nothing is written and the caller plans again. Doing it twice changes nothing.

mod observe;
mod write;

#[cfg(test)]
mod tests;

pub use observe::{ObserveError, observe};
pub use write::{Applied, ApplyError, Target, apply};
