//! One row of a list that cannot be read is named, and the others are there all the same.

use schema::{id::NodeId, name::Name, secret::SecretName};
use store::{
    Db, DbError, Unreadable, api_tokens, batches, commands, control_plane,
    error::DbErrorKind,
    fleet_holds, join_tokens, joins, key_holders, node_drift, node_holds, nodes, outbox, outcomes, plans, pools,
    quarantine, revisions, secrets, sources, suspensions,
    testing::{TestDb, steal},
    trust, workers,
};

use crate::{name, new_node};

/// Three rows for each list, the second of which is going to be damaged.
const ROWS: &str = "
    INSERT INTO documents (digest, doc) VALUES (sha256('d'), '{}');
    INSERT INTO sources (name, url, branch, path, state) SELECT n, '/srv', 'main', '', 'ok' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO revisions (id, source, commit, tree, branch, author, committer, subject, committed_at, applied_by, digest, summary)
        SELECT gen_random_uuid(), 'a', 'c' || n, 't', 'main', 'ada', 'ada', 's', now(), 'source', sha256('d'), '{}' FROM generate_series(1, 3) n;
    INSERT INTO objects (kind, name, digest, file, line, state, revision)
        SELECT 'pool', n, sha256('d'), 'f.kdl', 1, 'declared', (SELECT id FROM revisions LIMIT 1) FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO pools (name, site, class, policy) SELECT n, 'fra1', 'metal-host', '{}' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO plans (id, source, digest, state, doc)
        SELECT gen_random_uuid(), n, sha256('d'), 'open', '{}' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO batches (id, name, origin, state, quorum, kind, doc, document, why, created_by, leaf_count, not_before, expires, max_in_flight, max_failures)
        SELECT gen_random_uuid(), n, 'breakglass', 'proposed', false, 'node.reboot', '{}', sha256('d'), 'why', 'ada', 3, now(), now() + interval '1 hour', 1, 0
        FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO batch_leaves (batch_id, index, node_id, node, payload)
        SELECT b.id, n - 1, gen_random_uuid(), 'm' || n, '{}' FROM batches b, generate_series(1, 3) n WHERE b.name = 'a';
    INSERT INTO batch_asks (origin, name, code, message, waits, looked)
        SELECT 'document', n, 'name-used', 'm', false, '' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO joins (id, state, reason, message, csr_hash, claims)
        SELECT gen_random_uuid(), 'waiting', n, 'm', sha256(n::bytea), '{}' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO join_tokens (id, hash, pool, uses_max, uses_left, expires_at, created_by)
        SELECT gen_random_uuid(), sha256(n::bytea), 'h100', 1, 1, now() + interval '1 day', n FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO api_tokens (id, hash, name, scopes, created_by)
        SELECT gen_random_uuid(), sha256(n::bytea), n, '{*}', 'ada' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO key_holders (name, is_gateway, revision, expires_at)
        SELECT n, true, 1, now() + interval '1 hour' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO workers (id, role, host, pid, expires_at)
        SELECT gen_random_uuid(), 'sinks', n, 1, now() + interval '4 minutes' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO outcomes (kind, key, state, reason, message, place)
        SELECT n, 'k', 'wait', 'r', 'm', 'p' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO holds (id, subject, gate, source, owner, reason)
        SELECT gen_random_uuid(), n, 'prune', 'git', 'ada', 'r' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO suspensions (scope, owner, reason, placed_by) SELECT n, 'ada', 'r', 'ada' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO quarantined (source, commit, owner, reason, placed_by) SELECT 'a', n, 'ada', 'r', 'ada' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO secrets (name, counter) SELECT n, 1 FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO secret_versions (name, version, envelope, created_by) SELECT n, 1, 'x', 'ada' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO outbox (kind, subject, doc) SELECT n, 's', '{}' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO statements (digest, kind, subject, principal, commit, raw)
        SELECT 'sha256:' || encode(sha256(n::bytea), 'hex'), 'approve/v1', n, 'ada', n, 'x' FROM unnest(ARRAY['a','b','c']) n;
    INSERT INTO node_holds (id, node_id, source, owner, reason)
        SELECT gen_random_uuid(), id, 'api', name, 'r' FROM nodes;
    INSERT INTO node_drift (node_id, path, mode, kind, cause, first_seen, last_seen, corrected, times)
        SELECT id, 'files./etc/' || name, 'enforce', 'changed', 'unknown', now(), now(), false, 1 FROM nodes;
    INSERT INTO commands (id, node_id, seq, kind, retry_safe, lane, payload, body, idempotency_key, state, not_after, created_by)
        SELECT gen_random_uuid(), id, 1, 'logs.bundle', true, 'bulk', '{}', 'x', name, 'pending', now() + interval '1 hour', 'ada' FROM nodes;";

