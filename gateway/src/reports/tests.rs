//! The buffer: what it keeps, what it replaces, and where it ends.

use schema::{generation::IdentityGeneration, time::Timestamp};

use super::*;
use crate::{registry::Seat, session::Input};

fn node() -> NodeId {
    "node_01h0000000000000000000000a".parse().expect("an id")
}

fn pending(node_id: NodeId, epoch: u64, kind: ReportKind, seq: u64, bytes: usize) -> Pending {
    let report = Report { kind, seq, payload: vec![b'x'; bytes], signature: vec![1] };
    Pending { node_id, epoch: Epoch(epoch), report }
}

fn seqs(taken: &[Pending]) -> Vec<(ReportKind, u64)> {
    taken.iter().map(|pending| (pending.report.kind, pending.report.seq)).collect()
}

#[test]
fn the_newest_status_wins_and_inventories_keep_their_order() {
    let mut buffer = Buffer::default();
    for (kind, seq) in [
        (ReportKind::Inventory, 2),
        (ReportKind::Status, 3),
        (ReportKind::Status, 5),
        (ReportKind::Inventory, 4),
        (ReportKind::Status, 4),
    ] {
        assert_eq!(buffer.push(pending(node(), 1, kind, seq, 10)), Pushed::Fits);
    }
    assert_eq!(
        seqs(&buffer.take(10)),
        [(ReportKind::Inventory, 2), (ReportKind::Inventory, 4), (ReportKind::Status, 5)]
    );
    assert_eq!((buffer.bytes, buffer.slots.len(), buffer.order.len()), (0, 0, 0));
}

#[test]
fn what_is_given_back_does_not_replace_what_came_since() {
    let mut buffer = Buffer::default();
    buffer.push(pending(node(), 1, ReportKind::Status, 1, 10));
    buffer.push(pending(node(), 1, ReportKind::Inventory, 2, 10));
    let taken = buffer.take(10);
    buffer.push(pending(node(), 1, ReportKind::Status, 4, 10));
    buffer.push(pending(node(), 1, ReportKind::Inventory, 3, 10));
    for pending in taken {
        assert_eq!(buffer.push(pending), Pushed::Fits);
    }
    assert_eq!(
        seqs(&buffer.take(10)),
        [(ReportKind::Inventory, 2), (ReportKind::Inventory, 3), (ReportKind::Status, 4)]
    );
}

#[test]
fn a_newer_session_drops_what_the_older_one_left() {
    let mut buffer = Buffer::default();
    buffer.push(pending(node(), 1, ReportKind::Status, 9, 10));
    buffer.push(pending(node(), 2, ReportKind::Inventory, 1, 10));
    buffer.push(pending(node(), 1, ReportKind::Inventory, 10, 10));
    let taken = buffer.take(10);
    assert_eq!((seqs(&taken), taken[0].epoch), (vec![(ReportKind::Inventory, 1)], Epoch(2)));
    assert_eq!(buffer.bytes, 0);
}

#[test]
fn the_buffer_is_bounded_by_node_and_in_total() {
    let mut buffer = Buffer::default();
    let inventory = |node, seq, bytes| pending(node, 1, ReportKind::Inventory, seq, bytes);
    let kept = (1..=100).filter(|seq| buffer.push(inventory(node(), *seq, 10)) == Pushed::Fits).count();
    assert_eq!(kept, INVENTORIES_PER_NODE);
    let large = NodeId::generate();
    let kept = (1..=100).filter(|seq| buffer.push(inventory(large, *seq, BYTES_PER_NODE / 2)) == Pushed::Fits).count();
    assert_eq!(kept, 2);

    let mut buffer = Buffer::default();
    let megabyte = 1024 * 1024;
    let mut push = || buffer.push(pending(NodeId::generate(), 1, ReportKind::Status, 1, megabyte));
    let kept = (0..100).filter(|_| push() == Pushed::Fits).count();
    assert_eq!((kept, buffer.bytes), (64, MAX_BYTES));
}

#[test]
fn when_all_room_is_taken_the_greediest_makes_room_for_the_others() {
    let mut buffer = Buffer::default();
    let hostile: Vec<NodeId> = (0..8).map(|_| NodeId::generate()).collect();
    for node in &hostile {
        let half = |seq| pending(*node, 1, ReportKind::Inventory, seq, BYTES_PER_NODE / 2);
        assert_eq!((buffer.push(half(1)), buffer.push(half(2))), (Pushed::Fits, Pushed::Fits));
    }
    assert_eq!(buffer.bytes, MAX_BYTES);
    let Pushed::InPlaceOf(loser, epoch) = buffer.push(pending(node(), 1, ReportKind::Status, 1, 1000)) else {
        panic!("there is room for it")
    };
    assert!(hostile.contains(&loser) && epoch == Epoch(1));
    assert_eq!((buffer.slots.len(), buffer.order.len()), (8, 8));
    assert_eq!(buffer.bytes, MAX_BYTES - BYTES_PER_NODE + 1000);
}

#[test]
fn nodes_take_turns() {
    let mut buffer = Buffer::default();
    let (one, two) = (NodeId::generate(), NodeId::generate());
    for seq in 1..=3 {
        buffer.push(pending(one, 1, ReportKind::Inventory, seq, 10));
    }
    buffer.push(pending(two, 1, ReportKind::Status, 1, 10));
    assert_eq!(buffer.take(1).len(), 3);
    assert_eq!(buffer.take(1)[0].node_id, two);
}

#[tokio::test]
async fn a_session_whose_report_is_lost_ends() {
    let test = store::testing::TestDb::create().await;
    // A role that may write nothing.
    let url = format!("{}&options=-c%20role=pg_monitor", test.config().url());
    let db = Db::connect(&store::DbConfig::from_url(&url).expect("a URL")).await.expect("a pool");
    let registry = Registry::new(10, Timestamp::UNIX_EPOCH);
    let serial = serde_json::from_str("\"40ab\"").expect("a serial");
    let seat = Seat::new(node(), Epoch(1), IdentityGeneration(1), serial);
    registry.seat(&seat);
    let reports = Reports::default();
    assert!(reports.put(&registry, pending(node(), 1, ReportKind::Status, 1, 10)));
    assert!(matches!(reports.write(&db, &registry, NODES_PER_BATCH).await, Err(Failure::Refused)));
    assert!(matches!(reports.write(&db, &registry, 1).await, Ok(1)));
    assert_eq!(seat.mailbox.next().await, Input::End(DROPPED));
}
