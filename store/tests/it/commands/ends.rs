//! Every way in which a command ends, and that it ends once.

use std::time::Duration as StdDuration;

use schema::command::{CommandEvent, KINDS, Reason};
use store::{
    commands::{Ending, Evidence, Settled, Swept},
    node_certs, nodes,
};

use super::*;

async fn settle(db: &Db, node: NodeId, id: CommandId, ending: &Ending) -> Settled {
    commit!(db, |txn| commands::settle(&mut txn, node, id, ending).await.expect("settle"))
}

async fn cancel(db: &Db, id: CommandId) -> Option<Command> {
    commit!(db, |txn| commands::cancel(&mut txn, id).await.expect("cancel"))
}

/// What the gateway that has the node is to ask it to cancel.
async fn asked_to_cancel(db: &Db, id: NodeId) -> Vec<CommandId> {
    let facts = sessions::check(db, &[(id, session(id).serial)]).await.expect("check");
    facts.into_iter().flat_map(|facts| facts.cancels).collect()
}

async fn sweep(db: &Db) -> Swept {
    commit!(db, |txn| commands::sweep(&mut txn, 100).await.expect("sweep"))
}

/// Moves the row of a command as if it were of another kind and age.
async fn rewrite(test: &TestDb, id: CommandId, set: &str) {
    use sqlx::Connection as _;
    let mut conn = sqlx::PgConnection::connect(&test.config().url()).await.expect("a connection");
    let set = format!("UPDATE commands SET {set} WHERE id = '{}'", id.as_uuid());
    sqlx::query(sqlx::AssertSqlSafe(set)).execute(&mut conn).await.expect("rewritten");
}

#[tokio::test]
async fn terminal_is_final() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let command = ready(test.db(), id, CommandKind::DiagNvml, "k").await;
    claim(test.db(), id, epoch).await;
    let good = Ending {
        event: CommandEvent::Succeed,
        reason: None,
        message: None,
        result: Some("{}".to_owned()),
        evidence: Some(Evidence { payload: vec![1], signature: vec![2], key: vec![3] }),
    };
    assert_eq!(settle(test.db(), id, command, &good).await, Settled::Moved(CommandState::Succeeded));
    let ended = read(test.db(), command).await;
    assert!(ended.settled_at.is_some() && ended.has_evidence);
    assert_eq!(commands::evidence(test.db(), command).await.expect("evidence"), good.evidence);
    for event in CommandEvent::ALL.iter().copied() {
        let again = settle(test.db(), id, command, &Ending::because(event, Reason::FAILED)).await;
        assert_eq!(again, Settled::Final { state: CommandState::Succeeded, reason: None }, "{event}");
    }
    said(test.db(), id, epoch, command, Step::Busy).await;
    cancel(test.db(), command).await;
    assert_eq!(read(test.db(), command).await, ended);
    let settled = events(test.db(), "command.settled", 1).await;
    assert_eq!(settled.len(), 1);
    assert_eq!(
        settled[0],
        json!({ "commandId": command, "nodeId": id, "kind": "diag.nvml", "state": "succeeded", "reason": null })
    );
}

#[tokio::test]
async fn a_command_ends_only_where_the_table_of_states_has_it_and_only_its_own_node_ends_it() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let waiting = ready(test.db(), id, CommandKind::InventoryRefresh, "k").await;
    for event in CommandEvent::ALL.iter().copied() {
        let ends = CommandState::Pending.transition(event).is_ok_and(CommandState::is_terminal);
        if !ends {
            let ending = Ending::because(event, Reason::FAILED);
            assert_eq!(
                settle(test.db(), id, waiting, &ending).await,
                Settled::Illegal(CommandState::Pending),
                "{event}"
            );
        }
    }
    let fail = Ending::because(CommandEvent::Cancel, Reason::CANCELLED);
    let stranger = node(test.db(), "b").await.id;
    assert_eq!(settle(test.db(), stranger, waiting, &fail).await, Settled::Unknown);
    assert_eq!(settle(test.db(), id, CommandId::generate(), &fail).await, Settled::Unknown);
    let evidence = Some(Evidence { payload: vec![1], signature: vec![2], key: vec![3] });
    settle(test.db(), id, waiting, &Ending { evidence, ..fail }).await;
    assert!(!read(test.db(), waiting).await.has_evidence, "only attested kinds keep the node's signature");
}

