//! Drift is exactly what the node said last, as old as it ever was, and counted by machine.

use schema::{
    digest::Digest,
    report::{DriftCause, DriftEntry, DriftKind, DriftMode},
    time::Timestamp,
};
use store::{
    node_drift::{self, Counts, Filter},
    testing::TestDb,
};

use crate::{commit, node};

fn at(minute: u32) -> Timestamp {
    format!("2026-11-29T12:{minute:02}:00Z").parse().expect("a time")
}

fn entry(path: &str, first: u32) -> DriftEntry {
    DriftEntry {
        path: path.to_owned(),
        mode: DriftMode::Warn,
        kind: DriftKind::Changed,
        cause: DriftCause::WhileRunning,
        observed: Some("mine, and much of it\n".to_owned()),
        observed_digest: Some(Digest::of("x")),
        observed_bytes: Some(21),
        desired: Some("ours".to_owned()),
        first_seen: at(first),
        last_seen: at(first),
        corrected: false,
        times: 1,
    }
}

#[tokio::test]
async fn drift_is_what_the_node_said_last_and_keeps_its_age() {
    let test = TestDb::create().await;
    let db = test.db();
    let (a, b) = (node(db, "a").await.id, node(db, "b").await.id);
    let motd = "host.files./etc/motd";
    let entries = [entry("host.files./etc/motd.content", 10), entry("host.sysctl.vm.swappiness", 10)];
    commit!(db, |txn| node_drift::replace(&mut txn, a, &entries).await.expect("replace"));
    commit!(db, |txn| node_drift::replace(&mut txn, b, &[entry("host.sysctl.vm.swappiness", 11)]).await.expect("b"));
    let all = async |filter: &Filter| node_drift::list(db, filter, None, None, 10).await.expect("list").items;
    assert_eq!(all(&Filter::default()).await.len(), 3);
    let of_a = Filter { node: Some(a), ..Filter::default() };
    assert_eq!(all(&of_a).await.iter().map(|drift| drift.entry.clone()).collect::<Vec<_>>(), entries);
    let found = all(&Filter { path: Some(motd.to_owned()), ..Filter::default() }).await;
    assert_eq!((found.len(), found[0].node.as_str(), found[0].pool.as_deref()), (1, "a", Some("h100")));
    assert!(all(&Filter { path: Some("host.files./etc/mot".to_owned()), ..Filter::default() }).await.is_empty());
    assert!(all(&Filter { pool: Some("other".to_owned()), ..Filter::default() }).await.is_empty());

    // A daemon that lost its own memory does not make the drift younger; what it no longer says is gone.
    let again = DriftEntry { times: 2, ..entry("host.files./etc/motd.content", 30) };
    commit!(db, |txn| node_drift::replace(&mut txn, a, &[again]).await.expect("replace"));
    let found = all(&of_a).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].entry.first_seen, found[0].entry.last_seen, found[0].entry.times), (at(10), at(30), 2));

    let counts = node_drift::counts(db).await.expect("counts");
    assert_eq!(counts, Counts { drifted: 2, corrected: 0, reboot_required: 0 });
    let last_seen = db.now().await.expect("a time");
    let right = DriftEntry { corrected: true, last_seen, ..entry("host.files./etc/motd.content", 30) };
    commit!(db, |txn| node_drift::replace(&mut txn, a, &[right]).await.expect("replace"));
    let counts = node_drift::counts(db).await.expect("counts");
    assert_eq!(counts, Counts { drifted: 1, corrected: 1, reboot_required: 0 });
    test.advance(std::time::Duration::from_secs(2 * 3600)).await;
    assert_eq!(node_drift::counts(db).await.expect("counts").corrected, 0, "what was put right is no news for ever");
    commit!(db, |txn| node_drift::replace(&mut txn, a, &[]).await.expect("replace"));
    assert!(all(&of_a).await.is_empty());
}

#[tokio::test]
async fn pages_of_drift_follow_each_other_and_values_are_shortened() {
    let test = TestDb::create().await;
    let db = test.db();
    for name in ["a", "b"] {
        let id = node(db, name).await.id;
        let entries = [entry("host.files./a b.content", 1), entry("host.files./c.content", 1)];
        commit!(db, |txn| node_drift::replace(&mut txn, id, &entries).await.expect("replace"));
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = node_drift::list(db, &Filter::default(), Some(4), after.as_deref(), 1).await.expect("list");
        seen.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|drift| drift.entry.observed.as_deref() == Some("mine")));
}
