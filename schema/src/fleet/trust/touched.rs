//! What a change of a file does to the parts of a fleet that have to be looked at by more than one person.

use std::collections::BTreeMap;

use crate::fleet::{
    doc::{Arg, Entry, Object, Scalar},
    parse::{self, Syntax},
};

/// What a change of one file touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Touched {
    /// A `batch` came, went or changed.
    pub batches: bool,
    /// A `release` came, went or changed.
    pub releases: bool,
    /// What runs on hosts as root: `unit`, `file` or `kernel` of a profile, or a template.
    pub hosts: bool,
}

impl Touched {
    /// All that can be touched: what a file does that cannot be read.
    pub(super) const ALL: Self = Self { batches: true, releases: true, hosts: true };
}

/// Compares a file before and after a change; `None` where it is not there.
#[must_use]
pub fn touched(path: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> Touched {
    let syntax = match Syntax::of(path) {
        None => return Touched::default(),
        Some(Syntax::Template) => return Touched { hosts: before != after, ..Touched::default() },
        Some(syntax) => syntax,
    };
    let Some((before, after)) = read(before, syntax).zip(read(after, syntax)) else { return Touched::ALL };
    let mut touched = Touched::default();
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (before, after) = (before.get(name), after.get(name));
        let same = |keep: &dyn Fn(&Entry) -> bool| {
            let kept = |objects: Option<&Vec<Object>>| -> Vec<Entry> {
                let fields = objects.into_iter().flatten().flat_map(|object| object.fields.clone());
                fields.filter(|field| keep(field)).collect()
            };
            alike(&kept(before), &kept(after))
        };
        let whole = || before.map(Vec::len) == after.map(Vec::len) && same(&|_| true);
        match name.0.as_str() {
            "batch" => touched.batches |= !whole(),
            "release" => touched.releases |= !whole(),
            "profile" => {
                touched.hosts |= !same(&|field| matches!(field.key.as_str(), "unit" | "file" | "kernel"));
            }
            _ => {}
        }
    }
    touched
}

/// What a change of one file does to one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchTouched {
    /// The file had it.
    pub before: bool,
    /// The file has it.
    pub after: bool,
    /// It came, went or says something else.
    pub differs: bool,
}

/// Compares the batch of a name in a file before and after a change. A name may be written in many ways, so that files are read and
/// not searched; one that cannot be read may have every batch.
#[must_use]
pub fn batch_touched(path: &str, name: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> BatchTouched {
    let syntax = match Syntax::of(path) {
        None | Some(Syntax::Template) => return BatchTouched::default(),
        Some(syntax) => syntax,
    };
    let Some((old, new)) = read(before, syntax).zip(read(after, syntax)) else {
        return BatchTouched { before: before.is_some(), after: after.is_some(), differs: before != after };
    };
    let key = ("batch".to_owned(), name.to_owned());
    let (old, new) = (old.get(&key), new.get(&key));
    let fields = |objects: Option<&Vec<Object>>| -> Vec<Entry> {
        objects.into_iter().flatten().flat_map(|object| object.fields.clone()).collect()
    };
    let same = old.map(Vec::len) == new.map(Vec::len) && alike(&fields(old), &fields(new));
    BatchTouched { before: old.is_some(), after: new.is_some(), differs: !same }
}

type Objects = BTreeMap<(String, String), Vec<Object>>;

/// The objects of a file by kind and name; `None` when it cannot be read to its end.
fn read(bytes: Option<&[u8]>, syntax: Syntax) -> Option<Objects> {
    let Some(bytes) = bytes else { return Some(Objects::new()) };
    let parsed = parse::parse_anywhere(bytes, syntax);
    if !parsed.whole || parsed.problems.iter().any(crate::diagnostic::Diagnostic::is_error) {
        return None;
    }
    let mut objects = Objects::new();
    for object in parsed.objects {
        let name = match &object.name {
            Some(Arg { value: Scalar::Text(text), .. }) => text.clone(),
            _ => String::new(),
        };
        objects.entry((object.kind.0.clone(), name)).or_default().push(object);
    }
    Some(objects)
}

/// Whether entries say the same, wherever they stand.
fn alike(a: &[Entry], b: &[Entry]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            let values = |entry: &Entry| -> Vec<Scalar> { entry.args.iter().map(|arg| arg.value.clone()).collect() };
            a.key == b.key && a.form == b.form && values(a) == values(b) && alike(&a.fields, &b.fields)
        })
}
