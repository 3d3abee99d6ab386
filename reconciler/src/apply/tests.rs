//! Apply against PostgreSQL: everything together or nothing.

use std::{collections::BTreeMap, time::Duration};

use schema::{
    fleet::{Fleet, NodeOverlay, Sources, load},
    id::{NodeId, WorkerId},
    node::{Role as NodeRole, Trust},
};
use store::{
    Db, Role, control_plane, fleet_holds,
    leases::{self, Lease},
    node_holds, nodes, pools, revisions, sources,
    testing::TestDb,
    workers,
};

use super::{Applied, ApplyError, Cause, Target, apply, observe, renamed_since};
use crate::{
    plan::{Observed, Planned, plan},
    source::{CommitInfo, FLEET},
};

const BASE: [(&str, &str); 4] = [
    ("fleet.kdl", "fleet \"test\" {\n  format 1\n  trust-domain \"test.example\"\n}\n"),
    ("site.kdl", "site \"fra1\" {\n  region \"eu\"\n}\n"),
    (
        "base.kdl",
        "profile \"base\" {\n  sysctl {\n    \"vm.swappiness\" \"10\"\n  }\n}\nprofile \"quiet\" {\n  extends \"base\"\n  sysctl {\n    \"kernel.printk\" \"3\"\n  }\n}\n",
    ),
    (
        "pools.kdl",
        "pool \"h100\" {\n  site \"fra1\"\n  profile \"base\"\n}\npool \"l40s\" {\n  site \"fra1\"\n  profile \"base\"\n}\n",
    ),
];

fn fleet(changes: &[(&str, &str)]) -> Fleet {
    let mut files: BTreeMap<&str, &str> = BASE.into_iter().collect();
    files.extend(changes.iter().copied());
    let loaded = load(&files.into_iter().map(|(file, text)| (file, text.as_bytes().to_vec())).collect::<Sources>());
    loaded.fleet.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
}

struct World {
    db: TestDb,
    worker: WorkerId,
    lease: Lease,
}

impl World {
    async fn new() -> Self {
        let db = TestDb::create().await;
        let mut txn = db.db().begin().await.expect("begins");
        control_plane::ensure(&mut txn, true, None).await.expect("a row");
        sources::ensure(&mut txn, FLEET, "/fleet", "main", "").await.expect("a source");
        txn.commit().await.expect("commits");
        let (worker, ttl) = (WorkerId::generate(), Duration::from_secs(60));
        workers::join(db.db(), worker, Role::Source, "test", 1, ttl).await.expect("joins");
        let lease = leases::acquire(db.db(), worker, &[leases::singleton("source")], ttl)
            .await
            .expect("asks")
            .pop()
            .expect("free");
        Self { db, worker, lease }
    }

    fn db(&self) -> &Db {
        self.db.db()
    }

    async fn plan(&self, fleet: &Fleet) -> (Observed, Planned) {
        let observed = observe(self.db(), FLEET).await.expect("observes");
        let planned = plan(fleet, &observed, self.db().now().await.expect("a time"));
        (observed, planned)
    }

    async fn write(
        &self,
        commit: &str,
        fleet: &Fleet,
        observed: &Observed,
        planned: &Planned,
    ) -> Result<Applied, ApplyError> {
        let info = CommitInfo {
            id: commit.to_owned(),
            tree: "t".to_owned(),
            parents: Vec::new(),
            author: "Ada".to_owned(),
            committer: "Ada".to_owned(),
            subject: commit.to_owned(),
            committed_at: jiff::Timestamp::UNIX_EPOCH,
            plan: None,
        };
        let target = Target {
            source: FLEET,
            branch: "main",
            commit: &info,
            since: std::slice::from_ref(&info),
            files: None,
            cause: Cause::Tip,
            shown: &[],
            plan: None,
            manifest: None,
            trust_domain: &fleet.document.trust_domain.value,
            worker: self.worker,
            lease: &self.lease,
        };
        apply(self.db(), planned, observed, &target).await
    }

    async fn apply(&self, commit: &str, fleet: &Fleet) -> Applied {
        let (observed, planned) = self.plan(fleet).await;
        self.write(commit, fleet, &observed, &planned).await.expect("applies")
    }

