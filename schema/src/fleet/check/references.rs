//! References: every name of another object, and every file that a document names, is there. Decoders say what is a
//! reference, [`Fields::refer`](crate::fleet::decode::Fields::refer).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    diagnostic::{Diagnostic, codes},
    fleet::{
        Located, Node, SourceBlob, Sources,
        kind::Batch,
        load::{Objects, ParsedFile},
        parse::Syntax,
        suggest::similar,
    },
    name::Name,
    object::{Kind, ObjectRef},
};

/// Checks every reference.
pub(super) fn check(objects: &Objects, files: &[ParsedFile], sources: &Sources, found: &mut Vec<Diagnostic>) {
    let references = References { objects, unread: Unread::of(files) };
    let refers = files.iter().flat_map(ParsedFile::refers);
    found.extend(refers.filter_map(|refers| references.missing(refers)));
    for batch in objects.batches.values() {
        selector(batch, &objects.nodes, found);
    }
    for access in objects.access.values() {
        for policy in access.policy.iter().filter(|policy| policy.ends_with(".cedar")) {
            policies(policy, sources, found);
        }
    }
}

struct References<'c> {
    objects: &'c Objects,
    unread: Unread<'c>,
}

impl References<'_> {
    fn missing(&self, refers: &Located<ObjectRef>) -> Option<Diagnostic> {
        let (objects, address) = (self.objects, &refers.value);
        if objects.defined.contains_key(address) || self.unread.may_hold(address) || self.joined(address) {
            return None;
        }
        let same = objects.defined.keys().filter(|other| other.kind == address.kind).map(|other| other.name.as_str());
        let near = similar(&address.name, same).map(|near| format!("did you mean {}/{near}?", address.kind));
        let mut diagnostic = Diagnostic::new(codes::UNKNOWN_REFERENCE, &refers.at, format!("there is no {address}"))
            .label("not defined")
            .maybe_help(near);
        if let Some(removed) = objects.removed.iter().find(|removed| removed.name == *address) {
            diagnostic = diagnostic.also(&removed.at, "it is removed here");
        }
        if let Some(moved) = objects.moved.iter().find(|moved| moved.from == *address) {
            diagnostic = diagnostic.also(&moved.at, "it moved here").help(format!("it is called {} now", moved.to));
        }
        Some(diagnostic)
    }

    /// Whether a name is one that a machine without a document can have: its pool's and eight hexadecimal digits.
    fn joined(&self, address: &ObjectRef) -> bool {
        let hexadecimal = |text: &str| {
            text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        address.kind == Kind::Node
            && address
                .name
                .rsplit_once('-')
                .is_some_and(|(pool, key)| hexadecimal(key) && self.objects.pools.contains_key(pool))
    }
}

/// A selector that speaks of labels which no document gives a machine selects nobody.
fn selector(batch: &Batch, nodes: &BTreeMap<Name, Arc<Node>>, found: &mut Vec<Diagnostic>) {
    for (key, value) in &batch.scope.selector {
        let values: BTreeSet<&str> =
            nodes.values().filter_map(|node| Some(node.labels.get(key)?.value.as_str())).collect();
        if values.contains(value.value.as_str()) {
            continue;
        }
        let keys: BTreeSet<&str> = nodes.values().flat_map(|node| node.labels.keys().map(String::as_str)).collect();
        let help = if values.is_empty() {
            similar(key, keys).map(|near| format!("did you mean the label `{near}`?"))
        } else {
            similar(&value.value, values).map(|near| format!("did you mean {near:?}?"))
        };
        let message = format!("no declared machine has the label {key}={:?}", value.value);
        found.push(Diagnostic::new(codes::UNKNOWN_REFERENCE, &value.at, message).maybe_help(help));
    }
}

fn policies(policy: &Located<String>, sources: &Sources, found: &mut Vec<Diagnostic>) {
    let files = || {
        let cedar =
            sources.iter().filter(|(path, blob)| path.ends_with(".cedar") && matches!(blob, SourceBlob::Bytes(_)));
        cedar.map(|(path, _)| &**path)
    };
    if files().any(|path| path == policy.value) {
        return;
    }
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let near = files().find(|path| last(path) == last(policy)).or_else(|| similar(policy, files()));
    let shown: String = policy.chars().take(100).collect();
    let diagnostic = Diagnostic::new(codes::POLICY_MISSING, &policy.at, format!("there is no policy file {shown:?}"))
        .label("not in the repository")
        .maybe_help(near.map(|near| format!("did you mean {near:?}?")));
    found.push(diagnostic);
}

/// Words of files that could not be read to their end: an object that may be in one is not missed as well.
pub(super) struct Unread<'c> {
    /// A file of which nothing is known.
    any: bool,
    /// The first word of a line and another word of it.
    words: BTreeSet<(&'c str, &'c str)>,
}

impl<'c> Unread<'c> {
    pub(super) fn of(files: &'c [ParsedFile]) -> Self {
        let broken = files.iter().filter(|file| !file.parsed.whole && file.syntax != Syntax::Template);
        let mut unread = Self { any: false, words: BTreeSet::new() };
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
        self.any || said(address.kind.as_str()) || said("name:")
    }
}
