//! The language as a whole: the example fleet, every diagnostic, both syntaxes, and hostile input.

mod support;

mod example;
mod diagnostics;
mod hostile;
mod model;
mod suites;
mod syntaxes;
