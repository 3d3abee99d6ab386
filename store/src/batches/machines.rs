//! Machines as a batch sees them.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    generation::{Generation, IdentityGeneration},
    id::{BootId, JournalId, NodeId},
    name::Name,
    node::{Connectivity, ProvisionState},
};

use crate::{
    Db, DbError, Listed, Txn, convert, marks,
    rows::{self, Stored},
};

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: Name,
    /// Its pool.
    pub pool: Option<Name>,
    /// Its site.
    pub site: Option<Name>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Counts its identities.
    pub identity: IdentityGeneration,
    /// What it is recognised by.
    pub hardware_key: Option<Digest>,
    /// Its journal, as it last signed that; `None` while it never did.
    pub journal: Option<JournalId>,
    /// The boot that it last signed to be in; `None` while it never did.
    pub boot: Option<BootId>,
    /// What it applied.
    pub applied: Generation,
    /// Whether its session is there.
    pub connectivity: Connectivity,
    /// Whether any hold exists.
    pub cordoned: bool,
    /// Whether something waits for a boot on it.
    pub staged: bool,
    /// Whether it goes by another name still: it was renamed since it got the certificate of its session.
    pub renamed: bool,
    /// How far it is.
    pub provision: ProvisionState,
    /// The tag over its name and its pool.
    pub tag: Option<Vec<u8>>,
    /// Whether a process of this control plane made that tag; everybody else who writes a name writes none that is good.
    pub vouched: bool,
}

impl Machine {
    /// Looks at its tag. A process without keys believes what stands there.
    pub(super) fn judge(&mut self, txn: &Txn) {
        let place = marks::placement(self.id, self.name.as_str(), self.pool.as_ref().map(Name::as_str));
        let tag = self.tag.as_deref();
        self.vouched = txn.marker().is_none_or(|marker| tag.is_some_and(|tag| marker.is_placement(&place, tag)));
    }
}

/// The columns of a machine.
#[derive(sqlx::FromRow)]
pub(super) struct Row {
    pub(super) id: uuid::Uuid,
    pub(super) name: String,
    pub(super) pool: Option<String>,
    pub(super) site: Option<String>,
    pub(super) labels: serde_json::Value,
    pub(super) identity_generation: i64,
    pub(super) hardware_key: Option<Vec<u8>>,
    #[sqlx(rename = "journal_id?")]
    pub(super) journal_id: Option<uuid::Uuid>,
    #[sqlx(rename = "boot_id?")]
    pub(super) boot_id: Option<uuid::Uuid>,
    pub(super) applied_generation: i64,
    pub(super) connectivity: String,
    pub(super) cordoned: bool,
    #[sqlx(rename = "staged!")]
    pub(super) staged: bool,
    #[sqlx(rename = "renamed!")]
    pub(super) renamed: bool,
    pub(super) provision_state: String,
    pub(super) placement: Option<Vec<u8>>,
}

impl Stored for Row {
    type Item = Machine;
    const TABLE: &'static str = "nodes";
    const KEY: &'static [&'static str] = &["name", "id"];

    fn read(self) -> Result<Machine, DbError> {
        let name_of = |text: Option<String>| text.map(|text| convert::word("name", &text)).transpose();
        Ok(Machine {
            id: NodeId::from_uuid(self.id),
            name: convert::word("node name", &self.name)?,
            pool: name_of(self.pool)?,
            site: name_of(self.site)?,
            labels: serde_json::from_value(self.labels).map_err(|error| DbError::corrupt("labels", error))?,
            identity: IdentityGeneration::from_i64(self.identity_generation),
            hardware_key: convert::maybe_digest(self.hardware_key)?,
            journal: self.journal_id.map(JournalId::from_uuid),
            boot: self.boot_id.map(BootId::from_uuid),
            applied: Generation::from_i64(self.applied_generation),
            connectivity: convert::word("connectivity", &self.connectivity)?,
            cordoned: self.cordoned,
            staged: self.staged,
            renamed: self.renamed,
            provision: convert::word("provision state", &self.provision_state)?,
            tag: self.placement,
            vouched: false,
        })
    }
}

// Machines that are not retired; `$tail` narrows them further.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT n.id, n.name, n.pool, n.site, n.labels, n.identity_generation, n.hardware_key, b.journal_id AS "journal_id?",
                      b.boot_id AS "boot_id?", n.applied_generation, n.connectivity, n.cordoned, n.provision_state, n.placement,
                      n.conditions @> '[{"type": "RebootRequired", "status": "true"}]' AS "staged!",
                      COALESCE(s.node_name <> n.name, false) AS "renamed!"
               FROM nodes n
               LEFT JOIN node_boots b ON b.node_id = n.id
               LEFT JOIN sessions s ON s.node_id = n.id
               WHERE n.provision_state <> 'retired' "# + $tail
            $(, $arg)*
        )
    };
}

