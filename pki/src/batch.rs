//! Batches of destructive work: what people approve, and what a node has to see before it acts.
//!
//! ```text
//! header ── root ◀─ Merkle ─ leaf 0 … leaf n      one digest binds the fleet, the window, the plan and every leaf
//!    ▲
//!    └── digest ◀── approve/v1, reject/v1, withdraw/v1      signed commits of people
//! ```
//!
//! Pure and without I/O: the control plane, the command line and the node call the same functions on the same bytes. What
//! travels to a node is its own leaf, the way from there to the root, and the raw commits that approve the whole.
//!
//! | module | what it holds |
//! |---|---|
//! | [`header`], [`leaf`] | what a batch is, and the bytes under its digests |
//! | [`merkle`] | roots and proofs in the shape of RFC 6962 |
//! | [`mod@judge`] | the one quorum function |
//! | [`emergency`] | what people allow without a batch, once |
//! | [`approval`] | what goes to a node with a command |
//! | [`mod@permit`] | whether a node may act on a command |
//! | [`testing`] | people with keys in memory, for tests |

pub mod approval;
pub mod emergency;
pub mod header;
pub mod judge;
pub mod leaf;
pub mod merkle;
pub mod permit;
pub mod testing;
mod vote;

#[cfg(test)]
mod tests;

pub use approval::{Approval, ApprovalRefusal, BatchApproval, BreakglassApproval};
pub use emergency::{Call, Emergency, call, called, emergencies, may_call};
pub use header::BatchHeader;
pub use judge::{Flaw, Question, Tally, attainable, candidates, judge, may_say};
pub use leaf::Leaf;
pub(crate) use permit::is_this;
pub use permit::{Authority, Denied, Me, Permit, Trusted, permit};
pub use vote::{NoVote, RefusedVote};
