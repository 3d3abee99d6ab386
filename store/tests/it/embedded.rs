//! The private server: side by side, killed and back, found and not found.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use store::{
    Db,
    embedded::{Config, Embedded, EmbeddedError},
    migrate,
};
use tempfile::TempDir;

fn config(dir: &Path) -> Config {
    Config { dir: dir.to_owned(), fast: true }
}

/// A directory whose parents everybody can pass, as `/var/lib` is.
fn scratch() -> TempDir {
    let dir = tempfile::Builder::new().prefix("better-compute-pg-").tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("permissions");
    dir
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !done().await {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn several_run_side_by_side_and_data_survives_a_stop() {
    let dir = scratch();
    let (one, two) = tokio::join!(
        Embedded::start(config(&dir.path().join("one"))),
        Embedded::start(config(&dir.path().join("two")))
    );
    let (one, two) = (one.expect("one"), two.expect("two"));
    assert_ne!(one.pid(), two.pid());
    assert!(migrate::run(&one.db_config()).await.expect("migrate") > 0);
    assert!(!migrate::is_current(&two.db_config()).await.expect("they are apart"));
    one.stop().await;
    let again = Embedded::start(config(&dir.path().join("one"))).await.expect("again");
    assert!(migrate::is_current(&again.db_config()).await.expect("the data is there"));
    again.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn one_directory_has_one_server() {
    let dir = scratch();
    let first = Embedded::start(config(&dir.path().join("pg"))).await.expect("the first");
    assert!(matches!(Embedded::start(config(&dir.path().join("pg"))).await, Err(EmbeddedError::InUse(_))));
    first.stop().await;
}

#[tokio::test]
async fn a_killed_server_comes_back_at_the_same_place() {
    let dir = scratch();
    let server = Embedded::start(config(&dir.path().join("pg"))).await.expect("a server");
    let db = Db::connect(&server.db_config()).await.expect("a pool");
    let before = server.pid().expect("a process id");
    kill(Pid::from_raw(i32::try_from(before).expect("a process id")), Signal::SIGKILL).expect("a kill");
    until("another process", async || server.pid().is_some_and(|pid| pid != before)).await;
    until("the pool connects again", async || db.ping().await.is_ok()).await;
    db.close().await;
    server.stop().await;
}

/// The processes of a server whose first process has this id.
fn children(server: u32) -> Vec<Pid> {
    let of = |pid: i32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| of(*pid) == Some(server)).map(Pid::from_raw).collect()
}

#[tokio::test]
async fn a_server_comes_back_although_processes_of_the_killed_one_hang() {
    let dir = scratch();
    let server = Embedded::start(config(&dir.path().join("pg"))).await.expect("a server");
    let db = Db::connect(&server.db_config()).await.expect("a pool");
    let before = server.pid().expect("a process id");
    let frozen = children(before);
    assert!(!frozen.is_empty());
    for pid in &frozen {
        kill(*pid, Signal::SIGSTOP).expect("a freeze");
    }
    kill(Pid::from_raw(i32::try_from(before).expect("a process id")), Signal::SIGKILL).expect("a kill");
    until("the pool connects again", async || {
        tokio::time::timeout(Duration::from_secs(3), Db::connect(&server.db_config())).await.is_ok_and(|db| db.is_ok())
    })
    .await;
    drop(db);
    server.stop().await;
    for pid in frozen {
        // One that ended and was not collected yet works nowhere.
        let works_in = std::fs::read_link(format!("/proc/{pid}/cwd"));
        assert!(!works_in.is_ok_and(|at| at.starts_with(dir.path())), "{pid} is still there");
    }
}

#[tokio::test]
async fn a_directory_too_long_for_a_socket_works() {
    let dir = scratch();
    let long = dir.path().join("x".repeat(100));
    let server = Embedded::start(config(&long)).await.expect("a server");
    Db::connect(&server.db_config()).await.expect("a pool").close().await;
    server.stop().await;
}

#[tokio::test]
async fn data_of_another_major_version_is_refused_with_what_to_do() {
    let dir = scratch();
    let data = dir.path().join("pg/pg");
    std::fs::create_dir_all(&data).expect("a directory");
    std::fs::write(data.join("PG_VERSION"), "9\n").expect("a version");
    let refused = Embedded::start(config(&dir.path().join("pg"))).await.expect_err("another major");
    assert!(matches!(refused, EmbeddedError::OtherMajor { data: 9, .. }), "{refused}");
    assert!(refused.to_string().contains("postgresql-9"), "{refused}");
}

#[tokio::test]
async fn another_password_is_refused_at_once() {
    let dir = scratch();
    let pg = dir.path().join("pg");
    Embedded::start(config(&pg)).await.expect("a server").stop().await;
    std::fs::write(pg.join("password"), "another").expect("a change");
    let refused = Embedded::start(config(&pg)).await.expect_err("another password");
    assert!(matches!(refused, EmbeddedError::Password), "{refused}");
}

#[tokio::test]
async fn a_first_initialisation_that_was_killed_is_begun_again() {
    let dir = scratch();
    let half = dir.path().join("pg/pg.new");
    std::fs::create_dir_all(&half).expect("a directory");
    std::fs::write(half.join("PG_VERSION"), "15\n").expect("half a cluster");
    let server = Embedded::start(config(&dir.path().join("pg"))).await.expect("a server");
    server.stop().await;
}

#[tokio::test]
async fn below_a_directory_that_only_root_can_pass_a_namespace_hides_root() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = scratch();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).expect("permissions");
    match Embedded::start(config(&dir.path().join("pg"))).await {
        Ok(server) => server.stop().await,
        // Where user namespaces are off, the error says what to do.
        Err(refused) => assert!(matches!(refused, EmbeddedError::Root { .. }), "{refused}"),
    }
}

/// Not a fact of its own: [`the_server_of_a_killed_parent_is_followed_by_the_next`] runs it as the parent to kill.
#[tokio::test]
#[ignore = "the body of a child process"]
async fn parent_to_kill() {
    let Some(dir) = std::env::var_os("TEST_PARENT_DIR") else { return };
    let server = Embedded::start(config(Path::new(&dir))).await.expect("a server");
    std::fs::write(Path::new(&dir).with_extension("ready"), server.pid().expect("a process id").to_string())
        .expect("a sign");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn the_server_of_a_killed_parent_is_followed_by_the_next() {
    let dir = scratch();
    let pg = dir.path().join("pg");
    let mut parent = std::process::Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "embedded::parent_to_kill", "--ignored", "--nocapture"])
        .env("TEST_PARENT_DIR", &pg)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a parent");
    let ready = pg.with_extension("ready");
    until("the parent's server runs", async || ready.exists()).await;
    parent.kill().expect("a kill");
    parent.wait().expect("an end");
    let server = Embedded::start(config(&pg)).await.expect("the next server");
    let db = Db::connect(&server.db_config()).await.expect("a pool");
    db.ping().await.expect("an answer");
    db.close().await;
    server.stop().await;
}
