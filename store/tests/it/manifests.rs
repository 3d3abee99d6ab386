//! Facts about signed manifests: what is found by what, and what a signature is put under.

use schema::{digest::Digest, id::RevisionId, time::Timestamp};
use store::{
    Db,
    manifests::{self, Manifest, NewManifest, Part},
    revisions::{self, NewRevision},
    sources,
    testing::TestDb,
};

use super::commit;

const OURS: [u8; 32] = [1; 32];
const THEIRS: [u8; 32] = [2; 32];

/// The n-th revision, with a manifest of one part.
async fn put(db: &Db, n: u8, part: &str, targets: &[&str], renames: bool) -> RevisionId {
    let revision = RevisionId::generate();
    let stored = NewRevision {
        id: revision,
        source: "fleet".to_owned(),
        commit: format!("commit {n}"),
        tree: "tree".to_owned(),
        branch: "main".to_owned(),
        author: "Ada".to_owned(),
        committer: "Ada".to_owned(),
        subject: "a change".to_owned(),
        committed_at: Timestamp::UNIX_EPOCH,
        applied_by: "source".to_owned(),
        digest: Digest::of([n]),
        summary: serde_json::json!({}),
        plan: None,
    };
    let new = manifest(revision, n, part, targets, renames);
    commit!(db, |txn| {
        sources::ensure(&mut txn, "fleet", "/srv/fleet", "main", "").await.expect("a source");
        revisions::insert(&mut txn, &stored, &[]).await.expect("a revision");
        manifests::put(&mut txn, &new).await.expect("a manifest");
    });
    revision
}

fn manifest(revision: RevisionId, n: u8, part: &str, targets: &[&str], renames: bool) -> NewManifest {
    NewManifest {
        manifest: Manifest { revision, body: vec![n], signature: vec![n, n] },
        source: "fleet".to_owned(),
        key: OURS,
        renames,
        parts: vec![Part {
            digest: Digest::of(part),
            body: part.as_bytes().to_vec(),
            targets: targets.iter().map(Digest::of).collect(),
        }],
    }
}

async fn naming(db: &Db, target: &str, limit: u32) -> Vec<(RevisionId, Vec<u8>)> {
    let found = manifests::naming(db, &Digest::of(target), limit).await.expect("read");
    found.into_iter().map(|one| (one.manifest.revision, one.part)).collect()
}

#[tokio::test]
async fn a_target_is_found_with_the_latest_manifest_that_names_each_part() {
    let test = TestDb::create().await;
    let db = test.db();
    let first = put(db, 1, "a", &["t", "u"], false).await;
    let second = put(db, 2, "b", &["t"], false).await;
    let found = naming(db, "t", 9).await;
    assert_eq!(found, [(second, b"b".to_vec()), (first, b"a".to_vec())], "the latest first");
    assert_eq!(naming(db, "t", 1).await, [(second, b"b".to_vec())]);
    assert_eq!(naming(db, "u", 9).await, [(first, b"a".to_vec())]);
    assert_eq!(naming(db, "v", 9).await, []);
    // A revision that leaves a part as it was stands by it, too.
    let third = put(db, 3, "a", &["t", "u"], false).await;
    assert_eq!(naming(db, "t", 9).await, [(third, b"a".to_vec()), (second, b"b".to_vec())]);
}

#[tokio::test]
async fn a_manifest_takes_the_place_of_the_one_of_its_revision() {
    let test = TestDb::create().await;
    let db = test.db();
    let revision = put(db, 1, "a", &["t"], true).await;
    let again = manifest(revision, 7, "b", &["u"], false);
    commit!(db, |txn| manifests::put(&mut txn, &again).await.expect("put"));
    assert_eq!(manifests::find(db, revision).await.expect("read"), Some(again.manifest));
    assert_eq!(manifests::find(db, RevisionId::generate()).await.expect("read"), None);
    assert_eq!(manifests::with_renames(db, 9).await.expect("read"), []);
    assert_eq!(manifests::find_part(db, &Digest::of("b")).await.expect("read"), Some(b"b".to_vec()));
    assert_eq!(manifests::find_part(db, &Digest::of("c")).await.expect("read"), None);
}

#[tokio::test]
async fn a_part_that_somebody_changed_is_put_right_when_it_is_put_again() {
    let test = TestDb::create().await;
    let db = test.db();
    put(db, 1, "a", &["t"], false).await;
    store::testing::steal(db, "UPDATE manifest_parts SET body = 'x'").await.expect("changed");
    put(db, 2, "a", &["t"], false).await;
    assert_eq!(manifests::find_part(db, &Digest::of("a")).await.expect("read"), Some(b"a".to_vec()));
}

#[tokio::test]
async fn renames_are_listed_the_latest_first() {
    let test = TestDb::create().await;
    let db = test.db();
    let first = put(db, 1, "a", &[], true).await;
    put(db, 2, "b", &[], false).await;
    let third = put(db, 3, "c", &[], true).await;
    let listed = |limit| async move {
        let found = manifests::with_renames(db, limit).await.expect("read");
        found.into_iter().map(|one| one.revision).collect::<Vec<_>>()
    };
    assert_eq!((listed(9).await, listed(1).await), (vec![third, first], vec![third]));
}

#[tokio::test]
async fn a_signature_is_put_only_under_the_text_that_it_is_of() {
    let test = TestDb::create().await;
    let db = test.db();
    let (one, two) = (put(db, 1, "a", &[], false).await, put(db, 2, "b", &[], false).await);
    let others = |after| async move { manifests::of_other_keys(db, &THEIRS, after, 1).await.expect("read") };
    let first = others(None).await;
    let second = others(Some(first[0].revision)).await;
    let mut seen = [first[0].revision, second[0].revision];
    seen.sort_unstable();
    let mut both = [one, two];
    both.sort_unstable();
    assert_eq!(seen, both, "page by page");
    assert_eq!(others(Some(second[0].revision)).await, []);

    let again = [
        Manifest { signature: b"anew".to_vec(), ..manifests::find(db, one).await.expect("read").expect("one") },
        Manifest { revision: two, body: b"another text".to_vec(), signature: b"anew".to_vec() },
    ];
    commit!(db, |txn| manifests::sign_again(&mut txn, &THEIRS, &again).await.expect("signed"));
    assert_eq!(manifests::find(db, one).await.expect("read"), Some(again[0].clone()));
    assert_eq!(manifests::find(db, two).await.expect("read").expect("two").signature, [2, 2]);
    let left = manifests::of_other_keys(db, &THEIRS, None, 9).await.expect("read");
    assert_eq!(left.iter().map(|one| one.revision).collect::<Vec<_>>(), [two]);
}