#[tokio::test]
async fn cancelling_is_immediate_while_it_waits_asks_in_flight_and_leaves_what_has_ended() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let waiting = ready(test.db(), id, CommandKind::DiagNvml, "1").await;
    let cancelled = cancel(test.db(), waiting).await.expect("a command");
    assert_eq!((cancelled.state, cancelled.reason.as_deref()), (CommandState::Cancelled, Some("cancelled")));
    assert!(claim(test.db(), id, epoch).await.is_empty());

    let sent = ready(test.db(), id, CommandKind::DiagNvml, "2").await;
    claim(test.db(), id, epoch).await;
    let asked = cancel(test.db(), sent).await.expect("a command");
    assert_eq!((asked.state, asked.settled_at), (CommandState::Dispatched, None));
    assert!(asked.cancel_requested_at.is_some());
    assert_eq!(asked_to_cancel(test.db(), id).await, [sent]);
    assert_eq!(cancel(test.db(), sent).await.expect("a command"), asked, "asking again changes nothing");
    let done = Ending { result: Some("{}".to_owned()), ..Ending::because(CommandEvent::Succeed, Reason::FAILED) };
    settle(test.db(), id, sent, &Ending { reason: None, ..done }).await;
    let real = cancel(test.db(), sent).await.expect("a command");
    assert_eq!(real.state, CommandState::Succeeded, "what really happened is never hidden");
    assert!(asked_to_cancel(test.db(), id).await.is_empty());
    assert_eq!(cancel(test.db(), CommandId::generate()).await, None);
    let asked = events(test.db(), "node.command.cancel-requested", 2).await;
    assert_eq!(
        asked.iter().map(|doc| doc["state"].clone()).collect::<Vec<_>>(),
        [json!("cancelled"), json!("dispatched")]
    );
}

#[tokio::test]
async fn what_was_taken_back_in_flight_and_came_back_unbegun_is_not_sent_again_but_cancelled() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let command = ready(test.db(), id, CommandKind::DiagNvml, "k").await;
    claim(test.db(), id, epoch).await;
    cancel(test.db(), command).await;
    said(test.db(), id, epoch, command, Step::Busy).await;
    test.advance(StdDuration::from_secs(5)).await;
    assert!(claim(test.db(), id, epoch).await.is_empty());
    assert!(commands::is_sweep_due(test.db()).await.expect("due"));
    assert_eq!(sweep(test.db()).await, Swept { cancelled: 1, ..Swept::default() });
    assert_eq!(state(test.db(), command).await, CommandState::Cancelled);
}

#[tokio::test]
async fn deleting_a_node_cancels_what_waits_and_fails_what_is_in_flight() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let sent = ready(test.db(), id, CommandKind::DiagNvml, "1").await;
    claim(test.db(), id, epoch).await;
    let waiting = ready(test.db(), id, CommandKind::DiagNvml, "2").await;
    commit!(test.db(), |txn| nodes::delete(&mut txn, id).await.expect("delete"));
    let cancelled = read(test.db(), waiting).await;
    assert_eq!((cancelled.state, cancelled.reason.as_deref()), (CommandState::Cancelled, Some("node-deleted")));
    let failed = read(test.db(), sent).await;
    assert_eq!((failed.state, failed.reason.as_deref()), (CommandState::Failed, Some("node-deleted")));
    assert_eq!((cancelled.node, failed.node), (None, None));
    let wanted = new(test.db(), id, CommandKind::DiagNvml, "3").await;
    assert!(matches!(try_enqueue(test.db(), &wanted).await, Err(EnqueueError::UnknownNode(_))));
}

#[tokio::test]
async fn a_node_is_deleted_while_its_gateway_claims() {
    use sqlx::Connection as _;
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    open(test.db(), &session(id)).await;
    let waiting = ready(test.db(), id, CommandKind::DiagNvml, "k").await;
    let mut claiming = sqlx::PgConnection::connect(&test.config().url()).await.expect("a connection");
    // As a claim does, step by step: the session first, then the commands.
    sqlx::raw_sql("BEGIN; SELECT FROM sessions FOR SHARE").execute(&mut claiming).await.expect("the session");
    let deleting = async { commit!(test.db(), |txn| nodes::delete(&mut txn, id).await.expect("delete")) };
    let claiming = async {
        while !test.waits_for_a_lock().await {
            tokio::task::yield_now().await;
        }
        let rest = "SELECT FROM commands FOR NO KEY UPDATE; COMMIT";
        sqlx::raw_sql(rest).execute(&mut claiming).await.expect("nobody waits for the other");
    };
    tokio::join!(deleting, claiming);
    assert_eq!(state(test.db(), waiting).await, CommandState::Cancelled);
}

