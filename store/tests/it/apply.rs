//! What apply writes: revision, objects, pools, targets, nodes and wake-ups, together or not at all.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    generation::Generation,
    id::{PlanId, RevisionId},
    name::Name,
    node::{Hold, HoldSource, PoolClass, Role},
    object::Kind,
};
use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};
use store::{
    Db,
    fleet_holds::{self, NewFleetHold},
    nodes::{self, Assignment, Declared},
    plans::{self, NewPlan, PlanState},
    pools::{self, NewPool, Target},
    queue,
    revisions::{self, NewRevision, ObjectChange, ObjectState},
    sources::{self, AdvanceError, Stage},
    testing::TestDb,
};

use crate::{commit, name, new_node, node, read};

/// Applies a revision with these changes, from a source that is made when it is missing.
pub(crate) async fn revision(db: &Db, commit_id: &str, changes: &[ObjectChange]) -> RevisionId {
    let new = NewRevision {
        id: RevisionId::generate(),
        source: "fleet".to_owned(),
        commit: commit_id.to_owned(),
        tree: "t".to_owned(),
        branch: "main".to_owned(),
        author: "Ada <ada@example.org>".to_owned(),
        committer: "Ada <ada@example.org>".to_owned(),
        subject: "change".to_owned(),
        committed_at: db.now().await.expect("now"),
        applied_by: "source".to_owned(),
        digest: Digest::of(commit_id),
        summary: json!({"changed": changes.len()}),
        plan: None,
    };
    commit!(db, |txn| {
        sources::ensure(&mut txn, "fleet", "/repo", "main", "").await.expect("a source");
        revisions::insert(&mut txn, &new, changes).await.expect("a revision");
    });
    new.id
}

fn change(text: &str, doc: &str, state: ObjectState) -> ObjectChange {
    ObjectChange {
        object: text.parse().expect("an address"),
        digest: Digest::of(doc),
        doc: doc.to_owned(),
        file: "a.kdl".to_owned(),
        line: 3,
        state,
    }
}

#[tokio::test]
async fn a_revision_brings_its_objects_and_the_next_one_a_delta() {
    let test = TestDb::create().await;
    assert!(revisions::latest(test.db()).await.expect("latest").is_none());
    let one = revision(
        test.db(),
        "1",
        &[
            change("pool/a", "{}", ObjectState::Declared),
            change("pool/b", "{}", ObjectState::Declared),
            change("site/x", "{\"r\":1}", ObjectState::Declared),
        ],
    )
    .await;
    let two = revision(
        test.db(),
        "2",
        &[change("pool/b", "{\"n\":2}", ObjectState::Declared), change("site/x", "{\"r\":1}", ObjectState::Retained)],
    )
    .await;
    let objects = revisions::objects(test.db()).await.expect("objects");
    let short: Vec<_> = objects.iter().map(|o| (o.object.to_string(), o.doc.as_str(), o.state, o.revision)).collect();
    assert_eq!(
        short,
        [
            ("pool/a".to_owned(), "{}", ObjectState::Declared, one),
            ("pool/b".to_owned(), "{\"n\":2}", ObjectState::Declared, two),
            ("site/x".to_owned(), "{\"r\":1}", ObjectState::Retained, two),
        ]
    );
    assert_eq!(revisions::objects_of(test.db(), Kind::Pool).await.expect("objects").items.len(), 2);
    assert_eq!(
        revisions::find_object(test.db(), &"site/x".parse().expect("an address")).await.expect("find").map(|o| o.line),
        Some(3)
    );
    let listed = revisions::list(test.db(), None, 10).await.expect("list").items;
    assert_eq!(listed.iter().map(|r| r.revision.id).collect::<Vec<_>>(), [two, one]);
    assert_eq!(revisions::list(test.db(), Some(listed[0].seq), 10).await.expect("list").items.len(), 1);
    let mut txn = test.db().begin().await.expect("begin");
    assert_eq!(revisions::latest_seq(&mut txn).await.expect("seq"), listed[0].seq);
}