/// Whoever owns the tables takes every rule of theirs away.
const NO_RULES: &str = "
    DO $$ DECLARE one record; BEGIN
        FOR one IN SELECT conrelid::regclass AS t, conname FROM pg_constraint
                   WHERE contype IN ('c', 'f') AND connamespace = 'public'::regnamespace LOOP
            EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.t, one.conname);
        END LOOP;
        FOR one IN SELECT a.attrelid::regclass AS t, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                   WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND a.attnotnull AND a.attidentity = ''
                     AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey)) LOOP
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL', one.t, one.attname);
        END LOOP;
    END $$";

const TIMES: [&str; 4] = ["'infinity'", "'-infinity'", "'294000-01-01'", "NULL"];
const WORDS: [&str; 2] = ["'EVIL WORD'", "NULL"];
const DIGESTS: [&str; 2] = ["'\\x00'", "NULL"];
const JSON: [&str; 2] = ["'garbage'", "NULL"];
const JSONB: [&str; 2] = ["'[1e400]'", "NULL"];
const TEXTS: [&str; 1] = ["NULL"];

/// Columns, and what is written into each that nobody can read.
type Damages = &'static [(&'static str, &'static [&'static str])];

/// A list, its table, how its second row is found, and in which columns what is written that nobody can read.
const LISTS: &[(&str, &str, &str, Damages)] = &[
    (
        "nodes",
        "nodes",
        "name = 'b'",
        &[
            ("connectivity_since", &TIMES),
            ("created_at", &TIMES),
            ("spec_changed_at", &["'infinity'"]),
            ("connectivity", &WORDS),
            ("provision_state", &["'EVIL WORD'"]),
            ("site", &["'EVIL NAME'"]),
            ("labels", &JSONB),
            ("conditions", &JSONB),
            ("no_schedule_reasons", &["'{evil}'"]),
            ("hardware_key", &["'\\x00'"]),
            ("adapter", &TEXTS),
            ("name", &["'EVIL NAME'"]),
        ],
    ),
    ("pool's nodes", "nodes", "name = 'b'", &[("created_at", &TIMES), ("labels", &JSONB)]),
    ("declared", "nodes", "name = 'b'", &[("labels", &JSONB), ("role", &WORDS), ("target_digest", &["'\\x00'"])]),
    ("machines", "nodes", "name = 'b'", &[("labels", &JSONB), ("connectivity", &WORDS)]),
    (
        "commands",
        "commands",
        "idempotency_key = 'b'",
        &[
            ("not_after", &TIMES),
            ("created_at", &TIMES),
            ("settled_at", &["'infinity'"]),
            ("state", &WORDS),
            ("lane", &WORDS),
            ("payload", &JSON),
            ("result", &["'garbage'"]),
            ("kind", &TEXTS),
        ],
    ),
    ("commands by id", "commands", "idempotency_key = 'b'", &[("not_after", &TIMES), ("state", &WORDS)]),
    (
        "batches",
        "batches",
        "name = 'b'",
        &[
            ("expires", &TIMES),
            ("not_before", &TIMES),
            ("created_at", &TIMES),
            ("state", &WORDS),
            ("origin", &WORDS),
            ("doc", &JSON),
            ("document", &DIGESTS),
            ("why", &TEXTS),
            ("quorum", &TEXTS),
            ("name", &["'EVIL NAME'"]),
        ],
    ),
    ("open batches", "batches", "name = 'b'", &[("expires", &TIMES), ("doc", &JSON)]),
    ("batches to review", "batches", "name = 'b'", &[("expires", &TIMES), ("document", &DIGESTS)]),
    (
        "leaves",
        "batch_leaves",
        "node = 'm2'",
        &[("node", &["'EVIL NAME'", "NULL"]), ("state", &WORDS), ("began_at", &["'infinity'"]), ("payload", &TEXTS)],
    ),
    ("asks", "batch_asks", "name = 'b'", &[("since", &TIMES), ("code", &TEXTS)]),
    (
        "joins",
        "joins",
        "reason = 'b'",
        &[
            ("updated_at", &TIMES),
            ("state", &WORDS),
            ("kind", &WORDS),
            ("csr_hash", &DIGESTS),
            ("claims", &JSONB),
            ("attested", &["'{evil}'"]),
        ],
    ),
    (
        "join tokens",
        "join_tokens",
        "created_by = 'b'",
        &[("expires_at", &TIMES), ("pool", &["'EVIL NAME'", "NULL"]), ("hash", &DIGESTS)],
    ),
    (
        "api tokens",
        "api_tokens",
        "name = 'b'",
        &[("created_at", &TIMES), ("expires_at", &["'infinity'"]), ("scopes", &TEXTS)],
    ),
    ("plans", "plans", "source = 'b'", &[("created_at", &TIMES), ("digest", &DIGESTS), ("state", &["'EVIL WORD'"])]),
    (
        "pools",
        "pools",
        "name = 'b'",
        &[("updated_at", &TIMES), ("policy", &JSONB), ("site", &["'EVIL NAME'"]), ("class", &WORDS)],
    ),
    (
        "sources",
        "sources",
        "name = 'b'",
        &[
            ("since", &TIMES),
            ("checked_at", &["'infinity'"]),
            ("detail", &["'1e400'", "'\"a word\"'", "'[]'"]),
            ("state", &TEXTS),
        ],
    ),
    (
        "holders of keys",
        "key_holders",
        "name = 'b'",
        &[("seen_at", &TIMES), ("expires_at", &["'infinity'", "'294000-01-01'"]), ("revision", &["-1", "NULL"])],
    ),
    ("processes", "workers", "host = 'b'", &[("started_at", &TIMES), ("pid", &TEXTS)]),
    ("outcomes", "outcomes", "kind = 'b'", &[("since", &TIMES), ("message", &TEXTS)]),
    ("outcomes of a key", "outcomes", "kind = 'b'", &[("since", &TIMES)]),
    ("holds", "holds", "subject = 'b'", &[("created_at", &TIMES), ("until", &["'infinity'"]), ("source", &WORDS)]),
    (
        "suspensions",
        "suspensions",
        "scope = 'b'",
        &[("created_at", &TIMES), ("until", &["'infinity'"]), ("owner", &TEXTS)],
    ),
    ("quarantine", "quarantined", "commit = 'b'", &[("created_at", &TIMES), ("owner", &TEXTS)]),
    (
        "cordons",
        "node_holds",
        "owner = 'b'",
        &[("created_at", &TIMES), ("source", &["'EVIL WORD'"]), ("until", &["'infinity'"])],
    ),
    (
        "drift",
        "node_drift",
        "path = 'files./etc/b'",
        &[("first_seen", &TIMES), ("mode", &WORDS), ("observed_digest", &["'\\x00'"])],
    ),
    (
        "secrets",
        "secret_versions",
        "name = 'b'",
        &[("created_at", &TIMES), ("created_by", &TEXTS), ("name", &["'EVIL NAME'"])],
    ),
    (
        "revisions",
        "revisions",
        "seq = 2",
        &[("applied_at", &TIMES), ("committed_at", &TIMES), ("digest", &DIGESTS), ("summary", &JSONB)],
    ),
    ("objects", "objects", "name = 'b'", &[("state", &WORDS), ("file", &TEXTS)]),
    ("events", "outbox", "kind = 'b'", &[("at", &TIMES), ("doc", &JSON), ("subject", &TEXTS)]),
];

