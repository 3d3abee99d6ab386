//! Facts about schedulable.
