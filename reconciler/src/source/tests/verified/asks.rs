//! What asks for a batch and is none: why, for how long, and that it does nothing to those that are.

use store::batches::{self, BatchState, Origin};

use super::People;

const TIER: &str = "tier \"reboot\" { commands \"node.reboot\"; roles \"admin\" \"operator\"; threshold 1; max-nodes 4; max-ttl \"4h\"; }\n";

/// A batch that comes to nothing whichever machines are there: this version has no such command.
fn text(name: &str, reason: &str) -> String {
    asking("node.reimage", name, reason)
}

fn asking(command: &str, name: &str, reason: &str) -> String {
    format!(
        "batch \"{name}\" {{\n    command \"{command}\"\n    scope {{\n        pools \"h100\"\n    }}\n    reason \"{reason}\"\n    expires \"2099-01-01T00:00:00Z\"\n}}\n"
    )
}

impl People {
    /// Names of what asks and is no batch, with the reason.
    async fn asks(&self) -> Vec<(String, String)> {
        let asks = batches::asks(self.world.db.db()).await.expect("reads").items;
        asks.into_iter().map(|ask| (ask.new.name, ask.new.code)).collect()
    }

    async fn batch(&self, name: &str) -> Option<(Origin, BatchState, String)> {
        let found = batches::find(self.world.db.db(), name).await.expect("reads");
        found.map(|batch| (batch.new.origin, batch.state, batch.new.why))
    }

    /// Signs a commit beside the branch that adds files, on a commit of somebody's choice.
    fn propose(&self, who: &str, branch: &str, on: &str, files: &[(&str, &str)]) {
        self.git().git(&["checkout", "-q", "--detach", on]);
        for (path, text) in files {
            self.git().write(path, text);
        }
        let made = self.sign(who, "ask for it");
        self.git().git(&["update-ref", &format!("refs/heads/bc/proposals/{branch}"), &made]);
        self.git().git(&["checkout", "-q", "main"]);
    }
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, code)| ((*name).to_owned(), (*code).to_owned())).collect()
}

#[tokio::test]
async fn a_name_that_was_used_says_so_until_the_text_has_another_one() {
    let Some(people) = People::pinned(TIER).await else { return };
    people.git().write("batches/kernel.kdl", &text("kernel", "first"));
    people.sign("ada", "boot them");
    people.goes().await;
    let ended = people.batch("kernel").await;
    assert_eq!(ended, Some((Origin::Document, BatchState::Void, "first".to_owned())), "nobody can do it");
    assert_eq!(people.asks().await, []);

    people.git().write("batches/kernel.kdl", &text("kernel", "second"));
    people.sign("ada", "boot them again");
    people.goes().await;
    assert_eq!(people.asks().await, pairs(&[("kernel", "name-used")]));
    assert_eq!(people.batch("kernel").await, ended);
    let first = batches::asks(people.world.db.db()).await.expect("reads").items;
    people.goes().await;
    assert_eq!(batches::asks(people.world.db.db()).await.expect("reads").items, first, "nothing is written twice");

    people.git().write("batches/kernel.kdl", &text("kernel-2", "second"));
    people.sign("ada", "under a name of its own");
    people.goes().await;
    assert_eq!(people.asks().await, []);
    assert!(people.batch("kernel-2").await.is_some());
}

#[tokio::test]
async fn what_covers_no_machine_is_no_batch_and_leaves_its_name_free() {
    let Some(people) = People::pinned(TIER).await else { return };
    people.git().write("batches/kernel.kdl", &asking("node.reboot", "kernel", "first"));
    let asked = people.sign("ada", "boot them");
    people.propose("bob", "early", &asked, &[("batches/early.kdl", &asking("node.reboot", "early", "proposed"))]);
    people.goes().await;
    assert_eq!(people.asks().await, pairs(&[("kernel", "no-machine"), ("early", "no-machine")]));
    assert_eq!((people.batch("kernel").await, people.batch("early").await), (None, None));
    let told = batches::asks(people.world.db.db()).await.expect("reads").items;
    assert!(told.iter().all(|ask| !ask.new.waits && ask.new.message.contains("the name is free")), "{told:?}");
    people.goes().await;
    assert_eq!(batches::asks(people.world.db.db()).await.expect("reads").items, told, "it is not looked at again");

    people.git().write("batches/kernel.kdl", &text("kernel", "second"));
    people.sign("ada", "ask for something else");
    people.goes().await;
    assert_eq!(people.batch("kernel").await.map(|(.., why)| why).as_deref(), Some("second"), "under the same name");
}

#[tokio::test]
async fn a_proposal_that_does_not_count_says_why_and_is_judged_again_when_that_may_have_changed() {
    let Some(people) = People::pinned(TIER).await else { return };
    let tip = people.head();
    people.propose("eve", "a", &tip, &[("batches/a.kdl", &text("a", "mine"))]);
    people.propose("bob", "b", &tip, &[("batches/b.kdl", &text("b", "two")), ("batches/c.kdl", &text("c", "files"))]);
    people.propose("bob", "breakglass-1", &tip, &[("batches/g.kdl", &text("breakglass-1", "in its name"))]);
    // On a commit that the branch has later.
    people.git().git(&["checkout", "-q", "--detach"]);
    people.git().write("sites/fra2.kdl", "site \"fra2\" {\n    region \"eu\"\n}\n");
    let ahead = people.sign("ada", "another site");
    people.git().git(&["checkout", "-q", "main"]);
    people.propose("bob", "d", &ahead, &[("batches/d.kdl", &text("d", "early"))]);
    people.goes().await;
    let refused = [("a", "proposal-unsigned"), ("b", "proposal-content"), ("breakglass-1", "name-reserved")];
    assert_eq!(people.asks().await, pairs(&[&refused[..], &[("d", "proposal-off-branch")]].concat()));

    people.git().git(&["merge", "-q", "--ff-only", &ahead]);
    people.goes().await;
    assert_eq!(people.asks().await, pairs(&refused));
    assert_eq!(people.batch("d").await.map(|(origin, ..)| origin), Some(Origin::Proposal));
    for branch in ["a", "b", "breakglass-1"] {
        people.git().git(&["update-ref", "-d", &format!("refs/heads/bc/proposals/{branch}")]);
    }
    people.goes().await;
    assert_eq!(people.asks().await, []);
}

#[tokio::test]
async fn whoever_takes_the_name_of_a_batch_that_is_under_way_stops_nothing() {
    let Some(people) = People::pinned(TIER).await else { return };
    let before = people.head();
    people.git().write("batches/kernel.kdl", &text("kernel", "people's"));
    people.sign("ada", "boot them");
    people.goes().await;
    people.steal("UPDATE batches SET state = 'dispatching', reason = NULL, ended_at = NULL").await;
    people.propose("bob", "kernel", &before, &[("batches/other.kdl", &text("kernel", "another one"))]);
    people.goes().await;
    assert_eq!(people.asks().await, pairs(&[("kernel", "name-used")]));
    let under_way = (Origin::Document, BatchState::Dispatching, "people's".to_owned());
    assert_eq!(people.batch("kernel").await, Some(under_way));
    // Its own document may: what has not begun never does.
    people.git().write("batches/kernel.kdl", &text("kernel", "changed"));
    people.sign("ada", "change it");
    people.goes().await;
    let over = (Origin::Document, BatchState::Cancelled, "people's".to_owned());
    assert_eq!(people.batch("kernel").await, Some(over));
    assert_eq!(people.asks().await, pairs(&[("kernel", "name-used"), ("kernel", "name-used")]));
}
