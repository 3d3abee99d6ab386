//! What was verified of the fleet's history: policies, statements, and how far it got. Copies, all of which prove themselves:
//! whoever reads them checks them against the digest in the keys, and believes no row.

use std::collections::{BTreeMap, BTreeSet};

use schema::{digest::Digest, id::NodeId, report::PolicyHeld, time::Timestamp};

use crate::{
    Db, DbError, Txn, convert,
    rows::{self, Stored},
};

/// A policy that came into force, with what agreed to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Its number; the first is 1.
    pub epoch: u64,
    /// The digest of the policy.
    pub digest: Digest,
    /// The file.
    pub policy: Vec<u8>,
    /// The commit that brought it.
    pub commit: String,
    /// Raw commits that agree to it and prove its keys.
    pub statements: Vec<Vec<u8>>,
    /// When it was stored; whoever stores one need not say.
    pub at: Timestamp,
}

/// A revocation that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The digest of the statement.
    pub digest: Digest,
    /// The newest policy that machines had when it was heard.
    pub epoch: u64,
    /// The raw commit.
    pub raw: Vec<u8>,
}

/// What somebody said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The digest of its block.
    pub digest: Digest,
    /// `approve/v1`, and so on.
    pub kind: String,
    /// What it is about.
    pub subject: String,
    /// Who said it.
    pub principal: String,
    /// The commit that carried it first.
    pub commit: String,
    /// That commit's bytes.
    pub raw: Vec<u8>,
    /// When it was first seen.
    pub first_seen_at: Timestamp,
}

/// A statement that may be new here. It is the same as another one when both its block and the key that signed it are: whoever has an
/// old key of somebody says nothing in place of their present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStatement {
    /// The digest of its block.
    pub digest: Digest,
    /// The name of the key that signed it.
    pub key: String,
    /// `approve/v1`, and so on.
    pub kind: String,
    /// What it is about.
    pub subject: String,
    /// Who said it.
    pub principal: String,
    /// The commit that carries it.
    pub commit: String,
    /// That commit's bytes.
    pub raw: Vec<u8>,
}

/// What became of statements; those that were there already are in neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutStatements<'a> {
    /// They are stored.
    pub fresh: Vec<&'a NewStatement>,
    /// Their key said enough about the same thing.
    pub too_many: Vec<&'a NewStatement>,
}

/// Statements of one kind about one thing that are kept of one key.
const MOST_OF_ONE_KEY: i64 = 32;

/// How far the history of a source was verified, as it was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The commit.
    pub commit: String,
    /// The epoch of the policy in force there.
    pub epoch: u64,
    /// Counts up.
    pub seq: u64,
    /// What was signed.
    pub body: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

/// Why a checkpoint was not stored.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Somebody else verified meanwhile.
    #[error("the verified checkpoint is {found:?}, not {expected:?}")]
    Moved {
        /// What the caller read.
        expected: Option<u64>,
        /// What is stored.
        found: Option<u64>,
    },
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Every policy that came into force, the first one first.
///
/// # Errors
/// When the statement fails.
pub async fn epochs(db: &Db) -> Result<Vec<Epoch>, DbError> {
    epochs_after(db, 0).await
}

/// The policies behind an epoch, in order.
///
/// # Errors
/// When the statement fails, or a digest is none.
pub async fn epochs_after(db: &Db, epoch: u64) -> Result<Vec<Epoch>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT epoch, digest, policy, commit, statements, at AS "at: jiff_sqlx::Timestamp"
           FROM trust_epochs WHERE epoch > $1 ORDER BY epoch"#,
        bigint(epoch),
    )
    .fetch_all(db.pool())
    .await?;
    let read = |row: (i64, String, Vec<u8>, String, Vec<Vec<u8>>, jiff_sqlx::Timestamp)| {
        // A row that is damaged ends what can be followed, and those behind it are as good as gone.
        let (epoch, digest) = (u64::try_from(row.0).ok()?, row.1.parse().ok()?);
        Some(Epoch { epoch, digest, policy: row.2, commit: row.3, statements: row.4, at: row.5.to_jiff() })
    };
    Ok(rows
        .into_iter()
        .map_while(|row| read((row.epoch, row.digest, row.policy, row.commit, row.statements, row.at)))
        .collect())
}

