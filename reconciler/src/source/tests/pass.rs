//! Whole passes against PostgreSQL: what is stored, what stays, and that dying in between costs nothing.

use std::time::Duration;

use schema::id::{NodeId, WorkerId};
use store::{
    Role, audit, control_plane,
    leases::{self, Lease},
    nodes, plans, revisions,
    sources::{self, Source},
    testing::TestDb,
    workers,
};

use super::{Git, GitAccess, SourceState, config};
use crate::source::{AcceptError, FLEET, Pass, Passed, Step, accept};

pub(super) struct World {
    pub(super) db: TestDb,
    pub(super) git: Git,
    worker: WorkerId,
    pub(super) lease: Lease,
}

async fn holder(db: &TestDb) -> (WorkerId, Lease) {
    let worker = WorkerId::generate();
    let ttl = Duration::from_secs(60);
    workers::join(db.db(), worker, Role::Source, "test", 1, ttl).await.expect("joins");
    let lease = leases::acquire(db.db(), worker, &[leases::singleton("source")], ttl)
        .await
        .expect("asks")
        .pop()
        .expect("the lease is free");
    (worker, lease)
}

impl World {
    pub(super) async fn steal(&self, sql: &str) {
        store::testing::steal(self.db.db(), sql).await.expect("whoever has the database may do all of it");
    }

    pub(super) async fn with(git: Git) -> Self {
        let db = TestDb::create().await;
        let mut txn = db.db().begin().await.expect("begins");
        control_plane::ensure(&mut txn, true, None).await.expect("a row");
        txn.commit().await.expect("commits");
        let (worker, lease) = holder(&db).await;
        Self { db, git, worker, lease }
    }

    pub(super) fn pass(&self) -> Pass {
        let config = config(self.git.path());
        Pass::new(self.db.db().clone(), FLEET, config, GitAccess::default(), self.git.path().to_owned(), self.worker)
    }

    /// A pass over another repository.
    pub(super) fn pass_over(&self, config: crate::source::SourceConfig) -> Pass {
        Pass::new(self.db.db().clone(), FLEET, config, GitAccess::default(), self.git.path().to_owned(), self.worker)
    }

    /// The same, reached in some way and kept in some folder.
    pub(super) fn pass_reaching(
        &self,
        config: crate::source::SourceConfig,
        access: GitAccess,
        data: std::path::PathBuf,
    ) -> Pass {
        Pass::new(self.db.db().clone(), FLEET, config, access, data, self.worker)
    }

    /// A pass of another process, once the lease of this one is over.
    pub(super) async fn run_later(&self) -> Passed {
        let (worker, lease) = holder(&self.db).await;
        let (config, data) = (config(self.git.path()), self.git.path().to_owned());
        let mut pass = Pass::new(self.db.db().clone(), FLEET, config, GitAccess::default(), data, worker);
        pass.run(&lease, true).await.expect("a pass")
    }

    pub(super) async fn run(&self) -> Passed {
        self.pass().run(&self.lease, true).await.expect("a pass")
    }

    pub(super) async fn held(&self) -> SourceState {
        match self.run().await {
            Passed::Held(trouble) => trouble.state,
            other => panic!("{other:?}"),
        }
    }

    async fn accept(&self, commit: &str) -> Result<(), AcceptError> {
        let mut txn = self.db.db().begin().await.expect("begins");
        accept(self.db.db(), &mut txn, &crate::trust::Pinned::none(), FLEET, commit, "ada").await?;
        txn.commit().await.expect("commits");
        Ok(())
    }

    pub(super) async fn source(&self) -> Source {
        sources::find(self.db.db(), FLEET).await.expect("reads").expect("a source")
    }

    async fn revisions(&self) -> Vec<String> {
        revisions::list(self.db.db(), None, 100)
            .await
            .expect("reads")
            .items
            .into_iter()
            .map(|revision| revision.revision.commit)
            .collect()
    }

    /// What is in force: the applied commit and the objects.
    pub(super) async fn in_force(&self) -> (Option<String>, Vec<(String, String)>) {
        let objects = revisions::objects(self.db.db()).await.expect("reads");
        let applied = self.source().await.applied.map(|at| at.commit);
        (
            applied,
            objects
                .into_iter()
                .map(|object| (object.object.to_string(), format!("{} {:?}", object.digest, object.state)))
                .collect(),
        )
    }
}

