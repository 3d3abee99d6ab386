//! Facts about nodes.
