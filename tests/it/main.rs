//! End to end: real repositories, PostgreSQL, mutual TLS and processes. One binary, so that everything is linked once.
//!
//! Each fact starts what it needs and leaves nothing behind.

mod cli;
mod commands;
mod drift;
mod effects;
mod faults;
mod identity;
mod isolation;
mod journey;
mod mistakes;
mod operations;
mod plans;
mod pull_request;
mod roles;
mod secrets;
mod source;
