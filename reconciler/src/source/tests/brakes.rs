//! Quarantine, the way back, and what goes on while the tip is held or git is away.

use std::{path::PathBuf, time::Duration};

use schema::{
    id::{NodeId, RevisionId, RollbackId},
    node::{Role as NodeRole, Trust},
};
use store::{
    nodes, pools, quarantine, revision_files, revisions,
    rollbacks::{self, NewRollback, RollbackState},
};

use super::{Git, SourceState, pass::World};
use crate::{
    plan::{Observed, plan},
    source::{FLEET, Passed, Repo, Step, read_tree},
};

const QUIET: &str = "profile \"base\" {\n    sysctl {\n        \"vm.swappiness\" \"1\"\n    }\n}\n";

impl World {
    pub(super) async fn ask(&self, to: RevisionId) -> RollbackId {
        let id = RollbackId::generate();
        let from_commit = self.source().await.applied.expect("in force").commit;
        let mut txn = self.db.db().begin().await.expect("begins");
        let new = NewRollback {
            id,
            source: FLEET.to_owned(),
            revision: to,
            from_commit,
            plan: None,
            owner: "ada".to_owned(),
            reason: "it swaps".to_owned(),
            requested_by: "token/x".to_owned(),
            quarantined: Vec::new(),
        };
        rollbacks::request(&mut txn, &new).await.expect("asked");
        txn.commit().await.expect("commits");
        id
    }

    pub(super) async fn newest(&self) -> revisions::Revision {
        revisions::latest(self.db.db()).await.expect("reads").expect("a revision")
    }

    async fn join(&self, name: &str) -> NodeId {
        let pool = pools::find(self.db.db(), "h100").await.expect("reads").expect("a pool");
        let node = nodes::NewNode {
            id: NodeId::generate(),
            name: name.parse().expect("a name"),
            site: Some(pool.site),
            pool: Some(pool.name),
            owner_tenant: None,
            role: NodeRole::Host,
            trust: Trust::Platform,
            labels: std::collections::BTreeMap::new(),
            declared: false,
            hardware_key: None,
            hardware_key_trusted: false,
            target: pool.target,
            overlay: "{}".to_owned(),
        };
        let mut txn = self.db.db().begin().await.expect("begins");
        nodes::insert(&mut txn, &node).await.expect("inserts");
        txn.commit().await.expect("commits");
        node.id
    }

    async fn node(&self, id: NodeId) -> nodes::Node {
        nodes::get(self.db.db(), id).await.expect("a node")
    }

    /// Takes the repository away; what it answers brings it back.
    fn lose(&self) -> (PathBuf, PathBuf) {
        let (git, gone) = (self.git.path().join(".git"), self.git.path().join("gone"));
        std::fs::rename(&git, &gone).expect("renamed");
        (gone, git)
    }

    async fn quarantine(&self, commit: &str) {
        let mut txn = self.db.db().begin().await.expect("begins");
        quarantine::place(&mut txn, FLEET, commit, "ada", "bad kernel", "token/x").await.expect("held");
        txn.commit().await.expect("commits");
    }
}

fn back((from, to): (PathBuf, PathBuf)) {
    std::fs::rename(from, to).expect("renamed back");
}

