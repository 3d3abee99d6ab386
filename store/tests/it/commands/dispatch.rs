//! Claim, progress and last words: under the present epoch only, in order, in time.

use std::time::Duration as StdDuration;

use schema::command::Reason;
use store::commands::RawUpdate;

use super::*;

#[tokio::test]
async fn nothing_unsigned_is_sent_and_numbers_come_in_order_as_far_as_the_room_goes() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let mut control = Vec::new();
    for n in 0..3 {
        control.push(ready(test.db(), id, CommandKind::InventoryRefresh, &format!("c{n}")).await);
    }
    let bulk = ready(test.db(), id, CommandKind::LogsCollect, "b").await;
    let unsigned = enqueue(test.db(), id, CommandKind::InventoryRefresh, "u").await.id;
    let after = ready(test.db(), id, CommandKind::InventoryRefresh, "after").await;

    let first = claim_up_to(test.db(), id, epoch, [2, 4, 2]).await;
    assert_eq!(ids(&first), [control[0], control[1], bulk], "a full lane keeps no other waiting");
    assert!(first.iter().all(|dispatch| dispatch.signature == b"signed"));
    assert_eq!(CommandBody::read(&first[0].body).expect("a body").id, control[0]);
    assert_eq!(
        ids(&claim(test.db(), id, epoch).await),
        [control[2]],
        "what is not signed yet is not overtaken in its lane"
    );
    sign(test.db(), unsigned).await;
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [unsigned, after]);
    assert!(claim(test.db(), id, epoch).await.is_empty(), "nothing is sent twice");
    assert_eq!(read(test.db(), bulk).await.sent_in.map(|sent| sent.epoch), Some(epoch));
}

#[tokio::test]
async fn many_sessions_are_served_by_one_claim_and_two_claims_share_nothing() {
    let test = TestDb::create().await;
    let mut claims = Vec::new();
    for n in 0..20 {
        let id = node(test.db(), &format!("m{n}")).await.id;
        let epoch = open(test.db(), &session(id)).await;
        ready(test.db(), id, CommandKind::InventoryRefresh, "k").await;
        ready(test.db(), id, CommandKind::DiagNvml, "d").await;
        claims.push(Claim { node: id, epoch, number: 1, room: [8, 4, 2] });
    }
    let line = test.db().dedicated();
    let (one, two) = tokio::join!(commands::claim(&line, &claims), commands::claim(&line, &claims));
    let taken: Vec<Dispatch> =
        one.expect("claim").into_iter().chain(two.expect("claim")).flat_map(|(_, list)| list).collect();
    let distinct: std::collections::BTreeSet<CommandId> = taken.iter().map(|dispatch| dispatch.id).collect();
    assert_eq!((taken.len(), distinct.len()), (40, 40));
}

#[tokio::test]
async fn a_stale_epoch_changes_nothing() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let before = session(id);
    let old = open(test.db(), &before).await;
    let sent = ready(test.db(), id, CommandKind::DiagNvml, "sent").await;
    assert_eq!(ids(&claim(test.db(), id, old).await), [sent]);
    let waiting = ready(test.db(), id, CommandKind::InventoryRefresh, "waiting").await;
    let new = open(test.db(), &before).await;
    assert!(claim(test.db(), id, old).await.is_empty());
    for step in [Step::Acked, Step::Running, Step::Busy] {
        said(test.db(), id, old, sent, step).await;
        said(test.db(), id, new, sent, step).await;
    }
    assert_eq!(
        state(test.db(), sent).await,
        CommandState::Dispatched,
        "neither the old session nor one that did not send it"
    );
    commands::release(test.db(), &[(sent, id, new)]).await.expect("release");
    assert_eq!(state(test.db(), sent).await, CommandState::Dispatched);
    let update = |epoch| RawUpdate { node: id, epoch, id: sent, payload: vec![1], signature: vec![2] };
    commands::store_updates(test.db(), &[update(old)]).await.expect("store");
    assert!(commands::updates(test.db(), id).await.expect("updates").is_empty());
    commands::store_updates(test.db(), &[update(new), update(new)]).await.expect("store");
    let stored = commands::updates(test.db(), id).await.expect("updates");
    assert_eq!((stored.len(), stored[0].update.clone()), (1, update(new)));
    assert_eq!(ids(&claim(test.db(), id, new).await), [waiting]);
    commit!(test.db(), |txn| sessions::close(&mut txn, &[(id, new)]).await.expect("close"));
    ready(test.db(), id, CommandKind::InventoryRefresh, "late").await;
    assert!(claim(test.db(), id, new).await.is_empty(), "a closed session takes nothing");
}

