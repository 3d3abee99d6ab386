//! What only benches and tests ask of PostgreSQL: its limits, measured with the same driver and pool as the product, and what it does.

use schema::id::NodeId;

use crate::{Db, DbError};

/// An open session for every node that there is.
///
/// # Errors
/// When the statement fails.
pub async fn open_all_sessions(db: &Db) -> Result<(), DbError> {
    let open = "INSERT INTO sessions (node_id, epoch, gateway_id, boot_id, journal_id, identity_generation) \
                SELECT id, 1, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1 FROM nodes";
    sqlx::query(open).execute(db.pool()).await?;
    sqlx::query("ANALYZE sessions").execute(db.pool()).await?;
    Ok(())
}

/// The plainest update that notes that nodes were heard.
///
/// # Errors
/// When the statement fails.
pub async fn raw_beat(db: &Db, nodes: &[NodeId]) -> Result<u64, DbError> {
    let ids: Vec<uuid::Uuid> = nodes.iter().map(|node| node.as_uuid()).collect();
    let beat =
        "UPDATE sessions s SET last_seen = compute_now() FROM UNNEST($1::uuid[]) AS b (id) WHERE s.node_id = b.id";
    Ok(sqlx::query(beat).bind(ids).execute(db.pool()).await?.rows_affected())
}

/// A table of one's own, for [`raw_commit`].
///
/// # Errors
/// When the statement fails.
pub async fn raw_table(db: &Db) -> Result<(), DbError> {
    let table = "CREATE TABLE IF NOT EXISTS probe (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text)";
    sqlx::query(table).execute(db.pool()).await?;
    Ok(())
}

/// Has the server make the files that it writes its log to, as one that has run for a while has them. A new server fills each
/// with zeros when it comes to it, and every commit waits for that.
///
/// # Errors
/// When a statement fails, for one because the user may not.
pub async fn used_server(db: &Db) -> Result<(), DbError> {
    const FILES: usize = 40;
    for statement in ["ALTER SYSTEM SET min_wal_size = '1GB'", "SELECT pg_reload_conf()"] {
        sqlx::query(statement).execute(db.pool()).await?;
    }
    for _ in 0..FILES {
        let next = "SELECT pg_logical_emit_message(true, '', ''), pg_switch_wal()";
        sqlx::query(next).execute(db.pool()).await?;
    }
    sqlx::query("CHECKPOINT").execute(db.pool()).await?;
    Ok(())
}

/// One row and its commit.
///
/// # Errors
/// When the statement fails.
pub async fn raw_commit(db: &Db) -> Result<(), DbError> {
    sqlx::query("INSERT INTO probe (text) VALUES ('probe')").execute(db.pool()).await?;
    Ok(())
}

/// How many commands are in flight under another session than their node's present one.
///
/// # Errors
/// When the statement fails.
pub async fn commands_of_earlier_sessions(db: &Db) -> Result<usize, DbError> {
    let count: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM commands c JOIN sessions s ON s.node_id = c.node_id \
         WHERE c.state IN ('dispatched', 'acked', 'running') AND c.epoch <> s.epoch",
    )
    .fetch_one(db.pool())
    .await?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Removes every command, as if none had ever been queued.
///
/// # Errors
/// When the statement fails.
pub async fn forget_commands(db: &Db) -> Result<(), DbError> {
    sqlx::query("TRUNCATE commands, command_updates").execute(db.pool()).await?;
    Ok(())
}

/// What a database has written since it began.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Rows of sessions.
    pub heartbeats: i64,
    /// Rows of every other table.
    pub others: i64,
    /// Transactions, those that only read among them.
    pub transactions: i64,
    /// The write-ahead log, in bytes.
    pub log_bytes: i64,
}

/// What the database has written, as its statistics say.
///
/// # Errors
/// When the statement fails.
pub async fn written(db: &Db) -> Result<Written, DbError> {
    let (heartbeats, others, transactions, log_bytes) = sqlx::query_as(
        "SELECT COALESCE(sum(n_tup_ins + n_tup_upd + n_tup_del) FILTER (WHERE relname = 'sessions'), 0)::bigint, \
                COALESCE(sum(n_tup_ins + n_tup_upd + n_tup_del) FILTER (WHERE relname <> 'sessions'), 0)::bigint, \
                (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), \
                (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint \
         FROM pg_stat_user_tables",
    )
    .fetch_one(db.pool())
    .await?;
    Ok(Written { heartbeats, others, transactions, log_bytes })
}

