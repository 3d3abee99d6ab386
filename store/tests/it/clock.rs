//! The one clock of the database.

use std::{sync::Arc, time::Duration};

use schema::clock::{Clock as _, ManualClock};
use store::{clock::DatabaseClock, testing::TestDb};

#[tokio::test]
async fn the_clock_moves_for_every_connection_and_for_no_other_database() {
    let (test, other) = (TestDb::create().await, TestDb::create().await);
    let before = test.db().now().await.expect("now");
    test.advance(Duration::from_secs(3_600)).await;
    test.advance(Duration::from_secs(3_600)).await;
    let after = test.db().now().await.expect("now");
    assert!(after.duration_since(before).as_secs() >= 7_200);
    assert!(other.db().now().await.expect("now").duration_since(before).as_secs() < 3_600);
}

#[tokio::test]
async fn a_process_goes_by_the_databases_clock_whatever_its_hosts_says_and_wherever_the_databases_is_set() {
    let test = TestDb::create().await;
    let host = ManualClock::new("2011-03-01T00:00:00Z".parse().expect("a time"));
    let clock = DatabaseClock::ask(test.db(), Arc::new(host.clone())).await.expect("asked");
    let is_the_databases = async || {
        let apart = clock.now().duration_since(test.db().now().await.expect("now"));
        apart.abs().as_secs() < 1_800
    };
    assert!(is_the_databases().await && clock.host_is_off() < 0);
    host.set("2040-03-01T00:00:00Z".parse().expect("a time"));
    assert!(is_the_databases().await && clock.host_is_off() > 0);
    test.advance(Duration::from_secs(7_200)).await;
    clock.follow(test.db()).await.expect("asked again");
    assert!(is_the_databases().await);
}

#[test]
fn no_migration_reads_another_clock() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations");
    for entry in std::fs::read_dir(dir).expect("the migrations") {
        let path = entry.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("a text").to_lowercase();
        let statements = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"))
            .collect::<Vec<_>>()
            .join("\n")
            .replace("compute_now()", "");
        for clock in ["now()", "clock_timestamp", "current_timestamp", "transaction_timestamp", "localtime"] {
            assert!(!statements.contains(clock), "{} reads {clock}", path.display());
        }
    }
}