    async fn join(&self, name: &str, pool: &str) -> NodeId {
        let id = NodeId::generate();
        let mut txn = self.db().begin().await.expect("begins");
        let row = pools::find_shared(&mut txn, pool).await.expect("reads");
        let node = nodes::NewNode {
            id,
            name: name.parse().expect("a name"),
            site: row.as_ref().map(|pool| pool.site.clone()),
            pool: Some(pool.parse().expect("a name")),
            owner_tenant: None,
            role: NodeRole::Host,
            trust: Trust::Platform,
            labels: BTreeMap::new(),
            declared: false,
            hardware_key: None,
            hardware_key_trusted: false,
            target: row.and_then(|pool| pool.target),
            overlay: "{}".to_owned(),
        };
        nodes::insert(&mut txn, &node).await.expect("inserts");
        txn.commit().await.expect("commits");
        id
    }

    async fn node(&self, id: NodeId) -> nodes::Node {
        nodes::get(self.db(), id).await.expect("a node")
    }

    async fn settled(&self, fleet: &Fleet) {
        let (_, planned) = self.plan(fleet).await;
        assert!(planned.is_settled(), "{:#?}", planned.plan);
    }
}

#[tokio::test]
async fn a_change_reaches_the_machines_of_its_pool_and_wakes_them() {
    let world = World::new().await;
    let first = fleet(&[]);
    world.apply("c1", &first).await;
    world.settled(&first).await;
    let (a, b) = (world.join("a", "h100").await, world.join("b", "h100").await);
    world.settled(&first).await;
    let before = world.node(a).await;

    let changed = fleet(&[("base.kdl", &BASE[2].1.replace("\"10\"", "\"1\""))]);
    let applied = world.apply("c2", &changed).await;
    assert_eq!(applied.assigned.len(), 2);
    for id in [a, b] {
        let node = world.node(id).await;
        let pool = pools::find(world.db(), "h100").await.expect("reads").expect("a pool");
        assert_eq!((node.target, node.assigned), (pool.target, pool.target));
        assert_ne!(node.assigned, before.assigned);
        assert!(pools::find_target(world.db(), &node.assigned.expect("assigned")).await.expect("reads").is_some());
    }
    let due: BTreeMap<String, u64> = store::queue::depth(world.db()).await.expect("reads").into_iter().collect();
    assert_eq!((due.get("nodespec"), due.get("node")), (Some(&2), Some(&2)));
    world.settled(&changed).await;
}

#[tokio::test]
async fn applying_the_same_commit_again_writes_nothing() {
    let world = World::new().await;
    let fleet = fleet(&[]);
    world.apply("c1", &fleet).await;
    let applied = world.apply("c1", &fleet).await;
    assert_eq!(applied, Applied { revision: None, assigned: Vec::new(), newcomers: false });
    assert_eq!(revisions::list(world.db(), None, 10).await.expect("reads").items.len(), 1);
}

#[tokio::test]
async fn a_commit_that_changes_nothing_still_moves_what_is_in_force() {
    let world = World::new().await;
    let fleet = fleet(&[]);
    world.apply("c1", &fleet).await;
    let applied = world.apply("c2", &fleet).await;
    assert!(applied.revision.is_some());
    let stored = revisions::list(world.db(), None, 10).await.expect("reads").items;
    assert_eq!(stored[0].revision.digest, stored[1].revision.digest);
}

#[tokio::test]
async fn a_plan_of_other_facts_is_not_applied() {
    let world = World::new().await;
    let first = fleet(&[]);
    world.apply("c1", &first).await;
    let without = fleet(&[(
        "pools.kdl",
        "pool \"h100\" {\n  site \"fra1\"\n  profile \"base\"\n}\nremoved \"pool/l40s\" reason=\"sold\"\n",
    )]);
    let (observed, planned) = world.plan(&without).await;
    let late = world.join("late", "l40s").await;
    assert!(matches!(world.write("c2", &without, &observed, &planned).await, Err(ApplyError::Stale)));
    assert_eq!(revisions::list(world.db(), None, 10).await.expect("reads").items.len(), 1);

    let (observed, planned) = world.plan(&first).await;
    let mut txn = world.db().begin().await.expect("begins");
    nodes::delete(&mut txn, late).await.expect("deletes");
    txn.commit().await.expect("commits");
    assert!(matches!(world.write("c2", &first, &observed, &planned).await, Err(ApplyError::Stale)));
    world.apply("c2", &first).await;
    assert!(matches!(world.write("c3", &first, &observed, &planned).await, Err(ApplyError::Moved(_))));
}

