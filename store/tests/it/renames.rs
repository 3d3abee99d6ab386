//! Renames reach everything that refers to an object by name, and nothing that is addressed by id.

use schema::{
    digest::Digest,
    id::JoinTokenId,
    node::{Hold, HoldSource, PoolClass},
    object::{Kind, ObjectRef},
};
use serde_json::json;
use store::{
    Db, fleet_holds, join_tokens, nodes, pools,
    renames::{self, RenameError},
    revisions::{self, ObjectChange, ObjectState},
    suspensions,
    testing::TestDb,
};

use crate::{apply::revision, commit, name, node, read};

fn object(text: &str, state: ObjectState) -> ObjectChange {
    ObjectChange {
        object: text.parse().expect("an address"),
        digest: Digest::of(text),
        doc: text.to_owned(),
        file: "a.kdl".to_owned(),
        line: 1,
        state,
    }
}

fn pair(from: &str, to: &str) -> (ObjectRef, ObjectRef) {
    (from.parse().expect("an address"), to.parse().expect("an address"))
}

async fn rename(db: &Db, pairs: &[(ObjectRef, ObjectRef)]) -> Result<(), RenameError> {
    let mut txn = db.begin().await.expect("begins");
    renames::apply(&mut txn, pairs).await?;
    txn.commit().await.expect("commits");
    Ok(())
}

async fn pool(db: &Db, text: &str) {
    let revision = revision(db, text, &[object(&format!("pool/{text}"), ObjectState::Declared)]).await;
    let target =
        pools::Target { digest: Digest::of(text), pool: name(text), profile: name("base"), doc: "{}".to_owned() };
    let row = pools::NewPool {
        name: name(text),
        site: name("fra1"),
        class: PoolClass::MetalHost,
        owner_tenant: None,
        policy: json!({}),
        target: Some(target.digest),
        profile_targets: [(name("base"), target.digest)].into(),
    };
    commit!(db, |txn| {
        pools::insert_targets(&mut txn, &[target]).await.expect("a target");
        pools::upsert(&mut txn, revision, &[row]).await.expect("a pool");
    });
}

#[tokio::test]
async fn a_renamed_pool_keeps_its_machines_tokens_targets_holds_and_suspensions() {
    let test = TestDb::create().await;
    let db = test.db();
    pool(db, "h100").await;
    let before = node(db, "a").await;
    let token = join_tokens::NewJoinToken {
        id: JoinTokenId::generate(),
        hash: Digest::of("t"),
        pool: name("h100"),
        uses: 1,
        expires_at: schema::time::Duration::from_secs(60).after(db.now().await.expect("now")),
        expect: json!({}),
        reclaim: false,
        kinds: None,
        created_by: "x".to_owned(),
    };
    let hold =
        Hold { source: HoldSource::Git, owner: "ada".to_owned(), reason: "why".to_owned(), until: None, place: None };
    commit!(db, |txn| {
        join_tokens::create(&mut txn, &token).await.expect("a token");
        let holds = [fleet_holds::NewFleetHold { subject: "pool/h100".to_owned(), hold }];
        fleet_holds::replace(&mut txn, "rollout", HoldSource::Git, &holds).await.expect("a hold");
        suspensions::place(&mut txn, "pool/h100", "ada", "why", None, "x").await.expect("placed");
    });
    rename(db, &[pair("pool/h100", "pool/hopper")]).await.expect("renamed");

    let after = read(db, before.id).await;
    assert_eq!((after.pool.as_deref(), after.name, after.assigned), (Some("hopper"), before.name, before.assigned));
    assert!(after.version > before.version);
    assert!(pools::find(db, "h100").await.expect("reads").is_none());
    let row = pools::find(db, "hopper").await.expect("reads").expect("the pool");
    let target = pools::find_target(db, &row.target.expect("a target")).await.expect("reads").expect("a target");
    assert_eq!(target.pool, name("hopper"));
    assert_eq!(join_tokens::find(db, token.id).await.expect("reads").expect("a token").token.pool, name("hopper"));
    assert_eq!(fleet_holds::list(db).await.expect("reads").items[0].subject, "pool/hopper");
    assert_eq!(suspensions::list(db).await.expect("reads").items[0].scope, "pool/hopper");
    let objects = revisions::objects_of(db, Kind::Pool).await.expect("reads").items;
    assert_eq!(objects.iter().map(|object| object.object.to_string()).collect::<Vec<_>>(), ["pool/hopper"]);
}

#[tokio::test]
async fn a_renamed_machine_keeps_its_id() {
    let test = TestDb::create().await;
    let before = node(test.db(), "a").await;
    rename(test.db(), &[pair("node/a", "node/b")]).await.expect("renamed");
    assert_eq!(nodes::find_by_name(test.db(), "b").await.expect("reads").map(|node| node.id), Some(before.id));
    assert!(nodes::find_by_name(test.db(), "a").await.expect("reads").is_none());
}

#[tokio::test]
async fn sites_and_profiles_are_renamed_where_they_are_named() {
    let test = TestDb::create().await;
    pool(test.db(), "h100").await;
    let id = node(test.db(), "a").await.id;
    rename(test.db(), &[pair("site/fra1", "site/fra2"), pair("profile/base", "profile/ground")])
        .await
        .expect("renamed");
    let row = pools::find(test.db(), "h100").await.expect("reads").expect("the pool");
    assert_eq!(
        (row.site.as_str(), row.profile_targets.keys().next().map(|name| name.as_str())),
        ("fra2", Some("ground"))
    );
    assert_eq!(read(test.db(), id).await.site.as_deref(), Some("fra2"));
}

#[tokio::test]
async fn a_name_that_is_taken_renames_nothing() {
    let test = TestDb::create().await;
    pool(test.db(), "h100").await;
    pool(test.db(), "l40s").await;
    node(test.db(), "a").await;
    node(test.db(), "b").await;
    for (from, to) in [("pool/h100", "pool/l40s"), ("node/a", "node/b")] {
        let refused = rename(test.db(), &[pair("site/fra1", "site/x"), pair(from, to)]).await.expect_err("taken");
        assert!(matches!(&refused, RenameError::Taken { to: taken, .. } if taken.to_string() == to), "{refused}");
    }
    assert!(pools::find(test.db(), "h100").await.expect("reads").is_some());
    // One that went is no obstacle.
    revision(
        test.db(),
        "gone",
        &[object("image/old", ObjectState::Removed), object("image/new", ObjectState::Declared)],
    )
    .await;
    rename(test.db(), &[pair("image/new", "image/old")]).await.expect("renamed");
    let images = revisions::objects_of(test.db(), Kind::Image).await.expect("reads").items;
    assert_eq!((images.len(), images[0].state), (1, ObjectState::Declared));
}
