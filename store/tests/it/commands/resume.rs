//! What a reconnect means, for every combination.

use schema::{
    command::KINDS,
    id::{BootId, JournalId},
};
use store::commands::{Proved, Resume, on_reconnect};

use super::*;

#[test]
fn the_matrix_of_boot_journal_kind_and_state() {
    for state in CommandState::ALL.iter().copied() {
        for kind in KINDS.iter().map(Some).chain([None]) {
            for (new_boot, new_journal) in [(false, false), (false, true), (true, false), (true, true)] {
                let ends_itself = kind.is_some_and(|kind| kind.self_terminating);
                let safe = kind.is_some_and(|kind| kind.retry_safe);
                let known = !new_journal && matches!(state, CommandState::Acked | CommandState::Running);
                let rebooted = new_boot && ends_itself && !safe && !known;
                let expected = match (state.is_in_flight(), rebooted, new_journal && !safe) {
                    (false, ..) => None,
                    (true, true, _) => Some(Resume::Rebooted),
                    (true, false, true) => Some(Resume::JournalLost),
                    (true, false, false) => Some(Resume::Replay),
                };
                assert_eq!(
                    on_reconnect(state, kind, new_boot, new_journal),
                    expected,
                    "{state} {kind:?} {new_boot} {new_journal}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_journal_without_what_it_once_took_and_may_not_run_twice_opens_nothing() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let hello = session(id);
    let epoch = open(test.db(), &hello).await;
    // Numbers 1 to 4: two that may run twice, then one of each lane that may not.
    for kind in [CommandKind::InventoryRefresh, CommandKind::DiagNvml, CommandKind::NodeReboot, CommandKind::GpuReset] {
        let command = ready(test.db(), id, kind, kind.as_str()).await;
        assert_eq!(ids(&claim(test.db(), id, epoch).await), [command]);
        said(test.db(), id, epoch, command, Step::Acked).await;
    }
    let seq = read(test.db(), enqueue(test.db(), id, CommandKind::NodeReboot, "unsent").await.id).await.seq;
    let reset = seq - 1;
    let opens = async |marks: Option<[u64; 3]>, hello: &SessionOpen| {
        let mut txn = test.db().begin().await.expect("begin");
        let hello = SessionOpen { marks, ..hello.clone() };
        match sessions::open(&mut txn, &hello).await {
            Ok(_) => true,
            Err(sessions::OpenError::OldJournal) => false,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(opens(None, &hello).await, "a daemon that does not say");
    assert!(opens(Some([reset - 1, reset, 0]), &hello).await, "what was never taken is no loss");
    assert!(!opens(Some([reset - 2, reset, 0]), &hello).await, "the reboot is gone");
    assert!(!opens(Some([reset - 1, 0, 0]), &hello).await, "the reset is gone");
    let other = SessionOpen { journal_id: JournalId::generate(), ..hello };
    assert!(opens(Some([0, 0, 0]), &other).await, "another journal took none of it");
}

/// A node with every kind in every state in flight, sent in its first session.
async fn busy_node(test: &TestDb, name: &str) -> (SessionOpen, Vec<(CommandId, CommandKind, CommandState)>) {
    let id = node(test.db(), name).await.id;
    let hello = session(id);
    let epoch = open(test.db(), &hello).await;
    let mut sent = Vec::new();
    for kind in CommandKind::ALL.iter().copied() {
        for state in [CommandState::Dispatched, CommandState::Acked, CommandState::Running] {
            let command = ready(test.db(), id, kind, &format!("{kind}{state}")).await;
            assert_eq!(ids(&claim_up_to(test.db(), id, epoch, [1, 1, 1]).await), [command]);
            match state {
                CommandState::Acked => said(test.db(), id, epoch, command, Step::Acked).await,
                CommandState::Running => said(test.db(), id, epoch, command, Step::Running).await,
                _ => {}
            }
            sent.push((command, kind, state));
        }
    }
    (hello, sent)
}

async fn reconnect(db: &Db, hello: &SessionOpen) -> (Epoch, Vec<Dispatch>) {
    commit!(db, |txn| {
        let epoch = sessions::open(&mut txn, hello).await.expect("open").epoch;
        let again = commands::resume(&mut txn, hello.node_id, epoch, hello.boot_id, hello.journal_id).await;
        (epoch, again.expect("resume"))
    })
}

/// What the node says in a status report of its own signature.
pub(super) async fn witness(db: &Db, hello: &SessionOpen) {
    let now = db.now().await.expect("now");
    commit!(db, |txn| {
        commands::witness(&mut txn, hello.node_id, hello.boot_id, hello.journal_id, now).await.expect("witness");
    });
}

#[tokio::test]
async fn a_reconnect_replays_in_order_and_leaves_to_the_reconciler_what_it_proves() {
    let test = TestDb::create().await;
    for (n, (new_boot, new_journal)) in
        [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
    {
        let (mut hello, sent) = busy_node(&test, &format!("m{n}")).await;
        witness(test.db(), &hello).await;
        if new_boot {
            hello.boot_id = BootId::generate();
        }
        if new_journal {
            hello.journal_id = JournalId::generate();
        }
        let (epoch, again) = reconnect(test.db(), &hello).await;
        let fate =
            |kind: CommandKind, state| on_reconnect(state, Some(kind.row()), new_boot, new_journal).expect("in flight");
        let replayed: Vec<CommandId> =
            sent.iter().filter(|(_, kind, state)| fate(*kind, *state) == Resume::Replay).map(|(id, ..)| *id).collect();
        assert_eq!(ids(&again), replayed, "boot {new_boot}, journal {new_journal}");
        for (id, kind, was) in &sent {
            let now = read(test.db(), *id).await;
            let replay = fate(*kind, *was) == Resume::Replay;
            assert_eq!(now.sent_in.is_some_and(|sent| sent.epoch == epoch && sent.boot_id == hello.boot_id), replay);
            let expected = if replay && new_journal { CommandState::Dispatched } else { *was };
            assert_eq!(now.state, expected, "a lost journal acknowledged nothing; a gateway ends nothing");
        }

        assert!(
            commands::proved(test.db(), hello.node_id).await.expect("proved").is_empty(),
            "not by the gateway's word"
        );
        witness(test.db(), &hello).await;
        let proved = commands::proved(test.db(), hello.node_id).await.expect("proved");
        let expected: Vec<Proved> = sent
            .iter()
            .map(|(id, kind, state)| Proved { id: *id, how: fate(*kind, *state) })
            .filter(|proved| proved.how != Resume::Replay)
            .collect();
        assert_eq!(proved, expected, "boot {new_boot}, journal {new_journal}");

        let (later, more) = reconnect(test.db(), &hello).await;
        assert_eq!((ids(&more), later), (replayed, epoch.next()), "another reconnect proves nothing more");
    }
}

#[tokio::test]
async fn what_was_cancelled_while_its_node_was_away_is_sent_again_as_that() {
    let test = TestDb::create().await;
    let (hello, sent) = busy_node(&test, "a").await;
    let cancelled = sent[0].0;
    commit!(test.db(), |txn| commands::cancel(&mut txn, cancelled).await.expect("cancel"));
    let (_, again) = reconnect(test.db(), &hello).await;
    let asked: Vec<CommandId> = again.iter().filter(|again| again.cancel).map(|again| again.id).collect();
    assert_eq!((asked, again.len()), (vec![cancelled], sent.len()));
}

#[tokio::test]
async fn what_is_sent_in_the_new_session_is_not_settled_by_the_old_word_of_the_node() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let mut hello = session(id);
    open(test.db(), &hello).await;
    witness(test.db(), &hello).await;
    (hello.boot_id, hello.journal_id) = (BootId::generate(), JournalId::generate());
    let (epoch, _) = reconnect(test.db(), &hello).await;
    let command = ready(test.db(), id, CommandKind::NodeReboot, "k").await;
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [command]);
    assert!(commands::proved(test.db(), id).await.expect("proved").is_empty());
    witness(test.db(), &hello).await;
    assert!(commands::proved(test.db(), id).await.expect("proved").is_empty());
}

#[tokio::test]
async fn a_report_from_an_earlier_boot_that_a_gateway_repeats_proves_nothing() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let (old, hello) = (session(id), session(id));
    let long_ago = test.db().now().await.expect("now");
    let repeat = async || {
        commit!(test.db(), |txn| {
            commands::witness(&mut txn, id, old.boot_id, old.journal_id, long_ago).await.expect("witness");
        });
    };
    repeat().await;
    test.advance(std::time::Duration::from_secs(61)).await;
    let epoch = open(test.db(), &hello).await;
    witness(test.db(), &hello).await;
    let command = ready(test.db(), id, CommandKind::NodeReboot, "k").await;
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [command]);
    // It lies about the boot, repeats what the node signed there, and then tells the truth again.
    reconnect(test.db(), &old).await;
    repeat().await;
    assert!(commands::proved(test.db(), id).await.expect("proved").is_empty());
    reconnect(test.db(), &hello).await;
    witness(test.db(), &hello).await;
    assert!(commands::proved(test.db(), id).await.expect("proved").is_empty());
}

#[tokio::test]
async fn a_report_of_a_time_to_come_blinds_nobody_to_the_boot_after_it() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let (early, hello) = (session(id), session(id));
    let epoch = open(test.db(), &early).await;
    let ahead = test.db().now().await.expect("now") + std::time::Duration::from_secs(365 * 86_400);
    commit!(test.db(), |txn| {
        commands::witness(&mut txn, id, early.boot_id, early.journal_id, ahead).await.expect("witness");
    });
    let command = ready(test.db(), id, CommandKind::NodeReboot, "k").await;
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [command]);
    test.advance(std::time::Duration::from_secs(301)).await;
    let rebooted = SessionOpen { journal_id: early.journal_id, ..hello };
    reconnect(test.db(), &rebooted).await;
    witness(test.db(), &rebooted).await;
    let proved = commands::proved(test.db(), id).await.expect("proved");
    assert_eq!(proved.iter().map(|proved| proved.id).collect::<Vec<_>>(), [command]);
}

#[tokio::test]
async fn a_boot_that_began_before_the_command_was_signed_is_not_its_doing() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let mut hello = session(id);
    let epoch = open(test.db(), &hello).await;
    witness(test.db(), &hello).await;
    hello.boot_id = BootId::generate();
    let began = test.db().now().await.expect("now");
    let command = ready(test.db(), id, CommandKind::NodeReboot, "k").await;
    assert_eq!(ids(&claim(test.db(), id, epoch).await), [command]);
    reconnect(test.db(), &hello).await;
    commit!(test.db(), |txn| {
        commands::witness(&mut txn, id, hello.boot_id, hello.journal_id, began).await.expect("witness");
    });
    assert!(commands::proved(test.db(), id).await.expect("proved").is_empty(), "the report was held back");
}

