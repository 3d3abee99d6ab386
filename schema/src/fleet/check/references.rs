//! References: every name of another object, and every file that a document names, is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    diagnostic::{Diagnostic, codes},
    fleet::{
        Located, Node, SourceBlob, Sources,
        kind::{Batch, Setting},
        load::{Objects, ParsedFile},
        parse::Syntax,
        suggest::similar,
    },
    name::Name,
    object::{Kind, ObjectRef},
};

/// Checks every reference.
pub(super) fn check(objects: &Objects, files: &[ParsedFile], sources: &Sources, found: &mut Vec<Diagnostic>) {
    let mut references = References { objects, unread: Unread::of(files), found };
    if let Some(fleet) = &objects.fleet {
        references.one(Kind::Rollout, fleet.rollout.as_ref());
    }
    for pool in objects.pools.values() {
        references.one(Kind::Site, Some(&pool.site));
        references.one(Kind::Profile, Some(&pool.profile));
        references.one(Kind::Rollout, pool.rollout.as_ref());
        references.all(Kind::Tenant, pool.policy.iter().flat_map(|policy| &policy.tenants));
    }
    for profile in objects.profiles.values() {
        references.one(Kind::Profile, profile.extends.as_ref());
        references.one(Kind::Image, profile.image.as_ref());
        if let Some(Located { value: Setting::Text(release), at }) = profile.daemon.get("release") {
            let name = Name::new(release.as_str()).ok().map(|name| Located::new(name, at.clone()));
            references.one(Kind::Release, name.as_ref());
        }
    }
    for node in objects.nodes.values() {
        references.one(Kind::Pool, node.pool.as_ref());
        references.one(Kind::Profile, node.profile.as_ref());
    }
    for quota in objects.quotas.values() {
        references.one(Kind::Tenant, Some(&quota.tenant));
        references.one(Kind::Pool, quota.pool.as_ref());
    }
    for freeze in objects.freezes.values() {
        for object in &freeze.scope {
            references.address(object.kind, &Located::new(object.name.clone(), object.at.clone()));
        }
    }
    for batch in objects.batches.values() {
        let scope = &batch.scope;
        references.all(Kind::Node, &scope.nodes);
        references.all(Kind::Pool, &scope.pools);
        references.all(Kind::Site, &scope.sites);
        selector(batch, &objects.nodes, references.found);
    }
    for access in objects.access.values() {
        for policy in access.policy.iter().filter(|policy| policy.ends_with(".cedar")) {
            policies(policy, sources, references.found);
        }
    }
}

struct References<'c> {
    objects: &'c Objects,
    unread: Unread<'c>,
    found: &'c mut Vec<Diagnostic>,
}

impl References<'_> {
    fn one(&mut self, kind: Kind, name: Option<&Located<Name>>) {
        if let Some(name) = name {
            self.address(kind, name);
        }
    }

    fn all<'n>(&mut self, kind: Kind, names: impl IntoIterator<Item = &'n Located<Name>>) {
        for name in names {
            self.address(kind, name);
        }
    }

    fn address(&mut self, kind: Kind, name: &Located<Name>) {
        let address = ObjectRef::new(kind, name.value.clone());
        let objects = self.objects;
        if objects.defined.contains_key(&address) || self.unread.may_hold(&address) || self.joined(&address) {
            return;
        }
        let same_kind = objects.defined.keys().filter(|other| other.kind == kind).map(|other| other.name.as_str());
        let near = similar(&name.value, same_kind).map(|near| format!("did you mean {kind}/{near}?"));
        let mut diagnostic = Diagnostic::new(codes::UNKNOWN_REFERENCE, &name.at, format!("there is no {address}"))
            .label("not defined")
            .maybe_help(near);
        if let Some(removed) = objects.removed.iter().find(|removed| removed.name == address) {
            diagnostic = diagnostic.also(&removed.at, "it is removed here");
        }
        if let Some(moved) = objects.moved.iter().find(|moved| moved.from == address) {
            diagnostic = diagnostic.also(&moved.at, "it moved here").help(format!("it is called {} now", moved.to));
        }
        self.found.push(diagnostic);
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
