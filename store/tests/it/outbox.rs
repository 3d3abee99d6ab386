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
    assert!(put(db, "ntp/key").await > 10_000, "a version that was put after the backup does not come back");
}

#[tokio::test]
async fn a_dump_that_was_restored_on_its_own_server_gives_no_version_out_again() {
    let test = TestDb::create().await;
    let db = test.db();
    assert!(!outbox::begin_life(db).await.expect("a first start"));
    assert_eq!(put(db, "ntp/key").await, 1);
    assert_eq!(outbox::restored_at(db).await.expect("read"), None);
    probes::restored_beside(db).await.expect("restored");
    assert!(outbox::begin_life(db).await.expect("a start"));
    assert!(!outbox::begin_life(db).await.expect("once"));
    assert!(outbox::restored_at(db).await.expect("read").is_some(), "what was restored is known as that");
    assert!(put(db, "ntp/key").await > 10_000);
    assert!(put(db, "of/after-the-backup").await > 10_000, "a name that the backup does not know");
}

#[tokio::test]
async fn two_restores_of_one_dump_share_no_version_and_no_place_of_an_event() {
    let test = TestDb::create().await;
    let db = test.db();
    outbox::begin_life(db).await.expect("a first start");
    put(db, "ntp/key").await;
    probes::dumped(db).await.expect("dumped");
    let mut lives = Vec::new();
    for _ in 0..2 {
        probes::restored_again(db).await.expect("restored");
        test.advance(std::time::Duration::from_secs(5)).await;
        assert!(outbox::begin_life(db).await.expect("a start"));
        write(db, "here").await;
        let seen = events(db, Cursor::default(), &[], 1).await;
        lives.push((put(db, "ntp/key").await, put(db, "new/name").await, seen[seen.len() - 1].cursor));
    }
    let [(known, new, cursor), (known_again, new_again, cursor_again)] = lives[..] else { panic!("two lives") };
    assert!(known_again > known && new_again > new, "{lives:?}");
    let life = cursor.to_string().split('-').next().expect("a life").to_owned();
    let further: Cursor = format!("{life}-{}-1", u32::MAX).parse().expect("a cursor");
    assert!(further < cursor_again, "{further} hides {cursor_again}: the first life had gone further");
}

#[tokio::test]
async fn a_clock_that_went_back_between_two_restores_leaves_versions_and_lives_going_up() {
    let test = TestDb::create().await;
    let db = test.db();
    outbox::begin_life(db).await.expect("a first start");
    store::testing::steal(db, "UPDATE outbox_lives SET life = 2000000000").await.expect("a life of the future");
    let before = put(db, "ntp/key").await;
    probes::restored_beside(db).await.expect("restored");
    assert!(outbox::begin_life(db).await.expect("a start"));
    assert!(put(db, "ntp/key").await > before);
    assert!(put(db, "new/name").await > 2_000_000_000);
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