#[tokio::test]
async fn stages_move_by_compare_and_swap() {
    let test = TestDb::create().await;
    commit!(test.db(), |txn| sources::ensure(&mut txn, "fleet", "/repo", "", "").await.expect("ensure"));
    let advance = async |stage, expected: Option<&str>, to: &str| {
        let mut txn = test.db().begin().await.expect("begin");
        sources::advance(&mut txn, "fleet", stage, expected, to).await?;
        txn.commit().await.expect("commit");
        Ok::<(), AdvanceError>(())
    };
    for stage in [Stage::Remote, Stage::Verified, Stage::Planned, Stage::Applied] {
        advance(stage, None, "c1").await.expect("the first");
        assert!(matches!(advance(stage, None, "c2").await, Err(AdvanceError::Moved { .. })), "{stage:?}");
        advance(stage, Some("c1"), "c1").await.expect("staying is no error");
    }
    advance(Stage::Remote, Some("c1"), "c2").await.expect("on");
    commit!(test.db(), |txn| {
        sources::set_branch(&mut txn, "fleet", "main").await.expect("branch");
        sources::set_state(&mut txn, "fleet", "broken", Some("a typo"), Some(&json!({"code": "BC0101"})))
            .await
            .expect("state");
        sources::accept(&mut txn, "fleet", Some("c9")).await.expect("accept");
        sources::touch_checked(&mut txn, "fleet").await.expect("checked");
    });
    let source = sources::find(test.db(), "fleet").await.expect("find").expect("a source");
    let commits = [&source.remote, &source.verified, &source.planned, &source.applied]
        .map(|at| at.as_ref().map(|at| at.commit.as_str()));
    assert_eq!(commits, [Some("c2"), Some("c1"), Some("c1"), Some("c1")]);
    assert_eq!(
        (source.branch.as_str(), source.state.as_str(), source.accepted.as_deref()),
        ("main", "broken", Some("c9"))
    );
    commit!(test.db(), |txn| sources::set_state(&mut txn, "fleet", "broken", Some("a typo"), None)
        .await
        .expect("state"));
    let again = sources::list(test.db()).await.expect("list").items.remove(0);
    assert_eq!((again.since, again.detail), (source.since, None));
    let kept =
        commit!(test.db(), |txn| sources::ensure(&mut txn, "fleet", "/other", "main", "sub").await.expect("ensure"));
    assert_eq!((kept.url.as_str(), kept.verified), ("/other", source.verified));
    assert!(matches!(advance_missing(test.db()).await, Err(AdvanceError::Missing(_))));
}

async fn advance_missing(db: &Db) -> Result<(), AdvanceError> {
    let mut txn = db.begin().await.expect("begin");
    sources::advance(&mut txn, "nothing", Stage::Remote, None, "c").await
}

#[tokio::test]
async fn a_new_plan_supersedes_the_open_one() {
    let test = TestDb::create().await;
    let plan = |commit_id: &str| NewPlan {
        id: PlanId::generate(),
        source: "fleet".to_owned(),
        commit: Some(commit_id.to_owned()),
        base_commit: None,
        digest: Digest::of("{}"),
        doc: "{}".to_owned(),
    };
    let (one, two) = (plan("1"), plan("2"));
    for new in [&one, &two] {
        commit!(test.db(), |txn| plans::insert(&mut txn, new).await.expect("insert"));
    }
    assert_eq!(plans::find(test.db(), one.id).await.expect("find").map(|plan| plan.state), Some(PlanState::Superseded));
    commit!(test.db(), |txn| plans::set_state(&mut txn, two.id, PlanState::Applied).await.expect("state"));
    let found = plans::find_by_commit(test.db(), "fleet", "2").await.expect("find").expect("a plan");
    assert_eq!((found.id, found.state, found.doc.as_str()), (two.id, PlanState::Applied, "{}"));
    let ids = |plans: Vec<plans::Plan>| plans.into_iter().map(|plan| plan.id).collect::<Vec<_>>();
    assert_eq!(ids(plans::list(test.db(), None, None, 10).await.expect("list").items), [two.id, one.id]);
    assert_eq!(ids(plans::list(test.db(), None, Some(two.id), 10).await.expect("list").items), [one.id]);
}

