//! Facts about the chain of the audit log: what is written is chained and signed, and what is changed is found.

use std::time::Duration;

use pki::audit::{Checkpoint, Export, ExportEnd, Reader, Told};
use serde_json::json;
use store::{audit, queue, testing::probes};

use super::row;
use crate::reconcile::testing::House;

async fn write(house: &House, count: usize) {
    for n in 0..count {
        let mut txn = house.db.begin().await.expect("begin");
        audit::append(&mut txn, "ada", "nodes.cordon", &format!("node_{n}"), &json!({ "reason": "fan", "ratio": 0.5 }))
            .await
            .expect("appended");
        txn.commit().await.expect("commit");
    }
}

async fn look(house: &House) -> (String, String) {
    let mut txn = house.db.begin().await.expect("begin");
    queue::enqueue(&mut txn, &queue::AUDIT, ["all"]).await.expect("enqueued");
    txn.commit().await.expect("commit");
    house.jobs.settle().await.expect("settled");
    let outcome = store::outcomes::find(&house.db, "audit", "all").await.expect("read");
    outcome.map_or_else(Default::default, |outcome| (outcome.state, outcome.reason))
}

/// The whole log as a file.
async fn export(house: &House) -> String {
    let fleet = &house.shared.realm.fleet_id;
    let signer = house.keys.audit_signer(fleet);
    let anchor = house.keys.anchor(fleet);
    let vouch = audit::vouches(&house.db).await.expect("read").pop().expect("vouched");
    let mut file = Export::head(&anchor.to_bytes(), std::str::from_utf8(&vouch.vouch).expect("text"));
    let (mut from, mut last) = (0, None);
    for stored in audit::checkpoints(&house.db, 0, 100).await.expect("read") {
        let count = u32::try_from(stored.rows - from).expect("few");
        for line in audit::chained(&house.db, from, count).await.expect("read") {
            file.push_str(&Export::row(&row(line.pos, &line.entry).text()));
        }
        let text = String::from_utf8(stored.body).expect("text");
        file.push_str(&Export::checkpoint(&text, &stored.signature));
        from = stored.rows;
        last = Some(Checkpoint::read(&text).expect("a checkpoint"));
    }
    let last = last.expect("signed");
    let end = ExportEnd {
        rows: last.rows,
        checkpoint: last.digest(),
        anchor: anchor.pin(),
        exported_at: house.db.now().await.expect("time"),
    };
    file.push_str(&Export::end(&end.text(), &end.sign(&signer, last.key).expect("held")));
    file
}

fn rows(file: &str) -> Result<u64, pki::audit::Broken> {
    let mut reader = Reader::new(Told::default());
    file.lines().try_for_each(|line| reader.line(line))?;
    reader.finish().map(|verified| verified.rows)
}

#[tokio::test]
async fn what_is_written_is_chained_signed_once_it_is_old_enough_and_proven() {
    let house = House::new().await;
    write(&house, 5).await;
    assert_eq!(look(&house).await.0, "done");
    let standing = audit::standing(&house.db).await.expect("read");
    assert_eq!((standing.chained, standing.signed, standing.tail), (5, 0, 0));
    house.test.advance(Duration::from_secs(30)).await;
    look(&house).await;
    write(&house, 3).await;
    look(&house).await;
    house.test.advance(Duration::from_secs(30)).await;
    look(&house).await;
    let standing = audit::standing(&house.db).await.expect("read");
    assert_eq!((standing.chained, standing.signed, standing.tail), (8, 8, 0));
    assert_eq!(rows(&export(&house).await).expect("proven"), 8);
    let before = audit::last_checkpoint(&house.db).await.expect("read").expect("signed").n;
    house.test.advance(Duration::from_secs(600)).await;
    look(&house).await;
    let after = audit::last_checkpoint(&house.db).await.expect("read").expect("signed").n;
    assert_eq!(before, after, "an idle log gets no checkpoint");
}

#[tokio::test]
async fn a_line_that_was_changed_gets_no_checkpoint_and_that_is_told() {
    let house = House::new().await;
    write(&house, 3).await;
    look(&house).await;
    probes::steal(&house.db, "ALTER TABLE audit DISABLE TRIGGER ALL").await.expect("a superuser may");
    probes::steal(&house.db, "UPDATE audit SET actor = 'eve' WHERE subject = 'node_1'").await.expect("a superuser may");
    house.test.advance(Duration::from_secs(30)).await;
    assert_eq!(look(&house).await, ("wait".to_owned(), "audit-altered".to_owned()));
    assert_eq!(audit::standing(&house.db).await.expect("read").signed, 0);
}

#[tokio::test]
async fn a_line_that_was_changed_later_breaks_every_export_where_it_stands() {
    let house = House::new().await;
    write(&house, 3).await;
    look(&house).await;
    house.test.advance(Duration::from_secs(30)).await;
    look(&house).await;
    probes::steal(&house.db, "ALTER TABLE audit DISABLE TRIGGER ALL").await.expect("a superuser may");
    for change in [
        "UPDATE audit SET detail = '{}' WHERE subject = 'node_1'",
        "UPDATE audit SET at = at + interval '1 second' WHERE subject = 'node_1'",
        "UPDATE audit SET subject = 'node_9' WHERE subject = 'node_1'",
    ] {
        probes::steal(&house.db, change).await.expect("a superuser may");
        rows(&export(&house).await).expect_err(change);
    }
}

#[tokio::test]
async fn a_checkpoint_that_somebody_else_signed_is_the_last_one() {
    let house = House::new().await;
    write(&house, 3).await;
    look(&house).await;
    house.test.advance(Duration::from_secs(30)).await;
    look(&house).await;
    probes::steal(&house.db, "ALTER TABLE audit_checkpoints DISABLE TRIGGER ALL").await.expect("a superuser may");
    probes::steal(&house.db, "UPDATE audit_checkpoints SET signature = '\\x00'").await.expect("a superuser may");
    write(&house, 3).await;
    house.test.advance(Duration::from_secs(30)).await;
    assert_eq!(look(&house).await, ("wait".to_owned(), "audit-altered".to_owned()));
}
