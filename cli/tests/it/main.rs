//! The command as others see it: a shell, and an editor that speaks to its language server.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![expect(clippy::panic, reason = "a test ends where something is not as it should be")]

mod lsp;
mod shell;
