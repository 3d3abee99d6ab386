//! The node daemon: joins a machine to a fleet, holds its session, and makes it look as its spec says.
//!
//! The binary `bcd` is a thin main over this library.
//!
//! | module | what it holds |
//! |---|---|
//! | [`path`], [`tree`] | where on a host something is, and how it is changed without ever leaving half of it |
//! | [`section`] | what each section of a spec means on a host: pure compilation into wanted items |
//! | [`converge`] | observe, `steps(desired, observed, memory)`, and carrying the steps out |
//! | [`drift`] | what something else changed: found, judged by the spec's rules, put right or left alone, remembered |
//! | [`diff`] | the same steps as text for people |
//! | [`hardware`] | what the machine is made of, real or described |
//! | [`process`] | programs that are run, always with a deadline |
//! | [`state`] | what the daemon keeps on disk |
//! | [`vault`] | values of secrets, while they are needed |
//! | [`join`], [`session`], [`dial`] | the conversation with the control plane |
//! | [`command`] | commands: accepted by rule, run once, answered for ever |
//! | [`kind`] | what each kind of command does on a machine |
//! | [`agent`] | one running daemon: the loop around all of it |
//! | [`cli`] | arguments, exit codes, printing |

pub mod agent;
pub mod attest;
pub mod cli;
pub mod command;
pub mod converge;
pub mod dial;
pub mod diff;
pub mod drift;
pub mod hardware;
pub mod join;
pub mod kind;
pub mod path;
pub mod policies;
pub mod process;
pub mod section;
pub mod session;
pub mod state;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod vault;
mod wire;