#[tokio::test]
async fn a_claim_and_a_session_that_begins_beside_it_lose_nothing_between_them() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let hello = session(id);
    for round in 0..20 {
        let old = open(test.db(), &hello).await;
        let command = ready(test.db(), id, CommandKind::InventoryRefresh, &format!("k{round}")).await;
        let begin = async {
            let mut txn = test.db().begin().await.expect("begin");
            let epoch = sessions::open(&mut txn, &hello).await.expect("open").epoch;
            let again = commands::resume(&mut txn, id, epoch, hello.boot_id, hello.journal_id).await.expect("resume");
            txn.commit().await.expect("commit");
            (epoch, again)
        };
        let (_, (new, again)) = tokio::join!(claim(test.db(), id, old), begin);
        let fresh = claim(test.db(), id, new).await;
        let all: Vec<CommandId> = ids(&again).into_iter().chain(ids(&fresh)).collect();
        assert_eq!(all, [command], "the new session sends it, once, whoever was first");
        assert_eq!(read(test.db(), command).await.sent_in.map(|sent| sent.epoch), Some(new));
        let ending = commands::Ending::because(schema::command::CommandEvent::Fail, Reason::FAILED);
        commit!(test.db(), |txn| commands::settle(&mut txn, id, command, &ending).await.expect("settle"));
    }
}

#[tokio::test]
async fn a_claim_that_arrives_after_its_session_was_asked_what_it_has_takes_nothing() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let command = ready(test.db(), id, CommandKind::InventoryRefresh, "k").await;
    let numbered = async |number| {
        let claim = Claim { node: id, epoch, number, room: [8, 4, 2] };
        commands::claim(&test.db().dedicated(), &[claim]).await.expect("claim").pop().map(|(_, list)| ids(&list))
    };
    assert!(commands::in_flight(test.db(), &[(id, epoch)], 2).await.expect("in flight").is_empty());
    assert_eq!((numbered(1).await, numbered(2).await), (None, None), "both were made before");
    assert_eq!(numbered(3).await, Some(vec![command]));
    let again = open(test.db(), &session(id)).await;
    ready(test.db(), id, CommandKind::InventoryRefresh, "l").await;
    assert_eq!(claim(test.db(), id, again).await.len(), 1, "another session's gateway counts for itself");
}

#[tokio::test]
async fn progress_goes_forward_only_and_may_skip() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let command = ready(test.db(), id, CommandKind::DiagNvml, "k").await;
    claim(test.db(), id, epoch).await;
    said(test.db(), id, epoch, command, Step::Running).await;
    let running = read(test.db(), command).await;
    assert!(running.state == CommandState::Running && running.acked_at.is_some() && running.started_at.is_some());
    for step in [Step::Acked, Step::Busy, Step::Running] {
        said(test.db(), id, epoch, command, step).await;
        assert_eq!(read(test.db(), command).await, running, "{step:?} comes late");
    }
    let both = ready(test.db(), id, CommandKind::DiagNvml, "both").await;
    claim(test.db(), id, epoch).await;
    let step = |step| Progress { id: both, node: id, epoch, step };
    commands::progress(test.db(), &[step(Step::Running), step(Step::Acked)]).await.expect("progress");
    assert_eq!(state(test.db(), both).await, CommandState::Running);
    let stranger = node(test.db(), "b").await.id;
    let third = ready(test.db(), id, CommandKind::DiagNvml, "third").await;
    claim(test.db(), id, epoch).await;
    let theirs = open(test.db(), &session(stranger)).await;
    said(test.db(), stranger, theirs, third, Step::Running).await;
    assert_eq!(state(test.db(), third).await, CommandState::Dispatched, "a node speaks for itself only");
}