#[tokio::test]
async fn machines_that_join_meanwhile_do_not_hold_up_a_plan_that_takes_nothing_away() {
    let world = World::new().await;
    world.apply("c1", &fleet(&[])).await;
    let known = world.join("known", "h100").await;
    let changed = fleet(&[("base.kdl", &BASE[2].1.replace("\"10\"", "\"1\""))]);
    let (observed, planned) = world.plan(&changed).await;
    let late = world.join("late", "h100").await;
    let applied = world.write("c2", &changed, &observed, &planned).await.expect("applies");
    assert_eq!((applied.assigned, applied.newcomers), (vec![known], true));
    let applied = world.apply("c2", &changed).await;
    assert_eq!((applied.revision, applied.assigned, applied.newcomers), (None, vec![late], false));
    world.settled(&changed).await;
}

#[tokio::test]
async fn documents_move_label_cordon_and_release_their_machine() {
    let world = World::new().await;
    world.apply("c1", &fleet(&[])).await;
    let id = world.join("a", "h100").await;
    let declared = fleet(&[(
        "a.kdl",
        "node \"a\" {\n  pool \"l40s\"\n  profile \"quiet\"\n  labels rack=\"r1\"\n  cordon \"fan\" owner=\"ada\"\n}\n",
    )]);
    world.apply("c2", &declared).await;
    let node = world.node(id).await;
    assert_eq!(
        (node.pool.as_deref(), node.declared, node.cordoned, node.labels.get("rack").map(String::as_str)),
        (Some("l40s"), true, true, Some("r1"))
    );
    let overlay: NodeOverlay = serde_json::from_str(&node.assigned_overlay).expect("an overlay");
    assert_eq!(overlay.profile.as_deref(), Some("quiet"));
    let pool = pools::find(world.db(), "l40s").await.expect("reads").expect("a pool");
    assert_eq!(node.assigned.as_ref(), pool.profile_targets.get("quiet"));
    let hold = &node_holds::list(world.db(), id).await.expect("reads").items[0].hold;
    assert_eq!((hold.reason.as_str(), hold.place.as_deref()), ("fan", Some("a.kdl:5")));
    world.settled(&declared).await;

    world.apply("c3", &fleet(&[])).await;
    let retained = world.node(id).await;
    assert_eq!((retained.declared, retained.cordoned, retained.assigned), (true, true, node.assigned));

    world.apply("c4", &fleet(&[("a.kdl", "removed \"node/a\" reason=\"plain again\"\n")])).await;
    let plain = world.node(id).await;
    assert_eq!(
        (plain.declared, plain.cordoned, plain.pool.as_deref(), plain.labels.len()),
        (false, false, Some("l40s"), 0)
    );
    assert_eq!(plain.assigned, pool.target);
}

#[tokio::test]
async fn what_a_gate_holds_is_stored_and_gone_when_the_gate_opens() {
    let world = World::new().await;
    world.apply("c1", &fleet(&[])).await;
    let id = world.join("a", "l40s").await;
    let without = (
        "pools.kdl",
        "pool \"h100\" {\n  site \"fra1\"\n  profile \"base\"\n}\nremoved \"pool/l40s\" reason=\"sold\"\n",
    );
    world.apply("c2", &fleet(&[without])).await;
    let holds = fleet_holds::list(world.db()).await.expect("reads").items;
    assert_eq!(
        holds.iter().map(|hold| (hold.subject.as_str(), hold.gate.as_str())).collect::<Vec<_>>(),
        [("pool/l40s", "dependents")]
    );
    assert!(pools::find(world.db(), "l40s").await.expect("reads").is_some());

    let moved = fleet(&[without, ("a.kdl", "node \"a\" {\n  pool \"h100\"\n}\n")]);
    world.apply("c3", &moved).await;
    assert!(fleet_holds::list(world.db()).await.expect("reads").items.is_empty());
    assert!(pools::find(world.db(), "l40s").await.expect("reads").is_none());
    assert_eq!(world.node(id).await.pool.as_deref(), Some("h100"));
    world.settled(&moved).await;
}

