//! References: every name of another object, and every file that a document names, is there. Decoders say what is a
//! reference, [`Fields::refer`](crate::fleet::decode::Fields::refer).

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use crate::{
    diagnostic::{Diagnostic, codes, shown},
    fleet::{
        Located, Moved, Node, Sources,
        load::{Objects, ParsedFile},
        parse::Syntax,
        suggest::similar,
    },
    name::Name,
    object::{Kind, ObjectRef},
};

/// Checks every reference.
pub(super) fn check(objects: &Objects, files: &[ParsedFile], sources: &Sources, found: &mut Vec<Diagnostic>) {
    let moved = objects.moved.iter().map(|moved| (&moved.from, moved)).collect();
    let references = References { objects, moved, unread: Unread::of(files, objects) };
    // Thousands of machines name the same few pools.
    let mut there: HashSet<&ObjectRef> = HashSet::new();
    let mut missing: Vec<&Located<ObjectRef>> = Vec::new();
    for refers in files.iter().flat_map(ParsedFile::refers) {
        if there.contains(&refers.value) {
            continue;
        }
        if references.misses(refers) {
            missing.push(refers);
        } else {
            there.insert(&refers.value);
        }
    }
    found.extend(missing.into_iter().enumerate().map(|(index, refers)| references.missing(refers, index < SUGGESTED)));
    // Nearly always a machine near the beginning has what is asked for.
    let any = |has: &dyn Fn(&Node) -> bool| objects.nodes.values().any(|node| has(node));
    let carried = |key: &str| any(&|node| node.labels.contains_key(key));
    let selects = |key: &str, value: &str| any(&|node| node.labels.get(key).is_some_and(|label| label.value == value));
    let labels = LazyCell::new(|| Labels::of(&objects.nodes));
    // Who has a label is not known while machines are missing.
    let known = !references.unread.doubts(Kind::Node);
    for batch in objects.batches.values().filter(|_| known) {
        let nobody = batch.scope.selector.iter().filter(|(key, value)| !selects(key, value));
        found.extend(nobody.filter_map(|(key, value)| labels.nobody(key, value)));
        found.extend(batch.spread.as_ref().filter(|key| !carried(key)).and_then(|key| labels.misspelt(key)));
    }
    for rollout in objects.rollouts.values().filter(|_| known) {
        found.extend(rollout.spread.as_ref().filter(|key| !carried(key)).and_then(|key| labels.misspelt(key)));
    }
    for access in objects.access.values() {
        for policy in access.policy.iter().filter(|policy| policy.ends_with(".cedar")) {
            policies(policy, sources, found);
        }
    }
}

/// References whose likely meaning is looked for; every one costs a look at every name.
const SUGGESTED: usize = 200;

struct References<'c> {
    objects: &'c Objects,
    moved: BTreeMap<&'c ObjectRef, &'c Moved>,
    unread: Unread<'c>,
}

impl References<'_> {
    fn misses(&self, refers: &Located<ObjectRef>) -> bool {
        let address = &refers.value;
        !self.objects.defined.contains_key(address) && !self.unread.may_hold(address) && !self.joined(address)
    }

    fn missing(&self, refers: &Located<ObjectRef>, suggest: bool) -> Diagnostic {
        let (objects, address) = (self.objects, &refers.value);
        let same = objects.defined.keys().filter(|other| suggest && other.kind == address.kind);
        let near = similar(&address.name, same.map(|other| other.name.as_str()))
            .map(|near| format!("did you mean {}/{near}?", address.kind));
        let mut diagnostic = Diagnostic::new(codes::UNKNOWN_REFERENCE, &refers.at, format!("there is no {address}"))
            .label("not defined")
            .maybe_help(near);
        if let Some(at) = objects.gone.get(address) {
            diagnostic = diagnostic.also(at, "it is removed here");
        }
        if let Some(moved) = self.moved.get(address) {
            diagnostic = diagnostic.also(&moved.at, "it moved here").help(format!("it is called {} now", moved.to));
        }
        diagnostic
    }

    /// Whether a name is one that a machine without a document can have: its pool's and eight hexadecimal digits.
    fn joined(&self, address: &ObjectRef) -> bool {
        let hexadecimal = |text: &str| {
            text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        address.kind == Kind::Node
            && address.name.rsplit_once('-').and_then(|(pool, key)| Some((Name::new(pool).ok()?, key))).is_some_and(
                |(pool, key)| {
                    let pool = ObjectRef::new(Kind::Pool, pool);
                    hexadecimal(key) && (self.objects.defined.contains_key(&pool) || self.unread.may_hold(&pool))
                },
            )
    }
}

