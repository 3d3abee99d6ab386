//! What something else than the daemon changed on machines, field by field, as the node signed it.

use schema::{id::NodeId, name::Name, report::DriftEntry};

use sqlx::{Row as _, postgres::PgRow};

use crate::{Db, DbError, Page, Txn, convert, page, rows::Stored};

/// One field of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDrift {
    /// The machine's name.
    pub node: Name,
    /// Its pool.
    pub pool: Option<String>,
    /// The field.
    pub entry: DriftEntry,
}

/// Which fields are listed.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this machine.
    pub node: Option<NodeId>,
    /// Of machines of this pool.
    pub pool: Option<String>,
    /// At this path, or part of it: `files./etc/motd` lists its content and its mode.
    pub path: Option<String>,
}

/// How many machines have drifted, and how many wait for a boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Machines with a field that is not as desired now.
    pub drifted: u64,
    /// Machines with a field that was put right within the last hour and nothing that is not as desired now.
    pub corrected: u64,
    /// Machines where something is staged for a boot.
    pub reboot_required: u64,
}

/// Makes the drift of a node exactly this. A row that does not change is not written, and a field that goes on drifting is
/// as old as it ever was.
///
/// # Errors
/// When a statement fails.
pub async fn replace(txn: &mut Txn, id: NodeId, entries: &[DriftEntry]) -> Result<(), DbError> {
    let paths: Vec<String> = entries.iter().map(|entry| entry.path.clone()).collect();
    sqlx::query!("DELETE FROM node_drift WHERE node_id = $1 AND path <> ALL ($2)", id.as_uuid(), &paths)
        .execute(txn.conn())
        .await?;
    if entries.is_empty() {
        return Ok(());
    }
    let word = |of: fn(&DriftEntry) -> &'static str| entries.iter().map(|e| of(e).to_owned()).collect::<Vec<_>>();
    let (modes, kinds) = (word(|e| e.mode.as_str()), word(|e| e.kind.as_str()));
    let causes = word(|e| e.cause.as_str());
    let observed: Vec<Option<String>> = entries.iter().map(|e| e.observed.clone()).collect();
    let digests: Vec<Option<Vec<u8>>> =
        entries.iter().map(|e| e.observed_digest.as_ref().map(convert::digest_column)).collect();
    let bytes: Vec<Option<i64>> =
        entries.iter().map(|e| e.observed_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX))).collect();
    let desired: Vec<Option<String>> = entries.iter().map(|e| e.desired.clone()).collect();
    let first: Vec<Option<jiff_sqlx::Timestamp>> =
        entries.iter().map(|e| convert::time_column(Some(e.first_seen))).collect();
    let last: Vec<Option<jiff_sqlx::Timestamp>> =
        entries.iter().map(|e| convert::time_column(Some(e.last_seen))).collect();
    let corrected: Vec<bool> = entries.iter().map(|e| e.corrected).collect();
    let times: Vec<i64> = entries.iter().map(|e| i64::from(e.times)).collect();
    sqlx::query!(
        r#"INSERT INTO node_drift AS d (node_id, path, mode, kind, cause, observed, observed_digest, observed_bytes, desired,
                                        first_seen, last_seen, corrected, times)
           SELECT $1, n.* FROM UNNEST($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bigint[],
                                      $9::text[], $10::timestamptz[], $11::timestamptz[], $12::boolean[], $13::bigint[]) AS n
           ON CONFLICT (node_id, path) DO UPDATE
           SET mode = EXCLUDED.mode, kind = EXCLUDED.kind, cause = EXCLUDED.cause, observed = EXCLUDED.observed,
               observed_digest = EXCLUDED.observed_digest, observed_bytes = EXCLUDED.observed_bytes,
               desired = EXCLUDED.desired, first_seen = LEAST(d.first_seen, EXCLUDED.first_seen),
               last_seen = EXCLUDED.last_seen, corrected = EXCLUDED.corrected, times = EXCLUDED.times
           WHERE (d.mode, d.kind, d.cause, d.observed, d.observed_digest, d.observed_bytes, d.desired,
                  d.first_seen, d.last_seen, d.corrected, d.times)
                 IS DISTINCT FROM
                 (EXCLUDED.mode, EXCLUDED.kind, EXCLUDED.cause, EXCLUDED.observed, EXCLUDED.observed_digest,
                  EXCLUDED.observed_bytes, EXCLUDED.desired, LEAST(d.first_seen, EXCLUDED.first_seen),
                  EXCLUDED.last_seen, EXCLUDED.corrected, EXCLUDED.times)"#,
        id.as_uuid(),
        &paths,
        &modes,
        &kinds,
        &causes,
        &observed as &[Option<String>],
        &digests as &[Option<Vec<u8>>],
        &bytes as &[Option<i64>],
        &desired as &[Option<String>],
        &first as _,
        &last as _,
        &corrected,
        &times,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// The drift of machines, by machine and path. `chars` shortens the observed values.