#[tokio::test]
async fn a_sweep_ends_exactly_at_the_boundary() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let waiting = enqueue(test.db(), id, CommandKind::NodeReboot, "waits").await.id;
    // Each kind in each state in flight, and one kind that this version does not know.
    let mut sent = Vec::new();
    let ended = "state = 'pending', reason = NULL, settled_at = NULL";
    for (n, row) in KINDS.iter().enumerate() {
        for state in ["dispatched", "acked", "running"] {
            let command = enqueue(test.db(), id, row.kind, &format!("{n}{state}")).await.id;
            rewrite(&test, command, &format!("state = '{state}', epoch = {}", epoch.to_i64())).await;
            sent.push((command, row.timeout.as_secs()));
        }
    }
    let unknown = enqueue(test.db(), id, CommandKind::NodeReboot, "unknown").await.id;
    rewrite(&test, unknown, "state = 'running', kind = 'moon.landing'").await;
    sent.push((unknown, 15 * 60));
    assert_eq!(sweep(test.db()).await, Swept::default());

    // One second on each side of the deadline, then of the deadline and the timeout.
    rewrite(&test, waiting, "not_after = compute_now() + interval '1 second'").await;
    assert!(!commands::is_sweep_due(test.db()).await.expect("due"));
    assert_eq!(sweep(test.db()).await, Swept::default());
    rewrite(&test, waiting, "not_after = compute_now()").await;
    assert!(commands::is_sweep_due(test.db()).await.expect("due"));
    assert_eq!(sweep(test.db()).await, Swept { expired: 1, ..Swept::default() });
    let expired = read(test.db(), waiting).await;
    assert_eq!((expired.state, expired.reason.as_deref()), (CommandState::Expired, Some("not-after")));
    rewrite(&test, waiting, ended).await;
    rewrite(&test, waiting, "not_after = compute_now() + interval '1 day'").await;
    for (command, timeout) in sent {
        rewrite(
            &test,
            command,
            &format!("not_after = compute_now() - interval '{timeout} seconds' + interval '1 second'"),
        )
        .await;
        assert!(!commands::is_sweep_due(test.db()).await.expect("due"));
        assert_eq!(sweep(test.db()).await, Swept::default());
        rewrite(&test, command, &format!("not_after = compute_now() - interval '{timeout} seconds'")).await;
        assert!(commands::is_sweep_due(test.db()).await.expect("due"));
        assert_eq!(sweep(test.db()).await, Swept { timed_out: 1, ..Swept::default() });
        let failed = read(test.db(), command).await;
        assert_eq!((failed.state, failed.reason.as_deref()), (CommandState::Failed, Some("timeout")));
    }
    assert!(
        queue::depth(test.db()).await.expect("depth").contains(&("node".to_owned(), 1)),
        "the node's controller is woken"
    );
}

#[tokio::test]
async fn a_word_that_came_and_was_not_read_yet_is_waited_for_five_minutes_at_most() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let sent = ready(test.db(), id, CommandKind::DiagNvml, "sent").await;
    claim(test.db(), id, epoch).await;
    let busy = ready(test.db(), id, CommandKind::InventoryRefresh, "busy").await;
    claim(test.db(), id, epoch).await;
    said(test.db(), id, epoch, busy, Step::Busy).await;
    let word = |id: CommandId, node| commands::RawUpdate { node, epoch, id, payload: vec![1], signature: vec![2] };
    commands::store_updates(test.db(), &[word(sent, id), word(busy, id)]).await.expect("stored");
    rewrite(&test, sent, "not_after = compute_now() - interval '300 seconds'").await;
    rewrite(&test, busy, "not_after = compute_now()").await;
    assert!(!commands::is_sweep_due(test.db()).await.expect("due"));
    assert_eq!(sweep(test.db()).await, Swept::default());
    rewrite(&test, sent, "not_after = compute_now() - interval '600 seconds'").await;
    rewrite(&test, busy, "not_after = compute_now() - interval '300 seconds'").await;
    assert!(commands::is_sweep_due(test.db()).await.expect("due"));
    assert_eq!(sweep(test.db()).await, Swept { expired: 1, timed_out: 1, ..Swept::default() });
}

