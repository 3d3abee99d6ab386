//! Machines whose row or assignment may change, and why.

use std::borrow::Cow;

use schema::{
    digest::Digest,
    name::Name,
    object::{Kind, ObjectRef},
};

use super::{Scene, wanted::Wanted};
use crate::plan::{
    MoveReason, ObservedNode,
    brakes::{Brakes, Covered},
    effects::Told,
    pools::class,
};

/// A machine whose row or assignment may change.
pub(super) struct Candidate<'a> {
    pub(super) node: &'a ObservedNode,
    pub(super) wanted: Wanted<'a>,
    pub(super) why: Vec<MoveReason>,
    /// Whether it is assigned something else.
    pub(super) assigns: bool,
    /// The brakes that hold now and cover it.
    pub(super) brakes: Vec<usize>,
    /// What it is called in force.
    pub(super) former: Option<&'a Name>,
    /// A brake that ends with this commit keeps it: its row stays as it is, so that it waits for the next one.
    pub(super) kept: bool,
    /// Something is staged on it already and waits for a boot.
    pub(super) awaits_boot: bool,
}

impl<'a> Candidate<'a> {
    /// Compares one machine; `None` when nothing of it changes.
    pub(super) fn of(
        scene: &Scene<'a>,
        node: &'a ObservedNode,
        wanted: Wanted<'a>,
        brakes: &mut Brakes,
    ) -> Option<Self> {
        let mut why = Vec::new();
        if node.pool.as_ref() != wanted.pool {
            why.push(MoveReason::Membership { from: node.pool.clone(), to: wanted.pool.cloned() });
        }
        let before = &node.target_overlay;
        if !scene.identity.is_same_profile(before.profile.as_ref(), wanted.overlay.profile.as_ref()) {
            why.push(MoveReason::Profile { from: before.profile.clone(), to: wanted.overlay.profile.clone() });
        }
        let same_words = matches!(wanted.overlay, Cow::Borrowed(_));
        if (!same_words && before.labels != wanted.overlay.labels) || node.labels != wanted.overlay.labels {
            why.push(MoveReason::Labels);
        }
        if node.declared != wanted.declared {
            why.push(MoveReason::Declaration { declared: wanted.declared });
        }
        if node.target != wanted.target {
            why.push(if node.target.is_none() { MoveReason::First } else { MoveReason::Target });
        }
        let renamed =
            || scene.identity.former(&ObjectRef::new(Kind::Node, node.name.clone())).map(|former| &former.name);
        let former = node.assigned_name.as_ref().or_else(renamed).filter(|former| **former != node.name);
        let assigns = node.assigned != wanted.target || node.assigned_overlay != *wanted.overlay || former.is_some();
        let site = wanted.site(node);
        if node.site.is_some() && site != node.site.as_ref() {
            why.push(MoveReason::Site { from: node.site.clone(), to: site.cloned() });
        }
        if why.is_empty() && former.is_some() {
            why.push(MoveReason::Target);
        }
        if why.is_empty() && assigns {
            why.push(MoveReason::Behind);
        }
        let role = wanted.declared_pool.map_or(node.role, |pool| class(pool).role());
        let covered =
            Covered { node: &node.name, pools: [node.pool.as_ref(), wanted.pool], sites: [node.site.as_ref(), site] };
        let mut holding = brakes.look(&covered);
        let behind = || {
            node.target == wanted.target
                && (same_words || node.target_overlay == *wanted.overlay)
                && node.pool.as_ref() == wanted.pool
                && site == node.site.as_ref()
                && former.is_none()
        };
        if holding.iter().any(|index| brakes.ends(*index)) && behind() {
            holding.retain(|index| !brakes.ends(*index));
        }
        let kept = holding.iter().any(|index| brakes.ends(*index));
        let row_changes = !wanted.keeps_its_hold(node) || site != node.site.as_ref() || role != node.role;
        if why.is_empty() && !row_changes {
            return None;
        }
        why.sort();
        let awaits_boot = scene.observed.boots.as_ref().is_some_and(|boots| boots.contains(&node.name));
        Some(Self { node, wanted, why, assigns, brakes: holding, former, kept, awaits_boot })
    }

    /// What the machine is composed from now and afterwards.
    pub(super) fn told(&self) -> (Option<Told<'_>>, Option<Told<'_>>) {
        if !self.assigns && self.former.is_none() {
            return (None, None);
        }
        let Self { node, wanted, former, .. } = self;
        let told = |template: Option<Digest>, overlay, name| template.map(|template| Told { template, overlay, name });
        (
            told(node.assigned, &node.assigned_overlay, former.unwrap_or(&node.name)),
            told(wanted.target, &wanted.overlay, &node.name),
        )
    }

    pub(super) fn leaves_its_pool(&self) -> bool {
        self.node.pool.is_some() && self.node.pool.as_ref() != self.wanted.pool
    }

    pub(super) fn leaves_its_site(&self) -> bool {
        self.node.site.is_some() && self.node.site.as_ref() != self.wanted.site(self.node)
    }
}
