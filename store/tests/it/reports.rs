//! Node-signed reports wait under their epoch; sections and inventory change only when they differ.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    generation::{Epoch, Generation},
    id::{JournalId, NodeId},
    inventory::InventorySection,
    report::{ReportKind, SectionState, SectionStatus},
    spec::Section,
};
use store::{
    Db, node_inventory,
    node_reports::{self, Mark, NewReport},
    node_sections, sessions,
    testing::TestDb,
};

use crate::{commit, node, session};

async fn open(db: &Db, node_id: NodeId) -> Epoch {
    commit!(db, |txn| sessions::open(&mut txn, &session(node_id)).await.expect("open")).epoch
}

fn report(node_id: NodeId, epoch: Epoch, seq: u64) -> NewReport {
    NewReport {
        node_id,
        epoch,
        kind: ReportKind::Status,
        seq,
        payload: seq.to_be_bytes().to_vec(),
        signature: b"sig".to_vec(),
    }
}

async fn insert(db: &Db, reports: &[NewReport]) -> Vec<NodeId> {
    commit!(db, |txn| node_reports::insert(&mut txn, reports).await.expect("insert").stored)
}

#[tokio::test]
async fn a_report_of_a_session_that_was_taken_over_is_not_stored() {
    let test = TestDb::create().await;
    let (a, b) = (node(test.db(), "a").await.id, node(test.db(), "b").await.id);
    let (old, of_b) = (open(test.db(), a).await, open(test.db(), b).await);
    let new = open(test.db(), a).await;
    let stored = insert(test.db(), &[report(a, old, 1), report(b, of_b, 1)]).await;
    assert_eq!(stored, [b]);
    assert!(node_reports::list(test.db(), a).await.expect("list").is_empty());
    assert_eq!(insert(test.db(), &[report(a, new, 2), report(a, new, 3)]).await, [a]);
    insert(test.db(), &[report(a, new, 2)]).await;
    let waiting = node_reports::list(test.db(), a).await.expect("list");
    assert_eq!(waiting.iter().map(|one| one.report.seq).collect::<Vec<_>>(), [2, 3]);
    commit!(test.db(), |txn| node_reports::remove(&mut txn, &[waiting[0].id]).await.expect("remove"));
    assert_eq!(node_reports::list(test.db(), a).await.expect("list"), waiting[1..]);
}

#[tokio::test]
async fn a_node_of_which_too_many_reports_wait_stores_no_more() {
    let test = TestDb::create().await;
    let (a, b) = (node(test.db(), "a").await.id, node(test.db(), "b").await.id);
    let (of_a, of_b) = (open(test.db(), a).await, open(test.db(), b).await);
    let many: Vec<NewReport> = (1..=200).map(|seq| report(a, of_a, seq)).collect();
    assert_eq!(insert(test.db(), &many).await, [a]);
    let more = [report(a, of_a, 201), report(b, of_b, 1)];
    let inserted = commit!(test.db(), |txn| node_reports::insert(&mut txn, &more).await.expect("insert"));
    assert_eq!(inserted, node_reports::Inserted { stored: vec![b], full: vec![a] });

    let waiting = node_reports::list(test.db(), a).await.expect("list");
    assert_eq!(waiting.len(), node_reports::AT_ONCE);
    let rows: Vec<i64> = waiting.iter().map(|one| one.id).collect();
    commit!(test.db(), |txn| node_reports::remove(&mut txn, &rows).await.expect("remove"));
    assert_eq!(insert(test.db(), &[report(a, of_a, 201)]).await, [a]);
}

#[tokio::test]
async fn a_mark_moves_forward_within_a_journal() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let (one, two) = (JournalId::generate(), JournalId::generate());
    let set = async |journal, seq| {
        let mark = Mark { kind: ReportKind::Status, journal, seq };
        commit!(test.db(), |txn| node_reports::set_mark(&mut txn, id, &mark).await.expect("mark"))
    };
    assert!(set(one, 5).await);
    assert!(!set(one, 5).await);
    assert!(!set(one, 4).await);
    assert!(set(one, 6).await);
    assert!(set(two, 1).await, "a new journal counts from one");
    assert_eq!(
        node_reports::marks(test.db(), id).await.expect("marks"),
        [Mark { kind: ReportKind::Status, journal: two, seq: 1 }]
    );
}

#[tokio::test]
async fn sections_are_exactly_the_last_report_and_keep_their_time() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let good = SectionStatus { digest: Digest::of("h"), state: SectionState::Converged, reason: String::new() };
    let bad = SectionStatus { state: SectionState::Failed, reason: "no such user".to_owned(), ..good.clone() };
    let replace = async |generation: u64, sections: BTreeMap<Section, SectionStatus>| {
        commit!(test.db(), |txn| node_sections::replace(&mut txn, id, Generation(generation), &sections)
            .await
            .expect("replace"));
        node_sections::list(test.db(), id).await.expect("list")
    };
    let first = replace(1, BTreeMap::from([(Section::Host, good.clone()), (Section::Access, bad.clone())])).await;
    assert_eq!(first.iter().map(|row| row.section).collect::<Vec<_>>(), [Section::Access, Section::Host]);
    let second = replace(2, BTreeMap::from([(Section::Host, good)])).await;
    assert_eq!((second.len(), second[0].generation, second[0].since), (1, Generation(2), first[1].since));
    let third = replace(3, BTreeMap::from([(Section::Host, bad.clone())])).await;
    assert!(third[0].since > second[0].since && third[0].status == bad);
}

#[tokio::test]
async fn inventory_keeps_what_did_not_change() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let doc = |text: &str| (Digest::of(text), text.to_owned());
    let put = async |section, text: &str| {
        let (digest, doc) = doc(text);
        commit!(test.db(), |txn| node_inventory::upsert(&mut txn, id, &[(section, digest, doc)])
            .await
            .expect("upsert"));
        node_inventory::list(test.db(), id).await.expect("list")
    };
    let first = put(InventorySection::Cpu, "{}").await;
    assert_eq!(put(InventorySection::Cpu, "{}").await, first);
    let second = put(InventorySection::Gpus, "[]").await;
    assert_eq!(second.len(), 2);
    assert_eq!(second[&InventorySection::Cpu], first[&InventorySection::Cpu]);
    assert_eq!(
        node_inventory::digests(test.db(), id).await.expect("digests")[&InventorySection::Gpus],
        Digest::of("[]")
    );
    commit!(test.db(), |txn| node_inventory::remove(&mut txn, id, &[InventorySection::Gpus]).await.expect("remove"));
    assert_eq!(node_inventory::list(test.db(), id).await.expect("list"), first);
}
