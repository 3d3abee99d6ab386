//! Signatures are put down beside what they are of, and rows are locked in one order.

use super::*;

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
