//! What waits for a signature, and putting it down. A command is signed after it was committed, never in the transaction of
//! its cause.

use std::collections::BTreeSet;

use schema::id::{CommandId, NodeId};

use crate::{Db, DbError, Txn, poke::Poke};

/// A command that can be sent once it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsigned {
    /// Which.
    pub id: CommandId,
    /// For which node.
    pub node_id: NodeId,
    /// The bytes to sign.
    pub body: Vec<u8>,
}

/// A command that waits for its signature, as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The command.
    pub command: Unsigned,
    /// The tag of whoever queued it; without a good one the row is no command.
    pub mark: Option<Vec<u8>>,
    /// The proof that people agreed, when somebody put one beside it.
    pub approval: Option<Vec<u8>>,
}

/// The pending commands of a node without a signature, in their order. One signature is enough: no command waits longer than
/// it is good for.
///
/// # Errors
/// When the statement fails.
pub async fn unsigned(db: &Db, node: NodeId, limit: u32) -> Result<Vec<Queued>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, body, mark, approval
           FROM commands
           WHERE node_id = $1 AND state = 'pending' AND not_after > compute_now() AND not_before IS NOT NULL
             AND signature IS NULL
           ORDER BY seq
           LIMIT $2"#,
        node.as_uuid(),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Queued {
            command: Unsigned { id: CommandId::from_uuid(row.id), node_id: node, body: row.body },
            mark: row.mark,
            approval: row.approval,
        })
        .collect())
}

/// A command and what it is signed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Which.
    pub id: CommandId,
    /// The bytes that were signed, when only the signer knew the whole of them; `None`: as they are stored.
    pub body: Option<Vec<u8>>,
    /// The encoded wire message.
    pub signature: Vec<u8>,
}

/// Puts signatures down, each beside the body that it is of, and pokes the gateways. A command that was taken, settled or
/// signed in the meantime stays as it is. Answers those that are signed by this call.
///
/// # Errors
/// When the statement fails.
pub async fn sign(txn: &mut Txn, signed: &[Signed]) -> Result<Vec<CommandId>, DbError> {
    let ids: Vec<uuid::Uuid> = signed.iter().map(|signed| signed.id.as_uuid()).collect();
    let bodies: Vec<Option<Vec<u8>>> = signed.iter().map(|signed| signed.body.clone()).collect();
    let signatures: Vec<Vec<u8>> = signed.iter().map(|signed| signed.signature.clone()).collect();
    // The commit does not wait for the disk: a signature that a crash takes back is made again. Behind a SELECT the planner does
    // not see how short the lists are, and so plans once for a connection. All rows are locked in the order of the ids, as
    // everybody locks them.
    let rows = sqlx::query!(
        r#"WITH quick AS MATERIALIZED (
               SELECT set_config('synchronous_commit', 'off', true)
           ), s AS MATERIALIZED (
               SELECT c.id, s.body, s.signature
               FROM quick
               CROSS JOIN (
                   SELECT *
                   FROM UNNEST((SELECT $1::uuid[]), (SELECT $2::bytea[]), (SELECT $3::bytea[])) AS s (id, body, signature)
                   ORDER BY id
               ) AS s
               CROSS JOIN LATERAL (SELECT id, state, signature FROM commands WHERE id = s.id LIMIT 1 FOR UPDATE) AS c
               WHERE c.state = 'pending' AND c.signature IS NULL
           )
           UPDATE commands c
           SET body = COALESCE(s.body, c.body), signature = s.signature, signed_at = compute_now()
           FROM s
           WHERE c.id = s.id
           RETURNING c.id, c.node_id"#,
        &ids,
        &bodies as _,
        &signatures,
    )
    .fetch_all(txn.conn())
    .await?;
    let nodes: BTreeSet<uuid::Uuid> = rows.iter().map(|row| row.node_id).collect();
    nodes.into_iter().for_each(|node| txn.poke(Poke::Commands(NodeId::from_uuid(node))));
    Ok(rows.into_iter().map(|row| CommandId::from_uuid(row.id)).collect())
}

/// Body and signature of a command as they were last sent; `None` when it was never signed.
///
/// # Errors
/// When the statement fails.
pub async fn sent(db: &Db, id: CommandId) -> Result<Option<(Vec<u8>, Vec<u8>)>, DbError> {
    let row = sqlx::query!(
        r#"SELECT body, signature AS "signature!" FROM commands WHERE id = $1 AND signature IS NOT NULL"#,
        id.as_uuid()
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(|row| (row.body, row.signature)))
}
