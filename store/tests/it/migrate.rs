//! Migrations: two runners at once, a database that is too new, and the golden dump of the schema.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use store::{
    migrate::{self, MigrateError},
    testing::TestDb,
};

/// A database without our tables, next to a migrated one.
async fn empty(test: &TestDb) -> (store::DbConfig, PgConnection) {
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    let current: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&mut conn).await.expect("a name");
    // Of the same process by its name, so that it goes with the other one.
    let name = format!("{current}_empty");
    conn.execute(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE template0"))).await.expect("a database");
    let url = test.config().url();
    let config = store::DbConfig::from_url(&url.replace(&current, &name)).expect("a URL");
    (config, conn)
}

#[tokio::test]
async fn two_runners_at_once_apply_each_migration_once() {
    let test = TestDb::create().await;
    let (config, _conn) = empty(&test).await;
    assert!(!migrate::is_current(&config).await.expect("current"));
    let (one, two) = tokio::join!(migrate::run(&config), migrate::run(&config));
    one.expect("the first runner");
    two.expect("the second runner");
    assert_eq!(migrate::run(&config).await.expect("again"), 0);
    assert!(migrate::is_current(&config).await.expect("current"));
}

#[tokio::test]
async fn a_database_that_is_newer_or_different_is_refused() {
    let test = TestDb::create().await;
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'x', true, '', 0)";
    conn.execute(newer).await.expect("a newer migration");
    let refused = migrate::run(&test.config()).await.expect_err("too new");
    assert!(matches!(refused, MigrateError::TooNew { found: 9999, .. }), "{refused}");
    assert!(refused.to_string().contains("use the newer version"), "{refused}");
    assert!(migrate::is_current(&test.config()).await.is_err());
    conn.execute("DELETE FROM _sqlx_migrations WHERE version = 9999; UPDATE _sqlx_migrations SET checksum = 'x' WHERE version = 1").await.expect("a change");
    assert!(matches!(migrate::run(&test.config()).await, Err(MigrateError::Changed(1))));
}

#[tokio::test]
async fn what_is_longer_or_later_than_tables_take_by_now_stops_no_migration() {
    let test = TestDb::create().await;
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    for sql in [
        "ALTER TABLE outcomes DROP CONSTRAINT outcomes_lengths_check; ALTER TABLE workers DROP CONSTRAINT workers_end_check;
         DROP FUNCTION worker_lives(workers);
         INSERT INTO outcomes (kind, key, state, reason, message, place)
            SELECT 'k', 'k', 'error', repeat('r', 9000), repeat('m', 9000), repeat('p', 9000);
         INSERT INTO workers (id, role, host, pid, expires_at)
            SELECT gen_random_uuid(), 'controllers', 'h', 1, compute_now() + age FROM unnest(ARRAY['10 years', '12 seconds']::interval[]) age",
        include_str!("../../../migrations/0069_worker_ends.sql"),
        include_str!("../../../migrations/0070_outcome_lengths.sql"),
    ] {
        conn.execute(AssertSqlSafe(sql.to_owned())).await.expect("it is carried out");
    }
    let told = sqlx::query_scalar("SELECT length(message)::int8 + (SELECT count(*) FROM workers) FROM outcomes");
    assert_eq!(told.fetch_one(&mut conn).await.ok(), Some(4_001_i64), "the message is cut, and one process is left");
}

/// The schema from the catalogs, in a form that does not depend on the server's version.
const DUMP: &str = r"
    SELECT line FROM (
        SELECT 'table ' || c.relname || ' ' || COALESCE(array_to_string(c.reloptions, ','), '') AS line, c.relname AS a, 0 AS b, '' AS c
        FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> '_sqlx_migrations'
        UNION ALL
        SELECT '    ' || t.attname || ' ' || format_type(t.atttypid, t.atttypmod) || CASE WHEN t.attnotnull THEN ' not null' ELSE '' END
               || CASE WHEN t.attidentity <> '' THEN ' identity' ELSE '' END
               || COALESCE(' default ' || pg_get_expr(d.adbin, d.adrelid), ''), c.relname, 1, lpad(t.attnum::text, 4, '0')
        FROM pg_attribute t
        JOIN pg_class c ON c.oid = t.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = t.attrelid AND d.adnum = t.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND t.attnum > 0 AND NOT t.attisdropped AND c.relname <> '_sqlx_migrations'
        UNION ALL
        SELECT '    constraint ' || n.conname || ' ' || pg_get_constraintdef(n.oid), c.relname, 2, n.conname
        FROM pg_constraint n
        JOIN pg_class c ON c.oid = n.conrelid
        WHERE c.relnamespace = 'public'::regnamespace AND n.contype <> 'n' AND c.relname <> '_sqlx_migrations'
        UNION ALL
        SELECT '    ' || replace(pg_get_indexdef(i.indexrelid), 'public.', ''), c.relname, 3, x.relname
        FROM pg_index i
        JOIN pg_class c ON c.oid = i.indrelid
        JOIN pg_class x ON x.oid = i.indexrelid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relname <> '_sqlx_migrations'
          AND NOT EXISTS (SELECT FROM pg_constraint n WHERE n.conindid = i.indexrelid AND n.contype IN ('p', 'u'))
        UNION ALL
        SELECT '    ' || replace(pg_get_triggerdef(t.oid), 'public.', ''), c.relname, 4, t.tgname
        FROM pg_trigger t
        JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = 'public'::regnamespace AND NOT t.tgisinternal
        UNION ALL
        SELECT 'function ' || p.oid::regprocedure || ' ' || regexp_replace(p.prosrc, '\s+', ' ', 'g'), '~' || p.proname, 0, ''
        FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
    ) AS lines
    ORDER BY a, b, c";

#[tokio::test]
async fn the_golden_dump_is_what_the_migrations_make() {
    let test = TestDb::create().await;
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    let lines: Vec<String> = sqlx::query_scalar(DUMP).fetch_all(&mut conn).await.expect("a dump");
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    let dump = format!(
        "-- What the migrations make, written by a test of `store`. Set UPDATE_SCHEMA=1 to write it again.\n{}\n",
        lines.join("\n")
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/schema.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &dump).expect("the golden dump is written");
    }
    let golden = std::fs::read_to_string(path).expect("the golden dump");
    assert!(golden == dump, "migrations/schema.sql is stale: run this test with UPDATE_SCHEMA=1\n{dump}");
}
