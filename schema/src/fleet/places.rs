//! Where each key of an object is written, by its path in the canonical document. Hardly any object is ever asked, so
//! the file's text is read again when one is.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use super::{
    ByteSize,
    doc::{Arg, Entry, Form, Scalar},
    parse::{self, Syntax},
    reference::{self, Key, Takes},
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

    /// The place of a path such as `sysctl.vm.swappiness`, `file./etc/motd.mode` or `wave[2].nodes`, of one item of a list
    /// such as `kernel.args.quiet`, or of the nearest key above it.
    pub(super) fn find(&self, path: &str) -> Option<&SourceRef> {
        let places = self.places.get_or_init(|| self.read());
        let mut upto = path.len();
        loop {
            if let Some(at) = places.get(&path[..upto]) {
                return Some(at);
            }
            upto = path[..upto].rfind(['.', '['])?;
        }
    }

    fn read(&self) -> BTreeMap<String, SourceRef> {
        let mut places = Places { file: &self.file, found: BTreeMap::new() };
        let parsed = parse::parse_anywhere(self.text.as_bytes(), self.syntax);
        let Some(object) = parsed.objects.get(self.index) else { return places.found };
        let keys = object.kind.0.parse().map(|kind| reference::kind(kind).keys.as_slice()).unwrap_or_default();
        for field in &object.fields {
            places.entry("", field, keys);
        }
        places.found
    }
}

/// The places of an object's keys, being collected.
struct Places<'k> {
    file: &'k Arc<str>,
    found: BTreeMap<String, SourceRef>,
}

impl Places<'_> {
    /// Remembers a place; the first of a path counts.
    fn say(&mut self, path: String, span: Span) {
        self.found.entry(path).or_insert_with(|| SourceRef::new(Arc::clone(self.file), span));
    }

    fn entry(&mut self, above: &str, entry: &Entry, keys: &[Key]) {
        let known = keys.iter().find(|key| key.key == entry.key);
        let mut path = if above.is_empty() { entry.key.clone() } else { format!("{above}.{}", entry.key) };
        let inner = known.map(Key::keys).unwrap_or_default();
        match known.map(|key| &key.takes) {
            Some(Takes::Named { id, short, .. }) => {
                let named = entry.fields.iter().find(|field| field.key == *id).and_then(|field| field.args.first());
                let own = if entry.form == Form::Node { entry.args.first() } else { None };
                if let Some(name) = own.or(named).and_then(text) {
                    let rest = if own.is_some() { &entry.args[1..] } else { &[] };
                    self.block(format!("{path}.{name}"), (entry, rest), *short, inner);
                } else {
                    for thing in &entry.fields {
                        self.block(format!("{path}.{}", thing.key), (thing, &thing.args), *short, inner);
                    }
                }
            }
            Some(Takes::Block { positional, .. }) => self.block(path, (entry, &entry.args), *positional, inner),
            Some(Takes::Blocks { .. }) => {
                let before = (1..).find(|index| !self.found.contains_key(&format!("{path}[{index}]"))).unwrap_or(1);
                self.say(path.clone(), entry.span);
                path = format!("{path}[{before}]");
                self.block(path, (entry, &entry.args), None, inner);
            }
            Some(Takes::List(_)) => {
                self.say(path.clone(), entry.args.first().map_or(entry.span, |arg| arg.span));
                for (item, arg) in entry.args.iter().filter_map(|arg| Some((text(arg)?, arg))) {
                    if matches!(path.as_str(), "kernel.modules" | "kernel.blacklist") {
                        self.say(format!("kernel.module.{item}"), arg.span);
                    }
                    self.say(format!("{path}.{item}"), arg.span);
                }
            }
            _ => self.block(path, (entry, &entry.args), None, inner),
        }
    }

    /// A key with what is below it. A lone value stands for the key `positional`.
    fn block(&mut self, path: String, (entry, args): (&Entry, &[Arg]), positional: Option<&str>, keys: &[Key]) {
        let span = args.first().filter(|_| entry.fields.is_empty()).map_or(entry.span, |arg| arg.span);
        if let (Some(key), Some(arg)) = (positional, args.first()) {
            self.say(format!("{path}.{key}"), arg.span);
        }
        for field in &entry.fields {
            self.entry(&path, field, keys);
            // Sizes of pages have one spelling in a document.
            if let Some(size) =
                Some(&field.key).filter(|_| path == "hugepages").and_then(|key| key.parse::<ByteSize>().ok())
            {
                self.say(format!("{path}.{size}"), field.args.first().map_or(field.span, |arg| arg.span));
            }
        }
        self.say(path, span);
    }
}

fn text(arg: &Arg) -> Option<String> {
    match &arg.value {
        Scalar::Text(text) => Some(text.clone()),
        Scalar::Int(number) => Some(number.to_string()),
        Scalar::Bool(_) | Scalar::Float => None,
    }
}
