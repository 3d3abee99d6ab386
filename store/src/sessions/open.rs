//! Sessions begin: who may have one, under which epoch.

use std::collections::{BTreeMap, HashMap};

use schema::{
    command::Lane,
    digest::Digest,
    generation::{Epoch, Generation, IdentityGeneration},
    id::{BootId, GatewayId, JournalId, NodeId},
    inventory::InventorySection,
};

use crate::{DbError, Txn, convert};

/// What a gateway knows when a session opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOpen {
    /// The node, as its certificate says.
    pub node_id: NodeId,
    /// The gateway.
    pub gateway_id: GatewayId,
    /// The boot, as Hello says.
    pub boot_id: BootId,
    /// The journal, as Hello says.
    pub journal_id: JournalId,
    /// The serial number of the certificate, big endian.
    pub serial: Vec<u8>,
    /// The daemon's version.
    pub version: String,
    /// The machine is described by a file.
    pub described: bool,
    /// The daemon runs commands.
    pub commands: bool,
    /// The highest number that the journal ever took, by lane; `None` when Hello does not say.
    pub marks: Option<[u64; Lane::ALL.len()]>,
}

impl SessionOpen {
    /// No number is higher than that of a journal that does not say.
    fn mark(&self, lane: Lane) -> i64 {
        self.marks.map_or(i64::MAX, |marks| i64::try_from(marks[lane.index()]).unwrap_or(i64::MAX))
    }
}

/// An open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The epoch that every write of this session names.
    pub epoch: Epoch,
    /// The node's generation; when Hello is behind, the spec is sent.
    pub generation: Generation,
    /// The identity of the certificate.
    pub identity_generation: IdentityGeneration,
    /// The kinds of commands that the certificate's identity accepts; `None` for every kind.
    pub allowed_kinds: Option<Vec<String>>,
    /// Digests of the stored inventory.
    pub inventory: BTreeMap<InventorySection, Digest>,
    /// Another gateway had an open session of this node.
    pub taken_over: bool,
}

/// Why a session was refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No such node.
    #[error("there is no node {0}")]
    Unknown(NodeId),
    /// The node is retired.
    #[error("the node is retired")]
    Retired,
    /// There is no record of the certificate.
    #[error("the certificate is not on record")]
    Uncertified,
    /// The certificate was revoked, and nobody has the node's identity since.
    #[error("the certificate is revoked")]
    CertificateRevoked,
    /// The journal does not have what it once took and what may not run twice: an old copy of it was put back.
    #[error("the journal is older than what was heard of it")]
    OldJournal,
    /// The certificate belongs to an identity that was replaced.
    #[error("the node's identity was replaced: the certificate is of generation {presented}, the node is at {current}")]
    Replaced {
        /// Of the certificate.
        presented: IdentityGeneration,
        /// Of the node.
        current: IdentityGeneration,
    },
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// One session of [`open_all`].
///
/// # Errors
/// [`OpenError`] says why the node may not have one.
pub async fn open(txn: &mut Txn, session: &SessionOpen) -> Result<Opened, OpenError> {
    open_all(txn, std::slice::from_ref(session)).await?.pop().unwrap_or(Err(OpenError::Unknown(session.node_id)))
}

