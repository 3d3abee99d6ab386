//! Identity: what keeps its place in the world under another name.
//!
//! A `moved` line renames what is in force before anything is compared, so that a renamed pool has its machines, a
//! renamed machine its id, and nothing is retained or removed. What looks like a rename and has no such line is proposed
//! as one, and never taken for one.

use std::{
    borrow::Cow,
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use schema::{
    canonical,
    digest::Digest,
    fleet::{
        Fleet, ObjectEntry,
        brake::{Brake, Scope},
        rename_references,
    },
    name::Name,
    object::{Kind, ObjectRef},
};
use serde_json::{Map, Value};

use super::{Change, MovedChange, ObjectChange, Observed, ObservedObject, Warning, observed::text};

/// What is in force, under the names of the new tree.
pub(super) struct Identity<'o> {
    /// What is in force.
    pub(super) view: Cow<'o, Observed>,
    /// Old and new names, in order.
    pub(super) renames: Vec<(ObjectRef, ObjectRef)>,
    /// The same for people; machines are counted later.
    pub(super) changes: Vec<MovedChange>,
    /// `moved` lines that do nothing.
    pub(super) warnings: Vec<Warning>,
    former: BTreeMap<ObjectRef, ObjectRef>,
    /// Objects without a document whose text follows a rename: nobody else would write it.
    followed: BTreeSet<ObjectRef>,
}

impl<'o> Identity<'o> {
    pub(super) fn of(fleet: &Fleet, observed: &'o Observed) -> Self {
        let mut this = Self {
            view: Cow::Borrowed(observed),
            renames: Vec::new(),
            changes: Vec::new(),
            warnings: Vec::new(),
            former: BTreeMap::new(),
            followed: BTreeSet::new(),
        };
        let machines: LazyCell<BTreeSet<&Name>, _> =
            LazyCell::new(|| observed.nodes.iter().map(|node| &node.name).collect());
        let is_known = |object: &ObjectRef| {
            observed.objects.contains_key(object)
                || (object.kind == Kind::Node && machines.contains(&object.name))
                || (object.kind == Kind::Pool && observed.pools.contains_key(&object.name))
        };
        // A tree has one fleet: its document keeps its identity whatever it is called.
        let own = ObjectRef::new(Kind::Fleet, fleet.document.name.clone());
        if let Some(held) = observed.objects.keys().find(|object| object.kind == Kind::Fleet && **object != own)
            && !observed.objects.contains_key(&own)
        {
            let place = Some(format!("{}:{}", fleet.document.at.file, fleet.document.at.line()));
            this.rename(held.clone(), own, place);
        }
        // Going back takes the names back too, as far as the files that come know the old ones and not the new ones.
        let declared: LazyCell<BTreeSet<&ObjectRef>, _> =
            LazyCell::new(|| fleet.objects().map(|entry| &entry.object).collect());
        for (from, to) in &observed.back {
            let named = from.kind == to.kind && from.kind != Kind::Fleet;
            if named && declared.contains(to) && !declared.contains(from) && is_known(from) && !is_known(to) {
                this.rename(from.clone(), to.clone(), None);
            }
        }
        let mut taken: BTreeSet<&ObjectRef> = BTreeSet::new();
        for moved in &fleet.moved {
            let place = Some(format!("{}:{}", moved.at.file, moved.at.line()));
            let taken_back = this.former.contains_key(&moved.to);
            let message = match (is_known(&moved.from), is_known(&moved.to) || taken_back) {
                (true, false) if taken.insert(&moved.to) => {
                    this.rename(moved.from.clone(), moved.to.clone(), place);
                    continue;
                }
                (true, _) => format!("{} is in force already, so that {} keeps its name", moved.to, moved.from),
                (false, true) => {
                    "nothing of the old name is in force, so that its `moved` does nothing and can be deleted"
                        .to_owned()
                }
                (false, false) => format!("nothing is called {}, so that its `moved` does nothing", moved.from),
            };
            this.warnings.push(Warning { object: moved.to.clone(), message, place, note: false });
        }
        if !this.renames.is_empty() {
            let mut view = this.renamed(observed);
            this.follow(fleet, &mut view);
            this.view = Cow::Owned(view);
        }
        this
    }

    fn rename(&mut self, from: ObjectRef, to: ObjectRef, place: Option<String>) {
        self.former.insert(to.clone(), from.clone());
        self.changes.push(MovedChange { from: from.clone(), to: to.clone(), machines: 0, place });
        self.renames.push((from, to));
    }

