//! Facts about the tags of machines' places: who gets one, and who keeps it.

use std::sync::Arc;

use store::{
    Db,
    marks::{self, Marker},
    nodes,
    placements::{self, Placement},
    testing::{TestDb, steal},
};

use super::{commit, new_node};

/// Tags bytes with themselves.
#[derive(Debug)]
struct Same;

impl Marker for Same {
    fn command(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn batch(&self, batch: &[u8]) -> Vec<u8> {
        batch.to_vec()
    }

    fn placement(&self, place: &[u8]) -> Vec<u8> {
        place.to_vec()
    }

    fn is_placement(&self, place: &[u8], tag: &[u8]) -> bool {
        place == tag
    }
}

async fn marking() -> TestDb {
    let test = TestDb::create().await;
    test.db().set_marker(Arc::new(Same));
    test
}

/// A machine that joins, and its place.
async fn joins(db: &Db, name: &str) -> Placement {
    let new = new_node(name);
    commit!(db, |txn| nodes::insert(&mut txn, &new).await.expect("a node"));
    of(db, &new.id).await
}

async fn of(db: &Db, id: &schema::id::NodeId) -> Placement {
    placements::find(db, *id).await.expect("read").expect("a machine")
}

fn is_good(place: &Placement) -> bool {
    place.tag.as_ref() == Some(&place.bytes())
}

#[tokio::test]
async fn who_joins_is_tagged_with_name_and_pool() {
    let test = marking().await;
    let place = joins(test.db(), "gpu-1").await;
    assert_eq!((place.name.as_str(), place.pool.as_deref()), ("gpu-1", Some("h100")));
    assert_eq!(place.tag, Some(marks::placement(place.id, "gpu-1", Some("h100"))));
    let mut txn = test.db().begin().await.expect("begin");
    assert_eq!(placements::list(&mut txn).await.expect("read"), [place]);
    assert_eq!(placements::find(test.db(), schema::id::NodeId::generate()).await.expect("read"), None);
}

#[tokio::test]
async fn a_process_without_a_marker_tags_nothing() {
    let test = TestDb::create().await;
    assert_eq!(joins(test.db(), "gpu-1").await.tag, None);
}

#[tokio::test]
async fn a_move_takes_the_tag_along_where_there_was_a_good_one() {
    let test = marking().await;
    let db = test.db();
    let (good, stays, none, bad) =
        (joins(db, "a").await, joins(db, "b").await, joins(db, "c").await, joins(db, "d").await);
    steal(db, "UPDATE nodes SET placement = NULL WHERE name = 'c'").await.expect("changed");
    steal(db, "UPDATE nodes SET placement = 'x' WHERE name = 'd'").await.expect("changed");
    let mut txn = db.begin().await.expect("begin");
    let before = placements::list(&mut txn).await.expect("read");
    txn.commit().await.expect("commit");
    steal(db, "UPDATE nodes SET pool = 'h200' WHERE name <> 'b'").await.expect("moved");
    commit!(db, |txn| placements::follow(&mut txn, &before).await.expect("followed"));
    assert!(is_good(&of(db, &good.id).await));
    assert_eq!(of(db, &stays.id).await, stays);
    assert_eq!(of(db, &none.id).await.tag, None);
    assert_eq!(of(db, &bad.id).await.tag, Some(b"x".to_vec()));
}

#[tokio::test]
async fn somebody_stands_by_a_place_as_its_row_has_it() {
    let test = marking().await;
    let db = test.db();
    let place = joins(db, "a").await;
    steal(db, "UPDATE nodes SET name = 'b', pool = NULL").await.expect("changed");
    assert!(!is_good(&of(db, &place.id).await));
    commit!(db, |txn| placements::vouch(&mut txn, place.id).await.expect("vouched"));
    let stands = of(db, &place.id).await;
    assert!(is_good(&stands));
    assert_eq!((stands.name.as_str(), stands.pool), ("b", None));
}

#[tokio::test]
async fn a_tag_is_put_only_on_the_place_that_it_is_of() {
    let test = marking().await;
    let db = test.db();
    let place = joins(db, "a").await;
    let other = Placement { pool: None, tag: Some(b"other".to_vec()), ..place.clone() };
    commit!(db, |txn| placements::tag(&mut txn, &[other]).await.expect("nothing"));
    assert_eq!(of(db, &place.id).await, place);
    let anew = Placement { tag: Some(b"anew".to_vec()), ..place.clone() };
    commit!(db, |txn| placements::tag(&mut txn, std::slice::from_ref(&anew)).await.expect("tagged"));
    assert_eq!(of(db, &place.id).await, anew);
}
