//! What waits for a signature, and putting it down. A command is signed after it was committed, never in the transaction of
//! its cause.

use std::collections::{BTreeSet, HashMap};

use schema::{
    command::CommandBody,
    id::{CommandId, JournalId, NodeId},
    time::Timestamp,
};
use sqlx::PgConnection;

use crate::{Db, DbError, Dedicated, Txn, poke::Poke};

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
    /// Its number on its node.
    pub seq: i64,
    /// The tag of whoever queued it; without a good one the row is no command.
    pub mark: Option<Vec<u8>>,
    /// The proof that people agreed, when somebody put one beside it.
    pub approval: Option<Vec<u8>>,
    /// Why it was not signed when that was looked at last.
    pub withheld: Option<String>,
}

/// The pending commands of a node without a signature, in their order, those behind a number. One signature is enough: no command
/// waits longer than it is good for.
///
/// # Errors
/// When the statement fails.
pub async fn unsigned(db: &Db, node: NodeId, after: i64, limit: u32) -> Result<Vec<Queued>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, seq, body, mark, approval, withheld
           FROM commands
           WHERE node_id = $1 AND state = 'pending' AND not_after > compute_now() AND not_before IS NOT NULL
             AND signature IS NULL AND seq > $2
           ORDER BY seq
           LIMIT $3"#,
        node.as_uuid(),
        after,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Queued {
            command: Unsigned { id: CommandId::from_uuid(row.id), node_id: node, body: row.body },
            seq: row.seq,
            mark: row.mark,
            approval: row.approval,
            withheld: row.withheld,
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
    /// The journal that the body names; `None`: it is for any.
    pub journal: Option<JournalId>,
}

/// Puts signatures down, each beside the body that it is of, and pokes the gateways. A command that was taken, settled or
/// signed in the meantime stays as it is, and so does one whose machine has named another journal since. Answers those that are
/// signed by this call.
///
/// # Errors
/// When the statement fails.
pub async fn sign(txn: &mut Txn, signed: &[Signed]) -> Result<Vec<CommandId>, DbError> {
    let (ids, pokes) = put_down(txn.conn(), signed).await?;
    pokes.into_iter().for_each(|poke| txn.poke(poke));
    Ok(ids)
}

/// The same in one statement, without a transaction around it.
///
/// # Errors
/// When the statement fails.
pub async fn sign_alone(db: &Dedicated, signed: &[Signed]) -> Result<Vec<CommandId>, DbError> {
    let mut taken = db.take().await?;
    let (ids, pokes) = put_down(taken.conn(), signed).await?;
    taken.done();
    db.poke(pokes).await;
    Ok(ids)
}