#[tokio::test]
async fn a_shown_plan_is_found_by_its_digest_and_is_no_plan_of_the_source() {
    let test = TestDb::create().await;
    let plan = |doc: &str| NewPlan {
        id: PlanId::generate(),
        source: "fleet".to_owned(),
        commit: Some("1".to_owned()),
        base_commit: None,
        digest: Digest::of(doc),
        doc: doc.to_owned(),
    };
    let open = plan("{}");
    commit!(test.db(), |txn| plans::insert(&mut txn, &open).await.expect("insert"));
    let shown = plan("{\"a\":1}");
    let id = commit!(test.db(), |txn| plans::show(&mut txn, &shown, "ci").await.expect("shown"));
    let again = NewPlan { id: PlanId::generate(), ..shown.clone() };
    assert_eq!(commit!(test.db(), |txn| plans::show(&mut txn, &again, "ci").await.expect("shown")), id);
    let found = plans::find_by_digest(test.db(), "fleet", &shown.digest).await.expect("find").expect("a plan");
    assert_eq!((found.id, found.state, found.commit.as_deref()), (id, PlanState::Shown, Some("1")));
    assert_eq!(
        plans::find_by_commit(test.db(), "fleet", "1").await.expect("find").map(|plan| plan.id),
        Some(open.id),
        "a preview is not what the source made of the commit"
    );
    assert_eq!(plans::find(test.db(), open.id).await.expect("find").map(|plan| plan.state), Some(PlanState::Open));
    test.advance(std::time::Duration::from_secs(31 * 86_400)).await;
    assert_eq!(plans::prune(test.db()).await.expect("prune"), 1);
}

#[tokio::test]
async fn shown_plans_are_bounded_for_each_who_asks() {
    let test = TestDb::create().await;
    let plan = |n: u32| NewPlan {
        id: PlanId::generate(),
        source: "fleet".to_owned(),
        commit: None,
        base_commit: None,
        digest: Digest::of(n.to_string()),
        doc: n.to_string(),
    };
    let others = NewPlan { digest: Digest::of("others"), ..plan(u32::MAX) };
    commit!(test.db(), |txn| {
        plans::show(&mut txn, &others, "token/b").await.expect("shown");
        for n in 0..plans::MAX_SHOWN + 3 {
            plans::show(&mut txn, &plan(n), "token/a").await.expect("shown");
        }
    });
    let found = plans::find_by_digest(test.db(), "fleet", &others.digest).await.expect("find");
    assert!(found.is_some(), "one token's plans push out no other's");
    for (n, kept) in [(0, false), (2, false), (3, true), (plans::MAX_SHOWN + 2, true)] {
        let found = plans::find_by_digest(test.db(), "fleet", &Digest::of(n.to_string())).await.expect("find");
        assert_eq!(found.is_some(), kept, "{n}");
    }
}

#[tokio::test]
async fn a_look_at_the_whole_reads_what_it_needs_and_no_more() {
    let test = TestDb::create().await;
    let db = test.db();
    let changes = [
        change("fleet/acme", "{\"name\":\"acme\"}", ObjectState::Declared),
        change("node/a", "{\"name\":\"a\"}", ObjectState::Declared),
        change("node/b", "{\"name\":\"b\",\"pin\":{\"owner\":\"ada\"}}", ObjectState::Retained),
        change("pool/h100", "{\"name\":\"h100\",\"suspend\":{\"owner\":\"ada\"}}", ObjectState::Declared),
        change("pool/old", "{\"name\":\"old\",\"suspend\":{}}", ObjectState::Removed),
        change("freeze/x", "{\"name\":\"x\"}", ObjectState::Retained),
    ];
    revision(db, "1", &changes).await;
    for name in ["a", "b", "c"] {
        node(db, name).await;
    }
    let mut txn = db.begin().await.expect("begin");
    let braking = revisions::braking(&mut txn).await.expect("reads").items;
    let names: Vec<String> = braking.iter().map(|object| object.object.to_string()).collect();
    assert_eq!(names, ["fleet/acme", "freeze/x", "node/b", "pool/h100"]);
    let places = nodes::places(&mut txn, &["b".to_owned(), "nobody".to_owned()]).await.expect("reads");
    assert_eq!(places.iter().map(|place| place.machines).sum::<u64>(), 3);
    assert_eq!(places.iter().flat_map(|place| place.named.clone()).collect::<Vec<_>>(), ["b"]);
    assert!(nodes::awaiting_boot(&mut txn).await.expect("reads").is_empty());
    drop(txn);
    let retained = revisions::retained(db, 1).await.expect("reads");
    assert_eq!(retained, (2, vec!["freeze/x".to_owned()]));
}