#[tokio::test]
async fn what_the_node_signed_ends_a_command_that_a_gateway_says_waits_again() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let command = ready(test.db(), id, CommandKind::DiagNvml, "k").await;
    claim(test.db(), id, epoch).await;
    said(test.db(), id, epoch, command, Step::Busy).await;
    let good = |evidence| Ending { event: CommandEvent::Succeed, reason: None, message: None, result: None, evidence };
    assert_eq!(settle(test.db(), id, command, &good(None)).await, Settled::Illegal(CommandState::Pending));
    let signed = Some(Evidence { payload: vec![1], signature: vec![2], key: vec![3] });
    assert_eq!(settle(test.db(), id, command, &good(signed.clone())).await, Settled::Moved(CommandState::Succeeded));
    let never = ready(test.db(), id, CommandKind::DiagNvml, "never").await;
    assert_eq!(settle(test.db(), id, never, &good(signed)).await, Settled::Illegal(CommandState::Pending));
}

#[tokio::test]
async fn for_a_machine_that_is_the_node_no_more_what_is_in_flight_fails_and_what_waits_is_cancelled() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let hello = session(id);
    let epoch = open(test.db(), &hello).await;
    let mut sent = Vec::new();
    for kind in [CommandKind::NodeReboot, CommandKind::DiagNvml] {
        sent.push(ready(test.db(), id, kind, kind.as_str()).await);
    }
    claim(test.db(), id, epoch).await;
    let waiting = ready(test.db(), id, CommandKind::InventoryRefresh, "waits").await;
    commit!(test.db(), |txn| store::identities::revoke(&mut txn, id, "stolen").await.expect("revoked"));
    let ends = sent.into_iter().map(|id| (id, CommandState::Failed)).chain([(waiting, CommandState::Cancelled)]);
    for (command, state) in ends {
        let ended = read(test.db(), command).await;
        assert_eq!((ended.state, ended.reason.as_deref()), (state, Some("identity-replaced")));
    }
    assert_eq!(events(test.db(), "command.settled", 3).await.len(), 3);
}

#[tokio::test]
async fn an_identity_ends_while_one_of_its_commands_is_being_cancelled() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let sent = ready(test.db(), id, CommandKind::DiagNvml, "sent").await;
    claim(test.db(), id, epoch).await;
    let waiting = ready(test.db(), id, CommandKind::DiagNvml, "waits").await;
    let mut cancelling = test.db().begin().await.expect("begin");
    commands::lock(&mut cancelling, id, &[waiting]).await.expect("lock");
    let revoking = async {
        commit!(test.db(), |txn| store::identities::revoke(&mut txn, id, "stolen").await.expect("revoked"));
    };
    let cancelling = async {
        while !test.waits_for_a_lock().await {
            tokio::task::yield_now().await;
        }
        // This wakes the node's controller: whoever holds its row by now and waits for the command would wait for ever.
        commands::cancel(&mut cancelling, waiting).await.expect("cancel");
        cancelling.commit().await.expect("commit");
    };
    tokio::join!(revoking, cancelling);
    let reason = async |id| read(test.db(), id).await.reason;
    assert_eq!(reason(waiting).await.as_deref(), Some("cancelled"));
    assert_eq!(reason(sent).await.as_deref(), Some("identity-replaced"));
}

#[tokio::test]
async fn a_deadline_is_no_further_away_than_a_signature_is_good_for() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let mut wanted = new(test.db(), id, CommandKind::DiagNvml, "k").await;
    wanted.not_after = Duration::from_secs(13 * 3_600).after(wanted.not_after);
    assert!(matches!(try_enqueue(test.db(), &wanted).await, Err(EnqueueError::TooLate)));
}

