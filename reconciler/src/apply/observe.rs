//! What is in force, read from the database for a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use schema::{
    digest::Digest,
    fleet::{
        NodeOverlay,
        brake::{Brake, BrakeKind, Scope},
    },
    node::{Hold, HoldSource},
    object::{Kind, ObjectRef},
};
use store::{Db, DbError, Txn, fleet_holds, nodes, pools, revisions, sources, suspensions};

use crate::plan::{
    GateWord, Machines, Observed, ObservedHold, ObservedNode, ObservedObject, ObservedPool, ObservedTarget,
};

/// A stored document that this version cannot read.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// It is not what it was written as.
    #[error("the stored {what} is not readable")]
    Corrupt {
        /// Which one.
        what: String,
        /// Why.
        #[source]
        error: serde_json::Error,
    },
    /// PostgreSQL did not answer.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Everything that a plan is made of, as it was at one moment.
///
/// # Errors
/// When PostgreSQL does not answer or a stored document does not decode.
pub async fn observe(db: &Db, source: &str) -> Result<Observed, ObserveError> {
    let mut txn = db.snapshot().await?;
    let mut observed = Observed::nothing(Machines::Joined);
    observed.commit = sources::find_in(&mut txn, source).await?.and_then(|source| source.applied).map(|at| at.commit);
    observed.tree = revisions::latest_of(&mut txn, source).await?.and_then(|revision| revision.tree_digest);
    for stored in revisions::objects_in(&mut txn)
        .await?
        .into_iter()
        .filter(|stored| stored.state != revisions::ObjectState::Removed)
    {
        let doc = Arc::new(read(&stored.doc, || stored.object.to_string())?);
        let retained = stored.state == revisions::ObjectState::Retained;
        let object = ObservedObject { digest: stored.digest, doc, file: stored.file, line: stored.line, retained };
        observed.objects.insert(stored.object, object);
    }
    let mut named: BTreeSet<Digest> = BTreeSet::new();
    for pool in pools::list_in(&mut txn).await? {
        named.extend(pool.target);
        named.extend(pool.profile_targets.values());
        observed.pools.insert(pool.name, ObservedPool { target: pool.target, profile_targets: pool.profile_targets });
    }
    observed.nodes = machines(&mut txn).await?;
    // What machines are still assigned is what a plan compares their next spec with.
    named.extend(observed.nodes.iter().flat_map(|node| [node.target, node.assigned]).flatten());
    for target in pools::find_targets(&mut txn, &named.into_iter().collect::<Vec<_>>()).await? {
        let doc = read(&target.doc, || format!("target {}", target.digest))?;
        observed.targets.insert(target.digest, ObservedTarget { doc });
    }
    for hold in fleet_holds::list_in(&mut txn).await?.whole()? {
        if let Ok(subject) = hold.subject.parse::<ObjectRef>()
            && hold.hold.source == HoldSource::Git
            && GateWord::of(&hold.gate).is_some()
        {
            let Hold { reason, until, .. } = hold.hold;
            observed.holds.push(ObservedHold { subject, gate: hold.gate, reason, until });
        }
    }
    observed.holds.sort_by(|a, b| (&a.subject, GateWord::of(&a.gate)).cmp(&(&b.subject, GateWord::of(&b.gate))));
    observed.suspensions = suspended(&mut txn, &observed).await?;
    observed.boots = Some(nodes::awaiting_boot(&mut txn).await?.into_iter().collect());
    Ok(observed)
}

/// What was renamed after a revision came into force, for the way back to it: the name in force, and the one that the
/// revision knows.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn renamed_since(db: &Db, source: &str, seq: u64) -> Result<Vec<(ObjectRef, ObjectRef)>, DbError> {
    let mut txn = db.snapshot().await?;
    let newest_first = revisions::renamed_after(&mut txn, source, seq).await?;
    let mut back: Vec<(ObjectRef, ObjectRef)> = Vec::new();
    for pairs in newest_first {
        let pairs: Vec<(ObjectRef, ObjectRef)> = serde_json::from_value(pairs).unwrap_or_default();
        for (from, to) in pairs {
            match back.iter_mut().find(|(_, had)| *had == to) {
                Some((_, had)) => *had = from,
                None => back.push((to, from)),
            }
        }
    }
    back.retain(|(now, had)| now != had);
    Ok(back)
}

/// Suspensions by hand.
pub(super) async fn suspended(txn: &mut Txn, observed: &Observed) -> Result<Vec<Brake>, DbError> {
    let fleet = observed.objects.keys().find(|object| object.kind == Kind::Fleet);
    Ok(suspensions::list_in(txn).await?.whole()?.into_iter().filter_map(|one| brake_by_hand(one, fleet)).collect())
}

/// A suspension by hand as a brake. One whose scope is no object holds nothing. `fleet` is the fleet document in force.
pub(crate) fn brake_by_hand(one: suspensions::Suspension, fleet: Option<&ObjectRef>) -> Option<Brake> {
    let (name, scope) = if one.scope == "fleet" {
        (fleet.map_or_else(|| "fleet/fleet".to_owned(), ToString::to_string), Scope::Fleet)
    } else {
        (one.scope.clone(), Scope::Objects(vec![one.scope.parse().ok()?]))
    };
    Some(Brake {
        kind: BrakeKind::Suspend,
        name,
        scope,
        owner: one.owner,
        reason: one.reason,
        from: None,
        until: one.until,
        window: None,
        place: None,
    })
}

/// The machines, by name. One whose row cannot be read is left as it is; the others go on.
pub(super) async fn machines(txn: &mut Txn) -> Result<Vec<ObservedNode>, ObserveError> {
    let mut overlays: BTreeMap<String, NodeOverlay> = BTreeMap::new();
    let mut overlay = |text: String| -> Option<NodeOverlay> {
        if let Some(known) = overlays.get(&text) {
            return Some(known.clone());
        }
        let overlay: NodeOverlay = serde_json::from_str(&text).ok()?;
        overlays.insert(text, overlay.clone());
        Some(overlay)
    };
    let found = nodes::declared_view(txn).await?.items.into_iter();
    Ok(found
        .filter_map(|view| {
            Some(ObservedNode {
                id: Some(view.id),
                target_overlay: overlay(view.target_overlay)?,
                assigned_overlay: overlay(view.assigned_overlay)?,
                assigned_name: view.assigned_name,
                name: view.name,
                site: view.site,
                pool: view.pool,
                role: view.role,
                declared: view.declared,
                labels: view.labels.into(),
                target: view.target,
                assigned: view.assigned,
                hold: view.git_hold,
            })
        })
        .collect())
}

fn read<T: serde::de::DeserializeOwned>(text: &str, what: impl FnOnce() -> String) -> Result<T, ObserveError> {
    serde_json::from_str(text).map_err(|error| ObserveError::Corrupt { what: what(), error })
}