/// Stores a policy that was verified, in place of what is there under its number.
///
/// # Errors
/// When the statement fails.
pub async fn put_epoch(txn: &mut Txn, epoch: &Epoch) -> Result<(), DbError> {
    sqlx::query!(
        r#"INSERT INTO trust_epochs (epoch, digest, policy, commit, statements) VALUES ($1, $2, $3, $4, $5)
           ON CONFLICT (epoch) DO UPDATE
           SET digest = EXCLUDED.digest, policy = EXCLUDED.policy, commit = EXCLUDED.commit, statements = EXCLUDED.statements
           WHERE (trust_epochs.digest, trust_epochs.policy) IS DISTINCT FROM (EXCLUDED.digest, EXCLUDED.policy)"#,
        bigint(epoch.epoch),
        epoch.digest.to_string(),
        epoch.policy,
        epoch.commit,
        &epoch.statements,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// The revocations that count, in the order in which they were heard.
///
/// # Errors
/// When the statement fails.
pub async fn revocations(db: &Db) -> Result<Vec<Revocation>, DbError> {
    let rows = sqlx::query!("SELECT digest, epoch, raw FROM trust_revocations ORDER BY epoch, seq")
        .fetch_all(db.pool())
        .await?;
    let read = |digest: String, epoch: i64, raw: Vec<u8>| {
        Some(Revocation { digest: digest.parse().ok()?, epoch: u64::try_from(epoch).ok()?, raw })
    };
    Ok(rows.into_iter().filter_map(|row| read(row.digest, row.epoch, row.raw)).collect())
}

/// Notes that statements revoke keys, each signed by a key and behind the policy of an epoch, unless that is noted.
///
/// # Errors
/// When the statement fails.
pub async fn keep_revocations(txn: &mut Txn, revocations: &[(Digest, String, u64)]) -> Result<(), DbError> {
    for (digest, key, epoch) in revocations {
        sqlx::query!(
            "INSERT INTO trust_revocations (digest, epoch, raw)
             SELECT digest, $3, raw FROM statements WHERE digest = $1 AND key IN ($2, '') ORDER BY key DESC LIMIT 1
             ON CONFLICT (digest) DO NOTHING",
            digest.to_string(),
            key,
            bigint(*epoch),
        )
        .execute(txn.conn())
        .await?;
    }
    Ok(())
}

/// Stores statements that are not there.
///
/// # Errors
/// When a statement fails.
pub async fn put_statements<'a>(txn: &mut Txn, statements: &'a [NewStatement]) -> Result<PutStatements<'a>, DbError> {
    let mut once = BTreeSet::new();
    let statements: Vec<&NewStatement> =
        statements.iter().filter(|statement| once.insert((statement.digest, &statement.key))).collect();
    let text = |of: fn(&NewStatement) -> &str| -> Vec<String> {
        statements.iter().map(|statement| of(statement).to_owned()).collect()
    };
    let digests: Vec<String> = statements.iter().map(|statement| statement.digest.to_string()).collect();
    let keys = text(|statement| &statement.key);
    let raw: Vec<Vec<u8>> = statements.iter().map(|statement| statement.raw.clone()).collect();
    let rows = sqlx::query!(
        r#"WITH new AS (
               SELECT u.*
               FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[])
                    AS u (digest, key, kind, subject, principal, commit, raw)
               WHERE NOT EXISTS (SELECT FROM statements s WHERE (s.digest, s.key) = (u.digest, u.key))
           ), counted AS (
               SELECT new.*,
                      row_number() OVER (PARTITION BY kind, subject, key ORDER BY digest)
                          + (SELECT count(*) FROM statements s
                             WHERE (s.subject, s.kind, s.key) = (new.subject, new.kind, new.key)) AS number
               FROM new
           ), put AS (
               INSERT INTO statements (digest, key, kind, subject, principal, commit, raw)
               SELECT digest, key, kind, subject, principal, commit, raw FROM counted WHERE number <= $8
               ON CONFLICT (digest, key) DO NOTHING
               RETURNING digest, key
           )
           SELECT counted.digest AS "digest!", counted.key AS "key!", put.digest IS NOT NULL AS "fresh!"
           FROM counted LEFT JOIN put ON (put.digest, put.key) = (counted.digest, counted.key)"#,
        &digests,
        &keys,
        &text(|statement| &statement.kind),
        &text(|statement| &statement.subject),
        &text(|statement| &statement.principal),
        &text(|statement| &statement.commit),
        &raw,
        MOST_OF_ONE_KEY,
    )
    .fetch_all(txn.conn())
    .await?;
    let became: BTreeMap<(String, String), bool> =
        rows.into_iter().map(|row| ((row.digest, row.key), row.fresh)).collect();
    let mut put = PutStatements::default();
    for statement in statements {
        match became.get(&(statement.digest.to_string(), statement.key.clone())) {
            Some(true) => put.fresh.push(statement),
            Some(false) => put.too_many.push(statement),
            None => {}
        }
    }
    Ok(put)
}

