//! `lsp`: a language server for fleet repositories, over standard input and output.
//!
//! One thread answers one message after the other. What an editor asks for is looked up in the texts it has open, laid
//! over the files on disk; findings of the whole fleet are published when no message waits. A request that panics is an
//! error to its editor and ends nothing.

mod answers;
mod text;
mod workspace;

use std::panic::{self, AssertUnwindSafe};

use clap::Args;
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, Response};
use serde_json::{Value, json};

use crate::exit::{During as _, Exit, Failure};
use workspace::Workspace;

const EXAMPLES: &str = "\
Examples:
  better-compute lsp          started by an editor, which speaks to it over standard input and output

docs/guides/editors.md tells how an editor starts it.";

/// Serve an editor: diagnostics, completion, hover, definitions and formatting of fleet files.
///
/// Speaks the Language Server Protocol. Texts that are not saved yet are checked together with the files on disk.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Lsp {
    /// Accepted because editors add it; there is no other way to speak to it
    #[arg(long)]
    pub stdio: bool,
}

impl Lsp {
    /// Serves until the editor says that it ends.
    ///
    /// # Errors
    /// When the editor does not speak the protocol.
    pub fn run(&self) -> Result<Exit, Failure> {
        let (connection, threads) = Connection::stdio();
        let capabilities = json!({
            "positionEncoding": "utf-16",
            "textDocumentSync": { "openClose": true, "change": 1, "save": true },
            "completionProvider": { "triggerCharacters": ["\"", "=", " ", "/"] },
            "hoverProvider": true,
            "definitionProvider": true,
            "documentFormattingProvider": true,
        });
        let outcome = connection.initialize(capabilities).during("the editor did not begin as the protocol says");
        let outcome = outcome.and_then(|_| serve(&connection));
        drop(connection);
        threads.join().during("cannot write to the editor")?;
        outcome.map(|()| Exit::Ok)
    }
}

fn serve(connection: &Connection) -> Result<(), Failure> {
    let mut workspace = Workspace::default();
    loop {
        // Findings follow when everything that the editor typed meanwhile was heard.
        let message = match connection.receiver.try_recv() {
            Ok(message) => message,
            Err(_) => {
                let found = guarded(|| workspace.findings()).unwrap_or_default();
                for (uri, diagnostics) in found {
                    let params = json!({ "uri": uri, "diagnostics": diagnostics });
                    send(connection, Notification::new("textDocument/publishDiagnostics".to_owned(), params));
                }
                match connection.receiver.recv() {
                    Ok(message) => message,
                    Err(_) => return Ok(()),
                }
            }
        };
        match message {
            Message::Request(request) => {
                if connection.handle_shutdown(&request).during("the editor did not end as the protocol says")? {
                    return Ok(());
                }
                send(connection, answer(&workspace, request));
            }
            Message::Notification(notification) => {
                guarded(|| workspace.hear(&notification.method, &notification.params));
            }
            Message::Response(_) => {}
        }
    }
}

fn answer(workspace: &Workspace, request: Request) -> Response {
    let Request { id, method, params, .. } = request;
    let result = guarded(|| match method.as_str() {
        "textDocument/completion" => Some(answers::completion(workspace, &params)),
        "textDocument/hover" => Some(answers::hover(workspace, &params)),
        "textDocument/definition" => Some(answers::definition(workspace, &params)),
        "textDocument/formatting" => Some(answers::formatting(workspace, &params)),
        _ => None,
    });
    match result {
        Some(Some(result)) => Response::new_ok(id, result.unwrap_or(Value::Null)),
        Some(None) => Response::new_err(id, ErrorCode::MethodNotFound as i32, format!("{method} is not served")),
        None => Response::new_err(id, ErrorCode::InternalError as i32, "this is a fault of the server".to_owned()),
    }
}

/// What a message does must not end the server. `None` when it panicked.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

fn send(connection: &Connection, message: impl Into<Message>) {
    // An editor that went away is noticed when the next message is awaited.
    connection.sender.send(message.into()).ok();
}
