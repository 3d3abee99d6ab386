//! The language as a whole: the example fleet, every diagnostic, both syntaxes, and hostile input.

pub(super) mod support;

mod consequences;
mod diagnostics;
mod empty;
mod example;
mod hostile;
mod incremental;
mod kinds;
mod mistakes;
mod model;
mod pages;
mod suites;
mod syntaxes;