#[tokio::test]
async fn a_kind_that_this_version_does_not_know_is_neither_taken_nor_replayed() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let hello = session(id);
    let epoch = open(test.db(), &hello).await;
    let command = ready(test.db(), id, CommandKind::InventoryRefresh, "k").await;
    use sqlx::Connection as _;
    let mut conn = sqlx::PgConnection::connect(&test.config().url()).await.expect("a connection");
    let set = |set: &str| format!("UPDATE commands SET {set} WHERE id = '{}'", command.as_uuid());
    sqlx::query(sqlx::AssertSqlSafe(set("kind = 'moon.landing'"))).execute(&mut conn).await.expect("set");
    assert!(claim(test.db(), id, epoch).await.is_empty());
    let in_flight = set(&format!(
        "state = 'acked', epoch = {}, boot_id = '{}', journal_id = '{}'",
        epoch.to_i64(),
        hello.boot_id.as_uuid(),
        hello.journal_id.as_uuid()
    ));
    sqlx::query(sqlx::AssertSqlSafe(in_flight)).execute(&mut conn).await.expect("set");
    assert!(reconnect(test.db(), &hello).await.1.is_empty());
    assert_eq!(state(test.db(), command).await, CommandState::Acked);
    assert_eq!(read(test.db(), command).await.known_kind(), None);
}
