//! The only cryptography of Better Compute: issue, verify, sign, seal.
//!
//! Synchronous and pure: no I/O, no async, no SQL. Time is an argument; randomness comes from the one provider
//! (aws-lc-rs). Reading and writing key files is the composition root's work, storing serials the control plane's.
//!
//! | module | what it holds |
//! |---|---|
//! | [`realm`], [`signed`] | who signs for whom, and the exact bytes under every signature |
//! | [`csr`], [`issue`], [`verify`] | certificate requests, certificates, and who a peer is |
//! | [`node_key`], [`report`] | the key that lives on a machine and what it signs |
//! | [`worker`], [`statement`] | the command-signing root, its 24-hour workers, and what they sign |
//! | [`release`] | manifests of the daemon's versions, and who of a trust policy vouches for them |
//! | [`command`] | commands to a node, and a node's last word on them |
//! | [`anchor`], [`bundle`] | what a machine is told to trust, first by pin and later by signature |
//! | [`token`], [`sealed`] | join and API tokens, and how a join token travels |
//! | [`secret`] | the values of secrets, sealed for their rows |
//! | [`broker`] | how a value gets to the node that may have it, past whoever carries it |
//! | [`attest`] | what a machine proves about itself when it joins: certificates, TPMs, cloud instances |
//! | [`audit`] | the audit log as something that can be proven, line by line or as a whole |
//! | [`receipt`] | what became of a batch, in one file that is checked without asking anybody |
//! | [`checkpoint`] | what a thief of the database cannot write: checkpoints, manifests, tags of commands |
//! | [`challenge`] | what makes a renewal or a join fresh |
//! | [`keys`] | every key of a control plane as one sealed document, and what each role gets of it |
//! | [`hardware`] | which machine this is, from identifiers that are often lies |
//! | [`trust`] | whose signed commits count for what |
//! | [`batch`] | batches of destructive work: what people approve, and what a node has to see |
//! | [`tls`] | rustls configurations |
#![forbid(unsafe_code)]

pub mod anchor;
pub mod attest;
pub mod audit;
pub mod batch;
pub mod broker;
pub mod bundle;
pub mod challenge;
pub mod checkpoint;
pub mod command;
pub mod csr;
mod encoding;
pub mod hardware;
pub mod issue;
pub mod keys;
pub mod node_key;
pub mod provider;
pub mod realm;
pub mod receipt;
pub mod release;
pub mod report;
pub mod sealed;
pub mod secret;
pub mod shared_secret;
pub mod signed;
pub mod statement;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod token;
pub mod trust;
pub mod verify;
pub mod worker;

pub use provider::install_provider;
pub use realm::Realm;