/// What was said of some kinds, about one subject or about all, in the order in which it was first seen.
///
/// # Errors
/// When the statement fails.
pub async fn statements_of(db: &Db, kinds: &[&str], subject: Option<&str>) -> Result<Vec<Statement>, DbError> {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT digest, kind, subject, principal, commit, raw, first_seen_at
           FROM statements
           WHERE kind = ANY($1) AND ($2::text IS NULL OR subject = $2)
           ORDER BY first_seen_at, digest, key"#,
        &kinds,
        subject,
    );
    Ok(rows::list(db.pool(), statement).await?.items)
}

/// Which of these commits carried a statement that is stored.
///
/// # Errors
/// When the statement fails.
pub async fn carried(db: &Db, commits: &[String]) -> Result<Vec<String>, DbError> {
    Ok(sqlx::query_scalar!("SELECT commit FROM statements WHERE commit = ANY($1)", commits)
        .fetch_all(db.pool())
        .await?)
}

/// How far a source was verified.
///
/// # Errors
/// When the statement fails.
pub async fn checkpoint(db: &Db, source: &str) -> Result<Option<Checkpoint>, DbError> {
    let row =
        sqlx::query!("SELECT commit, epoch, seq, body, signature FROM trust_checkpoints WHERE source = $1", source)
            .fetch_optional(db.pool())
            .await?;
    Ok(row.map(|row| Checkpoint {
        commit: row.commit,
        epoch: row.epoch.try_into().unwrap_or_default(),
        seq: row.seq.try_into().unwrap_or_default(),
        body: row.body,
        signature: row.signature,
    }))
}