fn commits(source: &Source) -> [Option<&str>; 4] {
    [&source.remote, &source.verified, &source.planned, &source.applied]
        .map(|at| at.as_ref().map(|at| at.commit.as_str()))
}

#[tokio::test]
async fn a_commit_comes_into_force_with_its_words() {
    let world = World::with(Git::fleet()).await;
    let head = world.git.head();
    assert!(
        matches!(world.run().await, Passed::InForce { commit, applied: Some(applied) } if commit == head && applied.revision.is_some())
    );
    let source = world.source().await;
    assert_eq!(commits(&source), [Some(head.as_str()); 4]);
    assert_eq!((source.state.as_str(), source.reason, source.branch.as_str()), ("ok", None, "main"));
    let revision = revisions::latest(world.db.db()).await.expect("reads").expect("a revision").revision;
    assert_eq!(
        (revision.author.as_str(), revision.committer.as_str(), revision.subject.as_str()),
        ("Ada <ada@test.example>", "Grace <grace@test.example>", "first")
    );
    let plan = plans::find_by_commit(world.db.db(), FLEET, &head).await.expect("reads").expect("a plan");
    assert_eq!(plan.state, plans::PlanState::Applied);
    assert_eq!(revisions::objects(world.db.db()).await.expect("reads").len(), 4);
    let entries = audit::list(world.db.db(), Some(FLEET), None, 10).await.expect("reads");
    assert_eq!(entries.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(), ["fleet.apply"]);
}

#[tokio::test]
async fn a_pass_over_the_same_commit_changes_nothing() {
    let world = World::with(Git::fleet()).await;
    let mut pass = world.pass();
    pass.run(&world.lease, true).await.expect("a pass");
    let before = world.source().await;
    for again in [true, false, true] {
        assert!(matches!(pass.run(&world.lease, again).await, Ok(Passed::InForce { applied: None, .. })));
    }
    let after = world.source().await;
    assert_eq!((world.revisions().await.len(), after.since, after.applied), (1, before.since, before.applied));
    assert_eq!(plans::list(world.db.db(), None, None, 10).await.expect("reads").items.len(), 1);
}

#[tokio::test]
async fn a_pass_that_dies_after_any_step_is_finished_by_the_next() {
    for step in [Step::Look, Step::Verify, Step::Plan] {
        let world = World::with(Git::fleet()).await;
        world.run().await;
        world.git.write(
            "profiles/base.kdl",
            "profile \"base\" {\n    sysctl {\n        \"vm.swappiness\" \"1\"\n    }\n}\n",
        );
        let second = world.git.commit("second");
        let died = world.pass().run_to(&world.lease, true, step).await.expect("a pass");
        assert_eq!(died, Passed::Stopped(step));
        assert_ne!(world.in_force().await.0.as_deref(), Some(second.as_str()));
        assert!(matches!(world.run().await, Passed::InForce { applied: Some(_), .. }), "{step:?}");
        assert!(matches!(world.run().await, Passed::InForce { applied: None, .. }), "{step:?}");
        assert_eq!(world.revisions().await.len(), 2, "{step:?}");
        let stored = plans::list(world.db.db(), None, None, 10).await.expect("reads").items;
        assert_eq!(stored.iter().filter(|plan| plan.commit.as_deref() == Some(second.as_str())).count(), 1, "{step:?}");
    }
}