#[tokio::test]
async fn a_rollback_moves_what_is_in_force_and_keeps_what_a_newer_commit_must_follow() {
    let test = TestDb::create().await;
    commit!(test.db(), |txn| {
        sources::ensure(&mut txn, "fleet", "/repo", "main", "").await.expect("ensure");
        sources::advance(&mut txn, "fleet", Stage::Applied, None, "c3").await.expect("in force");
    });
    for (expected, to) in [("c3", "c1"), ("c1", "c2")] {
        commit!(test.db(), |txn| sources::roll_back(&mut txn, "fleet", Some(expected), to).await.expect("back"));
        let source = sources::find(test.db(), "fleet").await.expect("find").expect("a source");
        assert_eq!(source.applied.map(|at| at.commit).as_deref(), Some(to));
        assert_eq!(source.rolled_back_from.as_deref(), Some("c3"), "however often");
    }
    let mut txn = test.db().begin().await.expect("begin");
    assert!(matches!(
        sources::roll_back(&mut txn, "fleet", Some("c3"), "c1").await,
        Err(AdvanceError::Moved { stage: Stage::Applied, .. })
    ));
    drop(txn);
    commit!(test.db(), |txn| sources::advance(&mut txn, "fleet", Stage::Applied, Some("c2"), "c4").await.expect("on"));
    let source = sources::find(test.db(), "fleet").await.expect("find").expect("a source");
    assert_eq!(source.rolled_back_from, None);
}

#[tokio::test]
async fn holds_of_a_gate_are_replaced_as_one() {
    let test = TestDb::create().await;
    let hold = |subject: &str, reason: &str| NewFleetHold {
        subject: subject.to_owned(),
        hold: Hold {
            source: HoldSource::Git,
            owner: "ada".to_owned(),
            reason: reason.to_owned(),
            until: None,
            place: Some("f.kdl:1".to_owned()),
        },
    };
    let replace = async |holds: &[NewFleetHold]| {
        commit!(test.db(), |txn| fleet_holds::replace(&mut txn, "freeze", HoldSource::Git, holds)
            .await
            .expect("replace"));
        fleet_holds::list(test.db()).await.expect("list").items
    };
    let first = replace(&[hold("pool/a", "x"), hold("pool/b", "y")]).await;
    assert_eq!(first.len(), 2);
    let second = replace(&[hold("pool/b", "z")]).await;
    assert_eq!((second.len(), second[0].hold.reason.as_str(), second[0].created_at), (1, "z", first[1].created_at));
}

fn target(doc: &str) -> Target {
    Target { digest: Digest::of(doc), pool: name("h100"), profile: name("gpu"), doc: doc.to_owned() }
}

fn pool(to: &Target) -> NewPool {
    NewPool {
        name: name("h100"),
        site: name("fra1"),
        class: PoolClass::MetalHost,
        owner_tenant: None,
        policy: json!({"lost-after": "5m"}),
        target: Some(to.digest),
        profile_targets: BTreeMap::from([(name("gpu"), to.digest)]),
    }
}

#[tokio::test]
async fn pools_keep_their_target_and_a_target_stays_for_who_was_assigned_it() {
    let test = TestDb::create().await;
    let revision = revision(test.db(), "1", &[]).await;
    let (old, new) = (target("{\"v\":1}"), target("{\"v\":2}"));
    for one in [&old, &new] {
        commit!(test.db(), |txn| {
            pools::lock_all(&mut txn).await.expect("lock");
            pools::insert_targets(&mut txn, &[one.clone(), one.clone()]).await.expect("targets");
            pools::upsert(&mut txn, revision, &[pool(one)]).await.expect("pools");
        });
    }
    let stored = pools::find(test.db(), "h100").await.expect("find").expect("a pool");
    assert_eq!((stored.target, stored.revision), (Some(new.digest), Some(revision)));
    assert_eq!(stored.profile_targets, BTreeMap::from([(name("gpu"), new.digest)]));
    assert_eq!(pools::find_target(test.db(), &old.digest).await.expect("find"), Some(old));
    let mut txn = test.db().begin().await.expect("begin");
    assert_eq!(pools::find_shared(&mut txn, "h100").await.expect("find"), Some(stored));
    drop(txn);
    commit!(test.db(), |txn| pools::delete(&mut txn, &[name("h100")]).await.expect("delete"));
    assert!(pools::list(test.db()).await.expect("list").items.is_empty());
}

fn declared(node: &nodes::Node, to: &Target, assign: bool) -> Declared {
    Declared {
        id: node.id,
        site: node.site.clone(),
        pool: node.pool.clone(),
        role: Role::Host,
        labels: BTreeMap::from([("rack".to_owned(), "r1".to_owned())]),
        declared: true,
        target: Some(to.digest),
        target_overlay: "{\"profile\":\"gpu\"}".to_owned(),
        assign,
    }
}