/// Stores how far a source was verified. `expected` is the number of the checkpoint that the caller read; `None` when there was none.
///
/// # Errors
/// [`CheckpointError::Moved`] when another one is stored.
pub async fn put_checkpoint(
    txn: &mut Txn,
    source: &str,
    expected: Option<u64>,
    checkpoint: &Checkpoint,
) -> Result<(), CheckpointError> {
    let found = sqlx::query_scalar!("SELECT seq FROM trust_checkpoints WHERE source = $1 FOR UPDATE", source)
        .fetch_optional(txn.conn())
        .await
        .map_err(DbError::from)?
        .map(|seq| u64::try_from(seq).unwrap_or_default());
    if found != expected {
        return Err(CheckpointError::Moved { expected, found });
    }
    let Checkpoint { commit, epoch, seq, body, signature } = checkpoint;
    sqlx::query!(
        r#"INSERT INTO trust_checkpoints (source, commit, epoch, seq, body, signature) VALUES ($1, $2, $3, $4, $5, $6)
           ON CONFLICT (source) DO UPDATE
           SET commit = EXCLUDED.commit, epoch = EXCLUDED.epoch, seq = EXCLUDED.seq, body = EXCLUDED.body,
               signature = EXCLUDED.signature, at = compute_now()"#,
        source,
        commit,
        bigint(*epoch),
        bigint(*seq),
        body,
        signature,
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    Ok(())
}

/// Characters of why a node does not take a policy that are kept.
const MOST_WHY: usize = 300;

/// Notes which policy a node said it believes.
///
/// # Errors
/// When the statement fails.
pub async fn set_held(txn: &mut Txn, node: NodeId, held: &PolicyHeld) -> Result<(), DbError> {
    let PolicyHeld { epoch, digest, refused } = held;
    let refused: String = refused.chars().filter(|letter| !letter.is_control()).take(MOST_WHY).collect();
    sqlx::query!(
        "UPDATE nodes SET policy_epoch = $2, policy_digest = $3, policy_refused = $4
         WHERE id = $1 AND (policy_epoch, policy_digest, policy_refused) IS DISTINCT FROM ($2, $3, $4)",
        node.as_uuid(),
        bigint(*epoch),
        digest.map(|digest| digest.to_string()),
        Some(refused).filter(|refused| !refused.is_empty()),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Which policy a node believes, beside those that came into force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// It said nothing yet.
    Unknown,
    /// None.
    None,
    /// The newest one.
    Newest,
    /// An earlier one, and why it does not take the next, when it said so.
    Behind(u64, Option<String>),
    /// One that never came into force here: it follows no later one.
    Apart(u64),
}

/// Which policy a node believes.
///
/// # Errors
/// When the statement fails.
pub async fn held(db: &Db, node: NodeId) -> Result<Held, DbError> {
    let row = sqlx::query!(
        r#"SELECT n.policy_epoch, n.policy_refused, e.digest IS NOT NULL AS "follows!",
                  n.policy_epoch = (SELECT max(epoch) FROM trust_epochs) AS newest
           FROM nodes n
           LEFT JOIN trust_epochs e ON (e.epoch, e.digest) = (n.policy_epoch, n.policy_digest)
           WHERE n.id = $1"#,
        node.as_uuid(),
    )
    .fetch_optional(db.pool())
    .await?;
    let Some(row) = row else { return Ok(Held::Unknown) };
    let Some(epoch) = row.policy_epoch.and_then(|epoch| u64::try_from(epoch).ok()) else { return Ok(Held::Unknown) };
    Ok(match epoch {
        0 => Held::None,
        _ if !row.follows => Held::Apart(epoch),
        _ if row.newest == Some(true) => Held::Newest,
        _ => Held::Behind(epoch, row.policy_refused),
    })
}

/// How many nodes believe which policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Following {
    /// None, or they said nothing yet.
    pub without: u64,
    /// An earlier one than the newest.
    pub behind: u64,
    /// One that never came into force here.
    pub apart: u64,
}

/// How many nodes that are not retired believe something else than the newest policy.
///
/// # Errors
/// When the statement fails.
pub async fn following(db: &Db) -> Result<Following, DbError> {
    let row = sqlx::query!(
        r#"SELECT count(*) FILTER (WHERE COALESCE(n.policy_epoch, 0) = 0) AS "without!",
                  count(*) FILTER (WHERE e.epoch < m.newest) AS "behind!",
                  count(*) FILTER (WHERE n.policy_epoch > 0 AND e.epoch IS NULL) AS "apart!"
           FROM nodes n
           LEFT JOIN trust_epochs e ON (e.epoch, e.digest) = (n.policy_epoch, n.policy_digest)
           CROSS JOIN (SELECT max(epoch) AS newest FROM trust_epochs) m
           WHERE n.provision_state <> 'retired'"#,
    )
    .fetch_one(db.pool())
    .await?;
    let count = |number: i64| u64::try_from(number).unwrap_or_default();
    Ok(Following { without: count(row.without), behind: count(row.behind), apart: count(row.apart) })
}

#[derive(sqlx::FromRow)]
struct Row {
    digest: String,
    kind: String,
    subject: String,
    principal: String,
    commit: String,
    raw: Vec<u8>,
    first_seen_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Statement;
    const TABLE: &'static str = "statements";
    const KEY: &'static [&'static str] = &["digest"];

    fn read(self) -> Result<Statement, DbError> {
        let Self { digest, kind, subject, principal, commit, raw, first_seen_at } = self;
        let digest = convert::word("digest of a statement", &digest)?;
        Ok(Statement { digest, kind, subject, principal, commit, raw, first_seen_at: first_seen_at.to_jiff() })
    }
}

/// Numbers of policies and checkpoints are far below what a column holds.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
