//! Commands on the node: accepted by rule, run once, answered for ever.
//!
//! ```text
//! frame ─▶ desk (pure) ─▶ journal ─▶ lanes ─▶ the kind's own work
//!              ▲                        │
//!              └── began, ended ◀───────┘   every word is in the journal before it is said
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`accept`] | the rules of acceptance in their order, and [`quorum`] in its place among them |
//! | [`desk`] | what becomes of each frame, each end and each deadline: a state machine without disk, threads or clock |
//! | [`again`] | what becomes of a command that an earlier life of the daemon left behind |
//! | [`journal`] | what is known of each command, on disk |
//! | [`lanes`] | the threads that run commands |
//! | [`context`] | what a kind may ask and do while it runs |
//! | [`clerk`] | carries out what the desk decides |
//! | [`pen`] | words and signs what the node says about a command |

pub mod accept;
pub mod again;
pub mod clerk;
pub mod context;
pub mod desk;
mod fault;
pub mod journal;
pub mod lanes;
pub mod pen;
pub mod quorum;

pub use clerk::Clerk;
pub use context::{Context, Order, Outcome, Run, Stop};
pub use desk::{Desk, Do};
pub use journal::Journal;
pub use lanes::{Lanes, Told};
pub use pen::Pen;
pub use quorum::Gate;
