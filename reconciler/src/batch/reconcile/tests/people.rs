//! A word that is taken back while machines begin: it counts for what was not sent, and says so of the rest.

use std::collections::BTreeMap;

use pki::{
    batch::{
        Leaf as SignedLeaf, merkle,
        testing::{Person, policy},
    },
    keys::TrustPin,
};
use schema::command::CommandKind;
use serde_json::json;
use store::{
    batches::{LeafState, NewLeaf, Signed},
    commands, outcomes,
    trust::{self, NewStatement},
};

use super::*;
use crate::{batch::resolve::hardware_key, reconcile::testing::House};

/// A boot of one machine that ada and bob approved, in a fleet where carol could as well.
struct Approved {
    house: House,
    fleet: Fleet,
    bob: Person,
    header: BatchHeader,
}

impl Approved {
    async fn new() -> Self {
        Self::because("a kernel").await
    }

    async fn because(reason: &str) -> Self {
        let mut house = House::new().await;
        let (fleet, people) = (Fleet::new("bc.local"), ["ada", "bob", "carol"].map(Person::new));
        let lines = people.iter().map(|who| {
            format!("principal \"{}\" {{ kind \"human\"; roles \"operator\"; key \"{}\"; }}\n", who.name, who.line())
        });
        let text = format!(
            "policy {{ format 1; epoch 1; }}\n{}path \"**\" {{ roles \"operator\"; }}\ntrust {{ roles \"operator\"; threshold 1; }}\n\
             tier \"reboot\" {{ commands \"node.reboot\"; roles \"operator\"; threshold 2; max-nodes 4; max-ttl \"4h\"; }}\n",
            lines.collect::<String>()
        );
        let policy = policy(&text);
        let pin = TrustPin { commit: object("anchor"), fleet: fleet.id, digest: policy.digest() };
        house.keys.pin_trust(pin).expect("pinned");
        house.shared.custody.as_ref().expect("custody").use_keys(&house.keys.signing());
        let machine = house.machine("n0").await;
        // Statements say whole seconds.
        let now = Timestamp::from_second(house.db.now().await.expect("time").as_second()).expect("a time");
        let payload = CommandKind::NodeReboot.check_payload(&json!({})).expect("a payload");
        let leaf = SignedLeaf {
            index: 0,
            name: name("n0"),
            node: machine.id,
            identity_generation: schema::generation::IdentityGeneration(1),
            hardware_key: hardware_key(None),
            journal: machine.journal,
            kind: "node.reboot".to_owned(),
            payload: SignedLeaf::payload(&payload),
            min_generation: schema::generation::Generation(0),
            preconditions: BTreeMap::new(),
        };
        let header = BatchHeader {
            fleet: fleet.id,
            trust_domain: fleet.trust_domain.clone(),
            not_before: now,
            expires: schema::time::Duration::from_secs(3_600).after(now),
            under: Under { epoch: 1, digest: policy.digest() },
            root: merkle::root(&[leaf.hash()]),
            reason: reason.to_owned(),
            ..standing(&[], &[], false).header
        };
        let mut new = batch(Origin::Document, true).new;
        (new.not_before, new.expires) = (header.not_before, header.expires);
        let (header_bytes, digest, tier) = (header.to_bytes(), header.digest(), header.tier.clone());
        new.signed = Some(Signed { header: header_bytes, digest, tier, trust_epoch: 1 });
        let leaf = NewLeaf {
            node_id: machine.id,
            node: name("n0"),
            leaf: Some(leaf.to_bytes()),
            payload: payload.to_string(),
        };
        let first = trust::Epoch {
            epoch: 1,
            digest: policy.digest(),
            policy: text.into_bytes(),
            commit: pin.commit.to_string(),
            statements: Vec::new(),
            at: now,
        };
        let mut txn = house.db.begin().await.expect("begin");
        commands::witness(&mut txn, machine.id, machine.boot, machine.journal, now).await.expect("witness");
        trust::put_epoch(&mut txn, &first).await.expect("stored");
        batches::put(&mut txn, &new, &[leaf], None).await.expect("put");
        txn.commit().await.expect("commit");
        let [ada, bob, _] = people;
        let this = Self { house, fleet, bob, header };
        this.say(&ada, "approve").await;
        this.say(&this.bob, "approve").await;
        this
    }