#[tokio::test]
async fn a_renamed_pool_keeps_its_machines_and_removes_nothing() {
    let world = World::new().await;
    world.apply("c1", &fleet(&[])).await;
    let id = world.join("a", "h100").await;
    let before = world.node(id).await;
    let renamed = fleet(&[(
        "pools.kdl",
        "pool \"hopper\" {\n  site \"fra1\"\n  profile \"base\"\n}\npool \"l40s\" {\n  site \"fra1\"\n  profile \"base\"\n}\nmoved from=\"pool/h100\" to=\"pool/hopper\"\n",
    )]);
    let (observed, planned) = world.plan(&renamed).await;
    assert_eq!((planned.plan.counts.remove, planned.plan.counts.retain, planned.plan.moved.len()), (0, 0, 1));
    world.write("c2", &renamed, &observed, &planned).await.expect("applies");
    let after = world.node(id).await;
    assert_eq!((after.id, after.name, after.pool.as_deref()), (before.id, before.name, Some("hopper")));
    let pool = pools::find(world.db(), "hopper").await.expect("reads").expect("a pool");
    assert_eq!((after.target, after.assigned), (pool.target, pool.target));
    assert!(pools::find(world.db(), "h100").await.expect("reads").is_none());
    let objects = revisions::objects(world.db()).await.expect("reads");
    assert!(objects.iter().all(|object| object.state == revisions::ObjectState::Declared), "{objects:#?}");
    let latest = revisions::latest(world.db()).await.expect("reads").expect("a revision");
    let changes = revisions::changes(world.db(), latest.revision.id).await.expect("reads").items;
    let moved: Vec<String> = changes
        .iter()
        .filter(|change| change.state == revisions::ObjectState::Moved)
        .map(|change| change.object.to_string())
        .collect();
    assert_eq!(moved, ["pool/h100"]);
    world.settled(&renamed).await;
}

#[tokio::test]
async fn the_way_back_over_renames_finds_every_name_as_it_was() {
    let world = World::new().await;
    let pools = |name: &str, moved: &str| {
        let pool = |name: &str| format!("pool \"{name}\" {{\n  site \"fra1\"\n  profile \"base\"\n}}\n");
        fleet(&[("pools.kdl", &format!("{}{}{moved}", pool(name), pool("l40s")))])
    };
    let first = pools("h100", "");
    world.apply("c1", &first).await;
    let id = world.join("a", "h100").await;
    world.apply("c1", &first).await;
    let seq = revisions::latest(world.db()).await.expect("reads").expect("a revision").seq;
    world.apply("c2", &pools("hopper", "moved from=\"pool/h100\" to=\"pool/hopper\"\n")).await;
    world.apply("c3", &pools("blackwell", "moved from=\"pool/hopper\" to=\"pool/blackwell\"\n")).await;
    assert_eq!(world.node(id).await.pool.as_deref(), Some("blackwell"));
    for (name, commits) in
        [("blackwell", &["c3", "c2", "c1"][..]), ("hopper", &["c3", "c2", "c1"]), ("h100", &["c2", "c1"])]
    {
        let object = format!("pool/{name}").parse().expect("an address");
        let history = revisions::list_of(world.db(), &object, None, 10).await.expect("reads");
        assert_eq!(history.items.iter().map(|one| one.revision.commit.as_str()).collect::<Vec<_>>(), commits, "{name}");
    }

    let back = renamed_since(world.db(), "fleet", seq).await.expect("reads");
    let told: Vec<(String, String)> = back.iter().map(|(now, had)| (now.to_string(), had.to_string())).collect();
    assert_eq!(told, [("pool/blackwell".to_owned(), "pool/h100".to_owned())]);
    let mut observed = observe(world.db(), "fleet").await.expect("observes");
    observed.back = back;
    let now = world.db().now().await.expect("a time");
    let planned = plan(&first, &observed, now).at_commit("c1");
    assert_eq!((planned.plan.counts.retain, planned.plan.counts.create), (0, 0));
    world.write("c1", &first, &observed, &planned).await.expect("applies");
    assert_eq!(world.node(id).await.pool.as_deref(), Some("h100"));
    assert!(pools::find(world.db(), "blackwell").await.expect("reads").is_none());
    world.settled(&first).await;
}

