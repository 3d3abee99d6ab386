//! What a node's own document holds: the cordon that git places, and lifts when the document no longer says so.

use schema::{
    fleet,
    id::NodeId,
    node::{Hold, HoldSource},
    object::{Kind, ObjectRef},
};
use store::{Txn, node_holds, nodes, revisions};

use crate::reconcile::{Context, Failure};

/// What has to happen to the hold of git. Apply keeps its words fresh; this keeps it there, for machines that joined after
/// the apply as well.
#[derive(Debug)]
pub(super) enum Change {
    Place(Hold),
    Lift,
}

pub(super) async fn change(context: &Context, node: &nodes::Node) -> Result<Option<Change>, Failure> {
    let now = context.now().await?;
    let stored = node_holds::list(context.db(), node.id).await?;
    let held = stored.iter().any(|stored| stored.hold.source == HoldSource::Git);
    let wanted = declared(context, node).await?.filter(|hold| hold.holds(now));
    Ok(match wanted {
        Some(hold) if !held => Some(Change::Place(hold)),
        None if held => Some(Change::Lift),
        Some(_) | None => None,
    })
}

async fn declared(context: &Context, node: &nodes::Node) -> Result<Option<Hold>, Failure> {
    let object = ObjectRef::new(Kind::Node, node.name.clone());
    let Some(stored) = revisions::find_object(context.db(), &object).await? else { return Ok(None) };
    if stored.state == revisions::ObjectState::Removed {
        return Ok(None);
    }
    let document: fleet::Node =
        serde_json::from_str(&stored.doc).map_err(|e| Failure::new("document-unreadable", e))?;
    Ok(document.cordon.map(|cordon| Hold {
        source: HoldSource::Git,
        owner: cordon.value.owner.value,
        reason: cordon.value.reason.value,
        until: cordon.value.until.map(|until| until.value),
        place: Some(format!("{}:{}", stored.file, stored.line)),
    }))
}

pub(super) async fn write(txn: &mut Txn, id: NodeId, change: &Change) -> Result<(), Failure> {
    match change {
        Change::Place(hold) => node_holds::place(txn, id, hold).await?,
        Change::Lift => {
            node_holds::lift(txn, id, HoldSource::Git).await?;
        }
    }
    Ok(())
}
