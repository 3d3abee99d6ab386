//! What a move does to each machine: the spec that it is told now, the one that it is told afterwards, and the difference.
//!
//! Machines of one pool have one template, and most templates do not name the machine: those are composed and compared
//! once. Where texts do, machines are composed in groups, so that ten thousand of them never stand side by side.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    rc::Rc,
};

use schema::{
    digest::Digest,
    effect::{self, EffectClass, Effects},
    fleet::{HostTemplate, NodeOverlay, compose_all},
    name::Name,
    spec::NodeSpec,
};

use super::Observed;

/// Machines that are composed side by side.
const GROUP: usize = 256;

/// What a machine is composed from.
#[derive(Clone, Copy)]
pub(super) struct Told<'m> {
    /// The template's digest.
    pub(super) template: Digest,
    /// Its own words.
    pub(super) overlay: &'m NodeOverlay,
    /// Its name.
    pub(super) name: &'m Name,
}

/// What a move does to a machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Change {
    /// The digest of the spec before.
    pub(super) before: Option<Digest>,
    /// The digest of the spec after.
    pub(super) after: Option<Digest>,
    /// How hard it is.
    pub(super) class: Option<EffectClass>,
    /// Everything that is done, in the list of all.
    pub(super) effects: Option<u32>,
    /// Why the spec after cannot be made: the last good one stays in force.
    pub(super) failed: Option<String>,
    /// Why the spec before cannot be made: what is undone is not known.
    pub(super) blind: Option<String>,
}

impl Change {
    pub(super) fn class(&self) -> EffectClass {
        self.class.unwrap_or(EffectClass::None)
    }

    /// Whether the machine is told something else, or would be if its spec could be made.
    pub(super) fn is_told(&self) -> bool {
        self.failed.is_some() || (self.after.is_some() && (self.before != self.after || self.blind.is_some()))
    }
}

type Composed = Result<(Rc<NodeSpec>, Digest), String>;

/// Composes, compares and remembers.
pub(super) struct Classifier<'p> {
    observed: &'p Observed,
    new: &'p BTreeMap<Digest, HostTemplate>,
    templates: BTreeMap<Digest, Option<(Rc<HostTemplate>, bool)>>,
    plain: BTreeMap<Digest, Composed>,
    classes: BTreeMap<(Digest, Digest), (EffectClass, Option<u32>)>,
    known: BTreeMap<Effects, u32>,
    list: Vec<Effects>,
}

impl<'p> Classifier<'p> {
    pub(super) fn new(observed: &'p Observed, new: &'p BTreeMap<Digest, HostTemplate>) -> Self {
        Self {
            observed,
            new,
            templates: BTreeMap::new(),
            plain: BTreeMap::new(),
            classes: BTreeMap::new(),
            known: BTreeMap::new(),
            list: Vec::new(),
        }
    }

    /// Every distinct list of effects, in the order in which machines by name have them.
    pub(super) fn into_effects(self) -> Vec<Effects> {
        self.list
    }

    /// What each move does, in the order of the moves.
    pub(super) fn all(&mut self, moves: &[(Option<Told<'_>>, Option<Told<'_>>)]) -> Vec<Change> {
        let mut changes = Vec::with_capacity(moves.len());
        for group in moves.chunks(GROUP) {
            let before = self.compose(group.iter().map(|(before, _)| *before).collect());
            let after = self.compose(group.iter().map(|(_, after)| *after).collect());
            changes.extend(before.into_iter().zip(after).map(|(before, after)| self.change(before, after)));
        }
        changes
    }

    fn change(&mut self, before: Option<Composed>, after: Option<Composed>) -> Change {
        let mut change = Change::default();
        let nothing = || (Rc::new(NodeSpec::default()), Digest::of(NodeSpec::default().to_bytes()));
        let before = match before {
            None => nothing(),
            Some(Ok((spec, digest))) => {
                change.before = Some(digest);
                (spec, digest)
            }
            Some(Err(message)) => {
                change.blind = Some(message);
                nothing()
            }
        };
        match after {
            None => {}
            Some(Err(message)) => change.failed = Some(message),
            Some(Ok(after)) => {
                change.after = Some(after.1);
                let (class, effects) = self.classify(&before, &after);
                (change.class, change.effects) = (Some(class), effects);
            }
        }
        change
    }

    fn classify(
        &mut self,
        before: &(Rc<NodeSpec>, Digest),
        after: &(Rc<NodeSpec>, Digest),
    ) -> (EffectClass, Option<u32>) {
        let key = (before.1, after.1);
        if let Some(known) = self.classes.get(&key) {
            return *known;
        }
        let effects = effect::classify(&before.0, &after.0);
        let class = effects.class;
        let index = (!effects.is_empty()).then(|| {
            let next = u32::try_from(self.list.len()).expect("a plan has fewer lists than machines, and these fit");
            match self.known.entry(effects) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    self.list.push(new.key().clone());
                    *new.insert(next)
                }
            }
        });
        self.classes.insert(key, (class, index));
        (class, index)
    }

    /// The specs of a group of machines; `None` for one that is told nothing.
    fn compose(&mut self, told: Vec<Option<Told<'_>>>) -> Vec<Option<Composed>> {
        let mut out: Vec<Option<Composed>> = told.iter().map(|_| None).collect();
        let mut apart: BTreeMap<Digest, Vec<usize>> = BTreeMap::new();
        for (index, told) in told.iter().enumerate() {
            let Some(told) = told else { continue };
            match self.template(&told.template) {
                None => out[index] = Some(Err(format!("its template {} is not known", told.template.short()))),
                Some((template, false)) => {
                    let composed = self.plain.entry(told.template).or_insert_with(|| {
                        let one = compose_all(&template, &[(told.overlay, told.name.as_str())]).pop();
                        one.map_or_else(|| Err("it cannot be composed".to_owned()), finish)
                    });
                    out[index] = Some(composed.clone());
                }
                Some((_, true)) => apart.entry(told.template).or_default().push(index),
            }
        }
        for (digest, indexes) in apart {
            let Some((template, _)) = self.template(&digest) else { continue };
            let machines: Vec<(&NodeOverlay, &str)> = indexes
                .iter()
                .filter_map(|index| told[*index].map(|told| (told.overlay, told.name.as_str())))
                .collect();
            for (index, composed) in indexes.into_iter().zip(compose_all(&template, &machines)) {
                out[index] = Some(finish(composed));
            }
        }
        out
    }

    /// A template, and whether machines of it can differ.
    fn template(&mut self, digest: &Digest) -> Option<(Rc<HostTemplate>, bool)> {
        if let Some(known) = self.templates.get(digest) {
            return known.clone();
        }
        let template = self.new.get(digest).cloned().or_else(|| {
            let stored = self.observed.targets.get(digest)?;
            HostTemplate::from_value(stored.doc.clone()).ok()
        });
        let found = template.map(|template| {
            let differs = template.names_node();
            (Rc::new(template), differs)
        });
        self.templates.insert(*digest, found.clone());
        found
    }
}

fn finish(composed: Result<schema::fleet::Composed, schema::fleet::ComposeError>) -> Composed {
    let composed = composed.map_err(|error| error.to_string())?;
    let spec = NodeSpec { host: composed.host, access: composed.access };
    let digest = Digest::of(spec.to_bytes());
    Ok((Rc::new(spec), digest))
}
