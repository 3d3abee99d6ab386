//! One history, seen from several places: an old mirror, two processes, a database that was set back, another branch.

use std::path::Path;

use super::{
    super::{config, run},
    *,
};
use crate::source::SourceConfig;

impl People {
    /// A bare copy of the repository as it is, as a mirror shows it.
    fn mirror(&self, dir: &Path) -> SourceConfig {
        run(dir, &["clone", "-q", "--bare", &self.git().path().display().to_string(), "mirror.git"]);
        config(&dir.join("mirror.git"))
    }

    async fn over(&self, place: &SourceConfig) -> Passed {
        let mut pass = self.world.pass_over(place.clone()).with_custody(Some(Arc::clone(&self.custody)));
        pass.run(&self.world.lease, true).await.expect("a pass")
    }

    fn site(&self, name: &str) {
        self.git().write(&format!("sites/{name}.kdl"), &format!("site \"{name}\" {{\n    region \"eu\"\n}}\n"));
    }

    async fn verified(&self) -> Option<String> {
        self.world.source().await.verified.map(|at| at.commit)
    }
}

fn state(passed: &Passed) -> SourceState {
    match passed {
        Passed::Held(trouble) => trouble.state,
        other => panic!("{other:?}"),
    }
}

fn catch_up(dir: &Path) {
    run(&dir.join("mirror.git"), &["fetch", "-q", "origin", "+refs/heads/*:refs/heads/*"]);
}

#[tokio::test]
async fn an_old_mirror_is_told_and_takes_nothing_back() {
    let Some(people) = People::pinned("").await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mirror = people.mirror(dir.path());
    people.site("fra2");
    let good = people.sign("bob", "sites: fra2");
    people.goes().await;

    // Whether it is old or another one is told where both are: it has what is newer, and shows what was.
    assert_eq!(state(&people.over(&mirror).await), SourceState::HistoryDiverged);
    run(&dir.path().join("mirror.git"), &["fetch", "-q", "origin", "+refs/heads/main:refs/heads/later"]);
    assert_eq!(state(&people.over(&mirror).await), SourceState::StaleSource);
    assert_eq!((people.verified().await, people.applied().await), (Some(good.clone()), Some(good)));
    // Once it has caught up it is as good as any other place.
    people.site("fra3");
    let next = people.sign("ada", "sites: fra3");
    catch_up(dir.path());
    assert!(matches!(people.over(&mirror).await, Passed::InForce { commit, .. } if commit == next));
}

#[tokio::test]
async fn of_two_processes_that_see_two_tips_the_later_one_moves_nothing() {
    let Some(people) = People::pinned("").await else { return };
    let good = people.head();
    let dir = tempfile::tempdir().expect("a directory");
    let mirror = people.mirror(dir.path());
    let process = |pass: crate::source::Pass| pass.with_custody(Some(Arc::clone(&people.custody)));
    let (mut here, mut there) = (process(people.world.pass()), process(people.world.pass_over(mirror)));
    // Both know how far it was verified, by heart.
    for pass in [&mut here, &mut there] {
        assert!(matches!(pass.run(&people.world.lease, true).await.expect("a pass"), Passed::InForce { .. }));
    }
    people.site("fra2");
    let other = people.sign("ada", "sites: fra2, for the mirror alone");
    catch_up(dir.path());
    people.git().git(&["reset", "-q", "--hard", &good]);
    people.site("fra3");
    let one = people.sign("ada", "sites: fra3");
    let passed = here.run(&people.world.lease, true).await.expect("a pass");
    assert!(matches!(passed, Passed::InForce { ref commit, .. } if *commit == one), "{passed:?}");

    let passed = there.run(&people.world.lease, true).await.expect("a pass");
    assert_eq!(state(&passed), SourceState::HistoryDiverged);
    let Passed::Held(trouble) = passed else { panic!("held") };
    assert!(trouble.reason.contains(&one) && trouble.reason.contains(&other), "both are named: {trouble}");
    assert_eq!((people.verified().await, people.applied().await), (Some(one.clone()), Some(one)));
}

#[tokio::test]
async fn a_database_that_was_set_back_does_not_set_back_what_was_verified() {
    const OF_TRUST: [&str; 3] = ["trust_epochs", "trust_checkpoints", "statements"];
    let Some(people) = People::pinned("").await else { return };
    let (old, before) = (people.head(), people.in_tree());
    for table in OF_TRUST {
        people.steal(&format!("CREATE TABLE backup_{table} AS SELECT * FROM {table}")).await;
    }
    let name = pki::trust::key::TrustKey::from_ssh(&people.line("bob")).expect("a key").name();
    people.git().write(FILE, &people.policy(2, Some(&before), &format!("revoked \"{name}\" {{ as \"retired\"; }}\n")));
    let step = pki::trust::statement::Step { prev: before.digest(), next: people.in_tree().digest(), epoch: 2 };
    people.say("ada", Body::Trust(step));
    people.sign("ada", "trust: bob has left");
    people.site("fra2");
    let newest = people.sign("ada", "sites: fra2");
    people.goes().await;

    for table in OF_TRUST {
        people.steal(&format!("DELETE FROM {table}")).await;
        people.steal(&format!("INSERT INTO {table} SELECT * FROM backup_{table}")).await;
    }
    // With a mirror of then, and with what Bob signs on it: he was somebody then.
    people.git().git(&["reset", "-q", "--hard", &old]);
    people.held().await;
    people.site("evil");
    people.sign("bob", "is this still good?");
    people.held().await;
    assert_eq!(people.applied().await.as_deref(), Some(newest.as_str()));
    // The history goes on where it was.
    people.git().git(&["reset", "-q", "--hard", &newest]);
    people.goes().await;
    let stored = people.policies().await;
    assert_eq!(stored.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn a_thief_of_the_database_does_not_choose_the_branch() {
    let Some(people) = People::pinned("").await else { return };
    let good = people.head();
    people.git().git(&["checkout", "-q", "-b", "wip"]);
    people.site("half-done");
    people.sign("ada", "not yet");
    people.git().git(&["checkout", "-q", "main"]);
    people.steal("UPDATE sources SET branch = 'wip'").await;
    people.run().await;
    assert_eq!((people.verified().await, people.applied().await), (Some(good.clone()), Some(good)));
}

#[tokio::test]
async fn a_statement_in_two_commits_is_heard_once() {
    let Some(people) = People::pinned("revoke { roles \"admin\"; }\n").await else { return };
    let key = pki::trust::key::TrustKey::from_ssh(&people.line("bob")).expect("a key").name();
    let reason = pki::trust::statement::RevokeReason::Compromised;
    let said = people.statement("ada", Body::Revoke { key, reason, last_good: id(&people.head()), trust_epoch: 1 });
    let one = people.carry("ada", &said, &[], &said.reference());
    let other = people.carry("ada", &said, &["-p", &people.head()], &format!("{}-again", said.reference()));
    assert_ne!(one, other);
    people.goes().await;
    let stored = store::trust::statements_of(people.world.db.db(), &["revoke/v1"], None).await.expect("reads");
    assert_eq!(stored.len(), 1);
}