#[tokio::test]
async fn a_name_that_is_taken_meanwhile_is_planned_anew_and_nothing_is_renamed() {
    let world = World::new().await;
    let declared = fleet(&[("a.kdl", "node \"a\" {\n  pool \"h100\"\n}\n")]);
    world.apply("c1", &declared).await;
    let id = world.join("a", "h100").await;
    world.apply("c1", &declared).await;
    let renamed = fleet(&[("a.kdl", "node \"b\" {\n  pool \"h100\"\n}\nmoved from=\"node/a\" to=\"node/b\"\n")]);
    let (observed, planned) = world.plan(&renamed).await;
    assert_eq!(planned.plan.moved.len(), 1);
    let other = world.join("b", "h100").await;
    assert!(matches!(world.write("c2", &renamed, &observed, &planned).await, Err(ApplyError::Stale)));
    world.apply("c2", &renamed).await;
    assert_eq!((world.node(id).await.name.as_str(), world.node(other).await.name.as_str()), ("a", "b"));
}

#[tokio::test]
async fn a_renamed_machine_keeps_its_id_and_its_row() {
    let world = World::new().await;
    let declared = fleet(&[("a.kdl", "node \"a\" {\n  pool \"h100\"\n}\n")]);
    world.apply("c1", &declared).await;
    let id = world.join("a", "h100").await;
    world.apply("c1", &declared).await;
    let renamed = fleet(&[("a.kdl", "node \"b\" {\n  pool \"h100\"\n}\nmoved from=\"node/a\" to=\"node/b\"\n")]);
    world.apply("c2", &renamed).await;
    let node = world.node(id).await;
    assert_eq!((node.name.as_str(), node.declared, node.pool.as_deref()), ("b", true, Some("h100")));
    world.settled(&renamed).await;
}

#[tokio::test]
async fn a_suspension_meanwhile_makes_the_plan_anew() {
    let world = World::new().await;
    world.apply("c1", &fleet(&[])).await;
    let id = world.join("a", "h100").await;
    let changed = fleet(&[("base.kdl", &BASE[2].1.replace("\"10\"", "\"1\""))]);
    let (observed, planned) = world.plan(&changed).await;
    let mut txn = world.db().begin().await.expect("begins");
    store::suspensions::place(&mut txn, "pool/h100", "ada", "audit", None, "test").await.expect("placed");
    txn.commit().await.expect("commits");
    assert!(matches!(world.write("c2", &changed, &observed, &planned).await, Err(ApplyError::Stale)));

    let before = world.node(id).await;
    let applied = world.apply("c2", &changed).await;
    assert!(applied.assigned.is_empty());
    let held = world.node(id).await;
    assert_eq!(held.assigned, before.assigned);
    assert_ne!(held.target, before.target, "it learns what it should be");
    let holds = fleet_holds::list(world.db()).await.expect("reads").items;
    let hold = holds.iter().find(|hold| hold.gate == "suspend").expect("a stored hold");
    assert_eq!((hold.subject.as_str(), hold.hold.owner.as_str()), ("pool/h100", "ada"));
    assert!(hold.hold.reason.contains("audit"), "{}", hold.hold.reason);
    world.settled(&changed).await;

    let mut txn = world.db().begin().await.expect("begins");
    store::suspensions::lift(&mut txn, "pool/h100").await.expect("lifted");
    txn.commit().await.expect("commits");
    assert_eq!(world.apply("c2", &changed).await.assigned, [id]);
    assert!(fleet_holds::list(world.db()).await.expect("reads").items.is_empty());
}

