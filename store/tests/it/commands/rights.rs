//! What the database role of a gateway can and cannot do to commands.

use schema::command::{CommandEvent, Reason};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use store::commands::{Ending, RawUpdate};

use super::*;

#[tokio::test]
async fn a_gateways_own_role_is_enough_for_a_session_with_commands() {
    let test = TestDb::create().await;
    let gateway = narrow(&test).await;
    let id = node(test.db(), "a").await.id;
    let hello = session(id);
    let epoch = open(&gateway, &hello).await;
    let (one, two) = (
        ready(test.db(), id, CommandKind::DiagNvml, "1").await,
        ready(test.db(), id, CommandKind::NodeReboot, "2").await,
    );
    assert_eq!(ids(&claim(&gateway, id, epoch).await), [one, two]);
    said(&gateway, id, epoch, one, Step::Running).await;
    said(&gateway, id, epoch, two, Step::Busy).await;
    commands::release(&gateway, &[(two, id, epoch)]).await.expect("release");
    let facts = sessions::check(&gateway, &[(id, session(id).serial)]).await.expect("check");
    assert!(facts[0].cancels.is_empty());
    assert_eq!(commands::in_flight(&gateway, &[(id, epoch)], 0).await.expect("in flight").len(), 1);
    let update = RawUpdate { node: id, epoch, id: one, payload: vec![1], signature: vec![2] };
    commands::store_updates(&gateway, &[update]).await.expect("a last word");
    let other_boot =
        SessionOpen { boot_id: schema::id::BootId::generate(), journal_id: schema::id::JournalId::generate(), ..hello };
    let again = commit!(&gateway, |txn| {
        let epoch = sessions::open(&mut txn, &other_boot).await.expect("open").epoch;
        commands::resume(&mut txn, id, epoch, other_boot.boot_id, other_boot.journal_id).await.expect("resume")
    });
    assert_eq!(ids(&again), [one]);
}

#[tokio::test]
async fn a_gateway_can_delay_and_never_author() {
    let test = TestDb::create().await;
    let gateway = narrow(&test).await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(&gateway, &session(id)).await;
    let sent = ready(test.db(), id, CommandKind::NodeReboot, "sent").await;
    claim(&gateway, id, epoch).await;
    let ended = ready(test.db(), id, CommandKind::NodeReboot, "ended").await;
    commit!(test.db(), |txn| commands::cancel(&mut txn, ended).await.expect("cancel"));

    let mut conn = narrow_conn(&test).await;
    let of = |id: CommandId| format!("WHERE id = '{}'", id.as_uuid());
    let mut refused = Vec::new();
    for state in CommandState::ALL.iter().filter(|state| state.is_terminal()) {
        refused.push(format!("UPDATE commands SET state = '{state}' {}", of(sent)));
        refused.push(format!("UPDATE commands SET state = '{state}', settled_at = compute_now() {}", of(sent)));
    }
    for state in CommandState::ALL.iter().filter(|state| !state.is_terminal()) {
        refused.push(format!("UPDATE commands SET state = '{state}' {}", of(ended)));
    }
    for column in [
        "payload = '{}'",
        "body = '\\x00'",
        "signature = '\\x00'",
        "signed_at = NULL",
        "result = '{}'",
        "reason = 'x'",
        "message = 'x'",
        "evidence = '\\x00'",
        "not_after = 'infinity'",
        "min_generation = NULL",
        "batch_id = NULL",
        "kind = 'diag.nvml'",
        "lane = 'bulk'",
        "seq = 9",
        "node_id = id",
        "idempotency_key = 'x'",
        "cancel_requested_at = NULL",
        "late_state = 'x'",
        "owner = 'x'",
        "retry_safe = true",
        "dispatched_at = 'epoch'",
        "acked_at = NULL",
        "started_at = NULL",
        "settled_at = NULL",
    ] {
        refused.push(format!("UPDATE commands SET {column} {}", of(sent)));
    }
    refused.extend(
        [
            "INSERT INTO commands (id) VALUES (gen_random_uuid())",
            "DELETE FROM commands",
            "SELECT payload FROM commands",
            "SELECT result FROM commands",
            "SELECT evidence FROM commands",
            "UPDATE command_updates SET payload = '\\x00'",
            "DELETE FROM command_updates",
            "INSERT INTO outbox (kind, subject, doc) VALUES ('command.settled', 'x', '{}')",
            "SELECT * FROM outbox",
            "INSERT INTO node_boots VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), compute_now())",
            "UPDATE node_boots SET said_at = compute_now()",
            "UPDATE node_certs SET allowed_kinds = NULL",
            "UPDATE nodes SET next_cmd_seq = 9",
        ]
        .map(str::to_owned),
    );
    for statement in refused {
        let done = sqlx::query(AssertSqlSafe(statement.clone())).execute(&mut conn).await;
        assert!(done.is_err(), "a gateway may not: {statement}");
    }
    let wanted = new(test.db(), id, CommandKind::NodeReboot, "own").await;
    assert!(try_enqueue(&gateway, &wanted).await.is_err());
    let mut txn = gateway.begin().await.expect("begin");
    let done = Ending::because(CommandEvent::Succeed, Reason::FAILED);
    assert!(commands::settle(&mut txn, id, sent, &done).await.is_err());
    assert_eq!(state(test.db(), sent).await, CommandState::Dispatched);
    assert_eq!(state(test.db(), ended).await, CommandState::Cancelled);
}

