//! Sessions: epochs fence, silence is judged.

use std::{collections::BTreeMap, time::Duration as StdDuration};

use schema::{
    generation::{Epoch, Generation, IdentityGeneration},
    id::NodeId,
    node::{Connectivity, NoScheduleReason, ProvisionEvent, connectivity::Seen},
    time::Duration,
};
use sqlx::{Connection as _, PgConnection};
use store::{
    Db, identities, node_certs, nodes,
    sessions::{self, OpenError, Opened, SessionOpen},
    testing::{TestDb, probes},
};

use crate::{certificate, commit, node, read, serial, session};

async fn open(db: &Db, session: &SessionOpen) -> Result<Opened, OpenError> {
    let mut txn = db.begin().await.expect("begin");
    let opened = sessions::open(&mut txn, session).await?;
    txn.commit().await.expect("commit");
    Ok(opened)
}

async fn close(db: &Db, id: NodeId, epoch: Epoch) -> Vec<NodeId> {
    commit!(db, |txn| sessions::close(&mut txn, &[(id, epoch)]).await.expect("close"))
}

#[tokio::test]
async fn who_is_noted_as_heard_with_many_others_is_not_locked_until_all_are_noted() {
    let test = TestDb::create().await;
    let (db, mut all) = (test.db(), Vec::new());
    for n in 0..300 {
        all.push((node(db, &format!("m{n}")).await.id, Epoch(1)));
    }
    probes::open_all_sessions(db).await.expect("open sessions");
    let ((first, _), (last, _)) = (all[0], all[299]);
    let mut held = db.begin().await.expect("begin");
    assert_eq!(sessions::close(&mut held, &[(last, Epoch(1))]).await.expect("closed"), [last]);
    let others = async {
        probes::somebody_waits(db).await.expect("asked");
        assert_eq!(close(db, first, Epoch(1)).await, [first], "nobody has it");
        // Whoever had waited for this one would have outlived it.
        held.commit().await.expect("commit");
    };
    let (heard, ()) = tokio::join!(sessions::beat(db, &all), others);
    assert_eq!(heard.expect("heard").len(), 299, "but for the one that ended meanwhile");
}

#[tokio::test]
async fn each_session_has_a_higher_epoch_and_the_one_before_writes_nothing_more() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let one = session(id);
    let first = open(test.db(), &one).await.expect("open");
    assert_eq!((first.epoch, first.identity_generation), (Epoch(1), IdentityGeneration(1)));
    assert_eq!(read(test.db(), id).await.connectivity, Connectivity::Connected);
    let second = open(test.db(), &session(id)).await.expect("open");
    assert_eq!(second.epoch, Epoch(2));

    assert!(sessions::beat(test.db(), &[(id, first.epoch)]).await.expect("beat").is_empty());
    assert!(close(test.db(), id, first.epoch).await.is_empty());
    assert_eq!(read(test.db(), id).await.connectivity, Connectivity::Connected);
    assert_eq!(sessions::beat(test.db(), &[(id, second.epoch)]).await.expect("beat"), [id]);
    assert_eq!(close(test.db(), id, second.epoch).await, [id]);
    assert!(close(test.db(), id, second.epoch).await.is_empty());
    assert_eq!(read(test.db(), id).await.connectivity, Connectivity::Disconnected);
    let stored = sessions::find(test.db(), id).await.expect("find").expect("a session");
    assert!(stored.disconnected_at.is_some() && stored.described);
}

#[tokio::test]
async fn who_may_not_have_a_session_is_told_why() {
    let test = TestDb::create().await;
    let retired = node(test.db(), "a").await;
    let replaced = node(test.db(), "b").await;
    commit!(test.db(), |txn| {
        nodes::set_provision(&mut txn, &retired, ProvisionEvent::Retire).await.expect("retire");
        let retiring = nodes::lock(&mut txn, retired.id).await.expect("lock").expect("a node");
        nodes::set_provision(&mut txn, &retiring, ProvisionEvent::Retired).await.expect("retired");
        nodes::bump_identity(&mut txn, replaced.id).await.expect("bump");
    });
    assert!(matches!(open(test.db(), &session(NodeId::generate())).await, Err(OpenError::Unknown(_))));
    assert!(matches!(open(test.db(), &session(retired.id)).await, Err(OpenError::Retired)));
    assert!(matches!(
        open(test.db(), &session(replaced.id)).await,
        Err(OpenError::Replaced { presented: IdentityGeneration(1), current: IdentityGeneration(2) })
    ));
    let new = SessionOpen { serial: serial(replaced.id, 2), ..session(replaced.id) };
    assert!(matches!(open(test.db(), &new).await, Err(OpenError::Uncertified)));
    assert!(sessions::find(test.db(), replaced.id).await.expect("find").is_none(), "whoever is refused writes nothing");
    let renewed = certificate(replaced.id, 2);
    commit!(test.db(), |txn| node_certs::insert(&mut txn, &renewed).await.expect("certificate"));
    assert_eq!(open(test.db(), &new).await.expect("the new identity").identity_generation, IdentityGeneration(2));
    commit!(test.db(), |txn| node_certs::revoke_all(&mut txn, replaced.id, "stolen").await.expect("revoke"));
    assert!(matches!(open(test.db(), &new).await, Err(OpenError::CertificateRevoked)));
    commit!(test.db(), |txn| identities::revoke(&mut txn, replaced.id, "stolen").await.expect("revoke"));
    assert!(matches!(open(test.db(), &new).await, Err(OpenError::CertificateRevoked)), "nobody has replaced it");
    commit!(test.db(), |txn| node_certs::insert(&mut txn, &certificate(replaced.id, 3)).await.expect("certificate"));
    assert!(matches!(open(test.db(), &new).await, Err(OpenError::Replaced { .. })));
}