#[tokio::test]
async fn whatever_is_wrong_has_a_state_and_the_last_good_revision_stays() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let good = world.in_force().await;
    let first = world.git.head();

    world
        .git
        .write("pools/h100.kdl", "pool \"h100\" {\n    site \"fra1\"\n    profile \"base\"\n    sight \"fra1\"\n}\n");
    let broken = world.git.commit("a typo");
    assert_eq!(world.held().await, SourceState::FleetInvalid);
    let source = world.source().await;
    assert!(
        source.reason.as_deref().is_some_and(|reason| reason.contains("pools/h100.kdl:4:5")),
        "{:?}",
        source.reason
    );
    let detail = source.detail.expect("diagnostics");
    assert_eq!(detail["commit"], broken);
    assert!(detail["text"].as_str().is_some_and(|text| text.contains("sight")));
    assert!(detail["report"]["errors"].as_u64() > Some(0));
    assert_eq!(world.in_force().await, good);

    world.git.git(&["mv", "fleet.kdl", "other.txt"]);
    world.git.commit("no root");
    assert_eq!(world.held().await, SourceState::RootMissing);

    world.git.git(&["branch", "-q", "-m", "main", "away"]);
    assert_eq!(world.held().await, SourceState::BranchMissing);
    world.git.git(&["branch", "-q", "-m", "away", "main"]);

    let git = world.git.path().join(".git");
    std::fs::rename(&git, world.git.path().join("gone")).expect("renamed");
    assert_eq!(world.held().await, SourceState::Unreachable);
    std::fs::rename(world.git.path().join("gone"), &git).expect("renamed back");

    world.git.git(&["reset", "-q", "--hard", &first]);
    world.git.write("pools/more.kdl", "pool \"more\" {\n    site \"fra1\"\n    profile \"base\"\n}\n");
    let mended = world.git.commit("mended");
    let blob = world.git.blob("pools/more.kdl");
    let away = world.git.path().join("blob");
    std::fs::rename(world.git.loose(&blob), &away).expect("renamed");
    assert_eq!(world.held().await, SourceState::ObjectBroken);
    assert_eq!(world.in_force().await, good);
    std::fs::rename(&away, world.git.loose(&blob)).expect("renamed back");

    assert!(matches!(world.run().await, Passed::InForce { commit, applied: Some(_) } if commit == mended));
    let source = world.source().await;
    assert_eq!((source.state.as_str(), source.reason, source.detail), ("ok", None, None));
}

#[tokio::test]
async fn a_branch_that_is_set_back_to_what_is_in_force_says_so_until_a_commit_comes_into_force() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let good = world.git.head();
    world.git.write("pools/h100.kdl", "pool \"h100\" {\n    sight \"fra1\"\n}\n");
    let broken = world.git.commit("a typo");
    assert_eq!(world.held().await, SourceState::FleetInvalid);
    world.git.git(&["reset", "-q", "--hard", &good]);
    for _ in 0..2 {
        assert!(matches!(world.run().await, Passed::InForce { commit, applied: None } if commit == good));
        let source = world.source().await;
        assert_eq!(source.state, "ok");
        let said = source.reason.unwrap_or_default();
        assert!(said.contains("set back") && said.contains(&broken[..10]), "{said}");
    }
    world.git.commit("something else");
    world.run().await;
    assert_eq!(world.source().await.reason, None);
}

#[tokio::test]
async fn a_rewritten_history_waits_until_a_person_accepts_exactly_that_commit() {
    let world = World::with(Git::fleet()).await;
    let first = world.git.head();
    let second = world.git.commit("second");
    world.run().await;
    let good = world.in_force().await;

    assert!(matches!(world.accept(&second).await, Err(AcceptError::NotDiverged(_))));
    world.git.git(&["reset", "-q", "--hard", &first]);
    assert_eq!(world.held().await, SourceState::HistoryDiverged);
    world.git.git(&["checkout", "-q", "--orphan", "orphan"]);
    world.git.git(&["branch", "-q", "-D", "main"]);
    world.git.git(&["branch", "-q", "-m", "main"]);
    let orphan = world.git.commit("orphan");
    assert_eq!(world.held().await, SourceState::HistoryDiverged);
    assert!(world.source().await.reason.is_some_and(|reason| reason.contains(&orphan)));
    assert_eq!(world.in_force().await, good);

    assert!(matches!(world.accept(&first).await, Err(AcceptError::NotTheTip { .. })));
    world.accept(&orphan).await.expect("accepts");
    assert!(matches!(world.run().await, Passed::InForce { commit, .. } if commit == orphan));
    assert_eq!(world.source().await.accepted, None);
    let entries = audit::list(world.db.db(), Some(FLEET), None, 10).await.expect("reads");
    assert!(entries.iter().any(|entry| entry.action == "source.accept" && entry.actor == "ada"));
    // Once accepted it is the history.
    world.git.git(&["reset", "-q", "--hard", &second]);
    assert_eq!(world.held().await, SourceState::HistoryDiverged);
}

#[tokio::test]
async fn the_trust_domain_cannot_change() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let good = world.in_force().await;
    world.git.write("fleet.kdl", &super::super::fixture::FLEET.replace("test.example", "other.example"));
    world.git.commit("another domain");
    assert_eq!(world.held().await, SourceState::Refused);
    assert_eq!(world.in_force().await, good);
}

