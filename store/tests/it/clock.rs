//! The one clock of the database.

use std::time::Duration;

use store::testing::TestDb;

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