#[tokio::test]
async fn what_comes_after_the_end_is_kept_once_and_changes_nothing() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let command = enqueue(test.db(), id, CommandKind::DiagNvml, "k").await.id;
    let late = async |state, reason: Option<&Reason>| {
        commit!(test.db(), |txn| commands::record_late(&mut txn, id, command, state, reason).await.expect("late"))
    };
    assert!(!late(CommandState::Succeeded, None).await, "it has not ended");
    cancel(test.db(), command).await;
    assert!(late(CommandState::Failed, Some(&Reason::GPU_BUSY)).await);
    assert!(!late(CommandState::Succeeded, None).await);
    let kept = read(test.db(), command).await;
    assert_eq!(kept.state, CommandState::Cancelled);
    let said = kept.late.expect("kept");
    assert_eq!((said.state.as_str(), said.reason.as_deref()), ("failed", Some("gpu-busy")));
}

#[tokio::test]
async fn a_reader_of_events_misses_nothing_however_long_a_transaction_takes() {
    let test = TestDb::create().await;
    let append = async |txn: &mut store::Txn, subject: &str| {
        let event = outbox::NewEvent::new(outbox::COMMAND_QUEUED, subject, json!({}));
        outbox::append(txn, &[event]).await.expect("append");
    };
    let read = async |after: outbox::Cursor, wanted: usize| {
        let events = store::testing::events(test.db(), after, &[], wanted).await;
        let last = events.last().map_or(after, |event| event.cursor);
        (events.into_iter().map(|event| event.subject).collect::<Vec<_>>(), last)
    };
    commit!(test.db(), |txn| append(&mut txn, "first").await);
    let mut slow = test.db().begin().await.expect("begin");
    append(&mut slow, "slow").await;
    commit!(test.db(), |txn| append(&mut txn, "fast").await);
    let (seen, cursor) = read(outbox::Cursor::default(), 1).await;
    assert_eq!(seen, ["first"], "what a running transaction may still precede is not shown");
    slow.commit().await.expect("commit");
    let (rest, end) = read(cursor, 2).await;
    assert_eq!(rest, ["slow", "fast"]);
    assert_eq!(outbox::newest(test.db()).await.expect("newest"), end);
    let none = outbox::list(test.db(), outbox::Cursor::default(), &["other".to_owned()], 9).await.expect("list");
    assert_eq!(none.last, None);
    test.advance(StdDuration::from_secs(8 * 86_400)).await;
    assert_eq!(outbox::prune(test.db()).await.expect("prune"), 3);
}

#[tokio::test]
async fn nothing_is_queued_for_a_machine_whose_identity_was_revoked_until_it_has_another() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let wanted = new(test.db(), id, CommandKind::DiagNvml, "k").await;
    certify(test.db(), id, b"one").await;
    commit!(test.db(), |txn| store::identities::revoke(&mut txn, id, "sold").await.expect("revoked"));
    let refused = try_enqueue(test.db(), &wanted).await.expect_err("no identity");
    assert_eq!(refused.to_string(), "the node's identity was revoked: sold");
    let refused = commands::may_enqueue(test.db(), id, CommandKind::DiagNvml).await.expect_err("no identity");
    assert!(matches!(refused, EnqueueError::Revoked(Some(reason)) if reason == "sold"));
    let revocation = node_certs::revocation(test.db(), id).await.expect("read").expect("revoked");
    assert_eq!(revocation.reason, "sold");

    certify(test.db(), id, b"two").await;
    assert_eq!(node_certs::revocation(test.db(), id).await.expect("read"), None);
    commands::may_enqueue(test.db(), id, CommandKind::DiagNvml).await.expect("nothing is against it");
    try_enqueue(test.db(), &wanted).await.expect("queued");
}

/// Gives a node a certificate of its present identity.
async fn certify(db: &Db, id: NodeId, key: &[u8]) {
    let now = db.now().await.expect("now");
    let cert = node_certs::NodeCert {
        serial: key.to_vec(),
        node_id: id,
        public_key: key.to_vec(),
        identity_generation: nodes::find(db, id).await.expect("find").expect("a node").identity_generation,
        not_before: now,
        not_after: Duration::from_secs(86_400).after(now),
        revoked_at: None,
        allowed_kinds: None,
        node_name: None,
    };
    commit!(db, |txn| node_certs::insert(&mut txn, &cert).await.expect("inserted"));
}
