//! Batches: from a document to machines, from machines to what people sign, and from their signatures to commands.
//!
//! ```text
//! document of a verified commit ─▶ history (who wrote it, since which commit) ─▶ resolve (machines, header, digest) ─▶ stored
//! statements of people ──────────▶ judge ─▶ approved ─▶ dispatch, few at a time ─▶ what nodes answer ─▶ done
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`history`] | which commit introduced the text of a batch, and who changed it |
//! | [`resolve`] | a document and machines become leaves and a header |
//! | [`standing`] | what people said so far, and what is still missing |
//! | [`choose`] | which machines are next, and what the others wait for |
//! | [`allowed`] | whether a worker signs a destructive command |
//! | [`proposal`] | the file that a caller of the API asks for, and who may propose it |
//! | `reconcile` | one step of one batch |
//! | `emergency` | break-glass: few kinds, loud, once |
//!
//! Nothing here is believed by a node: it judges the approvals by itself. A database that lies delays.

pub mod allowed;
pub mod choose;
mod emergency;
pub mod history;
pub mod proposal;
mod reconcile;
pub mod resolve;
pub mod standing;

#[cfg(test)]
mod tests;

pub use reconcile::Batches;
