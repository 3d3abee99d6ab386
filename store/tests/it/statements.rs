//! Facts about what people said: what is the same, how much of it is kept, and which of it a revocation is.

use schema::digest::Digest;
use store::{
    Db,
    testing::TestDb,
    trust::{self, NewStatement},
};

use super::commit;

fn said(number: u32, key: &str, subject: &str) -> NewStatement {
    NewStatement {
        digest: Digest::of(format!("{subject} {number}")),
        key: key.to_owned(),
        kind: "revoke/v1".to_owned(),
        subject: subject.to_owned(),
        principal: "ada".to_owned(),
        commit: format!("{key} {subject} {number}"),
        raw: format!("{number} by {key}").into_bytes(),
    }
}

/// How many of these are stored, and how many are too many.
async fn put(db: &Db, statements: &[NewStatement]) -> (usize, usize) {
    commit!(db, |txn| {
        let put = trust::put_statements(&mut txn, statements).await.expect("put");
        (put.fresh.len(), put.too_many.len())
    })
}

async fn stored(db: &Db) -> usize {
    trust::statements_of(db, &["revoke/v1"], None).await.expect("read").len()
}

#[tokio::test]
async fn a_statement_is_the_same_when_its_block_and_its_key_are() {
    let test = TestDb::create().await;
    let db = test.db();
    let again = NewStatement { commit: "another wrapping".to_owned(), ..said(1, "new", "a") };
    assert_eq!(put(db, &[said(1, "old", "a"), said(1, "new", "a"), again.clone()]).await, (2, 0));
    assert_eq!(put(db, &[again]).await, (0, 0));
    assert_eq!(stored(db).await, 2);
    let commits = ["old a 1", "new a 1", "another wrapping"].map(str::to_owned);
    let mut carried = trust::carried(db, &commits).await.expect("read");
    carried.sort();
    assert_eq!(carried, ["new a 1", "old a 1"]);
}

#[tokio::test]
async fn one_key_says_so_much_about_one_thing() {
    let test = TestDb::create().await;
    let db = test.db();
    let flood: Vec<NewStatement> = (0..20).map(|number| said(number, "old", "a")).collect();
    assert_eq!(put(db, &flood).await, (20, 0));
    let flood: Vec<NewStatement> = (0..50).map(|number| said(number, "old", "a")).collect();
    assert_eq!(put(db, &flood).await, (12, 18), "those that are there are neither");
    assert_eq!(put(db, &[said(60, "old", "a"), said(60, "new", "a"), said(60, "old", "b")]).await, (2, 1));
    assert_eq!(stored(db).await, 34);
}

#[tokio::test]
async fn a_revocation_is_what_the_key_signed_that_revoked() {
    let test = TestDb::create().await;
    let db = test.db();
    let both = [said(1, "a key", "a"), said(1, "b key", "a")];
    put(db, &both).await;
    for key in ["nobody's", "a key", "b key"] {
        commit!(db, |txn| {
            let one = (both[0].digest, key.to_owned(), 1);
            trust::keep_revocations(&mut txn, &[one]).await.expect("noted");
        });
    }
    let noted = trust::revocations(db).await.expect("read");
    assert_eq!(noted.into_iter().map(|one| one.raw).collect::<Vec<_>>(), [b"1 by a key".to_vec()]);
}
