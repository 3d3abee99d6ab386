//! Batches: what a command is told has to fit its kind, or every machine would refuse what people approved.

use crate::{
    command::PayloadError,
    diagnostic::{Diagnostic, codes},
    fleet::{Batch, load::Objects},
};

/// Checks payloads of kinds that this version has.
pub(super) fn check(objects: &Objects, found: &mut Vec<Diagnostic>) {
    for batch in objects.batches.values() {
        let Some(kind) = batch.kind() else { continue };
        if let Err(error) = kind.check_payload(&batch.payload()) {
            found.push(refused(batch, kind.as_str(), &error));
        }
    }
}

fn refused(batch: &Batch, kind: &str, error: &PayloadError) -> Diagnostic {
    let key = error.path.split(['.', '[']).next().unwrap_or_default();
    let at = batch.payload.get(key).map_or(&batch.command.at, |value| &value.at);
    let place = if error.path == "." { "the payload".to_owned() } else { format!("`payload` {}", error.path) };
    Diagnostic::new(codes::BAD_VALUE, at, format!("{place} does not fit {kind}: {}", error.expected))
        .help(format!("what {kind} is told is in the reference of commands"))
}