/// The labels of declared machines. Others have none.
struct Labels<'c>(BTreeMap<&'c str, BTreeSet<&'c str>>);

impl<'c> Labels<'c> {
    fn of(nodes: &'c BTreeMap<Name, Arc<Node>>) -> Self {
        let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (key, value) in nodes.values().flat_map(|node| &node.labels) {
            labels.entry(key).or_default().insert(&value.value);
        }
        Self(labels)
    }

    fn near(&self, key: &str) -> Option<String> {
        similar(key, self.0.keys().copied()).map(|near| format!("did you mean the label `{near}`?"))
    }

    /// A selector that selects nobody.
    fn nobody(&self, key: &str, value: &Located<String>) -> Option<Diagnostic> {
        let values = self.0.get(key);
        if values.is_some_and(|values| values.contains(value.value.as_str())) {
            return None;
        }
        let near = match values {
            Some(values) => similar(value, values.iter().copied()).map(|near| format!("did you mean {near:?}?")),
            None => self.near(key),
        };
        let message = format!("no declared machine has the label {key}={:?}", value.value);
        Some(Diagnostic::new(codes::UNKNOWN_REFERENCE, &value.at, message).maybe_help(near))
    }

    /// A key that no machine has, when one that some have is nearly the same.
    fn misspelt(&self, key: &Located<String>) -> Option<Diagnostic> {
        let near = (!self.0.contains_key(key.value.as_str())).then(|| self.near(key))??;
        let message = format!("no declared machine has a label `{}`", key.value);
        Some(Diagnostic::new(codes::UNKNOWN_REFERENCE, &key.at, message).help(near))
    }
}

fn policies(policy: &Located<String>, sources: &Sources, found: &mut Vec<Diagnostic>) {
    let files = || {
        // What is there and cannot be read was reported.
        sources.iter().map(|(path, _)| &**path).filter(|path| path.ends_with(".cedar"))
    };
    if files().any(|path| path == policy.value) {
        return;
    }
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let near = files().find(|path| last(path) == last(policy)).or_else(|| similar(policy, files()));
    let shown = shown(policy);
    let diagnostic = Diagnostic::new(codes::POLICY_MISSING, &policy.at, format!("there is no policy file {shown:?}"))
        .label("not in the repository")
        .maybe_help(near.map(|near| format!("did you mean {near:?}?")));
    found.push(diagnostic);
}

/// What nobody knows for an error that was reported: words of files that could not be read to their end, and objects
/// whose kind or name is wrong. What may be there is not missed as well.
pub(super) struct Unread<'c> {
    objects: &'c Objects,
    /// A file of which nothing is known.
    any: bool,
    /// The first word of a line and another word of it.
    words: BTreeSet<(&'c str, &'c str)>,
}

impl<'c> Unread<'c> {
    pub(super) fn of(files: &'c [ParsedFile], objects: &'c Objects) -> Self {
        let broken = files.iter().filter(|file| !file.parsed.whole && file.syntax != Syntax::Template);
        let mut unread = Self { objects, any: false, words: BTreeSet::new() };
        for file in broken {
            unread.any |= file.parsed.text.is_empty();
            for line in file.parsed.text.lines() {
                let mut words =
                    line.split(['"', ' ', '\t', '\'', '{', ';']).filter(|word| !word.is_empty() && *word != "-");
                let Some(first) = words.next().filter(|first| *first == "name:" || first.parse::<Kind>().is_ok())
                else {
                    continue;
                };
                unread.words.extend(words.take(3).map(|word| (first, word)));
            }
        }
        unread
    }

    pub(super) fn may_hold(&self, address: &ObjectRef) -> bool {
        let said = |first| self.words.contains(&(first, address.name.as_str()));
        let perhaps = || self.objects.perhaps.iter().any(|perhaps| perhaps.may_be(address));
        self.any || said(address.kind.as_str()) || said("name:") || perhaps()
    }

    /// Whether there may be objects of a kind of which not all is known.
    pub(super) fn doubts(&self, kind: Kind) -> bool {
        let said = |first: &str| first == "name:" || first == kind.as_str();
        self.any || self.words.iter().any(|(first, _)| said(first)) || self.objects.lacks(kind)
    }
}