#[tokio::test]
async fn sessions_that_open_together_are_judged_each_for_itself() {
    let test = TestDb::create().await;
    let mut sessions = Vec::new();
    for name in ["a", "b", "c"] {
        sessions.push(session(node(test.db(), name).await.id));
    }
    open(test.db(), &sessions[2]).await.expect("an earlier session");
    let [first, second, third] = sessions.try_into().expect("three");
    let uncertified = SessionOpen { serial: vec![9], ..second };
    let stranger = session(NodeId::generate());
    let asked = [third, stranger, uncertified, first];
    let opened = commit!(test.db(), |txn| sessions::open_all(&mut txn, &asked).await.expect("open"));
    let epochs: Vec<Option<Epoch>> = opened.iter().map(|opened| opened.as_ref().ok().map(|row| row.epoch)).collect();
    assert_eq!(epochs, [Some(Epoch(2)), None, None, Some(Epoch(1))]);
    assert!(matches!(opened[1], Err(OpenError::Unknown(_))));
    assert!(matches!(opened[2], Err(OpenError::Uncertified)));
    let stored = sessions::find(test.db(), asked[3].node_id).await.expect("find").expect("a session");
    assert_eq!((stored.boot_id, stored.journal_id), (asked[3].boot_id, asked[3].journal_id));
    assert!(sessions::find(test.db(), asked[2].node_id).await.expect("find").is_none());
}

async fn judge(db: &Db, graces: &BTreeMap<String, Duration>) -> Vec<(NodeId, Connectivity)> {
    commit!(db, |txn| sessions::judge(&mut txn, graces, Duration::from_secs(900)).await.expect("judge"))
}

#[tokio::test]
async fn silence_leads_to_unreachable_then_to_lost_and_a_session_back() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let session = open(test.db(), &session(id)).await.expect("open");
    let graces = BTreeMap::from([("h100".to_owned(), Duration::from_secs(60))]);
    assert!(judge(test.db(), &graces).await.is_empty());
    test.advance(StdDuration::from_secs(91)).await;
    assert_eq!(judge(test.db(), &graces).await, [(id, Connectivity::Unreachable)]);
    assert!(judge(test.db(), &graces).await.is_empty(), "nothing new, nothing written");
    assert_eq!(read(test.db(), id).await.no_schedule, [NoScheduleReason::Unreachable]);

    sessions::beat(test.db(), &[(id, session.epoch)]).await.expect("beat");
    assert_eq!(judge(test.db(), &graces).await, [(id, Connectivity::Connected)], "an open session is heard again");
    assert!(read(test.db(), id).await.no_schedule.is_empty());

    test.advance(StdDuration::from_secs(151)).await;
    assert_eq!(judge(test.db(), &graces).await, [(id, Connectivity::Lost)]);
    open(test.db(), &crate::session(id)).await.expect("open");
    let back = read(test.db(), id).await;
    assert_eq!((back.connectivity, back.no_schedule.len()), (Connectivity::Connected, 0));
}

