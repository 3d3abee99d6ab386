//! The brain of Better Compute: from a commit to what every machine is told to be.
//!
//! ```text
//!  git ──▶ source ──▶ schema::fleet ──▶ plan ──▶ apply ──▶ rows ──▶ reconcile ──▶ signed specs, conditions, reasons
//!          one        every mistake     pure     one       the       per key,      the gateway hands them to the
//!          commit     at once                    txn       truth     for ever      nodes, nodes answer by signature
//!                                                            ▲
//!                         api: people look, and place holds ─┤
//!                         join: machines come in ────────────┘
//! ```
//!
//! - [`source`] follows one branch and hands over the files of one verified commit. It never has a work tree.
//! - [`plan`] is a pure function of a fleet, of what is known and of the time. Offline and live plans are the same call.
//! - [`apply`] writes a revision, its objects and the wake-ups of what it touches in one transaction.
//! - [`reconcile`] wakes for keys, not for events: a run reads what is, moves it one step towards what should be, and says
//!   `Done`, `Again` or `Wait` with a stored reason. Losing a wake-up costs time, never truth.
//! - [`audit`] chains the audit log and signs its checkpoints.
//! - [`custody`] keeps what a thief of the database cannot write: what is composed and signed follows from it.
//! - [`join`] lets machines in: the only part that issues certificates.
//! - [`logs`] says where bundles of logs go, and gives each one its place there.
//! - [`trust`] knows what the fleet is pinned to.
//! - [`why`] says what something waits for, since when, and who can lift it.
//! - [`api`] is the HTTP edge: one table of handlers, one place that decides who may.
//!
//! No error removes anything: whatever fails, the last good revision stays in force.
#![forbid(unsafe_code)]

pub mod api;
pub mod apply;
pub mod audit;
pub mod batch;
pub mod custody;
pub mod join;
pub mod logs;
pub mod plan;
pub mod reconcile;
pub mod source;
pub mod trust;
pub mod why;

mod door;