#[tokio::test]
async fn declaring_nodes_assigns_those_that_should_be_and_names_those_that_moved() {
    let test = TestDb::create().await;
    let (a, b) = (node(test.db(), "a").await, node(test.db(), "b").await);
    let to = target("{}");
    commit!(test.db(), |txn| pools::insert_targets(&mut txn, std::slice::from_ref(&to)).await.expect("targets"));
    let declare = async || {
        commit!(test.db(), |txn| nodes::declare(&mut txn, &[declared(&a, &to, true), declared(&b, &to, false)])
            .await
            .expect("declare"))
    };
    assert_eq!(declare().await, [a.id]);
    assert!(declare().await.is_empty(), "nothing moves twice");
    let (after_a, after_b) = (read(test.db(), a.id).await, read(test.db(), b.id).await);
    assert_eq!(
        (after_a.assigned, after_a.assigned_overlay.as_str(), after_a.declared),
        (Some(to.digest), "{\"profile\":\"gpu\"}", true)
    );
    assert_eq!((after_b.target, after_b.assigned, after_b.assigned_overlay.as_str()), (Some(to.digest), None, "{}"));
    assert!(after_b.version > b.version);

    let mut txn = test.db().begin().await.expect("begin");
    let view = nodes::declared_view(&mut txn).await.expect("view").items;
    assert_eq!(
        view.iter().map(|one| (one.name.clone(), one.assigned)).collect::<Vec<(Name, _)>>(),
        [(name("a"), Some(to.digest)), (name("b"), None)]
    );
    let all = [
        Assignment { id: a.id, target: to.digest, overlay: "{}".to_owned() },
        Assignment { id: b.id, target: to.digest, overlay: "{}".to_owned() },
    ];
    assert_eq!(nodes::assign(&mut txn, &all).await.expect("assign").len(), 2);
    assert_eq!(nodes::set_targets(&mut txn, &all).await.expect("targets").len(), 2);
    assert!(nodes::set_targets(&mut txn, &all).await.expect("targets").is_empty());
}

#[tokio::test]
async fn progress_counts_what_is_really_there() {
    let test = TestDb::create().await;
    let revision = revision(test.db(), "1", &[]).await;
    let to = target("{}");
    commit!(test.db(), |txn| {
        pools::insert_targets(&mut txn, std::slice::from_ref(&to)).await.expect("targets");
        pools::upsert(&mut txn, revision, &[pool(&to), NewPool { name: name("empty"), ..pool(&to) }])
            .await
            .expect("pools");
    });
    let fresh = nodes::NewNode { target: Some(to.digest), ..new_node("a") };
    commit!(test.db(), |txn| {
        nodes::insert(&mut txn, &fresh).await.expect("insert");
        nodes::insert(&mut txn, &new_node("b")).await.expect("insert");
        let locked = nodes::lock(&mut txn, fresh.id).await.expect("lock").expect("a node");
        nodes::adopt(&mut txn, &locked).await.expect("adopt");
        let from = nodes::SpecFrom { target: to.digest, overlay: "{}".to_owned() };
        let spec = nodes::NewSpec {
            generation: Generation(1),
            bytes: b"{}",
            signature: b"s",
            from: &from,
            effect: schema::effect::EffectClass::Live,
        };
        nodes::set_spec(&mut txn, fresh.id, Generation(0), &spec).await.expect("spec");
    });
    let progress = async || {
        let all = pools::progress(test.db()).await.expect("progress").items;
        all.into_iter().map(|p| (p.pool.to_string(), p.total, p.assigned, p.converged)).collect::<Vec<_>>()
    };
    assert_eq!(progress().await, [("empty".to_owned(), 0, 0, 0), ("h100".to_owned(), 2, 1, 0)]);
    commit!(test.db(), |txn| nodes::observe(&mut txn, fresh.id, Generation(1), Generation(1)).await.expect("observe"));
    assert_eq!(progress().await[1], ("h100".to_owned(), 2, 1, 1));

    let certificate = crate::certificate(fresh.id, 1);
    commit!(test.db(), |txn| {
        store::node_certs::insert(&mut txn, &certificate).await.expect("insert");
        store::node_certs::revoke_all(&mut txn, fresh.id, "stolen").await.expect("revoked");
    });
    let h100 = &pools::progress(test.db()).await.expect("progress").items[1];
    assert_eq!((h100.total, h100.converged, h100.revoked), (2, 0, 1), "nobody waits for it");
}

