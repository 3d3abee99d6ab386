//! Changes of one axis each.

use schema::{
    command::Reason,
    id::NodeId,
    inventory::InventorySection,
    node::{Condition, NoScheduleReason, Power, ProvisionEvent, ProvisionState, Trust},
};

use super::{ChangeError, Node};
use crate::{DbError, Txn, commands, poke::Poke};

/// Moves a locked node along the provision axis. A failure also turns maintenance on.
///
/// # Errors
/// [`ChangeError::Illegal`] when the table has no such move.
pub async fn set_provision(txn: &mut Txn, node: &Node, event: ProvisionEvent) -> Result<ProvisionState, ChangeError> {
    let moved = node.provision.transition(event, node.failed_from)?;
    sqlx::query!(
        r#"UPDATE nodes
           SET provision_state = $2,
               failed_from = $3,
               maintenance = maintenance OR $4,
               adopted_at = CASE WHEN $2 = 'adopted' THEN COALESCE(adopted_at, compute_now()) ELSE adopted_at END,
               version = version + 1,
               updated_at = compute_now()
           WHERE id = $1"#,
        node.id.as_uuid(),
        moved.to.as_str(),
        moved.failed_from.map(ProvisionState::as_str),
        moved.failed_from.is_some(),
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    Ok(moved.to)
}

/// Moves an adopting node to adopted.
///
/// # Errors
/// [`ChangeError::Illegal`] when it is not adopting.
pub async fn adopt(txn: &mut Txn, node: &Node) -> Result<(), ChangeError> {
    set_provision(txn, node, ProvisionEvent::Adopt).await.map(|_| ())
}

/// Turns maintenance on, with a reason, or off.
///
/// # Errors
/// When the statement fails.
pub async fn set_maintenance(txn: &mut Txn, id: NodeId, reason: Option<&str>) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE nodes
           SET maintenance = $2, maintenance_reason = $3, version = version + 1, updated_at = compute_now()
           WHERE id = $1 AND (maintenance, maintenance_reason) IS DISTINCT FROM ($2, $3)"#,
        id.as_uuid(),
        reason.is_some(),
        reason,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Stores what the BMC says about power.
///
/// # Errors
/// When the statement fails.
pub async fn set_power(txn: &mut Txn, id: NodeId, power: Power) -> Result<(), DbError> {
    sqlx::query!("UPDATE nodes SET power = $2 WHERE id = $1 AND power <> $2", id.as_uuid(), power.as_str())
        .execute(txn.conn())
        .await?;
    Ok(())
}

/// Says who controls the machine.
///
/// # Errors
/// When the statement fails.
pub async fn set_trust(txn: &mut Txn, id: NodeId, trust: Trust) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE nodes SET trust = $2, version = version + 1, updated_at = compute_now() WHERE id = $1 AND trust <> $2",
        id.as_uuid(),
        trust.as_str(),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Replaces the conditions, when they differ.
///
/// # Errors
/// When the statement fails.
pub async fn set_conditions(txn: &mut Txn, id: NodeId, conditions: &[Condition]) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE nodes SET conditions = $2 WHERE id = $1 AND conditions IS DISTINCT FROM $2",
        id.as_uuid(),
        serde_json::to_value(conditions).expect("conditions are JSON"),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Stores which inventory sections the database lacks, and pokes the gateway when there are new ones.
///
/// # Errors
/// When the statement fails.
pub async fn set_inventory_wanted(txn: &mut Txn, id: NodeId, sections: &[InventorySection]) -> Result<(), DbError> {
    let sections: Vec<String> = sections.iter().map(ToString::to_string).collect();
    let done = sqlx::query!(
        "UPDATE nodes SET inventory_wanted = $2 WHERE id = $1 AND inventory_wanted <> $2",
        id.as_uuid(),
        &sections
    )
    .execute(txn.conn())
    .await?;
    if done.rows_affected() == 1 && !sections.is_empty() {
        txn.poke(Poke::Node(id));
    }
    Ok(())
}

/// Adds and takes away reasons not to schedule; each writer names its own. Nothing is written when nothing changes.
///
/// # Errors
/// When the statement fails.
pub async fn change_no_schedule(
    txn: &mut Txn,
    id: NodeId,
    add: &[NoScheduleReason],
    remove: &[NoScheduleReason],
) -> Result<(), DbError> {
    let text = |reasons: &[NoScheduleReason]| reasons.iter().map(ToString::to_string).collect::<Vec<_>>();
    sqlx::query!(
        r#"UPDATE nodes n
           SET no_schedule_reasons = wanted.reasons
           FROM (SELECT COALESCE(array_agg(DISTINCT reason ORDER BY reason), '{}') AS reasons
                 FROM (SELECT UNNEST(no_schedule_reasons) AS reason FROM nodes WHERE id = $1
                       UNION SELECT UNNEST($2::text[])) AS all_reasons
                 WHERE reason <> ALL ($3::text[]) OR reason = ANY ($2::text[])) AS wanted
           WHERE n.id = $1 AND n.no_schedule_reasons IS DISTINCT FROM wanted.reasons"#,
        id.as_uuid(),
        &text(add),
        &text(remove),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Replaces a node's identity: certificates of the generations before never work again. Its open session ends.
///
/// # Errors
/// When the statement fails.
pub async fn bump_identity(txn: &mut Txn, id: NodeId) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE nodes SET identity_generation = identity_generation + 1, version = version + 1, updated_at = compute_now() WHERE id = $1",
        id.as_uuid(),
    )
    .execute(txn.conn())
    .await?;
    txn.poke(Poke::Node(id));
    Ok(())
}

/// Deletes a node and everything that hangs off it. The commands that wait for it are cancelled, and those in flight fail: nobody can
/// verify any more what the machine says of them. Those that ended are kept.
///
/// # Errors
/// When the statement fails.
pub async fn delete(txn: &mut Txn, id: NodeId) -> Result<(), DbError> {
    commands::end_open_of(txn, id, &Reason::NODE_DELETED).await?;
    sqlx::query!("DELETE FROM nodes WHERE id = $1", id.as_uuid()).execute(txn.conn()).await?;
    txn.poke(Poke::Node(id));
    Ok(())
}