async fn put_down(conn: &mut PgConnection, signed: &[Signed]) -> Result<(Vec<CommandId>, BTreeSet<Poke>), DbError> {
    let journals: Vec<Option<uuid::Uuid>> =
        signed.iter().map(|signed| signed.journal.map(JournalId::as_uuid)).collect();
    let ids: Vec<uuid::Uuid> = signed.iter().map(|signed| signed.id.as_uuid()).collect();
    let bodies: Vec<Option<Vec<u8>>> = signed.iter().map(|signed| signed.body.clone()).collect();
    let signatures: Vec<Vec<u8>> = signed.iter().map(|signed| signed.signature.clone()).collect();
    // The commit does not wait for the disk: a signature that a crash takes back is made again. Behind a SELECT the planner does
    // not see how short the lists are, and so plans once for a connection. The journals of the machines stay what they are until
    // the commit; they are locked before any command is, because the list of ids waits for them. Then all rows are locked in the
    // order of the ids, as everybody locks them.
    let rows = sqlx::query!(
        r#"WITH quick AS MATERIALIZED (
               SELECT set_config('synchronous_commit', 'off', true)
           ), present AS MATERIALIZED (
               SELECT c.id, b.journal_id
               FROM UNNEST((SELECT $1::uuid[]), (SELECT $4::uuid[])) AS s (id, journal)
               CROSS JOIN LATERAL (SELECT id, node_id FROM commands WHERE id = s.id AND s.journal IS NOT NULL LIMIT 1) AS c
               JOIN nodes n ON n.id = c.node_id
               JOIN node_boots b ON b.node_id = n.id
               ORDER BY n.id
               FOR KEY SHARE OF n FOR SHARE OF b
           ), s AS MATERIALIZED (
               SELECT c.id, s.body, s.signature, s.journal
               FROM quick
               CROSS JOIN (
                   SELECT *
                   FROM UNNEST((SELECT $1::uuid[] WHERE (SELECT count(*) FROM present) >= 0), (SELECT $2::bytea[]),
                               (SELECT $3::bytea[]), (SELECT $4::uuid[])) AS s (id, body, signature, journal)
                   ORDER BY id
               ) AS s
               CROSS JOIN LATERAL (SELECT id, state, signature FROM commands WHERE id = s.id LIMIT 1 FOR UPDATE) AS c
               WHERE c.state = 'pending' AND c.signature IS NULL
                 AND (s.journal IS NULL OR EXISTS (SELECT FROM present p WHERE p.id = s.id AND p.journal_id = s.journal))
           )
           UPDATE commands c
           SET body = COALESCE(s.body, c.body), signature = s.signature, signed_at = compute_now(), for_journal = s.journal
           FROM s
           WHERE c.id = s.id
           RETURNING c.id, c.node_id"#,
        &ids,
        &bodies as _,
        &signatures,
        &journals as _,
    )
    .fetch_all(conn)
    .await?;
    let pokes = rows.iter().map(|row| Poke::Commands(NodeId::from_uuid(row.node_id))).collect();
    Ok((rows.into_iter().map(|row| CommandId::from_uuid(row.id)).collect(), pokes))
}

/// The journal of a machine, as it last signed that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Journal {
    /// Which.
    pub id: JournalId,
    /// The machine refuses what is for another one.
    pub binds: bool,
}

/// The journals of machines. One that has signed no report yet is not among them.
///
/// # Errors
/// When the statement fails.
pub async fn journals(db: &Db, nodes: &BTreeSet<NodeId>) -> Result<HashMap<NodeId, Journal>, DbError> {
    if nodes.is_empty() {
        return Ok(HashMap::new());
    }
    let nodes: Vec<uuid::Uuid> = nodes.iter().map(|node| node.as_uuid()).collect();
    let rows = sqlx::query!("SELECT node_id, journal_id, binds FROM node_boots WHERE node_id = ANY ($1)", &nodes)
        .fetch_all(db.pool())
        .await?;
    let journal = |id, binds| Journal { id: JournalId::from_uuid(id), binds };
    Ok(rows.into_iter().map(|row| (NodeId::from_uuid(row.node_id), journal(row.journal_id, row.binds))).collect())
}

/// Takes the signatures back that are for another journal than the one that their machine has now, each body as it was before:
/// they are made anew. What was handed to a gateway stays as it is, because the machine may have run it.
pub(super) async fn unsign_others(txn: &mut Txn, node: NodeId, journal: JournalId) -> Result<(), DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, body FROM commands
           WHERE node_id = $1 AND state = 'pending' AND for_journal <> $2 AND dispatched_at IS NULL
           ORDER BY id
           FOR NO KEY UPDATE"#,
        node.as_uuid(),
        journal.as_uuid(),
    )
    .fetch_all(txn.conn())
    .await?;
    let (mut ids, mut bodies) = (Vec::new(), Vec::new());
    for row in rows {
        // What nobody can read was signed by nobody here, and waits for its deadline.
        let Ok(body) = CommandBody::read(&row.body) else { continue };
        ids.push(row.id);
        bodies.push(CommandBody { journal: None, ..body }.to_bytes());
    }
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"UPDATE commands c SET body = u.body, signature = NULL, signed_at = NULL, for_journal = NULL
           FROM UNNEST($1::uuid[], $2::bytea[]) AS u (id, body)
           WHERE c.id = u.id"#,
        &ids,
        &bodies,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
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

