//! Facts about reports.