    /// The renames for people, with the machines that come along.
    pub(super) fn counted(&self, fleet: &Fleet) -> Vec<MovedChange> {
        let count = |wanted: &dyn Fn(&Name) -> bool| {
            self.view.nodes.iter().filter_map(|node| node.pool.as_ref()).filter(|pool| wanted(pool)).count()
        };
        let mut changes = self.changes.clone();
        for change in &mut changes {
            let to = &change.to.name;
            change.machines = match change.to.kind {
                Kind::Node => self.view.nodes.iter().filter(|node| node.name == *to).count(),
                Kind::Pool => count(&|pool| pool == to),
                Kind::Site => count(&|pool| fleet.pools.get(pool).is_some_and(|pool| pool.site.value == *to)),
                Kind::Profile => count(&|pool| fleet.pools.get(pool).is_some_and(|pool| pool.profile.value == *to)),
                _ => 0,
            };
        }
        changes
    }

    /// What an object is called in force, when the new tree calls it otherwise.
    pub(super) fn former(&self, object: &ObjectRef) -> Option<&ObjectRef> {
        self.former.get(object)
    }

    /// The new name of something in force.
    fn new_name(&self, kind: Kind, name: &Name) -> Option<Name> {
        self.renames.iter().find(|(from, _)| from.kind == kind && from.name == *name).map(|(_, to)| to.name.clone())
    }

    fn renamed(&self, observed: &Observed) -> Observed {
        let mut view = observed.clone();
        let names: BTreeMap<&ObjectRef, &ObjectRef> = self.renames.iter().map(|(from, to)| (from, to)).collect();
        let rename = |kind: Kind, name: &mut Name| {
            if let Some(to) = names.get(&ObjectRef::new(kind, name.clone())) {
                *name = to.name.clone();
            }
        };
        let of = |object: ObjectRef| names.get(&object).map_or(object, |to| (*to).clone());
        view.objects = std::mem::take(&mut view.objects).into_iter().map(|(object, held)| (of(object), held)).collect();
        view.pools = std::mem::take(&mut view.pools)
            .into_iter()
            .map(|(mut name, mut pool)| {
                rename(Kind::Pool, &mut name);
                let targets = std::mem::take(&mut pool.profile_targets).into_iter();
                pool.profile_targets = targets
                    .map(|(mut profile, target)| {
                        rename(Kind::Profile, &mut profile);
                        (profile, target)
                    })
                    .collect();
                (name, pool)
            })
            .collect();
        for node in &mut view.nodes {
            rename(Kind::Node, &mut node.name);
            node.pool.iter_mut().for_each(|pool| rename(Kind::Pool, pool));
            node.site.iter_mut().for_each(|site| rename(Kind::Site, site));
        }
        view.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        for hold in &mut view.holds {
            hold.subject = of(hold.subject.clone());
        }
        for brake in &mut view.suspensions {
            *brake = self.brake(brake.clone());
        }
        view
    }

    /// What is retained names others in a text that no commit writes any more: it follows the rename, or the next plan, for
    /// which the `moved` line is done, would find a freeze covering nobody and a profile that nobody needs.
    fn follow(&mut self, fleet: &Fleet, view: &mut Observed) {
        let declared: BTreeSet<&ObjectRef> = fleet.objects().map(|entry| &entry.object).collect();
        for (object, held) in view.objects.iter_mut().filter(|(object, _)| !declared.contains(object)) {
            let mut doc = (*held.doc).clone();
            let changes = rename_references(object.kind, &mut doc, |named| self.new_name(named.kind, &named.name));
            if changes && let Ok(digest) = canonical::digest_of(&doc) {
                (held.doc, held.digest) = (Arc::new(doc), digest);
                self.followed.insert(object.clone());
            }
        }
    }

    /// Whether the text of an object without a document is another one by a rename.
    pub(super) fn follows(&self, object: &ObjectRef) -> bool {
        self.followed.contains(object)
    }

    /// A brake that speaks of what has another name now.
    pub(super) fn brake(&self, mut brake: Brake) -> Brake {
        if let Scope::Objects(objects) = &mut brake.scope {
            for object in objects {
                if let Some(name) = self.new_name(object.kind, &object.name) {
                    object.name = name;
                }
            }
        }
        if let Ok(object) = brake.name.parse::<ObjectRef>()
            && let Some(name) = self.new_name(object.kind, &object.name)
        {
            brake.name = ObjectRef::new(object.kind, name).to_string();
        }
        brake
    }

    /// Whether a profile of a machine's own is the same one under another name.
    pub(super) fn is_same_profile(&self, before: Option<&Name>, after: Option<&Name>) -> bool {
        match (before, after) {
            (Some(before), Some(after)) => {
                before == after || self.new_name(Kind::Profile, before).as_ref() == Some(after)
            }
            (before, after) => before == after,
        }
    }
}

/// Objects of one kind that are compared with each other, at most; above that only equal ones are found.
const COMPARED: usize = 64;