/// A command that is signed and has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSigned {
    /// Which.
    pub id: CommandId,
    /// The word of its kind.
    pub kind: String,
    /// It waits; no machine has it.
    pub waits: bool,
    /// Never begun from here on.
    pub not_after: Timestamp,
    /// The encoded wire message.
    pub signature: Vec<u8>,
}

/// The commands of all nodes that are signed and have not ended, by id; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn signed_open(db: &Db, after: Option<CommandId>, limit: u32) -> Result<Vec<OpenSigned>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, kind, state = 'pending' AS "waits!", not_after, signature AS "signature!" FROM commands
           WHERE settled_at IS NULL AND signature IS NOT NULL AND ($1::uuid IS NULL OR id > $1)
           ORDER BY id LIMIT $2"#,
        after.map(|after| after.as_uuid()),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| OpenSigned {
            id: CommandId::from_uuid(row.id),
            kind: row.kind,
            waits: row.waits,
            not_after: row.not_after.to_jiff(),
            signature: row.signature,
        })
        .collect())
}

/// Writes down why commands are not signed. Whoever calls this holds them ([`lock`](super::lock)).
///
/// # Errors
/// When the statement fails.
pub async fn withhold(txn: &mut Txn, why: &[(CommandId, &str)]) -> Result<(), DbError> {
    let ids: Vec<uuid::Uuid> = why.iter().map(|(id, _)| id.as_uuid()).collect();
    let why: Vec<String> = why.iter().map(|(_, why)| (*why).to_owned()).collect();
    sqlx::query!(
        r#"UPDATE commands c SET withheld = w.why FROM UNNEST($1::uuid[], $2::text[]) AS w (id, why)
           WHERE c.id = w.id AND c.state = 'pending' AND c.signature IS NULL"#,
        &ids,
        &why,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Why a command that waits is not signed, when somebody looked at it and said so.
///
/// # Errors
/// When the statement fails.
pub async fn withheld(db: &Db, id: CommandId) -> Result<Option<String>, DbError> {
    let why = sqlx::query_scalar!(
        "SELECT withheld FROM commands WHERE id = $1 AND state = 'pending' AND signature IS NULL",
        id.as_uuid()
    );
    Ok(why.fetch_optional(db.pool()).await?.flatten())
}

/// A command that waits without a signature, and its mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The command.
    pub id: CommandId,
    /// What the mark is made over.
    pub body: Vec<u8>,
    /// The mark.
    pub mark: Vec<u8>,
}

/// The commands of all nodes that wait without a signature, held ones too, by id; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn marked(db: &Db, after: Option<CommandId>, limit: u32) -> Result<Vec<Marked>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, body, mark AS "mark!" FROM commands
           WHERE state = 'pending' AND signature IS NULL AND mark IS NOT NULL AND ($1::uuid IS NULL OR id > $1)
           ORDER BY id LIMIT $2"#,
        after.map(|after| after.as_uuid()),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Marked { id: CommandId::from_uuid(row.id), body: row.body, mark: row.mark })
        .collect())
}

/// Puts other marks on commands that still wait, as they were read, in the order of their ids.
///
/// # Errors
/// When the statement fails.
pub async fn mark_anew(txn: &mut Txn, marked: &[Marked]) -> Result<(), DbError> {
    let ids: Vec<uuid::Uuid> = marked.iter().map(|one| one.id.as_uuid()).collect();
    let bodies: Vec<Vec<u8>> = marked.iter().map(|one| one.body.clone()).collect();
    let marks: Vec<Vec<u8>> = marked.iter().map(|one| one.mark.clone()).collect();
    sqlx::query!("SELECT id FROM commands WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE", &ids)
        .fetch_all(txn.conn())
        .await?;
    sqlx::query!(
        r#"UPDATE commands c SET mark = m.mark FROM UNNEST($1::uuid[], $2::bytea[], $3::bytea[]) AS m (id, body, mark)
           WHERE c.id = m.id AND c.body = m.body AND c.state = 'pending' AND c.signature IS NULL"#,
        &ids,
        &bodies,
        &marks,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}