#[tokio::test]
async fn what_a_gateway_says_of_boots_and_journals_proves_nothing() {
    let test = TestDb::create().await;
    let (gateway, mut conn) = (narrow(&test).await, narrow_conn(&test).await);
    let id = node(test.db(), "a").await.id;
    let hello = session(id);
    let epoch = open(&gateway, &hello).await;
    let now = test.db().now().await.expect("now");
    commit!(test.db(), |txn| {
        commands::witness(&mut txn, id, hello.boot_id, hello.journal_id, now).await.expect("witness");
    });
    let reboot = ready(test.db(), id, CommandKind::NodeReboot, "k").await;
    assert_eq!(ids(&claim(&gateway, id, epoch).await), [reboot]);
    let lies = format!(
        "UPDATE commands SET boot_id = gen_random_uuid(), journal_id = gen_random_uuid(), epoch = epoch - 1 WHERE id = '{}'",
        reboot.as_uuid()
    );
    sqlx::query(AssertSqlSafe(lies)).execute(&mut conn).await.expect("columns of its own");
    assert!(commands::proved(test.db(), id).await.expect("proved").is_empty());
}

#[tokio::test]
async fn what_a_node_has_does_not_wait_again_by_a_gateways_word() {
    let test = TestDb::create().await;
    let (gateway, mut conn) = (narrow(&test).await, narrow_conn(&test).await);
    let id = node(test.db(), "a").await.id;
    let epoch = open(&gateway, &session(id)).await;
    let reboot = ready(test.db(), id, CommandKind::NodeReboot, "k").await;
    claim(&gateway, id, epoch).await;
    said(&gateway, id, epoch, reboot, Step::Running).await;
    let mut set = async |state: &str| {
        let set = format!("UPDATE commands SET state = '{state}' WHERE id = '{}'", reboot.as_uuid());
        sqlx::query(AssertSqlSafe(set)).execute(&mut conn).await
    };
    assert!(set("pending").await.is_err());
    set("dispatched").await.expect("backwards, which ends nothing");
    assert!(set("pending").await.is_err());
    said(&gateway, id, epoch, reboot, Step::Busy).await;
    commands::release(&gateway, &[(reboot, id, epoch)]).await.expect("release");
    assert_eq!(state(test.db(), reboot).await, CommandState::Dispatched);
}

async fn narrow_conn(test: &TestDb) -> PgConnection {
    let url = format!("{}&options=-c%20role=bc_gateway", test.config().url());
    PgConnection::connect(&url).await.expect("a connection")
}

async fn narrow(test: &TestDb) -> Db {
    let url = format!("{}&options=-c%20role=bc_gateway", test.config().url());
    Db::connect(&store::DbConfig::from_url(&url).expect("a URL")).await.expect("a pool")
}