#[tokio::test]
async fn a_busy_node_gets_it_again_after_1_to_30_seconds_and_nothing_overtakes_it_in_its_lane() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let mut wanted = new(test.db(), id, CommandKind::DiagNvml, "k").await;
    wanted.not_after = Duration::from_secs(3_600).after(wanted.not_after);
    let command = try_enqueue(test.db(), &wanted).await.expect("queued").command.id;
    sign(test.db(), command).await;
    for rest in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
        assert_eq!(ids(&claim(test.db(), id, epoch).await), [command]);
        let before = test.db().now().await.expect("now");
        said(test.db(), id, epoch, command, Step::Busy).await;
        let after = test.db().now().await.expect("now");
        let resting = read(test.db(), command).await;
        assert_eq!(resting.state, CommandState::Pending);
        let until = resting.not_before.expect("it is not held");
        assert!(rest.after(before) <= until && until <= rest.after(after), "{rest}");
        test.advance(StdDuration::from_secs(rest.as_secs())).await;
    }
    assert_eq!(read(test.db(), command).await.busy_count, 7);

    claim(test.db(), id, epoch).await;
    said(test.db(), id, epoch, command, Step::Busy).await;
    let behind = ready(test.db(), id, CommandKind::DiagNvml, "behind").await;
    let beside = ready(test.db(), id, CommandKind::LogsCollect, "beside").await;
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [beside]);
    test.advance(StdDuration::from_secs(30)).await;
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [command, behind]);
}

#[tokio::test]
async fn what_is_wrong_with_a_journal_is_kept_until_the_node_says_something_else() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let command = ready(test.db(), id, CommandKind::InventoryRefresh, "k").await;
    let said_so = [
        (Step::JournalFull, Some("journal-full")),
        (Step::JournalUnusable, Some("journal-unusable")),
        (Step::Busy, None),
    ];
    for (step, reason) in said_so {
        claim(test.db(), id, epoch).await;
        said(test.db(), id, epoch, command, step).await;
        let resting = read(test.db(), command).await;
        assert_eq!((resting.state, resting.busy_reason.as_deref()), (CommandState::Pending, reason));
        assert!(resting.not_before.is_some_and(|at| at > resting.created_at));
        test.advance(StdDuration::from_secs(5)).await;
    }
    assert_eq!(read(test.db(), command).await.busy_count, 3);
}

#[tokio::test]
async fn what_is_past_its_deadline_is_never_sent() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let late = ready(test.db(), id, CommandKind::NodeReboot, "k").await;
    test.advance(StdDuration::from_secs(600)).await;
    let good = ready(test.db(), id, CommandKind::InventoryRefresh, "good").await;
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [good], "and it holds nothing behind it");
    assert_eq!(state(test.db(), late).await, CommandState::Pending, "the sweeper says what it is");
    assert!(commands::unsigned(test.db(), id, 0, 9).await.expect("unsigned").is_empty());
}

