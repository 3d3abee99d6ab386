//! Apply as a model: what is known after a plan was carried out.

use schema::{
    fleet::{Labels, NodeOverlay},
    id::NodeId,
    name::Name,
    node::Role,
    object::{Kind, ObjectRef},
};

use crate::plan::{
    ObjectStanding, Observed, ObservedHold, ObservedNode, ObservedObject, ObservedPool, ObservedTarget, Planned,
};

pub(crate) fn machine(name: &str, pool: &str) -> ObservedNode {
    ObservedNode {
        id: Some(NodeId::generate()),
        name: name.parse().expect("a name"),
        site: None,
        pool: Some(pool.parse().expect("a name")),
        role: Role::Host,
        declared: false,
        labels: Labels::default(),
        target: None,
        target_overlay: NodeOverlay::default(),
        assigned: None,
        assigned_overlay: NodeOverlay::default(),
        assigned_name: None,
        hold: None,
    }
}

fn rename(after: &mut Observed, from: &ObjectRef, to: &ObjectRef) {
    if let Some(held) = after.objects.remove(from) {
        after.objects.insert(to.clone(), held);
    }
    for hold in after.holds.iter_mut().filter(|hold| hold.subject == *from) {
        hold.subject = to.clone();
    }
    let swap = |name: &mut Name, kind: Kind| {
        if from.kind == kind && *name == from.name {
            *name = to.name.clone();
        }
    };
    if from.kind == Kind::Pool
        && let Some(pool) = after.pools.remove(&from.name)
    {
        after.pools.insert(to.name.clone(), pool);
    }
    for node in &mut after.nodes {
        if from.kind == Kind::Node && node.name == from.name && node.assigned.is_some() {
            node.assigned_name.get_or_insert_with(|| from.name.clone());
        }
        swap(&mut node.name, Kind::Node);
        node.pool.iter_mut().for_each(|pool| swap(pool, Kind::Pool));
        node.site.iter_mut().for_each(|site| swap(site, Kind::Site));
    }
}

/// The same commit is planned again.
pub(crate) fn again(observed: &Observed, planned: &Planned) -> Observed {
    Observed { policy: planned.delta.policy.clone(), ..apply(observed, planned) }
}

pub(crate) fn apply(observed: &Observed, planned: &Planned) -> Observed {
    let mut after = observed.clone();
    let delta = &planned.delta;
    for (from, to) in &delta.moved {
        rename(&mut after, from, to);
    }
    for row in &delta.objects {
        if row.standing == ObjectStanding::Removed {
            after.objects.remove(&row.object);
            continue;
        }
        let doc = std::sync::Arc::new(serde_json::from_str(&row.doc).expect("a document"));
        let retained = row.standing == ObjectStanding::Retained;
        after.objects.insert(
            row.object.clone(),
            ObservedObject { digest: row.digest, doc, file: row.file.clone(), line: row.line, retained },
        );
    }
    for (digest, row) in &delta.targets {
        after.targets.insert(*digest, ObservedTarget { doc: serde_json::from_str(&row.doc).expect("a document") });
    }
    for row in &delta.pools {
        after.pools.insert(
            row.name.clone(),
            ObservedPool { target: Some(row.target), profile_targets: row.profile_targets.clone() },
        );
    }
    for name in &delta.removed_pools {
        after.pools.remove(name);
    }
    for row in &delta.nodes {
        let node = after.nodes.iter_mut().find(|node| node.id == Some(row.id)).expect("a known machine");
        let overlay: NodeOverlay = serde_json::from_str(&row.overlay).expect("an overlay");
        node.site.clone_from(&row.site);
        node.pool.clone_from(&row.pool);
        node.role = row.role;
        node.declared = row.declared;
        node.labels = row.labels.clone().into();
        node.target = row.target;
        node.target_overlay = overlay.clone();
        if row.assign {
            node.assigned = row.target;
            node.assigned_overlay = overlay;
            node.assigned_name = None;
        }
        if row.hold_changes {
            node.hold.clone_from(&row.hold);
        }
    }
    after.holds = delta
        .holds
        .iter()
        .map(|hold| ObservedHold {
            subject: hold.subject.clone(),
            gate: hold.gate.as_str().to_owned(),
            reason: hold.reason.clone(),
            until: hold.until,
        })
        .collect();
    after.commit.clone_from(&planned.plan.commit);
    after.policy = None;
    after
}
