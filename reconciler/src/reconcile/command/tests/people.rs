//! A pinned fleet: what people did not approve is not signed, whatever lies beside it in the database.

use std::collections::{BTreeMap, BTreeSet};

use pki::{
    batch::{
        Approval, BatchApproval, BatchHeader, Leaf, merkle,
        testing::{Fleet, Person, object, policy},
    },
    checkpoint::CheckpointPurpose,
    keys::TrustPin,
    trust::{policy::Policy, statement::Under},
};
use schema::name::Name;
use store::trust;

use super::*;
use crate::{batch::resolve::hardware_key, source::FLEET};

/// A machine of a fleet that Ada and Bob answer for.
struct People {
    bench: Bench,
    fleet: Fleet,
    ada: Person,
    bob: Person,
    policy: Policy,
}

impl People {
    async fn new() -> Self {
        let mut bench = Bench::new().await;
        let (fleet, [ada, bob]) = (Fleet::new("bc.local"), ["ada", "bob"].map(Person::new));
        let person = |who: &Person| {
            format!("principal \"{}\" {{ kind \"human\"; roles \"operator\"; key \"{}\"; }}\n", who.name, who.line())
        };
        let text = format!(
            "policy {{ format 1; epoch 1; }}\n{}{}{}path \"**\" {{ roles \"operator\"; }}\ntrust {{ roles \"operator\"; threshold 1; }}\n\
             tier \"reboot\" {{ commands \"node.reboot\"; roles \"operator\"; threshold 2; max-nodes 4; max-ttl \"4h\"; }}\n",
            person(&ada),
            person(&bob),
            person(&Person::new("carol"))
        );
        let policy = policy(&text);
        let pin = TrustPin { commit: object("anchor"), fleet: fleet.id, digest: policy.digest() };
        bench.house.keys.pin_trust(pin).expect("pinned");
        let custody = bench.house.shared.custody.as_ref().expect("custody");
        custody.use_keys(&bench.house.keys.signing());
        let first = trust::Epoch {
            epoch: 1,
            digest: policy.digest(),
            policy: text.into_bytes(),
            commit: pin.commit.to_string(),
            statements: Vec::new(),
            at: time::Timestamp::UNIX_EPOCH,
        };
        let mut txn = bench.house.db.begin().await.expect("begin");
        trust::put_epoch(&mut txn, &first).await.expect("stored");
        txn.commit().await.expect("commit");
        Self { bench, fleet, ada, bob, policy }
    }

    /// A batch of this one machine, as it would be resolved.
    async fn batch(&self) -> (BatchHeader, Leaf) {
        let machine = &self.bench.machine;
        // Statements say whole seconds.
        let now = self.bench.house.db.now().await.expect("time").as_second();
        let now = time::Timestamp::from_second(now).expect("a time");
        let node = self.bench.house.node(machine).await;
        let payload = CommandKind::NodeReboot.check_payload(&json!({})).expect("a payload");
        let leaf = Leaf {
            index: 0,
            name: node.name,
            node: machine.id,
            identity_generation: IdentityGeneration(1),
            hardware_key: hardware_key(None),
            journal: machine.journal,
            kind: CommandKind::NodeReboot.to_string(),
            payload: Leaf::payload(&payload),
            min_generation: schema::generation::Generation(0),
            preconditions: BTreeMap::new(),
        };
        let header = BatchHeader {
            trust_domain: self.fleet.trust_domain.clone(),
            fleet: self.fleet.id,
            name: Name::new("kernel").expect("a name"),
            tier: Name::new("reboot").expect("a name"),
            proposer: None,
            excluded: BTreeSet::new(),
            not_before: now,
            expires: time::Duration::from_secs(3_600).after(now),
            plan_commit: object("plan"),
            plan_tree: object("plan's tree"),
            under: Under { epoch: 1, digest: self.policy.digest() },
            reason: "kernel".to_owned(),
            max_in_flight: 1,
            max_failures: 0,
            spread: None,
            leaves: 1,
            root: merkle::root(&[leaf.hash()]),
        };
        (header, leaf)
    }

    fn approval(&self, header: BatchHeader, leaf: Leaf, by: &[&Person]) -> Vec<u8> {
        let statements = by.iter().map(|who| self.fleet.approve(who, &header)).collect();
        Approval::Batch(Box::new(BatchApproval { header, leaf, proof: Vec::new(), statements })).to_bytes()
    }

    /// Queues a boot with this beside it, and lets whoever signs look at it.
    async fn boot(&self, key: &str, approval: Option<&[u8]>) -> Row {
        let id = self.bench.enqueue(CommandKind::NodeReboot, key).await.id;
        let mut txn = self.bench.house.db.begin().await.expect("begin");
        commands::approve(&mut txn, id, approval).await.expect("put");
        txn.commit().await.expect("commit");
        self.bench.tick().await;
        self.bench.read(id).await
    }
}

