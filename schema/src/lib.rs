//! The words of Better Compute: fleet documents, ids, state tables, node specs and diagnostics.
//!
//! Everything here is pure: no I/O, no clock but the trait, no async. Every other room depends on this one, and it
//! depends on none of ours. Start reading at [`fleet`] (what people write), then [`node`] (what is known about a
//! machine) and [`spec`] (what a machine is told to be).
#![forbid(unsafe_code)]

pub mod attested;
pub mod canonical;
pub mod cause;
pub mod clock;
pub mod command;
pub mod diagnostic;
pub mod digest;
pub mod effect;
pub mod fleet;
pub mod generation;
pub mod id;
pub mod inventory;
pub mod letter;
pub mod name;
pub mod node;
pub mod object;
pub mod places;
pub mod release;
pub mod report;
pub mod secret;
pub mod seldom;
pub mod shard;
pub mod spec;
pub mod text;
pub mod time;
pub mod unit;
