//! Facts about the chain of the audit log: what is written is chained and signed, and what is changed is found.

use std::time::Duration;

use pki::audit::{Broken, Checkpoint, Export, ExportEnd, Reader, Told, Verified};
use serde_json::json;
use store::{audit, queue, testing::probes};

use super::{
    mend::{Mended, mend},
    row,
};
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
    let outcome = look_at(house, "all").await;
    outcome.map_or_else(Default::default, |outcome| (outcome.state, outcome.reason))
}

async fn look_at(house: &House, key: &str) -> Option<store::outcomes::Outcome> {
    let mut txn = house.db.begin().await.expect("begin");
    queue::enqueue(&mut txn, &queue::AUDIT, [key]).await.expect("enqueued");
    txn.commit().await.expect("commit");
    house.jobs.settle().await.expect("settled");
    store::outcomes::find(&house.db, "audit", key).await.expect("read")
}

async fn last(house: &House) -> Option<audit::Checkpoint> {
    audit::checkpoints_back(&house.db, None, 1).await.expect("read").pop()
}

/// Chained, and signed once it is old enough.
async fn signed(house: &House) {
    look(house).await;
    house.test.advance(Duration::from_secs(30)).await;
    assert_eq!(look(house).await.0, "done");
}

async fn steal(house: &House, sql: &str) {
    probes::steal(&house.db, sql).await.expect("a superuser may do all of it");
}

/// An operator has what stands in the way set aside.
async fn mended(house: &House) -> Mended {
    let signer = house.keys.audit_signer(&house.shared.realm.fleet_id);
    let mut txn = house.db.begin().await.expect("begin");
    let mended = mend(&house.db, &mut txn, &signer).await.expect("mended");
    if !mended.is_nothing() {
        let detail = mended.detail("ada", "a stolen password");
        audit::append(&mut txn, "api:ada", "audit.mend", "fleet", &detail).await.expect("appended");
        txn.commit().await.expect("commit");
    }
    mended
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
        outside: None,
    };
    file.push_str(&Export::end(&end.text(), &end.sign(&signer, last.key).expect("held")));
    file
}

fn verified(file: &str) -> Result<Verified, Broken> {
    let mut reader = Reader::new(Told::default());
    file.lines().try_for_each(|line| reader.line(line))?;
    reader.finish()
}