/// Every machine that is not retired, by name.
///
/// # Errors
/// When the statement fails.
pub async fn machines(txn: &mut Txn) -> Result<Listed<Machine>, DbError> {
    let listed = rows::list(txn.conn(), select!(r#"ORDER BY n.name COLLATE "C""#)).await?;
    Ok(judged(txn, listed))
}

/// One of them.
///
/// # Errors
/// When the statement fails.
pub async fn machine_of(txn: &mut Txn, id: NodeId) -> Result<Option<Machine>, DbError> {
    let mut found: Option<Machine> = rows::find(txn.conn(), select!("AND n.id = $1", id.as_uuid())).await?;
    found.iter_mut().for_each(|machine| machine.judge(txn));
    Ok(found)
}

/// The machines with these names, by name.
///
/// # Errors
/// When the statement fails.
pub async fn named(txn: &mut Txn, names: &[Name]) -> Result<Listed<Machine>, DbError> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let listed =
        rows::list(txn.conn(), select!(r#"AND n.name = ANY ($1) ORDER BY n.name COLLATE "C""#, &names)).await?;
    Ok(judged(txn, listed))
}

fn judged(txn: &Txn, mut listed: Listed<Machine>) -> Listed<Machine> {
    listed.items.iter_mut().for_each(|machine| machine.judge(txn));
    listed
}

/// How many machines a pool has, and how many of them are in somebody's hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InPool {
    /// The pool.
    pub pool: Name,
    /// What the pool allows to be disturbed at once, as its document says it.
    pub budget: Option<String>,
    /// Its machines, retired ones left out.
    pub machines: u32,
    /// Those that have a destructive command in flight or are silent for a short while.
    pub disturbed: u32,
}

/// How many machines of each pool are disturbed. The rows of the pools are held until the commit: whoever takes a machine in
/// hand asks here first, so that one budget holds for everybody.
///
/// # Errors
/// When the statement fails.
pub async fn in_hand(txn: &mut Txn, pools: &[Name], destructive: &[&str]) -> Result<Vec<InPool>, DbError> {
    let names: Vec<String> = pools.iter().map(ToString::to_string).collect();
    let kinds: Vec<String> = destructive.iter().map(ToString::to_string).collect();
    let held = sqlx::query!(
        r#"SELECT name, policy ->> 'disruption-budget' AS budget FROM pools WHERE name = ANY ($1) ORDER BY name FOR UPDATE"#,
        &names
    )
    .fetch_all(txn.conn())
    .await?;
    let counts = sqlx::query!(
        r#"SELECT n.pool AS "pool!", count(*) AS "machines!",
                  count(*) FILTER (
                      WHERE n.connectivity = 'unreachable'
                         OR EXISTS (SELECT FROM commands c
                                    WHERE c.node_id = n.id AND c.kind = ANY ($2) AND c.not_before IS NOT NULL
                                      AND c.state IN ('pending', 'dispatched', 'acked', 'running'))
                  ) AS "disturbed!"
           FROM nodes n
           WHERE n.pool = ANY ($1) AND n.provision_state <> 'retired'
           GROUP BY n.pool"#,
        &names,
        &kinds,
    )
    .fetch_all(txn.conn())
    .await?;
    held.into_iter()
        .map(|row| {
            let counted = counts.iter().find(|count| count.pool == row.name);
            let of = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
            Ok(InPool {
                pool: convert::word("pool", &row.name)?,
                budget: row.budget,
                machines: counted.map_or(0, |count| of(count.machines)),
                disturbed: counted.map_or(0, |count| of(count.disturbed)),
            })
        })
        .collect()
}

/// Keeps the report by which a machine names its serial numbers, exactly as it signed it.
///
/// # Errors
/// When the statement fails.
pub async fn keep_identity(txn: &mut Txn, node: NodeId, payload: &[u8], signature: &[u8]) -> Result<(), DbError> {
    sqlx::query!(
        r#"INSERT INTO node_identities AS i (node_id, payload, signature) VALUES ($1, $2, $3)
           ON CONFLICT (node_id) DO UPDATE
           SET payload = EXCLUDED.payload, signature = EXCLUDED.signature, received_at = EXCLUDED.received_at"#,
        node.as_uuid(),
        payload,
        signature,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Those reports of some machines: the node, the bytes and the signature.
///
/// # Errors
/// When the statement fails.
pub async fn signed_identity(db: &Db, nodes: &[NodeId]) -> Result<BTreeMap<NodeId, (Vec<u8>, Vec<u8>)>, DbError> {
    let ids: Vec<uuid::Uuid> = nodes.iter().map(|id| id.as_uuid()).collect();
    let rows = sqlx::query!("SELECT node_id, payload, signature FROM node_identities WHERE node_id = ANY ($1)", &ids)
        .fetch_all(db.pool())
        .await?;
    Ok(rows.into_iter().map(|row| (NodeId::from_uuid(row.node_id), (row.payload, row.signature))).collect())
}
