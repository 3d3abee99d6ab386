//! What is in force, read from the database for a plan.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    digest::Digest,
    fleet::NodeOverlay,
    node::{Hold, HoldSource},
    object::ObjectRef,
};
use store::{Db, DbError, Txn, fleet_holds, nodes, pools, revisions};

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

/// Everything that a plan is made of. Objects and pools are written by apply alone, under the lease of the source; the
/// machines are read again when the plan is applied.
///
/// # Errors
/// When PostgreSQL does not answer or a stored document does not decode.
pub async fn observe(db: &Db, commit: Option<&str>) -> Result<Observed, ObserveError> {
    let mut observed = Observed::nothing(Machines::Joined);
    observed.commit = commit.map(str::to_owned);
    for stored in
        revisions::objects(db).await?.into_iter().filter(|stored| stored.state != revisions::ObjectState::Removed)
    {
        let doc = read(&stored.doc, || stored.object.to_string())?;
        let retained = stored.state == revisions::ObjectState::Retained;
        let object = ObservedObject { digest: stored.digest, doc, file: stored.file, line: stored.line, retained };
        observed.objects.insert(stored.object, object);
    }
    let mut named: BTreeSet<Digest> = BTreeSet::new();
    for pool in pools::list(db).await? {
        named.extend(pool.target);
        named.extend(pool.profile_targets.values());
        observed.pools.insert(pool.name, ObservedPool { target: pool.target, profile_targets: pool.profile_targets });
    }
    for digest in named {
        if let Some(target) = pools::find_target(db, &digest).await? {
            observed.targets.insert(digest, ObservedTarget { doc: read(&target.doc, || format!("target {digest}"))? });
        }
    }
    for hold in fleet_holds::list(db).await? {
        if let Ok(subject) = hold.subject.parse::<ObjectRef>()
            && hold.hold.source == HoldSource::Git
            && GateWord::of(&hold.gate).is_some()
        {
            let Hold { reason, until, .. } = hold.hold;
            observed.holds.push(ObservedHold { subject, gate: hold.gate, reason, until });
        }
    }
    observed.holds.sort_by(|a, b| (&a.subject, &a.gate).cmp(&(&b.subject, &b.gate)));
    let mut txn = db.begin().await?;
    observed.nodes = machines(&mut txn).await?;
    drop(txn);
    Ok(observed)
}

/// The machines, by name.
pub(super) async fn machines(txn: &mut Txn) -> Result<Vec<ObservedNode>, ObserveError> {
    let mut overlays: BTreeMap<String, NodeOverlay> = BTreeMap::new();
    let mut overlay = |text: String, name: &str| -> Result<NodeOverlay, ObserveError> {
        if let Some(known) = overlays.get(&text) {
            return Ok(known.clone());
        }
        let overlay: NodeOverlay = read(&text, || format!("overlay of node/{name}"))?;
        overlays.insert(text, overlay.clone());
        Ok(overlay)
    };
    nodes::declared_view(txn)
        .await?
        .into_iter()
        .map(|view| {
            Ok(ObservedNode {
                id: Some(view.id),
                target_overlay: overlay(view.target_overlay, &view.name)?,
                assigned_overlay: overlay(view.assigned_overlay, &view.name)?,
                name: view.name,
                site: view.site,
                pool: view.pool,
                role: view.role,
                declared: view.declared,
                labels: view.labels,
                target: view.target,
                assigned: view.assigned,
                hold: view.git_hold,
            })
        })
        .collect()
}

fn read<T: serde::de::DeserializeOwned>(text: &str, what: impl FnOnce() -> String) -> Result<T, ObserveError> {
    serde_json::from_str(text).map_err(|error| ObserveError::Corrupt { what: what(), error })
}