async fn look(db: &Db, list: &str, ids: &[schema::id::CommandId]) -> Result<(usize, Vec<Unreadable>), DbError> {
    macro_rules! told {
        ($listed:expr) => {{
            let listed = $listed;
            (listed.items.len(), listed.unreadable)
        }};
    }
    let pool = || vec![name("h100")];
    let kind = schema::object::Kind::Pool;
    let mut txn = db.snapshot().await?;
    Ok(match list {
        "nodes" => told!(nodes::list(db, &nodes::Filter::default(), None, 9).await?),
        "pool's nodes" => told!(nodes::of_pool(db, &pool()).await?),
        "declared" => told!(nodes::declared_view(&mut txn).await?),
        "machines" => told!(batches::machines(&mut txn).await?),
        "commands" => told!(commands::list(db, &commands::Filter::default(), None, 9).await?),
        "commands by id" => told!(commands::find_many(db, ids).await?),
        "batches" => told!(batches::list(db, &batches::Filter::default(), None, 9).await?),
        "open batches" => told!(batches::list_open(db).await?),
        "batches to review" => told!(batches::to_review(db).await?),
        "leaves" => {
            let batch = batches::find(db, "a").await?.expect("a batch");
            told!(batches::some_leaves(&mut txn, batch.id, None, 9).await?)
        }
        "asks" => told!(batches::asks(db).await?),
        "joins" => told!(joins::list(db, None, 9).await?),
        "join tokens" => told!(join_tokens::list(db).await?),
        "api tokens" => told!(api_tokens::list(db).await?),
        "plans" => told!(plans::list(db, None, None, 9).await?),
        "pools" => told!(pools::list(db).await?),
        "sources" => told!(sources::list(db).await?),
        "holders of keys" => told!(key_holders::list(db).await?),
        "processes" => told!(workers::live(db, None).await?),
        "outcomes" => told!(outcomes::list_open(db, 9).await?),
        "outcomes of a key" => told!(outcomes::of_key(db, "k").await?),
        "holds" => told!(fleet_holds::list(db).await?),
        "suspensions" => told!(suspensions::list(db).await?),
        "quarantine" => told!(quarantine::list(db, "a", 9).await?),
        "cordons" => told!(node_holds::list_all(&mut txn).await?),
        "drift" => told!(node_drift::list(db, &node_drift::Filter::default(), None, None, 9).await?),
        "secrets" => told!(secrets::list(db).await?),
        "revisions" => told!(revisions::list(db, None, 9).await?),
        "objects" => told!(revisions::objects_of(db, kind).await?),
        "events" => told!(outbox::list(db, outbox::Cursor::default(), &[], 9).await?.events),
        other => unreachable!("no list {other}"),
    })
}

