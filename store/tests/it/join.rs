//! Facts about join.
