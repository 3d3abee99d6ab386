//! Facts about api.