#[tokio::test]
async fn the_branch_of_the_first_look_stays_the_branch() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let first = world.git.head();
    world.git.git(&["checkout", "-q", "-b", "experiment"]);
    world.git.commit("not ours");
    assert!(matches!(world.run().await, Passed::InForce { commit, applied: None } if commit == first));
}

#[tokio::test]
async fn a_stale_lease_changes_nothing() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    let good = world.in_force().await;
    world.db.advance(Duration::from_secs(120)).await;
    holder(&world.db).await;
    world
        .git
        .write("pools/h100.kdl", "pool \"h100\" {\n    site \"fra1\"\n    profile \"base\"\n    labels a=\"b\"\n}\n");
    world.git.commit("second");
    let error = world.pass().run(&world.lease, true).await.expect_err("somebody else has it");
    assert!(error.is_fenced(), "{error}");
    assert_eq!(world.in_force().await, good);
}

#[tokio::test]
async fn a_document_that_is_gone_is_retained_and_a_removed_line_lets_it_go() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    world.git.remove("pools/h100.kdl");
    world.git.commit("gone");
    world.run().await;
    let state = |objects: &[(String, String)]| {
        objects.iter().find(|(object, _)| object == "pool/h100").map(|(_, text)| text.clone()).unwrap_or_default()
    };
    assert!(state(&world.in_force().await.1).ends_with("Retained"));
    world.git.write("gone.kdl", "removed \"pool/h100\" reason=\"sold\"\n");
    world.git.commit("removed");
    world.run().await;
    assert!(state(&world.in_force().await.1).ends_with("Removed"));
    assert!(store::pools::list(world.db.db()).await.expect("reads").items.is_empty());
}

#[tokio::test]
async fn an_acceptance_is_over_once_another_commit_came_into_force() {
    let world = World::with(Git::fleet()).await;
    let first = world.git.head();
    let second = world.git.commit("second");
    world.run().await;
    world.git.git(&["reset", "-q", "--hard", &first]);
    let other = world.git.commit("other");
    assert_eq!(world.held().await, SourceState::HistoryDiverged);
    world.accept(&other).await.expect("accepts");
    world.git.git(&["reset", "-q", "--hard", &second]);
    let third = world.git.commit("third");
    assert!(matches!(world.run().await, Passed::InForce { commit, .. } if commit == third));
    assert_eq!(world.source().await.accepted, None);
    world.git.git(&["reset", "-q", "--hard", &other]);
    assert_eq!(world.held().await, SourceState::HistoryDiverged);
}

#[tokio::test]
async fn a_pass_that_fails_says_so_until_one_does_not() {
    let world = World::with(Git::fleet()).await;
    world.run().await;
    // What another version of this program may have stored.
    let unreadable = nodes::NewNode {
        id: NodeId::generate(),
        name: "odd".parse().expect("a name"),
        site: None,
        pool: None,
        owner_tenant: None,
        role: schema::node::Role::Unassigned,
        trust: schema::node::Trust::Platform,
        labels: std::collections::BTreeMap::new(),
        declared: false,
        hardware_key: None,
        hardware_key_trusted: false,
        target: None,
        overlay: "another language".to_owned(),
    };
    let mut txn = world.db.db().begin().await.expect("begins");
    nodes::insert(&mut txn, &unreadable).await.expect("inserts");
    txn.commit().await.expect("commits");
    let second = world.git.commit("second");
    assert!(matches!(world.run().await, Passed::InForce { commit, .. } if commit == second), "it is left as it is");

    world.steal("UPDATE targets SET doc = 'another language' || doc").await;
    let third = world.git.commit("third");
    for _ in 0..2 {
        world.pass().run(&world.lease, true).await.expect_err("it cannot be read");
    }
    let source = world.source().await;
    assert_eq!(source.state, "apply-failed");
    assert!(source.reason.is_some_and(|reason| reason.contains("the stored target") && reason.contains("line 1")));

    world.steal("UPDATE targets SET doc = substr(doc, length('another language') + 1)").await;
    assert!(matches!(world.run().await, Passed::InForce { commit, .. } if commit == third));
    assert_eq!((world.source().await.state.as_str(), world.source().await.reason), ("ok", None));
}