#[tokio::test]
async fn a_rollback_works_with_the_repository_gone_and_a_newer_commit_goes_on() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let (first, one, good) = (world.git.head(), world.newest().await, world.in_force().await);
    let id = world.join("a").await;
    let before = world.node(id).await;
    world.git.write("profiles/base.kdl", QUIET);
    world.git.write("pools/more.kdl", "pool \"more\" {\n    site \"fra1\"\n    profile \"base\"\n}\n");
    let second = world.git.commit("second");
    world.run().await;
    assert_ne!(world.node(id).await.assigned, before.assigned);

    let away = world.lose();
    world.ask(one.revision.id).await;
    assert_eq!(world.run().await, Passed::RolledBack { commit: first.clone() });
    let source = world.source().await;
    assert_eq!(
        (source.applied.map(|at| at.commit), source.rolled_back_from.as_deref(), source.state.as_str()),
        (Some(first.clone()), Some(second.as_str()), "quarantined")
    );
    assert!(source.reason.is_some_and(|reason| reason.contains("it swaps") && reason.contains("ada")));
    assert_eq!(world.node(id).await.assigned, before.assigned, "a plan forward to what was");
    let objects = world.in_force().await.1;
    for object in &good.1 {
        assert!(objects.contains(object), "{object:?} of {objects:?}");
    }
    assert!(objects.iter().any(|(object, text)| object == "pool/more" && text.ends_with("Retained")), "nothing goes");
    let newest = world.newest().await;
    assert_eq!(newest.tree_digest, one.tree_digest);
    assert_eq!(newest.revision.summary["rollback"]["to"], one.revision.id.to_string());
    let files = revision_files::read(world.db.db(), newest.revision.id).await.expect("reads").expect("files");
    assert_eq!(files.len(), 4);
    assert_eq!(world.held().await, SourceState::Unreachable);

    back(away);
    for _ in 0..2 {
        assert_eq!(world.held().await, SourceState::Quarantined);
        assert_eq!(world.in_force().await.0, Some(first.clone()));
    }
    world.git.write("pools/third.kdl", "pool \"third\" {\n    site \"fra1\"\n    profile \"base\"\n}\n");
    let third = world.git.commit("third");
    assert!(matches!(world.run().await, Passed::InForce { commit, applied: Some(_) } if commit == third));
    let source = world.source().await;
    assert_eq!((source.state.as_str(), source.rolled_back_from), ("ok", None));
    assert_ne!(world.node(id).await.assigned, before.assigned);
}

#[tokio::test]
async fn a_rollback_that_dies_after_any_step_is_finished_by_the_next_pass() {
    for step in [Step::Look, Step::Verify, Step::Plan] {
        let world = World::with(Git::fleet()).await;
        world.run().await;
        let (first, one) = (world.git.head(), world.newest().await);
        world.git.write("profiles/base.kdl", QUIET);
        let second = world.git.commit("second");
        world.run().await;
        world.ask(one.revision.id).await;
        assert_eq!(world.pass().run_to(&world.lease, true, step).await.expect("a pass"), Passed::Stopped(step));
        assert_eq!(world.in_force().await.0, Some(second), "{step:?}");
        assert_eq!(world.run().await, Passed::RolledBack { commit: first.clone() }, "{step:?}");
        assert_eq!(world.held().await, SourceState::Quarantined, "{step:?}");
        assert_eq!(world.in_force().await.0, Some(first), "{step:?}");
        assert_eq!(revisions::list(world.db.db(), None, 10).await.expect("reads").items.len(), 3, "{step:?}");

        let second = world.git.head();
        let mut txn = world.db.db().begin().await.expect("begins");
        quarantine::lift(&mut txn, FLEET, &second).await.expect("lifted");
        txn.commit().await.expect("commits");
        assert!(matches!(world.run().await, Passed::InForce { commit, applied: Some(_) } if commit == second));
        assert_eq!(world.source().await.rolled_back_from, None, "{step:?}");
    }
}

#[tokio::test]
async fn a_rollback_that_cannot_be_is_refused_with_a_reason_and_the_source_goes_on() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let id = world.ask(world.newest().await.revision.id).await;
    let second = world.git.commit("second");
    assert!(matches!(world.run().await, Passed::InForce { commit, .. } if commit == second));
    let ended = rollbacks::latest(world.db.db(), FLEET).await.expect("reads").expect("one");
    assert_eq!((ended.new.id, ended.state), (id, RollbackState::Refused));
    assert!(ended.message.contains("in force already"), "{}", ended.message);
}

