//! `better-compute`: the composition root, and every command people type.
//!
//! [`args`] is the whole command line; each verb has a file under [`command`]. Offline commands (`check`, `plan`, `explain`)
//! read a working tree ([`tree`]) or two commits; commands about a running control plane go through [`client`]; [`up`]
//! and `serve` put the parts together and run them. Only [`output`] writes to the terminal, and [`exit`] names every way
//! a command can end.
#![forbid(unsafe_code)]

pub mod args;
pub mod client;
pub mod command;
pub mod data_dir;
pub mod exit;
pub mod output;
pub mod signer;
pub mod statement;
pub mod tree;
pub mod up;
pub mod verified;