#[tokio::test]
async fn what_was_taken_and_never_sent_is_given_back_or_found_again() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let (one, two) = (
        ready(test.db(), id, CommandKind::DiagNvml, "1").await,
        ready(test.db(), id, CommandKind::DiagNvml, "2").await,
    );
    claim(test.db(), id, epoch).await;
    commands::release(test.db(), &[(one, id, epoch)]).await.expect("release");
    assert_eq!(read(test.db(), one).await.busy_count, 0);
    let in_flight = async || {
        let found = commands::in_flight(test.db(), &[(id, epoch)], 0).await.expect("in flight");
        found.iter().flat_map(|(_, list)| ids(list)).collect::<Vec<_>>()
    };
    assert_eq!(in_flight().await, [two]);
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [one]);
    let update = RawUpdate { node: id, epoch, id: two, payload: vec![1], signature: vec![2] };
    assert!(commands::store_updates(test.db(), &[update]).await.expect("store").is_empty());
    assert_eq!(in_flight().await, [one], "what has its last word is not sent again");
    said(test.db(), id, epoch, one, Step::Acked).await;
    commands::release(test.db(), &[(one, id, epoch)]).await.expect("release");
    assert_eq!(state(test.db(), one).await, CommandState::Acked, "what the node has is not given back");
}

#[tokio::test]
async fn a_node_that_says_too_much_is_not_listened_to_until_it_was_read() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let update = || RawUpdate { node: id, epoch, id: CommandId::generate(), payload: vec![1], signature: vec![2] };
    let many: Vec<RawUpdate> = (0..200).map(|_| update()).collect();
    assert!(commands::store_updates(test.db(), &many).await.expect("store").is_empty());
    assert_eq!(commands::store_updates(test.db(), &[update()]).await.expect("store"), [id]);
    let read = commands::updates(test.db(), id).await.expect("updates");
    assert_eq!(read.len(), commands::UPDATES_AT_ONCE);
    let rows: Vec<i64> = read.iter().map(|stored| stored.row).collect();
    commit!(test.db(), |txn| commands::remove_updates(&mut txn, &rows).await.expect("remove"));
    assert!(commands::store_updates(test.db(), &[update()]).await.expect("store").is_empty());
}

#[tokio::test]
async fn a_node_of_which_much_is_unread_is_given_nothing_new_until_it_was_read() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let waiting = ready(test.db(), id, CommandKind::InventoryRefresh, "k").await;
    let update = || RawUpdate { node: id, epoch, id: CommandId::generate(), payload: vec![1], signature: vec![2] };
    let many: Vec<RawUpdate> = (0..100).map(|_| update()).collect();
    assert!(commands::store_updates(test.db(), &many).await.expect("store").is_empty());
    assert!(claim(test.db(), id, epoch).await.is_empty());
    let first = commands::updates(test.db(), id).await.expect("updates")[0].row;
    commit!(test.db(), |txn| commands::remove_updates(&mut txn, &[first]).await.expect("remove"));
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [waiting]);
}

#[tokio::test]
async fn a_restricted_identity_refuses_other_kinds_when_they_are_queued_and_when_they_are_taken() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let epoch = open(test.db(), &session(id)).await;
    let before = ready(test.db(), id, CommandKind::NodeReboot, "before").await;
    restrict(&test, id, "'{inventory.refresh,diag.nvml}'").await;
    let wanted = new(test.db(), id, CommandKind::NodeReboot, "k").await;
    let refused = try_enqueue(test.db(), &wanted).await.expect_err("a restricted identity").to_string();
    assert_eq!(
        refused,
        "the node runs a restricted identity that does not accept node.reboot; it accepts inventory.refresh, diag.nvml"
    );
    let allowed = ready(test.db(), id, CommandKind::InventoryRefresh, "ok").await;
    assert_eq!(
        ids(&claim(test.db(), id, epoch).await),
        [allowed],
        "what was queued before is not sent, and holds nothing"
    );
    restrict(&test, id, "NULL").await;
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [before]);
}

async fn restrict(test: &TestDb, id: NodeId, kinds: &str) {
    use sqlx::Connection as _;
    let mut conn = sqlx::PgConnection::connect(&test.config().url()).await.expect("a connection");
    let set = format!("UPDATE node_certs SET allowed_kinds = {kinds} WHERE node_id = '{}'", id.as_uuid());
    sqlx::query(sqlx::AssertSqlSafe(set)).execute(&mut conn).await.expect("set");
}
