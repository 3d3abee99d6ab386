//! Signatures are put down beside what they are of, and rows are locked in one order.

use schema::id::JournalId;
use store::poke::{Heard, Listener, Poke};

use super::{resume::witness, *};

#[tokio::test]
async fn a_signature_stands_beside_the_body_that_it_is_of_and_never_beside_another() {
    let test = TestDb::create().await;
    let (db, node) = (test.db(), node(test.db(), "a").await.id);
    let plain = enqueue(db, node, CommandKind::InventoryRefresh, "plain").await.id;
    let whole = enqueue(db, node, CommandKind::LogsCollect, "whole").await.id;
    let before = commands::unsigned(db, node, 0, 10).await.expect("unsigned");
    let both = [signed(whole, Some(b"the whole body")), signed(plain, None)];
    let by_this = commit!(db, |txn| commands::sign(&mut txn, &both).await.expect("signed"));
    assert_eq!(by_this.len(), 2);
    let sent = |id| async move { commands::sent(db, id).await.expect("sent").expect("signed").0 };
    assert_eq!(sent(plain).await, before[0].command.body);
    assert_eq!(sent(whole).await, b"the whole body");

    let late = [signed(whole, Some(b"another body"))];
    assert!(commit!(db, |txn| commands::sign(&mut txn, &late).await.expect("nothing")).is_empty());
    assert_eq!(sent(whole).await, b"the whole body");
}

#[tokio::test]
async fn what_is_signed_alone_is_told_to_the_gateways_as_what_is_signed_in_a_transaction() {
    let test = TestDb::create().await;
    let (db, node) = (test.db(), node(test.db(), "a").await.id);
    let first = enqueue(db, node, CommandKind::InventoryRefresh, "first").await.id;
    let second = enqueue(db, node, CommandKind::DiagNvml, "second").await.id;
    let mut listener = Listener::connect(db).await.expect("a listener");
    let line = db.dedicated();
    assert_eq!(commands::sign_alone(&line, &[signed(first, None)]).await.expect("signed"), [first]);
    assert_eq!(listener.next().await, Heard::Poke(Poke::Commands(node)));
    assert!(commands::sign_alone(&line, &[signed(first, None)]).await.expect("nothing").is_empty());
    assert_eq!(commit!(db, |txn| commands::sign(&mut txn, &[signed(second, None)]).await.expect("signed")), [second]);
    assert_eq!(listener.next().await, Heard::Poke(Poke::Commands(node)));
}

#[tokio::test]
async fn signing_waits_for_a_row_and_holds_none_that_comes_after_it() {
    let test = TestDb::create().await;
    let (db, node) = (test.db(), node(test.db(), "a").await.id);
    let first = enqueue(db, node, CommandKind::InventoryRefresh, "first").await.id;
    let second = enqueue(db, node, CommandKind::LogsCollect, "second").await.id;
    assert!(first < second);
    let mut held = db.begin().await.expect("begin");
    commands::lock(&mut held, node, &[first]).await.expect("locked");
    let signs = async {
        let both = [signed(second, Some(b"the whole body")), signed(first, None)];
        commit!(db, |txn| commands::sign(&mut txn, &both).await.expect("signed"))
    };
    let holds = async {
        probes::somebody_waits(db).await.expect("asked");
        commands::lock(&mut held, node, &[second]).await.expect("nobody has it");
        held.commit().await.expect("commit");
    };
    let (by_this, ()) = tokio::join!(signs, holds);
    assert_eq!(by_this.len(), 2);
}

/// A boot that is signed for the journal of this session, as its machine said it.
async fn bound(db: &Db, hello: &SessionOpen) -> (CommandId, Vec<u8>) {
    let id = enqueue(db, hello.node_id, CommandKind::NodeReboot, "boot").await.id;
    let queued = commands::unsigned(db, hello.node_id, 0, 9).await.expect("read").remove(0).command.body;
    assert_eq!(sign_for(db, id, hello.journal_id).await, [id]);
    (id, queued)
}

async fn sign_for(db: &Db, id: CommandId, journal: JournalId) -> Vec<CommandId> {
    let node = read(db, id).await.node_id;
    let queued = commands::unsigned(db, node, 0, 9).await.expect("read").remove(0).command.body;
    let body = CommandBody { journal: Some(journal), ..CommandBody::read(&queued).expect("a body") };
    let signed = Signed { journal: Some(journal), ..signed(id, Some(&body.to_bytes())) };
    commit!(db, |txn| commands::sign(&mut txn, &[signed]).await.expect("signed"))
}

#[tokio::test]
async fn what_is_for_a_journal_goes_to_no_other_and_is_signed_anew_once_its_machine_names_another() {
    let test = TestDb::create().await;
    let db = test.db();
    let old = session(node(db, "a").await.id);
    open(db, &old).await;
    witness(db, &old).await;
    let (id, queued) = bound(db, &old).await;

    let new = SessionOpen { journal_id: JournalId::generate(), ..old.clone() };
    let epoch = open(db, &new).await;
    assert!(claim(db, new.node_id, epoch).await.is_empty(), "it is for the journal of before");
    assert!(read(db, id).await.signed_at.is_some(), "by a gateway's word nothing is signed anew");

    witness(db, &new).await;
    let again = commands::unsigned(db, new.node_id, 0, 9).await.expect("read").remove(0);
    assert_eq!((again.command.id, again.command.body), (id, queued), "as it was queued");
    assert!(sign_for(db, id, old.journal_id).await.is_empty(), "whoever signs late");
    assert_eq!(sign_for(db, id, new.journal_id).await, [id]);
    let sent = claim(db, new.node_id, epoch).await.remove(0);
    assert_eq!(CommandBody::read(&sent.body).expect("a body").journal, Some(new.journal_id));
}

#[tokio::test]
async fn what_was_sent_before_is_never_signed_for_another_journal_and_its_machine_says_so() {
    let test = TestDb::create().await;
    let db = test.db();
    let old = session(node(db, "a").await.id);
    let epoch = open(db, &old).await;
    witness(db, &old).await;
    let (id, _) = bound(db, &old).await;
    assert_eq!(ids(&claim(db, old.node_id, epoch).await), [id]);
    // A gateway's word that it never went.
    commands::release(db, &[(id, old.node_id, epoch)]).await.expect("released");

    let new = SessionOpen { journal_id: JournalId::generate(), ..old.clone() };
    let epoch = open(db, &new).await;
    witness(db, &new).await;
    assert!(commands::unsigned(db, new.node_id, 0, 9).await.expect("read").is_empty());
    let sent = claim(db, new.node_id, epoch).await.remove(0);
    assert_eq!(CommandBody::read(&sent.body).expect("a body").journal, Some(old.journal_id));
}

#[tokio::test]
async fn a_machine_that_said_that_it_looks_for_its_journal_is_held_to_it() {
    let test = TestDb::create().await;
    let db = test.db();
    let hello = session(node(db, "a").await.id);
    let known = async || {
        let journals = commands::journals(db, &[hello.node_id].into()).await.expect("read");
        journals.get(&hello.node_id).map(|journal| (journal.id, journal.binds))
    };
    assert_eq!(known().await, None);
    witness(db, &hello).await;
    assert_eq!(known().await, Some((hello.journal_id, false)));
    commit!(db, |txn| commands::binds(&mut txn, hello.node_id).await.expect("kept"));
    assert_eq!(known().await, Some((hello.journal_id, true)));
    let new = SessionOpen { journal_id: JournalId::generate(), ..hello.clone() };
    witness(db, &new).await;
    assert_eq!(known().await, Some((new.journal_id, true)), "a gateway may keep it from saying so again");
}