    async fn say(&self, who: &Person, word: &str) {
        let (fleet, header) = (&self.fleet, &self.header);
        let raw = who.commit(header.plan_tree, &[header.plan_commit], &fleet.word(word, &who.name, header));
        let said = NewStatement {
            digest: Digest::of(&raw),
            key: who.key(),
            kind: format!("{word}/v1"),
            subject: "kernel".to_owned(),
            principal: who.name.clone(),
            commit: object(word).to_string(),
            raw,
        };
        let mut txn = self.house.db.begin().await.expect("begin");
        trust::put_statements(&mut txn, &[said]).await.expect("heard");
        batches::heard(&mut txn, "kernel").await.expect("woken");
        txn.commit().await.expect("commit");
    }

    /// One step: where the batch and its machine are, and what it waits for.
    async fn step(&self) -> (BatchState, LeafState, String) {
        let mut txn = self.house.db.begin().await.expect("begin");
        batches::wake(&mut txn, [&name("kernel")]).await.expect("woken");
        txn.commit().await.expect("commit");
        self.house.jobs.tick("batch").await.expect("a pass");
        let batch = batches::find(&self.house.db, "kernel").await.expect("reads").expect("a batch");
        let mut txn = self.house.db.snapshot().await.expect("begin");
        let leaves = batches::leaves(&mut txn, batch.id).await.expect("reads");
        let outcome = outcomes::find(&self.house.db, queue::BATCH.name, "kernel").await.expect("reads").expect("one");
        (batch.state, leaves[0].state, outcome.message)
    }

    async fn command(&self, state: &str) {
        let ended = if state == "succeeded" { "compute_now()" } else { "NULL" };
        let sql = format!("UPDATE commands SET state = '{state}', dispatched_at = compute_now(), settled_at = {ended}");
        store::testing::steal(&self.house.db, &sql).await.expect("written");
    }
}

#[tokio::test]
async fn a_yes_that_is_taken_back_counts_for_what_was_not_sent_and_is_said_to_come_too_late_for_the_rest() {
    // Before anything began.
    let early = Approved::new().await;
    early.say(&early.bob, "withdraw").await;
    let (state, leaf, says) = early.step().await;
    assert_eq!((state, leaf), (BatchState::Proposed, LeafState::Waiting), "{says}");

    // After the step that queued its command, and before a gateway had that.
    let between = Approved::new().await;
    let (state, leaf, says) = between.step().await;
    assert_eq!((state, leaf), (BatchState::Dispatching, LeafState::Sent), "{says}");
    between.say(&between.bob, "withdraw").await;
    let (state, leaf, says) = between.step().await;
    assert_eq!((state, leaf), (BatchState::Dispatching, LeafState::Waiting), "{says}");
    assert!(says.contains("ada said yes") && !says.contains("calls back"), "{says}");

    // After a gateway had it.
    let late = Approved::new().await;
    late.step().await;
    late.command("dispatched").await;
    late.say(&late.bob, "withdraw").await;
    let (state, leaf, says) = late.step().await;
    assert_eq!((state, leaf), (BatchState::Dispatching, LeafState::Sent));
    assert!(says.ends_with("it was sent to n0 before, which nothing calls back"), "{says}");
    late.command("succeeded").await;
    assert_eq!(late.step().await.0, BatchState::Done, "its machine's word is the last one");
}

#[tokio::test]
async fn approvals_that_no_machine_reads_are_sent_to_none_and_the_batch_says_so() {
    let huge = Approved::because(&"a kernel ".repeat(20_000)).await;
    let (state, leaf, says) = huge.step().await;
    assert_eq!((state, leaf), (BatchState::Approved, LeafState::Waiting), "{says}");
    assert!(says.starts_with("no machine reads what would go to it: the approval has"), "{says}");
}