///
/// # Errors
/// When the statement fails.
pub async fn list(
    db: &Db,
    filter: &Filter,
    chars: Option<u32>,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<NodeDrift>, DbError> {
    let (limit, rows) = page::rows(limit);
    let (after_node, after_path) = after.map(|after| after.split_once(' ').unwrap_or((after, ""))).unzip();
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT n.name, n.pool, d.path, d.mode, d.kind, d.cause,
                  CASE WHEN $4::integer IS NULL THEN d.observed ELSE left(d.observed, $4) END AS observed,
                  d.observed_digest, d.observed_bytes, d.desired, d.first_seen, d.last_seen, d.corrected, d.times
           FROM node_drift d JOIN nodes n ON n.id = d.node_id
           WHERE ($1::uuid IS NULL OR d.node_id = $1)
             AND ($2::text IS NULL OR n.pool = $2)
             AND ($3::text IS NULL OR d.path = $3 OR starts_with(d.path, $3 || '.'))
             AND ($5::text IS NULL OR (n.name, d.path) > ($5, $6))
           ORDER BY n.name, d.path
           LIMIT $7"#,
        filter.node.map(|id| id.as_uuid()),
        filter.pool.as_deref(),
        filter.path.as_deref(),
        chars.map(convert::int),
        after_node,
        after_path,
        rows,
    );
    let place = |row: &PgRow| Ok(format!("{} {}", row.try_get::<&str, _>("name")?, row.try_get::<&str, _>("path")?));
    page::read(db.pool(), statement, limit, place).await
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    pool: Option<String>,
    path: String,
    mode: String,
    kind: String,
    cause: String,
    observed: Option<String>,
    observed_digest: Option<Vec<u8>>,
    observed_bytes: Option<i64>,
    desired: Option<String>,
    first_seen: jiff_sqlx::Timestamp,
    last_seen: jiff_sqlx::Timestamp,
    corrected: bool,
    times: i64,
}

impl Stored for Row {
    type Item = NodeDrift;
    const TABLE: &'static str = "node_drift";
    const KEY: &'static [&'static str] = &["name", "path"];

    fn read(self) -> Result<NodeDrift, DbError> {
        let entry = DriftEntry {
            path: self.path,
            mode: convert::word("drift mode", &self.mode)?,
            kind: convert::word("drift kind", &self.kind)?,
            cause: convert::word("drift cause", &self.cause)?,
            observed: self.observed,
            observed_digest: convert::maybe_digest(self.observed_digest)?,
            observed_bytes: self.observed_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            desired: self.desired,
            first_seen: self.first_seen.to_jiff(),
            last_seen: self.last_seen.to_jiff(),
            corrected: self.corrected,
            times: u32::try_from(self.times).unwrap_or(u32::MAX),
        };
        Ok(NodeDrift { node: convert::word("node name", &self.name)?, pool: self.pool, entry })
    }
}

/// How many machines have drifted or wait for a boot.
///
/// # Errors
/// When the statement fails.
pub async fn counts(db: &Db) -> Result<Counts, DbError> {
    let row = sqlx::query!(
        r#"SELECT
             (SELECT count(DISTINCT node_id) FROM node_drift WHERE NOT corrected) AS "drifted!",
             (SELECT count(*) FROM (SELECT node_id FROM node_drift GROUP BY node_id
                                        HAVING bool_and(corrected) AND max(last_seen) > compute_now() - interval '1 hour') c) AS "corrected!",
             (SELECT count(*) FROM nodes
              WHERE conditions @> '[{"type": "RebootRequired", "status": "true"}]' AND provision_state <> 'retired') AS "reboot!""#
    )
    .fetch_one(db.pool())
    .await?;
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    Ok(Counts { drifted: count(row.drifted), corrected: count(row.corrected), reboot_required: count(row.reboot) })
}
