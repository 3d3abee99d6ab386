//! Facts about the chain over the audit log: who writes it, and what stays.

use schema::digest::Digest;
use serde_json::json;
use store::{
    Db,
    audit::{self, Standing},
    testing::{TestDb, steal},
};

use super::commit;

async fn say(db: &Db, subject: &str) {
    commit!(db, |txn| audit::append(&mut txn, "ada", "test.said", subject, &json!({})).await.expect("a line"));
}

/// The tail as links, each of a digest of its own.
async fn links(db: &Db) -> Vec<(i64, Digest)> {
    let tail = audit::tail(db, 9).await.expect("read");
    tail.iter().map(|entry| (entry.seq, Digest::of(entry.seq.to_be_bytes()))).collect()
}

async fn extend(db: &Db, from: u64, links: &[(i64, Digest)]) -> bool {
    let mut txn = db.begin().await.expect("begin");
    let done = audit::extend(&mut txn, from, links).await.is_ok();
    if done {
        txn.commit().await.expect("commit");
    }
    done
}

async fn put_checkpoint(db: &Db, n: u64, rows: u64) -> bool {
    let mut txn = db.begin().await.expect("begin");
    let done = audit::put_checkpoint(&mut txn, n, rows, b"body", b"signature").await.is_ok();
    if done {
        txn.commit().await.expect("commit");
    }
    done
}

async fn standing(db: &Db) -> (u64, u64, u64) {
    let Standing { chained, signed, tail } = audit::standing(db).await.expect("read");
    (chained, signed, tail)
}

