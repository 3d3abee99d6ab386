//! What was verified of the fleet's history: policies, statements, and how far it got. Copies, all of which prove themselves:
//! whoever reads them checks them against the digest in the keys, and believes no row.

use schema::{digest::Digest, time::Timestamp};

use crate::{Db, DbError, Txn};

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

/// What somebody said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The digest of its block: its identity.
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

/// A statement that may be new here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStatement {
    /// The digest of its block.
    pub digest: Digest,
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

/// Stores statements, and answers those that were not there.
///
/// # Errors
/// When the statement fails.
pub async fn put_statements(txn: &mut Txn, statements: &[NewStatement]) -> Result<Vec<Digest>, DbError> {
    let text = |of: fn(&NewStatement) -> &str| -> Vec<String> {
        statements.iter().map(|statement| of(statement).to_owned()).collect()
    };
    let digests: Vec<String> = statements.iter().map(|statement| statement.digest.to_string()).collect();
    let raw: Vec<Vec<u8>> = statements.iter().map(|statement| statement.raw.clone()).collect();
    let fresh = sqlx::query_scalar!(
        r#"INSERT INTO statements (digest, kind, subject, principal, commit, raw)
           SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[])
           ON CONFLICT (digest) DO NOTHING RETURNING digest"#,
        &digests,
        &text(|statement| &statement.kind),
        &text(|statement| &statement.subject),
        &text(|statement| &statement.principal),
        &text(|statement| &statement.commit),
        &raw,
    )
    .fetch_all(txn.conn())
    .await?;
    Ok(fresh.iter().filter_map(|digest| digest.parse().ok()).collect())
}

/// What was said of some kinds, about one subject or about all, in the order in which it was first seen.
///
/// # Errors
/// When the statement fails.
pub async fn statements_of(db: &Db, kinds: &[&str], subject: Option<&str>) -> Result<Vec<Statement>, DbError> {
    let subjects: Option<Vec<String>> = subject.map(|subject| vec![subject.to_owned()]);
    read(db, kinds, subjects.as_deref()).await
}

/// What was said of some kinds about any of these subjects, in the order in which it was first seen.
///
/// # Errors
/// When the statement fails.
pub async fn statements_about(db: &Db, kinds: &[&str], subjects: &[String]) -> Result<Vec<Statement>, DbError> {
    read(db, kinds, Some(subjects)).await
}

async fn read(db: &Db, kinds: &[&str], subjects: Option<&[String]>) -> Result<Vec<Statement>, DbError> {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT digest, kind, subject, principal, commit, raw, first_seen_at AS "first_seen_at: jiff_sqlx::Timestamp"
           FROM statements
           WHERE kind = ANY($1) AND ($2::text[] IS NULL OR subject = ANY($2))
           ORDER BY first_seen_at, digest"#,
        &kinds,
        subjects,
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().filter_map(Row::read).collect())
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

struct Row {
    digest: String,
    kind: String,
    subject: String,
    principal: String,
    commit: String,
    raw: Vec<u8>,
    first_seen_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn read(self) -> Option<Statement> {
        let Self { digest, kind, subject, principal, commit, raw, first_seen_at } = self;
        let digest = digest.parse().ok()?;
        Some(Statement { digest, kind, subject, principal, commit, raw, first_seen_at: first_seen_at.to_jiff() })
    }
}

/// Numbers of policies and checkpoints are far below what a column holds.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
