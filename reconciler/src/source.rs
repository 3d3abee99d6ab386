//! The fleet repository: from a remote branch to one commit whose files are read, planned and applied.
//!
//! ```text
//! notice (watch, poll, poke) → look (fetch or open) → judge (first-parent chain) → read (blobs of one commit)
//!                            → load (schema::fleet) → plan → apply
//! ```
//!
//! Git is read by gix, with an isolated configuration: a remote is fetched into a bare repository of our own, a
//! local one is opened where it is, and no work tree ever exists. Written are proposals beside the branch alone (`propose`). Every object is hashed again when it is read. Whatever
//! goes wrong is a [`SourceState`] with a reason; the last good revision then stays in force and nothing is removed.
//! A person may keep a commit from coming into force, or ask for the way back to an earlier revision, whose files are in
//! the database. [`run`] does all of it under the lease `singleton:source`; [`read_tree`] is the part that `plan --base A --head B`
//! uses without a database.

mod accept;
mod config;
mod fetch;
mod git;
mod history;
mod kept;
mod name;
mod pass;
mod propose;
mod read;
mod run;
mod state;
mod trailer;
mod tree;
mod trust;
mod watch;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

pub use accept::{AcceptError, accept};
pub use config::{GitAccess, ParseSourceError, Place, SourceConfig};
pub use fetch::peek;
pub use git::{GitError, Repo};
pub use history::{CommitInfo, Verdict};
pub use kept::Kept;
pub use name::resolve;
pub use pass::{Pass, PassError, Passed, Step};
pub(crate) use pass::{STATEMENTS, overlooked_key, rolled_back};
pub use run::{SourcePoke, SourceRole, Timing, run};
pub use state::{SourceState, Trouble};
pub use tree::{Blobs, read_tree, read_tree_after};
pub use trust::{Deaf, Overlooked, Said, TrustHistory};

/// The name of the fleet repository among the sources.
pub const FLEET: &str = "fleet";
