//! Facts about sessions.
