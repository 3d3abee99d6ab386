//! Where each key of each object is written, by its path in the canonical document.

use std::collections::BTreeMap;

use super::{
    decode::Findings,
    doc::{Entry, Form, Scalar},
};
use crate::{diagnostic::SourceRef, object::ObjectRef};

/// The places of the keys of every object.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    keys: BTreeMap<ObjectRef, BTreeMap<String, SourceRef>>,
}

impl Places {
    /// Remembers the keys of an object.
    pub(super) fn remember(&mut self, object: ObjectRef, fields: &[Entry], findings: &Findings<'_>) {
        let mut keys = BTreeMap::new();
        for field in fields {
            walk("", field, findings, &mut keys);
        }
        self.keys.insert(object, keys);
    }

    /// The place of a path such as `sysctl.vm.swappiness` or `file./etc/motd.mode`, or of the nearest key above it.
    pub(super) fn find(&self, object: &ObjectRef, path: &str) -> Option<&SourceRef> {
        let keys = self.keys.get(object)?;
        let mut upto = path.len();
        loop {
            if let Some(at) = keys.get(&path[..upto]) {
                return Some(at);
            }
            upto = path[..upto].rfind('.')?;
        }
    }
}

/// An argument of a block is its name (`file "/etc/motd" …`) or stands for a key (`gpus 8 …`), which only the kind
/// knows: the keys below are remembered under both paths.
fn walk(above: &str, entry: &Entry, findings: &Findings<'_>, keys: &mut BTreeMap<String, SourceRef>) {
    let path = if above.is_empty() { entry.key.clone() } else { format!("{above}.{}", entry.key) };
    let mut below = vec![path.clone()];
    let id = || entry.fields.iter().find(|field| matches!(field.key.as_str(), "name" | "path"));
    let own = match entry.form {
        Form::Node => entry.args.first(),
        Form::Item => id().and_then(|field| field.args.first()),
        Form::Single | Form::List | Form::Map => None,
    };
    if let Some(Scalar::Text(name)) = own.map(|arg| &arg.value) {
        below.push(format!("{path}.{name}"));
    }
    let span = entry.args.first().filter(|_| entry.fields.is_empty()).map_or(entry.span, |arg| arg.span);
    for path in &below {
        keys.entry(path.clone()).or_insert_with(|| findings.place(span));
        for field in &entry.fields {
            walk(path, field, findings, keys);
        }
    }
}
