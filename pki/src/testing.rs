//! Fixtures for the tests of this crate.