#[tokio::test]
async fn a_dropped_transaction_leaves_neither_revision_nor_wake_up() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let first = revision(test.db(), "1", &[]).await;
    let mut txn = test.db().begin().await.expect("begin");
    let new = revisions::list(test.db(), None, 1).await.expect("list").items.remove(0).revision;
    let new = NewRevision { id: RevisionId::generate(), ..new };
    revisions::insert(&mut txn, &new, &[change("pool/a", "{}", ObjectState::Declared)]).await.expect("insert");
    queue::enqueue(&mut txn, &queue::NODESPEC, [id]).await.expect("enqueue");
    drop(txn);
    assert_eq!(revisions::latest(test.db()).await.expect("latest").map(|r| r.revision.id), Some(first));
    assert!(revisions::objects(test.db()).await.expect("objects").is_empty());
    assert!(queue::depth(test.db()).await.expect("depth").is_empty());
}

#[tokio::test]
async fn ten_thousand_objects_and_wake_ups_are_a_handful_of_statements() {
    let test = TestDb::create().await;
    let changes: Vec<ObjectChange> =
        (0..10_000).map(|n| change(&format!("node/n{n}"), &format!("{{\"n\":{n}}}"), ObjectState::Declared)).collect();
    revision(test.db(), "1", &changes).await;
    let keys: Vec<String> = (0..10_000).map(|n| format!("n{n}")).collect();
    commit!(test.db(), |txn| queue::enqueue(&mut txn, &queue::NODESPEC, &keys).await.expect("enqueue"));
    assert_eq!(revisions::objects(test.db()).await.expect("objects").len(), 10_000);
    assert_eq!(queue::depth(test.db()).await.expect("depth"), [("nodespec".to_owned(), 10_000)]);
}

#[tokio::test]
async fn what_nobody_names_any_more_is_forgotten() {
    let test = TestDb::create().await;
    let revision = revision(test.db(), "1", &[]).await;
    let [of_pool, of_profile, of_node, of_nobody] = ["1", "2", "3", "4"].map(target);
    let plan = |commit_id: &str| NewPlan {
        id: PlanId::generate(),
        source: "fleet".to_owned(),
        commit: Some(commit_id.to_owned()),
        base_commit: None,
        digest: Digest::of("{}"),
        doc: "{}".to_owned(),
    };
    let node = node(test.db(), "a").await;
    commit!(test.db(), |txn| {
        let all = [of_pool.clone(), of_profile.clone(), of_node.clone(), of_nobody.clone()];
        pools::insert_targets(&mut txn, &all).await.expect("targets");
        let pool = NewPool { profile_targets: [(name("gpu"), of_profile.digest)].into(), ..pool(&of_pool) };
        pools::upsert(&mut txn, revision, &[pool]).await.expect("a pool");
        let assignment = Assignment { id: node.id, target: of_node.digest, overlay: "{}".to_owned() };
        nodes::assign(&mut txn, &[assignment]).await.expect("assigned");
        plans::insert(&mut txn, &plan("1")).await.expect("a plan");
        plans::insert(&mut txn, &plan("2")).await.expect("a plan");
    });
    let prune = async || {
        (plans::prune(test.db()).await.expect("plans"), pools::prune_targets(test.db()).await.expect("targets"))
    };
    assert_eq!(prune().await, (0, 0), "nothing is old");
    test.advance(std::time::Duration::from_secs(31 * 86_400)).await;
    commit!(test.db(), |txn| pools::insert_targets(&mut txn, std::slice::from_ref(&of_nobody)).await.expect("targets"));
    assert_eq!(prune().await, (1, 0), "one that is stored again is about to be named");
    test.advance(std::time::Duration::from_secs(2 * 86_400)).await;
    assert_eq!(prune().await, (0, 1));
    for kept in [of_pool, of_profile, of_node] {
        assert!(pools::find_target(test.db(), &kept.digest).await.expect("find").is_some());
    }
}

#[tokio::test]
async fn a_server_without_room_is_waited_for() {
    let test = TestDb::create().await;
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    for code in ["53100", "53200", "53300", "25006", "57P03"] {
        let raise = format!("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END $$");
        let error = conn.execute(sqlx::AssertSqlSafe(raise)).await.expect_err("raised");
        assert!(store::DbError::from(error).is_unavailable(), "{code}");
    }
}
