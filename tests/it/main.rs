//! End to end: real repositories, PostgreSQL, mutual TLS and processes. One binary, so that everything is linked once.
//!
//! Each fact starts what it needs and leaves nothing behind.

mod approvals;
mod attest;
mod away;
mod batches;
mod cli;
mod clocks;
mod commands;
mod drift;
mod effects;
mod faults;
mod hostile;
mod identity;
mod isolation;
mod journey;
mod keys;
mod kinds;
mod mistakes;
mod operations;
mod outages;
mod plans;
mod plunder;
mod proposals;
mod pull_request;
mod releases;
mod roles;
mod rolling;
mod secrets;
mod source;
mod stolen;
mod storm;