fn rows(file: &str) -> Result<u64, Broken> {
    verified(file).map(|verified| verified.rows)
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
    let before = last(&house).await.expect("signed").n;
    house.test.advance(Duration::from_secs(600)).await;
    look(&house).await;
    let after = last(&house).await.expect("signed").n;
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

const ALTERED: (&str, &str) = ("wait", "audit-altered");

#[tokio::test]
async fn what_somebody_wrote_into_the_chain_is_set_aside_and_named_and_the_chain_goes_on() {
    let house = House::new().await;
    write(&house, 3).await;
    signed(&house).await;
    write(&house, 2).await;
    look(&house).await;
    steal(
        &house,
        "INSERT INTO audit (id, actor, action, subject) VALUES (gen_random_uuid(), 'eve', 'nodes.cordon', 'planted')",
    )
    .await;
    steal(&house, "INSERT INTO audit_chain (pos, seq, link) SELECT 5, seq, decode(repeat('00', 32), 'hex') FROM audit WHERE subject = 'planted'").await;
    steal(&house, "INSERT INTO audit_checkpoints (n, rows, body, signature) VALUES (9223372036854775807, 6, 'x', 'y')")
        .await;
    write(&house, 1).await;
    house.test.advance(Duration::from_secs(30)).await;
    let (state, reason) = look(&house).await;
    assert_eq!((state.as_str(), reason.as_str()), ALTERED);
    assert_eq!(audit::standing(&house.db).await.expect("read").chained, 6, "nothing is chained behind it");

    let mended = mended(&house).await;
    assert_eq!((mended.checkpoint, mended.rows, mended.again), (Some(0), 3, 2));
    assert_eq!((mended.lines.count, mended.checkpoints.count), (1, 1));
    assert_eq!((mended.lines.named[0].pos, mended.checkpoints.named[0].n), (5, i64::MAX.unsigned_abs()));
    signed(&house).await;
    let found = verified(&export(&house).await).expect("proven");
    // Three and two and one that were written, the planted line as any line, and the line that names what was set aside.
    assert_eq!((found.rows, found.mended.len()), (8, 1));
    assert_eq!(found.mended[0].detail["lines"]["named"][0]["pos"], 5);
    assert!(self::mended(&house).await.is_nothing(), "nothing stands in the way any more");
}

#[tokio::test]
async fn a_line_that_was_changed_before_it_was_signed_is_named_as_it_was_found_and_not_chained_again() {
    let house = House::new().await;
    write(&house, 2).await;
    signed(&house).await;
    write(&house, 3).await;
    look(&house).await;
    steal(&house, "ALTER TABLE audit DISABLE TRIGGER ALL").await;
    steal(&house, "UPDATE audit SET actor = 'eve' WHERE seq = (SELECT seq FROM audit_chain WHERE pos = 3)").await;
    house.test.advance(Duration::from_secs(30)).await;
    assert_eq!(look(&house).await.1, "audit-altered");
    steal(&house, "ALTER TABLE audit ENABLE TRIGGER ALL").await;

    let mended = mended(&house).await;
    assert_eq!((mended.lines.count, mended.again), (1, 2));
    assert!(mended.lines.named[0].text.contains("\"actor\":\"eve\""), "{}", mended.lines.named[0].text);
    signed(&house).await;
    let file = export(&house).await;
    assert_eq!(rows(&file).expect("proven"), 5);
    let seqs: Vec<i64> = audit::list(&house.db, None, None, 10)
        .await
        .expect("read")
        .iter()
        .filter(|line| line.actor == "eve")
        .map(|line| line.seq)
        .collect();
    assert_eq!(audit::were_set_aside(&house.db, &seqs).await.expect("read").into_iter().collect::<Vec<_>>(), seqs);
}

#[tokio::test]
async fn no_checkpoint_of_ours_is_set_aside() {
    let house = House::new().await;
    for _ in 0..3 {
        write(&house, 2).await;
        signed(&house).await;
    }
    let before = export(&house).await;
    assert!(mended(&house).await.is_nothing());
    steal(&house, "ALTER TABLE audit_checkpoints DISABLE TRIGGER ALL").await;
    steal(&house, "UPDATE audit_checkpoints SET signature = '\\x00' WHERE n = 2").await;
    steal(&house, "ALTER TABLE audit_checkpoints ENABLE TRIGGER ALL").await;
    let mended = mended(&house).await;
    assert_eq!((mended.checkpoint, mended.rows, mended.again), (Some(1), 4, 2));
    signed(&house).await;
    let after = export(&house).await;
    assert_eq!(rows(&after).expect("proven"), 7);
    // What two checkpoints stood by is there to the letter.
    let stood: Vec<&str> = before.lines().skip(3).take(6).collect();
    assert_eq!(after.lines().skip(3).take(6).collect::<Vec<_>>(), stood);
}

#[tokio::test]
async fn lines_at_the_front_of_all_times_and_numbers_are_lines_and_stop_nobody() {
    let house = House::new().await;
    write(&house, 1).await;
    for values in ["-7, now(), '{}'", "-6, 'infinity', '{}'", "-5, '-infinity', '{}'", "-4, now(), '{\"a\": 1e400}'"] {
        let sql = format!(
            "INSERT INTO audit (seq, at, detail, id, actor, action, subject) OVERRIDING SYSTEM VALUE
             SELECT v.*, gen_random_uuid(), 'eve', 'x', 'y' FROM (VALUES ({values})) AS v"
        );
        steal(
            &house,
            &sql.replace("'{", "jsonb '{").replace("'inf", "timestamptz 'inf").replace("'-inf", "timestamptz '-inf"),
        )
        .await;
    }
    // Tails of lines that are not there, and of one that is chained.
    steal(&house, "INSERT INTO audit_tail SELECT generate_series(-5000, -1000)").await;
    signed(&house).await;
    steal(&house, "INSERT INTO audit_tail SELECT seq FROM audit ON CONFLICT DO NOTHING").await;
    write(&house, 1).await;
    signed(&house).await;
    assert_eq!(rows(&export(&house).await).expect("proven"), 6);
    let standing = audit::standing(&house.db).await.expect("read");
    assert_eq!((standing.chained, standing.signed, standing.tail), (6, 6, 0));
    assert_eq!(audit::list(&house.db, None, None, 10).await.expect("read").len(), 6);
}

#[tokio::test]
async fn a_line_that_is_gone_is_told_and_set_aside() {
    let house = House::new().await;
    write(&house, 3).await;
    look(&house).await;
    steal(&house, "ALTER TABLE audit DISABLE TRIGGER ALL").await;
    steal(&house, "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit_chain)").await;
    steal(&house, "ALTER TABLE audit ENABLE TRIGGER ALL").await;
    house.test.advance(Duration::from_secs(30)).await;
    assert_eq!(look(&house).await.1, "audit-altered");
    let mended = mended(&house).await;
    assert_eq!((mended.checkpoint, mended.lines.count, mended.again), (None, 1, 2));
    signed(&house).await;
    assert_eq!(rows(&export(&house).await).expect("proven"), 3);
}

#[tokio::test]
async fn nothing_goes_from_the_chain_but_by_being_set_aside() {
    let house = House::new().await;
    write(&house, 1).await;
    signed(&house).await;
    for sql in [
        "DELETE FROM audit_chain",
        "UPDATE audit_chain SET pos = 9",
        "DELETE FROM audit_checkpoints",
        "TRUNCATE audit_checkpoints",
    ] {
        probes::steal(&house.db, sql).await.expect_err(sql);
    }
}

#[tokio::test]
async fn a_look_at_a_part_forgets_no_line_that_another_part_has() {
    let house = House::new().await;
    write(&house, 6).await;
    signed(&house).await;
    let glances = super::look::Glances::default();
    let seen = async |known| {
        let found = glances.look_at(&house.db, known, 2).await.expect("looked");
        found.map(|outside| outside.to_string())
    };
    steal(&house, "ALTER TABLE audit_chain DISABLE TRIGGER USER").await;
    steal(&house, "DELETE FROM audit_chain WHERE seq = (SELECT min(seq) FROM audit)").await;
    let found = seen(false).await.expect("found");
    assert!(found.starts_with("1 line "), "{found}");
    assert_eq!(seen(false).await, None, "another part, without a memory of the first");
    assert_eq!(seen(true).await, Some(found), "what was told is told until it is over");
}

#[tokio::test]
async fn lines_that_were_written_while_the_triggers_were_off_are_told_until_they_are_set_aside_by_name() {
    let house = House::new().await;
    write(&house, 2).await;
    signed(&house).await;
    assert_eq!(look_at(&house, super::OUTSIDE_KEY).await.expect("looked at").state, "done");
    steal(&house, "ALTER TABLE audit DISABLE TRIGGER USER").await;
    write(&house, 1).await;
    steal(&house, "ALTER TABLE audit ENABLE TRIGGER USER").await;
    write(&house, 1).await;
    let unseen = audit::list(&house.db, None, None, 10).await.expect("read")[1].clone();
    let told = look_at(&house, super::OUTSIDE_KEY).await.expect("told");
    assert_eq!((told.state.as_str(), told.reason.as_str()), ("wait", "audit-outside"));
    assert!(told.message.starts_with("1 line ") && told.message.contains(&unseen.id.to_string()), "{}", told.message);
    signed(&house).await;
    assert_eq!(rows(&export(&house).await).expect("proven"), 3, "it stands in no file");

    let mended = mended(&house).await;
    assert_eq!((mended.outside.count, mended.lines.count, mended.again), (1, 0, 0));
    assert!(mended.outside.named[0].text.contains("node_0"), "{:?}", mended.outside);
    assert_eq!(look_at(&house, super::OUTSIDE_KEY).await.expect("told").state, "done");
    signed(&house).await;
    let found = verified(&export(&house).await).expect("proven");
    assert_eq!((found.rows, found.mended.len()), (4, 1));
    assert_eq!(found.mended[0].detail["outside"]["named"][0]["id"], unseen.id.to_string());
    assert!(audit::were_set_aside(&house.db, &[unseen.seq]).await.expect("read").contains(&unseen.seq));
}