/// Opens sessions of different nodes in one statement: each certificate is judged, the epoch rises, the node is connected, and
/// a session that was open elsewhere writes nothing more. What the sessions before had in flight is for
/// [`crate::commands::resume_all`], in the same transaction. The answers are in the order of the questions; who is refused changes
/// nothing for the others.
///
/// # Errors
/// When the statement fails.
pub async fn open_all(txn: &mut Txn, sessions: &[SessionOpen]) -> Result<Vec<Result<Opened, OpenError>>, DbError> {
    fn column<T>(sessions: &[SessionOpen], of: impl Fn(&SessionOpen) -> T) -> Vec<T> {
        sessions.iter().map(of).collect()
    }
    let rows = sqlx::query_as!(
        Row,
        r#"WITH asked AS MATERIALIZED (
               SELECT *
               FROM UNNEST($1::uuid[], $2::bytea[], $3::uuid[], $4::uuid[], $5::uuid[], $6::text[], $7::bool[], $8::bool[], $9::bigint[],
                           $10::bigint[], $11::bigint[])
                    AS a (node_id, serial, gateway_id, boot_id, journal_id, version, described, commands, control, provision, bulk)
           ), node AS MATERIALIZED (
               SELECT id, identity_generation, provision_state, generation
               FROM nodes
               WHERE id = ANY ($1)
               ORDER BY id
               FOR NO KEY UPDATE
           ), judged AS MATERIALIZED (
               SELECT a.*, n.generation, n.identity_generation AS current, c.identity_generation AS presented, c.allowed_kinds, c.node_name,
                      p.gateway_id <> a.gateway_id AND p.disconnected_at IS NULL AS taken_over,
                      CASE WHEN n.provision_state = 'retired' THEN 'retired'
                           WHEN c.serial IS NULL THEN 'uncertified'
                           WHEN c.identity_generation <> n.identity_generation AND c.revoked_at IS NOT NULL
                                AND NOT EXISTS (SELECT FROM node_certs l
                                                WHERE l.node_id = n.id AND l.identity_generation = n.identity_generation
                                                OFFSET 0) THEN 'revoked'
                           WHEN c.identity_generation <> n.identity_generation THEN 'replaced'
                           WHEN c.revoked_at IS NOT NULL THEN 'revoked'
                           WHEN EXISTS (SELECT
                                        FROM (VALUES ('control', a.control), ('provision', a.provision), ('bulk', a.bulk)) AS mark (lane, seq)
                                        JOIN commands m ON m.node_id = a.node_id AND m.lane = mark.lane AND m.seq > mark.seq
                                        WHERE NOT m.retry_safe AND m.acked_at IS NOT NULL AND m.journal_id = a.journal_id
                                        OFFSET 0) THEN 'old-journal'
                           ELSE 'open' END AS verdict
               FROM node n
               JOIN asked a ON a.node_id = n.id
               LEFT JOIN LATERAL (
                   SELECT serial, identity_generation, allowed_kinds, node_name, revoked_at
                   FROM node_certs
                   WHERE serial = a.serial AND node_id = n.id
                   OFFSET 0
               ) AS c ON true
               LEFT JOIN LATERAL (SELECT gateway_id, disconnected_at FROM sessions WHERE node_id = n.id OFFSET 0) AS p ON true
           ), opened AS (
               INSERT INTO sessions AS s (node_id, epoch, gateway_id, boot_id, journal_id, identity_generation, version, described, commands,
                                         node_name)
               SELECT node_id, 1, gateway_id, boot_id, journal_id, current, version, described, commands, node_name
               FROM judged
               WHERE verdict = 'open'
               ORDER BY node_id
               ON CONFLICT (node_id) DO UPDATE
               SET epoch = s.epoch + 1,
                   gateway_id = EXCLUDED.gateway_id,
                   boot_id = EXCLUDED.boot_id,
                   journal_id = EXCLUDED.journal_id,
                   identity_generation = EXCLUDED.identity_generation,
                   version = EXCLUDED.version,
                   described = EXCLUDED.described,
                   commands = EXCLUDED.commands,
                   node_name = EXCLUDED.node_name,
                   connected_at = compute_now(),
                   disconnected_at = NULL,
                   claims_void = 0,
                   last_seen = compute_now()
               RETURNING node_id, epoch
           ), connected AS (
               UPDATE nodes n
               SET connectivity = 'connected',
                   connectivity_since = compute_now(),
                   no_schedule_reasons = array_remove(no_schedule_reasons, 'unreachable')
               WHERE n.id = ANY (ARRAY(SELECT node_id FROM opened)) AND n.connectivity <> 'connected'
           )
           SELECT j.node_id AS "node_id!", j.verdict AS "verdict!", j.generation AS "generation!", j.current AS "current!",
                  j.presented AS "presented?", j.allowed_kinds, j.taken_over, o.epoch AS "epoch?",
                  ARRAY(SELECT i.section FROM node_inventory i WHERE i.node_id = j.node_id ORDER BY i.section) AS "sections!",
                  ARRAY(SELECT i.digest FROM node_inventory i WHERE i.node_id = j.node_id ORDER BY i.section) AS "digests!"
           FROM judged j
           LEFT JOIN opened o ON o.node_id = j.node_id"#,
        &column(sessions, |s| s.node_id.as_uuid()),
        &column(sessions, |s| s.serial.clone()),
        &column(sessions, |s| s.gateway_id.as_uuid()),
        &column(sessions, |s| s.boot_id.as_uuid()),
        &column(sessions, |s| s.journal_id.as_uuid()),
        &column(sessions, |s| s.version.clone()),
        &column(sessions, |s| s.described),
        &column(sessions, |s| s.commands),
        &column(sessions, |s| s.mark(Lane::Control)),
        &column(sessions, |s| s.mark(Lane::Provision)),
        &column(sessions, |s| s.mark(Lane::Bulk)),
    )
    .fetch_all(txn.conn())
    .await?;
    let mut rows: HashMap<uuid::Uuid, Row> = rows.into_iter().map(|row| (row.node_id, row)).collect();
    let answer = |session: &SessionOpen| {
        rows.remove(&session.node_id.as_uuid()).ok_or(OpenError::Unknown(session.node_id)).and_then(Row::read)
    };
    Ok(sessions.iter().map(answer).collect())
}

struct Row {
    node_id: uuid::Uuid,
    verdict: String,
    generation: i64,
    current: i64,
    presented: Option<i64>,
    allowed_kinds: Option<Vec<String>>,
    taken_over: Option<bool>,
    epoch: Option<i64>,
    sections: Vec<String>,
    digests: Vec<Vec<u8>>,
}

impl Row {
    fn read(self) -> Result<Opened, OpenError> {
        let current = IdentityGeneration::from_i64(self.current);
        let epoch = match (self.verdict.as_str(), self.epoch) {
            ("open", Some(epoch)) => Epoch::from_i64(epoch),
            ("retired", _) => return Err(OpenError::Retired),
            ("revoked", _) => return Err(OpenError::CertificateRevoked),
            ("old-journal", _) => return Err(OpenError::OldJournal),
            ("replaced", _) => {
                let presented = self.presented.map_or(IdentityGeneration::NONE, IdentityGeneration::from_i64);
                return Err(OpenError::Replaced { presented, current });
            }
            _ => return Err(OpenError::Uncertified),
        };
        let inventory = self
            .sections
            .iter()
            .zip(&self.digests)
            .map(|(section, digest)| Ok((convert::word("inventory section", section)?, convert::digest(digest)?)));
        Ok(Opened {
            epoch,
            generation: Generation::from_i64(self.generation),
            identity_generation: current,
            allowed_kinds: self.allowed_kinds,
            inventory: inventory.collect::<Result<_, DbError>>()?,
            taken_over: self.taken_over.unwrap_or(false),
        })
    }
}
