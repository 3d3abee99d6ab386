//! Facts about events, in a database that was restored too.

use serde_json::json;
use store::{
    Db,
    outbox::{self, Cursor, Event, NewEvent},
    secrets,
    testing::{TestDb, events, probes},
};

async fn write(db: &Db, subject: &str) {
    let mut txn = db.begin().await.expect("begin");
    let event = NewEvent::new(outbox::COMMAND_QUEUED, subject, json!({}));
    outbox::append(&mut txn, &[event]).await.expect("written");
    txn.commit().await.expect("commit");
}

fn subjects(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.subject.as_str()).collect()
}

async fn put(db: &Db, name: &str) -> u64 {
    let name = name.parse().expect("a name");
    let mut txn = db.begin().await.expect("begin");
    let version = secrets::next_version(&mut txn, &name).await.expect("a version");
    secrets::put(&mut txn, &name, version, b"sealed", "test").await.expect("put");
    txn.commit().await.expect("commit");
    version
}

#[tokio::test]
async fn a_restored_database_shows_what_was_before_and_then_what_is_new() {
    let test = TestDb::create().await;
    let db = test.db();
    assert!(!outbox::begin_life(db).await.expect("a first start"));
    write(db, "one").await;
    write(db, "two").await;
    assert!(!outbox::begin_life(db).await.expect("another start"), "the same server goes on with the same life");
    assert_eq!(put(db, "ntp/key").await, 1);

    probes::restored(db).await.expect("restored");
    let ahead = outbox::list(db, Cursor::default(), &[], 9).await.expect("listed");
    assert_eq!(ahead.last, None, "transactions of the other server lie ahead");
    assert!(outbox::begin_life(db).await.expect("a start elsewhere"));
    assert!(!outbox::begin_life(db).await.expect("once"));
    write(db, "three").await;

    let all = events(db, Cursor::default(), &[], 3).await;
    assert_eq!(subjects(&all), ["one", "two", "three"]);
    assert_eq!(subjects(&events(db, all[1].cursor, &[], 1).await), ["three"], "who had followed goes on");
    assert_eq!(outbox::newest(db).await.expect("newest"), all[2].cursor);
    let written = all[1].cursor.to_string();
    assert_eq!(written.parse::<Cursor>().expect("a cursor"), all[1].cursor);
    assert_eq!(put(db, "ntp/key").await, 10_001, "a version that was put after the backup does not come back");
}

#[tokio::test]
async fn a_dump_that_was_restored_on_its_own_server_gives_no_version_out_again() {
    let test = TestDb::create().await;
    let db = test.db();
    assert!(!outbox::begin_life(db).await.expect("a first start"));
    assert_eq!(put(db, "ntp/key").await, 1);
    probes::restored_beside(db).await.expect("restored");
    assert!(outbox::begin_life(db).await.expect("a start"));
    assert!(!outbox::begin_life(db).await.expect("once"));
    assert_eq!(put(db, "ntp/key").await, 10_001);
    assert_eq!(put(db, "of/after-the-backup").await, 10_001, "a name that the backup does not know");
}

#[tokio::test]
async fn where_a_database_is_was_noted_more_shortly_once_and_it_goes_on_there() {
    let test = TestDb::create().await;
    let db = test.db();
    outbox::begin_life(db).await.expect("a first start");
    let shorter = "UPDATE outbox_lives SET server = (SELECT system_identifier FROM pg_control_system())::text || '/1'";
    store::testing::steal(db, shorter).await.expect("noted");
    assert!(!outbox::begin_life(db).await.expect("a start"));
}
