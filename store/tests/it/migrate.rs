//! Facts about migrate.