#[tokio::test]
async fn the_sql_judgement_is_the_one_of_the_schema() {
    let test = TestDb::create().await;
    let grace = Duration::from_secs(60);
    let graces = BTreeMap::from([("h100".to_owned(), grace)]);
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    // Every state, without a session, with a closed one and with an open one, after silences on both sides of each edge.
    let mut rows = Vec::new();
    for state in Connectivity::ALL {
        for session in [None, Some(false), Some(true)] {
            for silent in [-60_i32, 0, 60, 120, 200] {
                let id = node(test.db(), &format!("m{}", rows.len())).await.id;
                if session.is_some() {
                    open(test.db(), &crate::session(id)).await.expect("open");
                }
                let set = |sql: &'static str| sqlx::query(sql).bind(id.as_uuid()).bind(silent);
                let changed = set(
                    "UPDATE nodes SET connectivity = $3, connectivity_since = compute_now() - make_interval(secs => $2) WHERE id = $1",
                );
                changed.bind(state.as_str()).execute(&mut conn).await.expect("set");
                let heard = set(
                    "UPDATE sessions SET last_seen = compute_now() - make_interval(secs => $2), disconnected_at = CASE WHEN $3 THEN NULL ELSE compute_now() END WHERE node_id = $1",
                );
                heard.bind(session == Some(true)).execute(&mut conn).await.expect("set");
                rows.push((id, session, silent));
            }
        }
    }
    let now = test.db().now().await.expect("now");
    let mut expected = Vec::new();
    for (id, session, silent) in &rows {
        let node = read(test.db(), *id).await;
        let last = sessions::find(test.db(), *id).await.expect("find");
        let seen = last.map(|last| Seen { at: last.last_seen, open: last.disconnected_at.is_none() });
        expected.push((session, silent, node.connectivity.judge(seen, node.connectivity_since, grace, now)));
    }
    judge(test.db(), &graces).await;
    let mut stored = Vec::new();
    for (id, session, silent) in &rows {
        stored.push((session, silent, read(test.db(), *id).await.connectivity));
    }
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn a_gateway_sees_what_moved_under_its_sessions() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let opened = open(test.db(), &session(id)).await.expect("open");
    let asked = [(id, serial(id, 1)), (NodeId::generate(), vec![8])];
    let check = async || sessions::check(test.db(), &asked).await.expect("check");
    let facts = check().await;
    assert_eq!((facts.len(), facts[0].node_id, facts[0].epoch, facts[0].revoked), (1, id, opened.epoch, false));
    assert_eq!((facts[0].commands_waiting, facts[0].cancels.len()), (false, 0));
    commit!(test.db(), |txn| node_certs::revoke_all(&mut txn, id, "stolen").await.expect("revoke"));
    assert!(check().await[0].revoked);
}

#[tokio::test]
async fn a_gateway_needs_no_more_than_its_own_database_role() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let narrow =
        store::DbConfig::from_url(&format!("{}&options=-c%20role=bc_gateway", test.config().url())).expect("a URL");
    let db = Db::connect(&narrow).await.expect("a pool");
    assert!(store::migrate::is_current(&narrow).await.expect("it may see whether the tables are up to date"));
    assert!(!db.rights().await.expect("rights").control && test.db().rights().await.expect("rights").control);

    let session = open(&db, &session(id)).await.expect("open");
    let report = store::node_reports::NewReport {
        node_id: id,
        epoch: session.epoch,
        kind: schema::report::ReportKind::Status,
        seq: 1,
        payload: vec![1],
        signature: vec![2],
    };
    commit!(db, |txn| {
        assert_eq!(store::node_reports::insert(&mut txn, &[report]).await.expect("a report").stored, [id]);
        store::queue::enqueue(&mut txn, &store::queue::NODE, [id]).await.expect("a wake-up");
        let verdict = store::queue::Verdict::Failed { reason: "x".to_owned(), message: String::new() };
        let record = store::outcomes::Record { kind: "session", key: "k", verdict: &verdict, place: "here:1" };
        store::outcomes::record(&mut txn, &[record]).await.expect("an outcome");
        store::outcomes::clear(&mut txn, &[record]).await.expect("an outcome that is over");
    });
    assert_eq!(sessions::beat(&db, &[(id, session.epoch)]).await.expect("beat"), [id]);
    assert_eq!(sessions::check(&db, &[(id, vec![1])]).await.expect("check").len(), 1);
    assert!(sessions::news(&db, None).await.expect("news").nodes.is_empty());
    assert_eq!(nodes::find_spec(&db, id).await.expect("spec"), None);
    assert!(nodes::find(&db, id).await.expect("find").is_some());
    assert!(store::node_inventory::digests(&db, id).await.expect("digests").is_empty());
    assert!(node_certs::find(&db, &[1]).await.expect("find").is_none());
    assert!(store::control_plane::find(&db).await.expect("find").is_none());
    let worker = schema::id::WorkerId::generate();
    let joined =
        store::workers::join(&db, worker, store::Role::Controllers, "host", 1, StdDuration::from_secs(9)).await;
    assert!(joined.is_err(), "it names no process for whom work would wait");
    assert_eq!(close(&db, id, session.epoch).await, [id]);

    let mut txn = db.begin().await.expect("begin");
    let from = nodes::SpecFrom { target: schema::digest::Digest::of("{}"), overlay: "{}".to_owned() };
    let spec = nodes::NewSpec {
        generation: Generation(1),
        bytes: b"{}",
        signature: b"s",
        from: &from,
        effect: schema::effect::EffectClass::Live,
    };
    let refused = nodes::set_spec(&mut txn, id, Generation(0), &spec).await;
    assert!(refused.is_err(), "a gateway can never author");
    assert!(store::join_tokens::list(&db).await.is_err());
}
