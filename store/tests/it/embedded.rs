//! Facts about embedded.
