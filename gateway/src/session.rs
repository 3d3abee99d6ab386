//! Sessions: a pure core that decides, and a driver that owns the stream and carries out what the core decided.
//!
//! | module | what it does |
//! |---|---|
//! | [`core`] | the state machine: inputs and time in, effects out |
//! | [`effects`] | its vocabulary |
//! | `commands` | the core's part for commands: lanes, credits, order |
//! | `hello`, `report` | what a node says, checked |
//! | `open` | certificate record, signed time, the session's row |
//! | `driver` | one task per stream |

pub mod core;
pub mod effects;

mod commands;
mod driver;
mod hello;
mod open;
mod report;
mod service;
#[cfg(test)]
mod tests;

pub use self::core::{Rules, SessionCore};
pub use effects::{Claimed, Dispatch, Effect, Ending, Facts, Input, LastWord, OpenRequest, Opened, Report, Room};
pub(crate) use service::SessionService;