async fn house() -> (TestDb, Vec<schema::id::CommandId>) {
    let test = TestDb::create().await;
    let db = test.db();
    for one in ["a", "b", "c"] {
        let mut txn = db.begin().await.expect("begin");
        nodes::insert(&mut txn, &new_node(one)).await.expect("a machine");
        txn.commit().await.expect("commit");
    }
    for statement in ROWS.split_inclusive(";\n").chain([NO_RULES]) {
        steal(db, statement)
            .await
            .unwrap_or_else(|error| unreachable!("{statement}: {:?}", std::error::Error::source(&error)));
    }
    let ids = commands::list(db, &commands::Filter::default(), None, 9).await.expect("commands").items;
    (test, ids.into_iter().map(|command| command.id).collect())
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_and_the_others_are_there() {
    let (test, ids) = house().await;
    let db = test.db();
    for (list, table, row, columns) in LISTS {
        assert_eq!(look(db, list, &ids).await.expect("a sound list"), (3, Vec::new()), "{list}");
        steal(db, &format!("CREATE TABLE kept AS SELECT * FROM {table} WHERE {row}")).await.expect("kept");
        for (column, values) in *columns {
            for value in *values {
                let damage = format!("{column} = {value} of {list}");
                steal(db, &format!("UPDATE {table} SET {column} = {value} WHERE {row}")).await.expect(&damage);
                let (left, unreadable) = look(db, list, &ids).await.unwrap_or_else(|error| panic!("{damage}: {error}"));
                assert_eq!((left, unreadable.len()), (2, 1), "{damage}: {unreadable:?}");
                assert_eq!(unreadable[0].table, *table, "{damage}");
                assert!(!unreadable[0].key.is_empty() && !unreadable[0].why.is_empty(), "{damage}: {unreadable:?}");
                let back = format!(
                    "UPDATE {table} t SET {column} = k.{column} FROM kept k WHERE t.{column} IS NOT DISTINCT FROM {value}"
                );
                assert_eq!(steal(db, &back).await.expect(&damage), 1, "{damage}");
            }
        }
        steal(db, "DROP TABLE kept").await.expect("dropped");
    }
}

#[tokio::test]
async fn a_page_goes_on_behind_rows_that_cannot_be_read() {
    let (test, _) = house().await;
    let db = test.db();
    steal(db, "UPDATE nodes SET created_at = 'infinity' WHERE name IN ('a', 'b')").await.expect("damaged");
    steal(db, "UPDATE batches SET created_at = 'infinity' WHERE name IN ('a', 'b')").await.expect("damaged");
    let (mut after, mut seen): (Option<String>, Vec<String>) = (None, Vec::new());
    for _ in 0..3 {
        let page = nodes::list(db, &nodes::Filter::default(), after.as_deref(), 1).await.expect("a page");
        seen.extend(page.items.iter().map(|node| node.name.to_string()));
        seen.extend(page.unreadable.iter().map(|row| row.key.clone()));
        after = page.next;
    }
    assert_eq!((seen.len(), seen[2].as_str(), after), (3, "c", None), "{seen:?}");
    let first = batches::list(db, &batches::Filter::default(), None, 1).await.expect("a page");
    let before = first.next.expect("more").parse().expect("a time");
    let next = batches::list(db, &batches::Filter::default(), Some(before), 9).await.expect("a page");
    assert_eq!(next.items.iter().map(|batch| batch.new.name.as_str()).collect::<Vec<_>>(), ["c"]);
}

#[tokio::test]
async fn what_is_looked_for_and_cannot_be_read_says_which_row_it_is() {
    let (test, _) = house().await;
    let db = test.db();
    steal(db, "UPDATE batches SET expires = 'infinity' WHERE name = 'b'").await.expect("damaged");
    let error = batches::find(db, "b").await.expect_err("damaged");
    assert_eq!(error.kind(), DbErrorKind::Corrupt);
    let row = error.unreadable().expect("a row");
    assert!(row.table == "batches" && row.key.contains("\"b\"") && row.why.contains("expires"), "{row:?}");
    assert!(batches::find(db, "a").await.expect("sound").is_some());
}

#[tokio::test]
async fn the_row_of_the_control_plane_is_named_when_it_cannot_be_read() {
    let (test, _) = house().await;
    let db = test.db();
    let mut txn = db.begin().await.expect("begin");
    let made = control_plane::ensure(&mut txn, true, Some("bc.local")).await.expect("a row");
    txn.commit().await.expect("commit");
    for damage in ["created_at = 'infinity'", "dev = NULL", "created_at = NULL", "fleet_id = NULL"] {
        steal(db, &format!("UPDATE control_plane SET {damage}")).await.expect("damaged");
        let error = control_plane::find(db).await.expect_err(damage);
        let row = error.unreadable().expect("a row");
        assert!(
            row.table == "control_plane" && row.why.contains(damage.split(' ').next().expect("a column")),
            "{row:?}"
        );
        let back = format!(
            "UPDATE control_plane SET created_at = '{}', dev = true, fleet_id = '{}'",
            made.created_at,
            made.fleet_id.as_uuid()
        );
        steal(db, &back).await.expect("as it was");
        assert_eq!(control_plane::find(db).await.expect("sound"), Some(made.clone()));
    }
}

#[tokio::test]
async fn what_others_are_served_by_goes_on_without_a_damaged_row() {
    let (test, _) = house().await;
    let db = test.db();
    let all = nodes::list(db, &nodes::Filter::default(), None, 9).await.expect("nodes").items;
    let ids: Vec<NodeId> = all.iter().map(|node| node.id).collect();
    for damage in [
        "UPDATE nodes SET name = 'EVIL NAME' WHERE name = 'b'",
        "UPDATE statements SET first_seen_at = 'infinity' WHERE subject = 'b'",
        "UPDATE batches SET document = '\\x00', origin = 'document' WHERE name = 'b'",
    ] {
        steal(db, damage).await.expect("damaged");
    }
    steal(db, "UPDATE nodes SET connectivity_since = 'infinity' WHERE name = 'c'").await.expect("damaged");
    test.advance(std::time::Duration::from_secs(3_600)).await;
    let judged = async |db: &Db| {
        let mut txn = db.begin().await.expect("begin");
        let day = schema::time::Duration::from_secs(86_400);
        let moved = store::sessions::judge(&mut txn, &std::collections::BTreeMap::new(), day).await.expect("judged");
        txn.commit().await.expect("commit");
        moved.len()
    };
    assert_eq!(judged(db).await, 2, "whoever has been silent is told so, whatever another row says");
    assert_eq!(nodes::names(db, &ids).await.expect("names").values().map(Name::as_str).collect::<Vec<_>>().len(), 2);
    assert_eq!(trust::statements_of(db, &["approve/v1"], None).await.expect("statements").len(), 2);
    assert_eq!(batches::in_force(db).await.expect("batches").unreadable.len(), 1);
    let newest = secrets::newest(db, &[SecretName::new("a").expect("a name")].into()).await.expect("secrets");
    assert_eq!(newest.len(), 1);
}
