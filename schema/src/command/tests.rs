//! Facts about commands.
