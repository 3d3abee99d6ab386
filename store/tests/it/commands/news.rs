//! What a gateway asks for instead of the facts of every session.

use std::{collections::BTreeSet, time::Duration as StdDuration};

use schema::{effect::EffectClass, generation::Generation, inventory::InventorySection};
use store::{node_certs, nodes, pools};

use super::*;

async fn new_spec(db: &Db, node: NodeId) {
    let target = pools::Target {
        digest: schema::digest::Digest::of("target"),
        pool: "h100".parse().expect("a name"),
        profile: "base".parse().expect("a name"),
        doc: "{}".to_owned(),
    };
    let from = nodes::SpecFrom { target: target.digest, overlay: "{}".to_owned() };
    let spec = nodes::NewSpec {
        generation: Generation(1),
        bytes: b"{}",
        signature: b"signed",
        from: &from,
        effect: EffectClass::Live,
    };
    commit!(db, |txn| {
        pools::insert_targets(&mut txn, std::slice::from_ref(&target)).await.expect("a target");
        let before = nodes::lock(&mut txn, node).await.expect("lock").expect("a node").generation;
        nodes::set_spec(&mut txn, node, before, &spec).await.expect("a spec");
    });
}

#[tokio::test]
async fn news_name_the_nodes_of_which_something_changed_and_no_others() {
    let test = TestDb::create().await;
    let (db, mut ids, mut epochs) = (test.db(), Vec::new(), Vec::new());
    for name in ["spec", "wanted", "revoked", "waits", "taken-back", "idle"] {
        let id = node(db, name).await.id;
        epochs.push(open(db, &session(id)).await);
        ids.push(id);
    }
    let [spec, wanted, revoked, waits, taken_back, _] = ids.try_into().expect("six");
    let begin = sessions::news(db, None).await.expect("news");
    assert!(begin.nodes.is_empty());

    let kind = CommandKind::InventoryRefresh;
    let command = ready(db, taken_back, kind, "k").await;
    claim(db, taken_back, epochs[4]).await;
    commit!(db, |txn| {
        nodes::set_inventory_wanted(&mut txn, wanted, &[InventorySection::Gpus]).await.expect("wanted");
        node_certs::revoke_all(&mut txn, revoked, "stolen").await.expect("revoke");
        commands::cancel(&mut txn, command).await.expect("cancel");
    });
    new_spec(db, spec).await;
    ready(db, waits, kind, "k").await;
    let news = async |since| -> BTreeSet<NodeId> {
        sessions::news(db, Some(since)).await.expect("news").nodes.into_iter().collect()
    };
    assert_eq!(news(begin.at).await, [spec, wanted, revoked, waits, taken_back].into());
    test.advance(StdDuration::from_secs(60)).await;
    let later = db.now().await.expect("now");
    assert_eq!(
        news(later).await,
        [wanted, waits, taken_back].into(),
        "what was done is old, what is to be done is not"
    );
}