#[tokio::test]
async fn a_quarantined_tip_stands_until_it_is_released_or_a_newer_commit_comes() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let good = world.in_force().await;
    world.git.write("profiles/base.kdl", QUIET);
    let second = world.git.commit("second");
    world.quarantine(&second).await;
    assert_eq!(world.held().await, SourceState::Quarantined);
    let reason = world.source().await.reason.expect("a reason");
    assert!(reason.contains("ada") && reason.contains("bad kernel") && reason.contains(&second), "{reason}");
    assert_eq!(world.in_force().await, good);

    let mut txn = world.db.db().begin().await.expect("begins");
    quarantine::lift(&mut txn, FLEET, &second).await.expect("lifted");
    txn.commit().await.expect("commits");
    assert!(matches!(world.run().await, Passed::InForce { commit, applied: Some(_) } if commit == second));

    // The commit in force too: what is in force stays.
    world.quarantine(&second).await;
    assert_eq!(world.held().await, SourceState::Quarantined);
    assert_eq!(world.in_force().await.0, Some(second));
    let third = world.git.commit("third");
    assert!(matches!(world.run().await, Passed::InForce { commit, .. } if commit == third));
}

#[tokio::test]
async fn a_machine_that_joins_while_git_is_away_is_told_what_it_should_be() {
    let world = World::with(Git::fleet()).await;
    world.git.write(
        "nodes/a.kdl",
        "node \"a\" {\n    pool \"h100\"\n    labels rack=\"r1\"\n    cordon \"fan\" owner=\"ada\"\n}\n",
    );
    world.git.commit("a");
    world.run().await;
    let _away = world.lose();
    let id = world.join("a").await;
    assert_eq!(world.held().await, SourceState::Unreachable);
    let node = world.node(id).await;
    assert_eq!((node.declared, node.cordoned, node.labels.get("rack").map(String::as_str)), (true, true, Some("r1")));
    assert_eq!(world.source().await.state, "unreachable", "the state of the source is its own");
}

#[tokio::test]
async fn a_freeze_lets_go_at_its_end_without_a_commit_and_without_git() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let id = world.join("a").await;
    let before = world.node(id).await;
    let until = schema::time::Duration::from_secs(3_600).after(world.db.db().now().await.expect("now"));
    world.git.write(
        "freezes/now.kdl",
        &format!("freeze \"now\" {{\n    scope \"pool/h100\"\n    reason \"exam\"\n    owner \"ada\"\n    from \"2020-01-01T00:00:00Z\"\n    until \"{until}\"\n}}\n"),
    );
    world.git.write("profiles/base.kdl", QUIET);
    let second = world.git.commit("second");
    let mut pass = world.pass();
    let passed = pass.run(&world.lease, true).await.expect("a pass");
    assert!(matches!(passed, Passed::InForce { commit, .. } if commit == second));
    assert_eq!(pass.next_edge(), Some(until));
    let held = world.node(id).await;
    assert_eq!(held.assigned, before.assigned);
    assert_ne!(held.target, before.target);

    let away = world.lose();
    world.db.advance(Duration::from_secs(3_000)).await;
    world.run_later().await;
    assert_eq!(world.node(id).await.assigned, before.assigned);
    world.db.advance(Duration::from_secs(601)).await;
    world.run_later().await;
    let free = world.node(id).await;
    assert_eq!(free.assigned, free.target);
    assert_eq!(free.target, held.target);
    back(away);
}

#[tokio::test]
async fn a_plan_that_was_made_offline_counts_for_the_machines_that_it_knew() {
    let world = World::with(Git::fleet()).await;
    world.git.write(
        "fleet.kdl",
        &super::super::fixture::FLEET.replace("format 1", "format 1\n    apply {\n        bind \"reboot\"\n    }"),
    );
    world.git.write("nodes/a.kdl", "node \"a\" {\n    pool \"h100\"\n}\n");
    let base = world.git.commit("bind");
    world.run().await;
    let (declared, undeclared) = (world.join("a").await, world.join("b").await);
    world.run().await;

    let arguments = QUIET.replace("    sysctl", "    kernel {\n        args \"quiet\"\n    }\n    sysctl");
    world.git.write("profiles/base.kdl", &arguments);
    let head = world.git.commit("arguments");
    let repo = Repo::open(world.git.path()).expect("opens");
    let fleet = |commit: &str| {
        let loaded = schema::fleet::load(&read_tree(&repo, commit, "").expect("reads"));
        loaded.fleet.expect("a fleet")
    };
    let now = world.db.db().now().await.expect("now");
    let shown = plan(&fleet(&head), &Observed::from_fleet(&fleet(&base)), now).plan.digest();
    world.git.git(&["commit", "-q", "--amend", "-m", &format!("arguments\n\nbc-plan: {shown}")]);
    world.run().await;
    let settled = async |id| {
        let node = world.node(id).await;
        node.target == node.assigned
    };
    assert!(settled(declared).await);
    assert!(!settled(undeclared).await, "a plan of trees alone never saw it");
    let kept = store::plans::find_by_digest(world.db.db(), FLEET, &shown).await.expect("reads").expect("it is kept");
    assert_eq!(kept.state, store::plans::PlanState::Shown);
}