#[tokio::test]
async fn a_line_is_in_the_tail_until_it_has_its_place() {
    let test = TestDb::create().await;
    let db = test.db();
    let before = standing(db).await;
    assert_eq!((before.0, before.1), (0, 0));
    say(db, "a").await;
    let mut gone = db.begin().await.expect("begin");
    audit::append(&mut gone, "ada", "test.said", "never", &json!({})).await.expect("a line");
    drop(gone);
    say(db, "b").await;
    assert_eq!(standing(db).await, (0, 0, before.2 + 2));
    let links = links(db).await;
    assert!(extend(db, 0, &links).await);
    assert_eq!(standing(db).await, (links.len() as u64, 0, 0));
    let chained = audit::chained(db, 0, 9).await.expect("read");
    assert_eq!(chained.iter().map(|one| (one.entry.seq, one.link)).collect::<Vec<_>>(), links);
    assert_eq!(chained.iter().map(|one| one.pos).collect::<Vec<_>>(), (0..links.len() as u64).collect::<Vec<_>>());
    let of = audit::chained_of(db, "b", 9).await.expect("read");
    assert_eq!(of.iter().map(|one| one.entry.subject.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test]
async fn of_two_writers_the_one_that_did_not_see_the_other_writes_nothing() {
    let test = TestDb::create().await;
    let db = test.db();
    say(db, "a").await;
    let first = links(db).await;
    assert!(extend(db, 0, &first).await);
    say(db, "b").await;
    let second = links(db).await;
    assert!(!extend(db, 0, &second).await, "the place is taken");
    let (chained, ..) = standing(db).await;
    assert!(!extend(db, chained, &first).await, "the line has its place");
    assert_eq!(standing(db).await.2, second.len() as u64, "and is still to come");
    assert!(extend(db, chained, &second).await);
}

#[tokio::test]
async fn a_checkpoint_has_its_number_for_good_and_stands_by_the_lines_before_it() {
    let test = TestDb::create().await;
    let db = test.db();
    assert_eq!(audit::checkpoint_over(db, 0).await.expect("read"), None);
    for (n, rows) in [(0, 2), (1, 5), (2, 5), (3, 9)] {
        assert!(put_checkpoint(db, n, rows).await);
    }
    assert!(!put_checkpoint(db, 1, 7).await, "another process was faster");
    let over = |pos| async move { audit::checkpoint_over(db, pos).await.expect("read").map(|one| one.n) };
    assert_eq!([over(0).await, over(1).await, over(2).await, over(8).await], [Some(0), Some(0), Some(1), Some(3)]);
    assert_eq!(over(9).await, None);
    let back = |before, limit| async move {
        let page = audit::checkpoints_back(db, before, limit).await.expect("read");
        page.into_iter().map(|one| one.n).collect::<Vec<_>>()
    };
    assert_eq!((back(None, 2).await, back(Some(2), 9).await), (vec![3, 2], vec![1, 0]));
    let on = audit::checkpoints(db, 2, 9).await.expect("read");
    assert_eq!(on.into_iter().map(|one| (one.n, one.rows)).collect::<Vec<_>>(), [(2, 5), (3, 9)]);
    assert_eq!(standing(db).await.1, 9);
}

#[tokio::test]
async fn nothing_of_it_is_changed_or_taken_away() {
    let test = TestDb::create().await;
    let db = test.db();
    say(db, "a").await;
    assert!(extend(db, 0, &links(db).await).await && put_checkpoint(db, 0, 1).await);
    for change in [
        "UPDATE audit_chain SET link = sha256('x')",
        "DELETE FROM audit_chain",
        "UPDATE audit_checkpoints SET rows = 0",
        "DELETE FROM audit_checkpoints",
        "TRUNCATE audit_checkpoints",
    ] {
        assert!(steal(db, change).await.is_err(), "{change}");
    }
}

#[tokio::test]
async fn what_is_set_aside_is_chained_anew_where_it_is_said_so() {
    let test = TestDb::create().await;
    let db = test.db();
    for subject in ["a", "b", "c"] {
        say(db, subject).await;
    }
    let links = links(db).await;
    let places = links.len() as u64;
    assert!(extend(db, 0, &links).await);
    assert!(put_checkpoint(db, 0, places - 2).await && put_checkpoint(db, 1, places).await);
    let (odd, again) = (links[links.len() - 2].0, links[links.len() - 1].0);
    let aside = commit!(db, |txn| {
        audit::lock(&mut txn).await.expect("locked");
        audit::set_aside(&mut txn, Some(0), places - 2, &[again]).await.expect("set aside")
    });
    assert_eq!(aside, 1);
    assert_eq!(standing(db).await, (places - 2, places - 2, 1));
    assert_eq!(audit::were_set_aside(db, &[odd, again]).await.expect("read").into_iter().collect::<Vec<_>>(), [odd]);
}

#[tokio::test]
async fn glances_find_a_line_of_no_chain_wherever_it_is_and_read_no_more_than_they_are_told() {
    let test = TestDb::create().await;
    let db = test.db();
    for subject in ["a", "b", "c", "d", "e", "f"] {
        say(db, subject).await;
    }
    assert!(extend(db, 0, &links(db).await).await);
    let all = audit::list(db, None, None, 100).await.expect("read");
    let number = |nth: usize| all[all.len() - 1 - nth].seq;
    let glance = async |looked| audit::glance(db, looked, 2).await.expect("looked");
    // Two lines at a time, until none is left; then from the beginning.
    let (mut looked, mut rounds) = (None, Vec::new());
    loop {
        let (found, upto) = glance(looked).await;
        assert!(!found, "nothing is there");
        rounds.push(upto);
        looked = upto;
        if upto.is_none() {
            break;
        }
    }
    assert_eq!(rounds.len(), all.len() / 2 + 1, "{rounds:?}");

    steal(db, "ALTER TABLE audit_chain DISABLE TRIGGER USER").await.expect("a thief");
    let unchain = format!("DELETE FROM audit_chain WHERE seq = {}", number(1));
    steal(db, &unchain).await.expect("a thief");
    assert!(glance(None).await.0, "an old line, when its turn comes");
    assert!(!glance(Some(number(2))).await.0, "its turn is over");
    let unchain = format!("DELETE FROM audit_chain WHERE seq = {}", number(all.len() - 1));
    steal(db, &unchain).await.expect("a thief");
    assert!(glance(Some(number(2))).await.0, "the newest line, each time");
    let outside = audit::outside(db, 1).await.expect("read");
    assert_eq!((outside.count, outside.first[0].seq), (2, number(1)));
    let aside = commit!(db, |txn| audit::set_outside_aside(&mut txn).await.expect("set aside"));
    assert_eq!((aside, audit::outside(db, 9).await.expect("read").count), (2, 0));
}
