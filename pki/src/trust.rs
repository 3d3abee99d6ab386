//! Authority comes from people's keys: signed commits, who may sign what, and what a history amounts to.
//!
//! Nothing here reads a repository, a clock or a file. Raw bytes come in, and conclusions with reasons go out; the control
//! plane, the command line and the node use the same functions.
//!
//! | module | what it holds |
//! |---|---|
//! | [`object`] | names of git objects, computed again |
//! | [`commit`] | the one splitter of commits, and what exactly was signed |
//! | [`signature`] | whose signature a commit has: SSH and OpenPGP |
//! | [`key`] | which keys are admitted |
//! | [`policy`] | the trust policy: who may do what, judged before anybody relies on it |
//! | [`service`] | the keys with which a control plane proposes, and what it signs with them |
//! | [`statement`] | what people say by signed commits |
//! | [`spoken`] | whose statement it is, and how many people say so |
//! | [`revoked`] | keys that one person took away, and what that does not take away |
//! | [`walk`] | what all of that concludes about a history |

mod armor;
pub mod commit;
pub mod key;
pub mod object;
mod openpgp;
pub mod policy;
pub mod revoked;
pub mod service;
pub mod signature;
pub mod spoken;
mod ssh;
pub mod statement;
pub mod walk;
mod wire;

#[cfg(test)]
pub(crate) mod testing;

pub use armor::ArmorRefusal;
