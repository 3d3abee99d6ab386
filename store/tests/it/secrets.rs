//! Facts about sealed values in their tables.

use schema::secret::SecretName;
use store::{Db, secrets, testing::TestDb};

fn secret(text: &str) -> SecretName {
    SecretName::new(text).expect("a name")
}

async fn put(db: &Db, name: &SecretName) -> u64 {
    let mut txn = db.begin().await.expect("begin");
    let version = secrets::next_version(&mut txn, name).await.expect("a version");
    secrets::put(&mut txn, name, version, &[u8::try_from(version).expect("few")], "ada").await.expect("put");
    txn.commit().await.expect("commit");
    version
}

#[tokio::test]
async fn the_newest_three_versions_are_kept() {
    let test = TestDb::create().await;
    let (a, b) = (secret("a"), secret("b"));
    for version in 1..=5 {
        assert_eq!(put(test.db(), &a).await, version);
    }
    put(test.db(), &b).await;
    let listed = secrets::list(test.db()).await.expect("list").items;
    let shown: Vec<(&str, u64, &[u64])> =
        listed.iter().map(|s| (s.name.as_str(), s.version, s.versions.as_slice())).collect();
    assert_eq!(shown, [("a", 5, [5, 4, 3].as_slice()), ("b", 1, [1].as_slice())]);
    assert_eq!(secrets::find_envelope(test.db(), &a, 2).await.expect("read"), None);
    assert_eq!(secrets::find_envelope(test.db(), &a, 3).await.expect("read"), Some(vec![3]));
}

#[tokio::test]
async fn a_deleted_secret_leaves_its_counter() {
    let test = TestDb::create().await;
    let a = secret("a");
    put(test.db(), &a).await;
    for expected in [true, false] {
        let mut txn = test.db().begin().await.expect("begin");
        assert_eq!(secrets::delete(&mut txn, &a).await.expect("delete"), expected);
        txn.commit().await.expect("commit");
    }
    assert_eq!(secrets::list(test.db()).await.expect("list").items, []);
    assert_eq!(put(test.db(), &a).await, 2);
}

#[tokio::test]
async fn a_gateway_sees_no_secret() {
    let test = TestDb::create().await;
    put(test.db(), &secret("a")).await;
    let url = format!("{}&options=-c%20role=bc_gateway", test.config().url());
    let gateway = Db::connect(&store::DbConfig::from_url(&url).expect("a URL")).await.expect("a pool");
    assert!(secrets::list(&gateway).await.is_err());
    assert!(secrets::find_envelope(&gateway, &secret("a"), 1).await.is_err());
    let mut txn = gateway.begin().await.expect("begin");
    assert!(secrets::next_version(&mut txn, &secret("b")).await.is_err());
}