#[tokio::test]
async fn what_several_things_hold_settles() {
    let world = World::new().await;
    world.apply("c1", &fleet(&[])).await;
    world.join("a", "h100").await;
    world.join("b", "l40s").await;
    let mut txn = world.db().begin().await.expect("begins");
    store::suspensions::place(&mut txn, "pool/h100", "ada", "audit", None, "test").await.expect("placed");
    txn.commit().await.expect("commits");
    let held = fleet(&[
        ("base.kdl", &BASE[2].1.replace("\"10\"", "\"1\"")),
        (
            "pools.kdl",
            "pool \"h100\" {\n  site \"fra1\"\n  profile \"base\"\n  suspend \"power\" owner=\"grace\"\n}\nremoved \"pool/l40s\" reason=\"sold\"\nfreeze \"all\" {\n  scope \"site/fra1\"\n  reason \"exam\"\n  owner \"ada\"\n  from \"2020-01-01T00:00:00Z\"\n  until \"2099-01-01T00:00:00Z\"\n}\n",
        ),
    ]);
    world.apply("c2", &held).await;
    world.settled(&held).await;
    let gates: Vec<String> =
        fleet_holds::list(world.db()).await.expect("reads").items.into_iter().map(|hold| hold.gate).collect();
    assert!(gates.contains(&"suspend".to_owned()) && gates.contains(&"freeze".to_owned()), "{gates:?}");
}

#[tokio::test]
async fn a_commit_that_is_stopped_meanwhile_does_not_come_into_force() {
    let world = World::new().await;
    world.apply("c1", &fleet(&[])).await;
    let changed = fleet(&[("base.kdl", &BASE[2].1.replace("\"10\"", "\"1\""))]);
    let (observed, planned) = world.plan(&changed).await;
    let mut txn = world.db().begin().await.expect("begins");
    store::quarantine::place(&mut txn, FLEET, "c2", "ada", "bad", "test").await.expect("placed");
    txn.commit().await.expect("commits");
    assert!(matches!(world.write("c2", &changed, &observed, &planned).await, Err(ApplyError::Overtaken)));
    assert_eq!(revisions::list(world.db(), None, 10).await.expect("reads").items.len(), 1);
}

#[tokio::test]
async fn a_rename_that_reaches_the_host_waits_for_what_holds_the_machine() {
    let world = World::new().await;
    let named =
        BASE[2].1.replace("profile \"base\" {\n", "profile \"base\" {\n  file \"/etc/name\" template=\"name.j2\"\n");
    let template = ("name.j2", "{{ node.name }}\n");
    let declared = fleet(&[("base.kdl", &named), template, ("a.kdl", "node \"a\" {\n  pool \"h100\"\n}\n")]);
    world.apply("c1", &declared).await;
    let id = world.join("a", "h100").await;
    world.apply("c1", &declared).await;
    let mut txn = world.db().begin().await.expect("begins");
    store::suspensions::place(&mut txn, "pool/h100", "ada", "audit", None, "test").await.expect("placed");
    txn.commit().await.expect("commits");

    let renamed = fleet(&[
        ("base.kdl", &named),
        template,
        ("a.kdl", "node \"b\" {\n  pool \"h100\"\n}\nmoved from=\"node/a\" to=\"node/b\"\n"),
    ]);
    assert!(world.apply("c2", &renamed).await.assigned.is_empty());
    let held = world.node(id).await;
    assert_eq!((held.name.as_str(), held.assigned_name.as_deref()), ("b", Some("a")), "it is told its old name");
    assert!(fleet_holds::list(world.db()).await.expect("reads").items.iter().any(|hold| hold.gate == "suspend"));
    world.settled(&renamed).await;

    let mut txn = world.db().begin().await.expect("begins");
    store::suspensions::lift(&mut txn, "pool/h100").await.expect("lifted");
    txn.commit().await.expect("commits");
    assert_eq!(world.apply("c2", &renamed).await.assigned, [id]);
    assert_eq!(world.node(id).await.assigned_name, None);
    world.settled(&renamed).await;
}
