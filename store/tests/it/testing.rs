//! The databases that tests leave behind.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use store::testing::TestDb;

#[tokio::test]
async fn the_next_test_removes_the_databases_of_processes_that_are_gone_and_of_no_other() {
    let test = TestDb::create().await;
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    let mut gone = std::process::Command::new("true").spawn().expect("a process starts");
    gone.wait().expect("it ends");
    let left = format!("test_{}_left", gone.id());
    conn.execute(AssertSqlSafe(format!("CREATE DATABASE {left} TEMPLATE template0"))).await.expect("a database");

    let _next = TestDb::create().await;
    let all: Vec<String> =
        sqlx::query_scalar("SELECT datname FROM pg_database").fetch_all(&mut conn).await.expect("databases are listed");
    assert!(!all.contains(&left), "{all:?}");
    let own: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&mut conn).await.expect("a name");
    assert!(all.contains(&own), "{all:?}");
}