/// Waits until somebody waits for a lock that somebody else has in this database.
///
/// # Errors
/// When the statement fails.
pub async fn somebody_waits(db: &Db) -> Result<(), DbError> {
    let waits =
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(db.pool()).await? {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Makes the database one that was restored from another server, where transactions had gone further.
///
/// # Errors
/// When a statement fails.
pub async fn restored(db: &Db) -> Result<(), DbError> {
    sqlx::query("UPDATE outbox_lives SET server = 'another/1'").execute(db.pool()).await?;
    sqlx::query("UPDATE outbox SET xid = (xid::text::bigint + 1000000)::text::xid8").execute(db.pool()).await?;
    Ok(())
}

/// Makes the database one that was restored on its own server: its tables are others than those that were there.
///
/// # Errors
/// When a statement fails.
pub async fn restored_beside(db: &Db) -> Result<(), DbError> {
    for statement in [
        "CREATE TABLE restored (LIKE outbox_lives INCLUDING ALL)",
        "INSERT INTO restored SELECT * FROM outbox_lives",
        "DROP TABLE outbox_lives",
        "ALTER TABLE restored RENAME TO outbox_lives",
    ] {
        sqlx::query(statement).execute(db.pool()).await?;
    }
    Ok(())
}

/// Keeps what a dump has of secrets and of lives, for [`restored_again`].
///
/// # Errors
/// When a statement fails.
pub async fn dumped(db: &Db) -> Result<(), DbError> {
    for statement in [
        "CREATE SCHEMA dump",
        "CREATE TABLE dump.outbox_lives AS SELECT * FROM outbox_lives",
        "CREATE TABLE dump.secrets AS SELECT * FROM secrets",
        "CREATE TABLE dump.secret_versions AS SELECT * FROM secret_versions",
    ] {
        sqlx::query(statement).execute(db.pool()).await?;
    }
    Ok(())
}

/// Makes these tables what they were when the dump was taken, in another place than before, and without any event.
///
/// # Errors
/// When a statement fails.
pub async fn restored_again(db: &Db) -> Result<(), DbError> {
    for statement in [
        "DELETE FROM outbox",
        "DELETE FROM outbox_lives",
        "INSERT INTO outbox_lives SELECT * FROM dump.outbox_lives",
        "DELETE FROM secret_versions",
        "DELETE FROM secrets",
        "INSERT INTO secrets SELECT * FROM dump.secrets",
        "INSERT INTO secret_versions SELECT * FROM dump.secret_versions",
    ] {
        sqlx::query(statement).execute(db.pool()).await?;
    }
    restored_beside(db).await
}

/// Does what whoever stole the database can do: one statement, whatever it is.
///
/// # Errors
/// When the statement fails.
pub async fn steal(db: &Db, statement: &str) -> Result<u64, DbError> {
    Ok(sqlx::query(sqlx::AssertSqlSafe(statement.to_owned())).execute(db.pool()).await?.rows_affected())
}

/// Every table that has rows with a time or JSON in it.
///
/// # Errors
/// When the statement fails.
pub async fn tables(db: &Db) -> Result<Vec<String>, DbError> {
    let statement = "SELECT DISTINCT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> '_sqlx_migrations'
                       AND a.attnum > 0 AND a.atttypid IN ('timestamptz'::regtype, 'jsonb'::regtype)
                     ORDER BY 1";
    let all: Vec<String> = sqlx::query_scalar(statement).fetch_all(db.pool()).await?;
    let mut some = Vec::new();
    for table in all {
        let filled = format!("SELECT EXISTS (SELECT FROM {table})");
        if sqlx::query_scalar(sqlx::AssertSqlSafe(filled)).fetch_one(db.pool()).await? {
            some.push(table);
        }
    }
    Ok(some)
}

/// Takes the rules of a table away and writes into its last row times without an end and, where JSON is, a word. Answers how
/// many rows that were.
///
/// # Errors
/// When a statement fails.
pub async fn spoil(db: &Db, table: &str) -> Result<u64, DbError> {
    let no_rules = format!(
        "DO $$ DECLARE one record; BEGIN
             FOR one IN SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid = '{table}'::regclass LOOP
                 EXECUTE format('ALTER TABLE {table} DROP CONSTRAINT %I', one.conname);
             END LOOP;
             ALTER TABLE {table} DISABLE TRIGGER USER;
         END $$"
    );
    steal(db, &no_rules).await?;
    let damages: String = sqlx::query_scalar(
        r#"SELECT string_agg(format('%I = %L', attname, CASE atttypid WHEN 'jsonb'::regtype THEN '"a word"' ELSE 'infinity' END), ', ')
           FROM pg_attribute
           WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
             AND atttypid IN ('timestamptz'::regtype, 'jsonb'::regtype)"#,
    )
    .bind(table)
    .fetch_one(db.pool())
    .await?;
    steal(db, &format!("UPDATE {table} SET {damages} WHERE ctid = (SELECT max(ctid) FROM {table})")).await
}