#[tokio::test]
async fn a_boot_is_signed_when_people_approved_this_one_and_for_nothing_else_that_lies_beside_it() {
    let people = People::new().await;
    let (ada, bob) = (&people.ada, &people.bob);
    let (header, leaf) = people.batch().await;
    let with = |change: &dyn Fn(&mut BatchHeader, &mut Leaf)| {
        let (mut header, mut leaf) = (header.clone(), leaf.clone());
        change(&mut header, &mut leaf);
        header.root = merkle::root(&[leaf.hash()]);
        people.approval(header, leaf, &[ada, bob])
    };
    let good = with(&|_, _| {});
    let other = Fleet::new("staging.example");
    let of_two = |mut header: BatchHeader| {
        let signed = people.approval(header.clone(), leaf.clone(), &[ada, bob]);
        header.reason.push_str(", and more");
        let Ok(Approval::Batch(approval)) = Approval::read(&signed) else { panic!("an approval") };
        Approval::Batch(Box::new(BatchApproval { header, ..*approval })).to_bytes()
    };
    let refused: [(&str, Option<Vec<u8>>); 12] = [
        ("nothing", None),
        ("noise", Some(b"approved".to_vec())),
        ("nobody", Some(people.approval(header.clone(), leaf.clone(), &[]))),
        ("one-person", Some(people.approval(header.clone(), leaf.clone(), &[ada]))),
        ("one-person-twice", Some(people.approval(header.clone(), leaf.clone(), &[ada, ada]))),
        ("another-text", Some(of_two(header.clone()))),
        ("another-machine", Some(with(&|_, leaf| leaf.node = NodeId::generate()))),
        ("another-name", Some(with(&|_, leaf| leaf.name = Name::new("gpu-2").expect("a name")))),
        ("another-journal", Some(with(&|_, leaf| leaf.journal = JournalId::generate()))),
        ("another-payload", Some(with(&|_, leaf| leaf.payload = Leaf::payload(&json!({ "reason": "planted" }))))),
        ("another-fleet", Some(with(&|header, _| header.fleet = other.id))),
        (
            "over",
            Some(with(&|header, _| {
                header.expires = header.not_before;
                header.not_before = "2026-01-01T00:00:00Z".parse().expect("a time");
            })),
        ),
    ];
    for (key, approval) in &refused {
        let row = people.boot(key, approval.as_deref()).await;
        assert_eq!((row.state, row.signed_at), (CommandState::Pending, None), "{key}");
    }
    let refresh = people.bench.enqueue(CommandKind::InventoryRefresh, "harmless").await;
    let boot = people.boot("approved", Some(&good)).await;
    let withheld = commands::withheld(&people.bench.house.db, boot.id).await.expect("read");
    assert!(boot.signed_at.is_some(), "{withheld:?}");
    assert!(people.bench.read(refresh.id).await.signed_at.is_some(), "what does no harm needs nobody");
}

#[tokio::test]
async fn what_is_not_allowed_says_why_and_keeps_nothing_waiting_behind_it() {
    let people = People::new().await;
    let bench = &people.bench;
    let first = bench.enqueue(CommandKind::NodeReboot, "boot").await;
    for n in 0..SIGNED_AT_ONCE {
        bench.enqueue(CommandKind::NodeReboot, &format!("boot-{n}")).await;
    }
    let refresh = bench.enqueue(CommandKind::InventoryRefresh, "harmless").await;
    bench.tick().await;
    assert!(bench.read(refresh.id).await.signed_at.is_some());
    assert_eq!(bench.read(first.id).await.signed_at, None);
    let (state, reason, message) = bench.outcome().await;
    assert_eq!((state.as_str(), reason.as_str()), ("wait", NOT_ALLOWED));
    assert_eq!(
        message,
        format!("{} is destructive and is not signed: nobody approved it; 64 more wait likewise", first.id)
    );
    let db = &bench.house.db;
    assert_eq!(commands::withheld(db, first.id).await.expect("read").as_deref(), Some("nobody approved it"));
    assert_eq!(commands::withheld(db, refresh.id).await.expect("read"), None);

    // Once people approved it, nothing stands beside it any more.
    let (header, leaf) = people.batch().await;
    let approval = people.approval(header, leaf, &[&people.ada, &people.bob]);
    let mut txn = db.begin().await.expect("begin");
    commands::approve(&mut txn, first.id, Some(&approval)).await.expect("put");
    txn.commit().await.expect("commit");
    bench.tick().await;
    assert_eq!(commands::withheld(db, first.id).await.expect("read"), None);
    assert!(bench.read(first.id).await.signed_at.is_some());
}

#[tokio::test]
async fn keys_from_before_the_pin_sign_nothing_destructive() {
    let bench = Bench::new().await;
    let body = b"how far history was verified".to_vec();
    let signer = bench.house.keys.checkpoint_signer(&bench.house.shared.realm.fleet_id);
    let signature = signer.sign(CheckpointPurpose::VerifiedCheckpoint, &body);
    let pinned = trust::Checkpoint { commit: "c".repeat(40), epoch: 1, seq: 1, body, signature };
    let before = bench.enqueue(CommandKind::NodeReboot, "before").await;
    bench.tick().await;
    assert!(bench.read(before.id).await.signed_at.is_some(), "nobody pinned the fleet");
    let mut txn = bench.house.db.begin().await.expect("begin");
    trust::put_checkpoint(&mut txn, FLEET, None, &pinned).await.expect("kept");
    txn.commit().await.expect("commit");
    let (boot, refresh) =
        (bench.enqueue(CommandKind::NodeReboot, "boot").await, bench.enqueue(CommandKind::InventoryRefresh, "r").await);
    bench.tick().await;
    assert_eq!(bench.read(boot.id).await.signed_at, None);
    assert!(bench.read(refresh.id).await.signed_at.is_some());
    let (_, reason, message) = bench.outcome().await;
    assert!(reason == NOT_ALLOWED && message.contains("keys signing"), "{message}");
}