/// Proposes a `moved` line for what is retained when something new is like it.
pub(super) fn suggest(
    changes: &mut [ObjectChange],
    observed: &Observed,
    declared: &BTreeMap<&ObjectRef, &ObjectEntry>,
) {
    let mut kinds: BTreeMap<Kind, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (index, change) in changes.iter().enumerate() {
        let (gone, new) = kinds.entry(change.object.kind).or_default();
        match change.change {
            Change::Retain => gone.push(index),
            Change::Create => new.push(index),
            _ => {}
        }
    }
    for (kind, (gone, new)) in kinds {
        if gone.is_empty() || new.is_empty() || !is_movable(kind) {
            continue;
        }
        let before: Vec<&Value> = gone
            .iter()
            .filter_map(|index| observed.objects.get(&changes[*index].object).map(|held: &ObservedObject| &*held.doc))
            .collect();
        let after: Vec<&Value> =
            new.iter().filter_map(|index| declared.get(&changes[*index].object).map(|entry| &*entry.doc)).collect();
        if before.len() != gone.len() || after.len() != new.len() {
            continue;
        }
        for (from, to) in pairs(&before, &after) {
            let object = changes[new[to]].object.clone();
            let change = &mut changes[gone[from]];
            change.paste = Some(paste(&change.object, &object, &change.file));
            change.renamed_to = Some(object);
        }
    }
}

const fn is_movable(kind: Kind) -> bool {
    !matches!(kind, Kind::Fleet | Kind::Batch | Kind::Freeze | Kind::Moved | Kind::Removed)
}

/// Which of the old documents is probably which of the new ones: equal but for the name, and nobody else is; or the
/// nearest of each other, with more in common than not.
fn pairs(before: &[&Value], after: &[&Value]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let (mut gone, mut new): (BTreeSet<usize>, BTreeSet<usize>) =
        ((0..before.len()).collect(), (0..after.len()).collect());
    let by_text = |documents: &[&Value]| {
        let mut by_text: BTreeMap<Digest, Vec<usize>> = BTreeMap::new();
        for (index, document) in documents.iter().enumerate() {
            by_text.entry(Digest::of(text(&nameless(document)))).or_default().push(index);
        }
        by_text
    };
    let others = by_text(after);
    for (digest, same) in by_text(before) {
        if let ([from], Some([to])) = (same.as_slice(), others.get(&digest).map(Vec::as_slice)) {
            found.push((*from, *to));
            gone.remove(from);
            new.remove(to);
        }
    }
    if gone.len() > COMPARED || new.len() > COMPARED {
        return found;
    }
    let best = |one: &Value, many: &BTreeSet<usize>, of: &[&Value]| -> Option<usize> {
        let mut scores: Vec<(usize, usize)> =
            many.iter().filter_map(|index| Some((alike(one, of[*index])?, *index))).collect();
        scores.sort_unstable_by(|a, b| b.cmp(a));
        match scores.as_slice() {
            [(first, index), rest @ ..] if rest.first().is_none_or(|(second, _)| first > second) => Some(*index),
            _ => None,
        }
    };
    for from in &gone {
        if let Some(to) = best(before[*from], &new, after)
            && best(after[to], &gone, before) == Some(*from)
        {
            found.push((*from, to));
        }
    }
    found
}

fn nameless(document: &Value) -> Value {
    match document {
        Value::Object(members) => {
            let members: Map<String, Value> = members
                .iter()
                .filter(|(key, _)| *key != "name")
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            Value::Object(members)
        }
        other => other.clone(),
    }
}

/// How many leaves two documents have in common; `None` when that is not more than half of all.
fn alike(one: &Value, two: &Value) -> Option<usize> {
    let (mut left, mut right) = (BTreeSet::new(), BTreeSet::new());
    leaves("", one, &mut left);
    leaves("", two, &mut right);
    let common = left.intersection(&right).count();
    (common * 2 > left.len().max(right.len())).then_some(common)
}

fn leaves(path: &str, value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            let top = path.is_empty();
            for (key, member) in members.iter().filter(|(key, _)| !(top && matches!(key.as_str(), "name" | "kind"))) {
                leaves(&format!("{path}.{key}"), member, out);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(&format!("{path}[]"), item, out)),
        leaf => {
            out.insert(format!("{path}={leaf}"));
        }
    }
}

/// The line that keeps an identity, in the syntax of the file that the object was in.
fn paste(from: &ObjectRef, to: &ObjectRef, file: &str) -> String {
    if file.ends_with(".kdl") {
        format!("moved from=\"{from}\" to=\"{to}\"")
    } else {
        format!("{{ kind: moved, from: {from}, to: {to} }}")
    }
}
