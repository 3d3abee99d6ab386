//! Facts about commands.

mod documents;
mod moves;
mod payloads;
