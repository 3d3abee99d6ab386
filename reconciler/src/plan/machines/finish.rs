//! What becomes of a machine that may change: its row as it is afterwards, and its move as people read it.

use std::collections::BTreeMap;

use schema::{
    name::Name,
    node::Hold,
    object::{Kind, ObjectRef},
    time::Timestamp,
};

use super::{Moves, candidate::Candidate};
use crate::plan::{
    Delta, Held, HoldChange, NodeMove, NodeRow, ObservedNode, PoolPlan, Warning, effects::Change, observed::text,
    pools::class,
};

/// Writes a machine's row and shows its move.
pub(super) fn finish(
    candidate: &Candidate<'_>,
    change: Change,
    held: Vec<Held>,
    members: &mut BTreeMap<Name, PoolPlan>,
    out: &mut Moves,
    delta: &mut Delta,
) {
    let Candidate { node, wanted, why, .. } = candidate;
    let hold_changes = node.hold.as_ref() != wanted.hold.as_deref();
    if words(node.hold.as_ref()) != words(wanted.hold.as_deref()) {
        hold_change(node, wanted.hold.as_deref(), out);
    }
    let goes = held.is_empty();
    if !goes {
        let stuck = |kind, name: Option<&Name>| Some((node.name.clone(), ObjectRef::new(kind, name?.clone())));
        out.stuck.extend(stuck(Kind::Pool, node.pool.as_ref().filter(|_| candidate.leaves_its_pool())));
        out.stuck.extend(stuck(Kind::Site, node.site.as_ref().filter(|_| candidate.leaves_its_site())));
    }
    delta.nodes.extend(row(candidate, goes, hold_changes));
    if why.is_empty() {
        return;
    }
    let effect = change.class();
    if let Some(pool) = wanted.pool.and_then(|pool| members.get_mut(pool)) {
        pool.moves += 1;
        pool.held += usize::from(!goes);
        pool.effect = pool.effect.max(effect);
    }
    let object = || ObjectRef::new(Kind::Node, node.name.clone());
    if let Some(message) = change.failed {
        let message = format!("its spec cannot be made, so that the last good one stays in force: {message}");
        out.warnings.push(Warning { object: object(), message, place: None, note: false });
    }
    if let Some(message) = change.blind {
        let message =
            format!("what it is told now cannot be made again, so that only what comes is counted: {message}");
        out.warnings.push(Warning { object: object(), message, place: None, note: false });
    }
    let profile =
        wanted.overlay.profile.clone().or_else(|| wanted.declared_pool.map(|pool| pool.profile.value.clone()));
    out.moves.push(NodeMove {
        node: node.name.clone(),
        id: node.id,
        pool: wanted.pool.cloned(),
        profile,
        why: why.clone(),
        before: node.assigned,
        after: wanted.target,
        effect,
        effects: change.effects,
        before_spec: change.before,
        after_spec: change.after,
        awaits_boot: candidate.awaits_boot,
        held,
    });
}

/// The row as it is afterwards; `None` when it is so already. A machine that is held stays where it is, or what covers it
/// there would cover it no more in the next plan.
fn row(candidate: &Candidate<'_>, goes: bool, hold_changes: bool) -> Option<NodeRow> {
    let Candidate { node, wanted, assigns, .. } = candidate;
    let id = node.id?;
    let assign = goes && *assigns;
    let (site, role) = if goes {
        (wanted.site(node).cloned(), wanted.declared_pool.map_or(node.role, |pool| class(pool).role()))
    } else {
        (node.site.clone(), node.role)
    };
    let stays = !goes && (candidate.kept || candidate.leaves_its_pool());
    let (pool, target, overlay, labels) = if stays {
        (node.pool.clone(), node.target, &node.target_overlay, &node.labels)
    } else {
        (wanted.pool.cloned(), wanted.target, &*wanted.overlay, &wanted.overlay.labels)
    };
    let same = pool == node.pool
        && site == node.site
        && role == node.role
        && target == node.target
        && *overlay == node.target_overlay
        && *labels == node.labels
        && wanted.declared == node.declared;
    if same && !assign && !hold_changes {
        return None;
    }
    Some(NodeRow {
        id,
        site,
        pool,
        role,
        declared: wanted.declared,
        labels: (**labels).clone(),
        target,
        overlay: text(overlay),
        assign,
        hold: wanted.hold.as_deref().cloned(),
        hold_changes,
    })
}

/// What a hold says, wherever it is written.
fn words(hold: Option<&Hold>) -> Option<(&str, &str, Option<Timestamp>)> {
    hold.map(|hold| (hold.owner.as_str(), hold.reason.as_str(), hold.until))
}

fn hold_change(node: &ObservedNode, after: Option<&Hold>, out: &mut Moves) {
    if let Some(hold) = after.or(node.hold.as_ref()) {
        out.holds.push(HoldChange {
            node: node.name.clone(),
            holds: after.is_some(),
            owner: hold.owner.clone(),
            reason: hold.reason.clone(),
            until: hold.until,
            place: hold.place.clone(),
        });
    }
}
