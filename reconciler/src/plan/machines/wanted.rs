//! What a machine should be: its document's words, or those in force where a document is retained.

use std::borrow::Cow;

use schema::{
    digest::Digest,
    fleet::{Node, NodeOverlay, Pool},
    name::Name,
    node::{Hold, HoldSource},
    object::{Kind, ObjectRef},
    time::Timestamp,
};

use super::Scene;
use crate::plan::{ObservedNode, pools::Templates};

/// A document's cordon, unless it has ended.
pub(crate) fn cordon(node: &Node, now: Option<Timestamp>) -> Option<Hold> {
    let cordon = node.cordon.as_ref()?;
    let hold = Hold {
        source: HoldSource::Git,
        owner: cordon.value.owner.value.clone(),
        reason: cordon.value.reason.value.clone(),
        until: cordon.value.until.as_ref().map(|until| until.value),
        place: Some(format!("{}:{}", cordon.at.file, cordon.at.line())),
    };
    now.is_none_or(|now| hold.holds(now)).then_some(hold)
}

/// What a machine should be.
pub(super) struct Wanted<'f> {
    pub(super) pool: Option<&'f Name>,
    pub(super) declared_pool: Option<&'f Pool>,
    pub(super) declared: bool,
    pub(super) overlay: Cow<'f, NodeOverlay>,
    pub(super) target: Option<Digest>,
    pub(super) hold: Option<Cow<'f, Hold>>,
}

impl<'f> Wanted<'f> {
    /// What this fleet says of a machine, and what stays in force where it says nothing.
    pub(super) fn of(
        scene: &Scene<'f>,
        node: &'f ObservedNode,
        document: Option<&'f Node>,
        templates: &mut Templates<'_>,
    ) -> Self {
        let Scene { fleet, removals, now, .. } = *scene;
        let gone = || removals.granted.contains_key(&ObjectRef::new(Kind::Node, node.name.clone()));
        let (declared, overlay, hold) = match document {
            Some(document) => (true, overlay(node, document), hold(node, document, now)),
            None if !node.declared || gone() => (false, Cow::Owned(NodeOverlay::default()), None),
            // Its document is retained: it keeps its words, and a cordon that has ended is over.
            None => {
                let hold = node.hold.as_ref().filter(|hold| hold.holds(now));
                (true, Cow::Borrowed(&node.target_overlay), hold.map(Cow::Borrowed))
            }
        };
        let pool = document.and_then(|document| document.pool.as_ref()).map(|pool| &pool.value).or(node.pool.as_ref());
        let declared_pool = pool.and_then(|pool| fleet.pools.get(pool));
        // A pool or a profile that is retained has no template in this fleet: what was in force stays.
        let target = declared_pool.map_or(node.target, |pool| {
            templates.digest(pool, overlay.profile.as_ref().unwrap_or(&pool.profile.value)).or(node.target)
        });
        Self { pool, declared_pool, declared, overlay, target, hold }
    }

    /// Whether the cordon is the one that is in force.
    pub(super) fn keeps_its_hold(&self, node: &ObservedNode) -> bool {
        match (&node.hold, &self.hold) {
            // What was taken over is the same, and is not read again.
            (Some(_), Some(Cow::Borrowed(_))) => true,
            (before, after) => before.as_ref() == after.as_deref(),
        }
    }

    /// The site of its pool; where that is retained, the one it is in.
    pub(super) fn site<'a>(&'a self, node: &'a ObservedNode) -> Option<&'a Name> {
        self.declared_pool.map_or(node.site.as_ref(), |pool| Some(&pool.site.value))
    }
}

/// The words of a document; those that the machine has already, when they are the same.
fn overlay<'f>(node: &'f ObservedNode, document: &Node) -> Cow<'f, NodeOverlay> {
    let known = &node.target_overlay;
    let profile = document.profile.as_ref().map(|profile| &profile.value);
    if known.profile.as_ref() == profile && known.labels.are_of(document) {
        Cow::Borrowed(known)
    } else {
        Cow::Owned(NodeOverlay::of(document))
    }
}

/// The cordon of a document, in the same way.
fn hold<'f>(node: &'f ObservedNode, document: &Node, now: Timestamp) -> Option<Cow<'f, Hold>> {
    let cordon = document.cordon.as_ref()?;
    let words = &cordon.value;
    let same = |known: &&Hold| {
        let place = known.place.as_deref().and_then(|place| place.rsplit_once(':'));
        known.source == HoldSource::Git
            && known.owner == words.owner.value
            && known.reason == words.reason.value
            && known.until == words.until.as_ref().map(|until| until.value)
            && place.is_some_and(|(file, line)| file == &*cordon.at.file && line.parse() == Ok(cordon.at.line()))
    };
    match node.hold.as_ref().filter(same) {
        Some(known) => known.holds(now).then_some(Cow::Borrowed(known)),
        None => self::cordon(document, Some(now)).map(Cow::Owned),
    }
}
