//! Where each key of an object is written, by its path in the canonical document. Hardly any object is ever asked, so
//! the file's text is read again when one is.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use super::{
    doc::{Entry, Form, Scalar},
    parse::{self, Syntax},
};
use crate::diagnostic::{SourceRef, Span};

/// The keys of one object: which object of which text it is, and once asked, where each is written.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) file: Arc<str>,
    pub(super) text: Arc<str>,
    pub(super) syntax: Syntax,
    /// Which object of the file.
    pub(super) index: usize,
    places: OnceLock<BTreeMap<String, SourceRef>>,
}

impl fmt::Debug for Keys {
    /// Without what was found so far: two fleets of one tree read alike, whatever was asked of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({}, {})", self.file, self.index)
    }
}

impl Keys {
    pub(super) fn new(file: Arc<str>, text: Arc<str>, syntax: Syntax, index: usize) -> Self {
        Self { file, text, syntax, index, places: OnceLock::new() }
    }

    /// The place of a path such as `sysctl.vm.swappiness` or `file./etc/motd.mode`, or of the nearest key above it.
    pub(super) fn find(&self, path: &str) -> Option<&SourceRef> {
        let places = self.places.get_or_init(|| self.read());
        let mut upto = path.len();
        loop {
            if let Some(at) = places.get(&path[..upto]) {
                return Some(at);
            }
            upto = path[..upto].rfind('.')?;
        }
    }

    fn read(&self) -> BTreeMap<String, SourceRef> {
        let mut places = BTreeMap::new();
        let parsed = parse::parse_anywhere(self.text.as_bytes(), self.syntax);
        let Some(object) = parsed.objects.get(self.index) else { return places };
        for field in &object.fields {
            walk("", field, &|span| SourceRef::new(Arc::clone(&self.file), span), &mut places);
        }
        places
    }
}

/// An argument of a block is its name (`file "/etc/motd" …`) or stands for a key (`gpus 8 …`), which only the kind
/// knows: the keys below are remembered under both paths.
fn walk(above: &str, entry: &Entry, place: &impl Fn(Span) -> SourceRef, places: &mut BTreeMap<String, SourceRef>) {
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
        places.entry(path.clone()).or_insert_with(|| place(span));
        for field in &entry.fields {
            walk(path, field, place, places);
        }
    }
}
