//! The files of revisions: what was written comes back byte for byte, and only what changed costs anything.

use schema::{
    fleet::{SourceBlob, Sources},
    id::RevisionId,
};
use sqlx::{Connection, PgConnection};
use store::{Db, revision_files, revisions, testing::TestDb};

use crate::{apply::revision, commit};

fn tree(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(path, text)| (*path, text.as_bytes().to_vec())).collect()
}

async fn write(db: &Db, revision: RevisionId, tree: &Sources) {
    commit!(db, |txn| revision_files::write(&mut txn, revision, tree).await.expect("files"));
}

async fn count(test: &TestDb, sql: &'static str) -> i64 {
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    sqlx::query_scalar(sql).fetch_one(&mut conn).await.expect("a count")
}

#[tokio::test]
async fn the_tree_of_every_revision_comes_back_byte_for_byte() {
    let test = TestDb::create().await;
    let mut odd = tree(&[("a.kdl", "one"), ("sub/b.kdl", "two"), ("empty.kdl", "")]);
    odd.insert("link.kdl", SourceBlob::Symlink);
    odd.insert("module", SourceBlob::Submodule);
    odd.insert("big.yaml", SourceBlob::TooLarge { bytes: 5_000_000 });
    odd.insert("\\xff.kdl", SourceBlob::BadPath);
    odd.insert("locked.kdl", SourceBlob::Unreadable { reason: "no rights".to_owned() });
    odd.insert_file("raw.j2", vec![0_u8, 255, 13, 10]);
    let trees = [
        odd.clone(),
        tree(&[("a.kdl", "changed"), ("sub/b.kdl", "two")]),
        tree(&[("moved.kdl", "two")]),
        odd,
        Sources::default(),
    ];
    let mut ids = Vec::new();
    for (n, tree) in trees.iter().enumerate() {
        let id = revision(test.db(), &n.to_string(), &[]).await;
        write(test.db(), id, tree).await;
        ids.push(id);
    }
    for (id, tree) in ids.iter().zip(&trees) {
        let read = revision_files::read(test.db(), *id).await.expect("reads").expect("files");
        assert_eq!(&read, tree);
    }
}

#[tokio::test]
async fn a_revision_costs_what_it_changes() {
    let test = TestDb::create().await;
    let one = revision(test.db(), "1", &[]).await;
    write(test.db(), one, &tree(&[("a.kdl", "x"), ("b.kdl", "x"), ("c.kdl", "y")])).await;
    assert_eq!(count(&test, "SELECT count(*) FROM blobs").await, 2, "the same bytes are kept once");
    let two = revision(test.db(), "2", &[]).await;
    write(test.db(), two, &tree(&[("a.kdl", "x"), ("b.kdl", "z"), ("d.kdl", "y")])).await;
    assert_eq!(count(&test, "SELECT count(*) FROM revision_files").await, 5);
    assert_eq!(count(&test, "SELECT count(*) FROM blobs").await, 3);
    let seq = revisions::find(test.db(), two).await.expect("reads").expect("a revision").seq;
    let changes = revision_files::changes(test.db(), seq, 10).await.expect("reads");
    let changes: Vec<(&str, bool, bool)> = changes.iter().map(|c| (c.path.as_str(), c.before, c.after)).collect();
    assert_eq!(changes, [("b.kdl", true, true), ("c.kdl", true, false), ("d.kdl", false, true)]);
    let three = revision(test.db(), "3", &[]).await;
    commit!(test.db(), |txn| revision_files::keep(&mut txn, three).await.expect("kept"));
    assert_eq!(count(&test, "SELECT count(*) FROM revision_files").await, 5);
    assert_eq!(
        revision_files::read(test.db(), three).await.expect("reads"),
        revision_files::read(test.db(), two).await.expect("reads")
    );
}

#[tokio::test]
async fn a_revision_without_files_has_none_and_does_not_borrow_others() {
    let test = TestDb::create().await;
    let old = revision(test.db(), "1", &[]).await;
    assert_eq!(revision_files::read(test.db(), old).await.expect("reads"), None);
    let new = revision(test.db(), "2", &[]).await;
    write(test.db(), new, &tree(&[("a.kdl", "x")])).await;
    assert_eq!(revision_files::read(test.db(), old).await.expect("reads"), None);
    assert_eq!(revision_files::read(test.db(), RevisionId::generate()).await.expect("reads"), None);
}

#[tokio::test]
async fn damaged_files_are_no_revision() {
    let test = TestDb::create().await;
    let id = revision(test.db(), "1", &[]).await;
    write(test.db(), id, &tree(&[("a.kdl", "x")])).await;
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    sqlx::query("UPDATE blobs SET bytes = 'y'").execute(&mut conn).await.expect("damage");
    let error = revision_files::read(test.db(), id).await.expect_err("damaged");
    assert!(error.to_string().contains("are not the ones"), "{error}");
}

#[tokio::test]
async fn ten_thousand_files_take_a_handful_of_statements() {
    let test = TestDb::create().await;
    let files = |edit: &str| -> Sources {
        (0..10_000)
            .map(|n| (format!("nodes/{n}.kdl"), format!("{n}{}", if n < 10 { edit } else { "" }).into_bytes()))
            .collect()
    };
    let one = revision(test.db(), "1", &[]).await;
    write(test.db(), one, &files("")).await;
    let two = revision(test.db(), "2", &[]).await;
    write(test.db(), two, &files(" edited")).await;
    assert_eq!(count(&test, "SELECT count(*) FROM revision_files").await, 10_010);
    assert_eq!(revision_files::read(test.db(), one).await.expect("reads"), Some(files("")));
}