/// Whether the site that a test removes is still in force.
async fn stands(world: &World) -> bool {
    let objects = world.in_force().await.1;
    objects.iter().any(|(object, text)| object == "site/ams1" && !text.ends_with("Removed"))
}

#[tokio::test]
async fn a_commit_does_not_lift_the_limits_that_it_came_under() {
    let world = World::with(Git::fleet()).await;
    let limited = |most: u32| {
        super::super::fixture::FLEET.replace("format 1", &format!("format 1\n    prune max-objects={most}"))
    };
    world.git.write("fleet.kdl", &limited(0));
    world.git.write("sites/ams1.kdl", "site \"ams1\" {\n    region \"eu\"\n}\n");
    world.git.commit("limits");
    world.run().await;
    world.git.write("fleet.kdl", &limited(50));
    world.git.remove("sites/ams1.kdl");
    world.git.write("gone.kdl", "removed \"site/ams1\" reason=\"sold\"\n");
    world.git.commit("limits lifted, and made use of");
    let mut pass = world.pass();
    for _ in 0..3 {
        pass.run(&world.lease, true).await.expect("a pass");
        assert!(stands(&world).await);
    }
    world.run().await;
    let away = world.lose();
    world.run().await;
    back(away);
    assert!(stands(&world).await, "nor in another process, nor while git is away");
    world.git.commit("the one after it");
    world.run().await;
    assert!(!stands(&world).await);
}

#[tokio::test]
async fn a_refused_rollback_lets_go_what_it_put_in_quarantine() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let one = world.newest().await;
    let second = world.git.commit("second");
    world.run().await;
    let id = RollbackId::generate();
    let mut txn = world.db.db().begin().await.expect("begins");
    quarantine::place(&mut txn, FLEET, &second, "ada", "rolled back", "token/x").await.expect("held");
    let new = NewRollback {
        id,
        source: FLEET.to_owned(),
        revision: one.revision.id,
        from_commit: "another".to_owned(),
        plan: None,
        owner: "ada".to_owned(),
        reason: "it swaps".to_owned(),
        requested_by: "token/x".to_owned(),
        quarantined: vec![second.clone()],
    };
    rollbacks::request(&mut txn, &new).await.expect("asked");
    txn.commit().await.expect("commits");
    assert!(matches!(world.run().await, Passed::InForce { commit, .. } if commit == second));
    let ended = rollbacks::latest(world.db.db(), FLEET).await.expect("reads").expect("one");
    assert_eq!(ended.state, RollbackState::Refused);
    assert_eq!(world.source().await.state, "ok");
}

#[tokio::test]
async fn a_commit_removes_nothing_under_the_brake_that_it_lifts() {
    let world = World::with(Git::fleet()).await;
    let stopped = super::super::fixture::FLEET.replace("format 1", "format 1\n    suspend \"all\" owner=\"ada\"");
    world.git.write("fleet.kdl", &stopped);
    world.git.write("sites/ams1.kdl", "site \"ams1\" {\n    region \"eu\"\n}\n");
    world.git.commit("stopped");
    world.run().await;
    world.git.write("fleet.kdl", super::super::fixture::FLEET);
    world.git.remove("sites/ams1.kdl");
    world.git.write("gone.kdl", "removed \"site/ams1\" reason=\"sold\"\n");
    world.git.commit("lifted, and made use of");
    let mut pass = world.pass();
    for _ in 0..3 {
        pass.run(&world.lease, true).await.expect("a pass");
        assert!(stands(&world).await);
    }
    world.run().await;
    assert!(stands(&world).await, "nor in another process");
    world.git.commit("the one after it");
    world.run().await;
    assert!(!stands(&world).await);
}
