//! Facts about apply.
