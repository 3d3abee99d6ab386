//! What a node acts on.

use super::*;

/// The approval that travels with the command of a leaf.
pub(super) fn approval(world: &World, index: usize) -> Approval {
    let hashes: Vec<Digest> = world.leaves.iter().map(Leaf::hash).collect();
    Approval::Batch(Box::new(BatchApproval {
        header: world.header.clone(),
        leaf: world.leaves[index].clone(),
        proof: merkle::proof(&hashes, index).expect("a leaf"),
        statements: ["ada", "bob"].map(|who| world.approve(who)).to_vec(),
    }))
}

fn payload(kind: CommandKind) -> serde_json::Value {
    if kind == CommandKind::GpuReset { json!({"gpus": ["GPU-1"]}) } else { json!({}) }
}

fn body(leaf: &Leaf) -> CommandBody {
    let kind: CommandKind = leaf.kind.parse().expect("a kind");
    CommandBody {
        id: CommandId::generate(),
        node_id: leaf.node,
        kind,
        seq: 1,
        payload: kind.check_payload(&payload(kind)).expect("a payload"),
        not_after: after(600),
        min_generation: Some(leaf.min_generation),
        batch: None,
        secrets: Vec::new(),
        journal: None,
    }
}

struct Node<'w> {
    world: &'w World,
    leaf: Leaf,
    body: CommandBody,
    facts: BTreeMap<String, String>,
}

impl<'w> Node<'w> {
    /// The machine of a leaf, and the command that was approved for it.
    fn of(world: &'w World, index: usize) -> Self {
        let leaf = world.leaves[index].clone();
        Self { world, body: body(&leaf), leaf, facts: BTreeMap::new() }
    }

    fn permit_at(&self, approval: &Approval, now: Timestamp) -> Result<Permit, Denied> {
        self.permit_under(&self.world.policy, approval, now)
    }

    fn permit_under(&self, policy: &Policy, approval: &Approval, now: Timestamp) -> Result<Permit, Denied> {
        let me = Me {
            name: &self.leaf.name,
            node: self.leaf.node,
            identity_generation: self.leaf.identity_generation,
            hardware_key: &self.leaf.hardware_key,
            journal: self.leaf.journal,
            facts: &self.facts,
        };
        let (trust_domain, fleet) = (&*self.world.fleet.trust_domain, self.world.fleet.id);
        permit(&self.body, approval, &me, &Trusted { trust_domain, fleet, policy, revoked: &self.world.revoked }, now)
    }

    fn permit(&self, approval: &Approval) -> Result<Permit, Denied> {
        self.permit_at(approval, now())
    }
}

pub(super) fn permit_of(world: &World, index: usize, approval: &Approval) -> Result<Permit, Denied> {
    Node::of(world, index).permit(approval)
}

fn batch(approval: Approval) -> BatchApproval {
    match approval {
        Approval::Batch(batch) => *batch,
        Approval::Breakglass(_) => panic!("a batch"),
    }
}

#[test]
fn what_people_approved_is_permitted_to_each_machine_once() {
    let world = World::new();
    let mut uses = BTreeSet::new();
    for index in 0..3 {
        let permit = permit_of(&world, index, &approval(&world, index)).expect("permitted");
        assert_eq!((words(&permit.people), permit.until), (vec!["ada", "bob"], world.header.expires));
        let Authority::Batch { name, digest, .. } = &permit.by else { panic!("a batch") };
        assert_eq!((name.as_str(), *digest), ("b", world.header.digest()));
        assert!(permit.uses.into_iter().all(|used| uses.insert(used)));
    }
    assert_eq!(uses.len(), 3);
}

#[test]
fn what_people_approved_permits_nothing_of_other_leaves() {
    let world = World::new();
    let mut leaves = world.leaves.clone();
    leaves[1].journal = JournalId::generate();
    let hashes: Vec<Digest> = leaves.iter().map(Leaf::hash).collect();
    let mut given = batch(approval(&world, 1));
    given.header.root = merkle::root(&hashes);
    (given.leaf, given.proof) = (leaves[1].clone(), merkle::proof(&hashes, 1).expect("a leaf"));
    let node = Node { leaf: leaves.remove(1), ..Node::of(&world, 1) };
    assert!(matches!(node.permit(&Approval::Batch(Box::new(given))), Err(Denied::Quorum { .. })));
}

#[test]
fn a_leaf_of_another_machine_or_of_another_time_of_this_one_is_refused() {
    let world = World::new();
    let approval = approval(&world, 1);
    let changes: [fn(&mut Leaf); 5] = [
        |me| me.node = NodeId::generate(),
        |me| me.name = name("gpu-9"),
        |me| me.identity_generation = IdentityGeneration(3),
        |me| me.hardware_key = "none".to_owned(),
        |me| me.journal = JournalId::generate(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut node = Node::of(&world, 1);
        change(&mut node.leaf);
        assert!(matches!(node.permit(&approval), Err(Denied::OtherMachine(_))), "{number}");
    }
    assert!(matches!(permit_of(&world, 0, &approval), Err(Denied::OtherMachine(_))));
}

#[test]
fn another_command_than_the_approved_one_is_refused() {
    let world = World::new();
    let approval = approval(&world, 1);
    let changes: [fn(&mut CommandBody); 4] = [
        |body| body.payload = json!({"reason": "another"}),
        |body| {
            body.kind = CommandKind::GpuReset;
            body.payload = json!({"gpus": []});
        },
        |body| body.min_generation = Some(Generation(6)),
        |body| body.secrets = vec![schema::command::SecretRef { reference: "secret://x".to_owned(), version: None }],
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut node = Node::of(&world, 1);
        change(&mut node.body);
        assert!(matches!(node.permit(&approval), Err(Denied::OtherCommand(_))), "{number}");
    }
    let mut newer = Node::of(&world, 1);
    newer.body.min_generation = Some(Generation(8));
    newer.permit(&approval).expect("a higher floor is stricter");
}

#[test]
fn what_is_not_in_the_tree_is_not_in_the_batch() {
    let world = World::new();
    let changes: [fn(&mut BatchApproval, &World); 8] = [
        |batch, _| batch.leaf.payload = Digest::of("another"),
        |batch, _| batch.leaf.index = 0,
        |batch, _| batch.leaf.index = 3,
        |batch, _| batch.leaf.index = u32::MAX,
        |batch, _| batch.proof.clear(),
        |batch, _| batch.proof.reverse(),
        |batch, world| batch.proof = self::batch(approval(world, 0)).proof,
        |batch, _| batch.proof.push(Digest::of("more")),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut batch = batch(approval(&world, 1));
        change(&mut batch, &world);
        let mut node = Node::of(&world, 1);
        node.leaf.index = batch.leaf.index;
        assert_eq!(node.permit(&Approval::Batch(Box::new(batch))), Err(Denied::Proof), "{number}");
    }
}

#[test]
fn a_header_that_was_changed_has_no_approvals() {
    let world = World::new();
    let changes: [fn(&mut BatchHeader); 5] = [
        |header| header.reason = "something else".to_owned(),
        |header| header.expires = after(7200),
        |header| header.not_before = after(-60),
        |header| header.plan_tree = object("another"),
        |header| header.excluded = BTreeSet::from([name("dan")]),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut batch = batch(approval(&world, 1));
        change(&mut batch.header);
        let denied = permit_of(&world, 1, &Approval::Batch(Box::new(batch)));
        assert!(matches!(denied, Err(Denied::Quorum { .. })), "{number}: {denied:?}");
    }
    // More leaves than there are: the proof of this one may hold in the larger shape, and nobody approved that.
    let mut batch = batch(approval(&world, 1));
    batch.header.leaves = 4;
    let denied = permit_of(&world, 1, &Approval::Batch(Box::new(batch)));
    assert!(matches!(denied, Err(Denied::Quorum { .. } | Denied::Proof)), "{denied:?}");
}

#[test]
fn another_fleets_approval_is_refused() {
    let mut world = World::new();
    let other = approval(&world, 1);
    world.fleet = Fleet::new("staging.example");
    assert_eq!(permit_of(&world, 1, &other), Err(Denied::OtherFleet));
    world.fleet.trust_domain = "acme.example".to_owned();
    assert_eq!(permit_of(&world, 1, &other), Err(Denied::OtherFleet));
}

#[test]
fn too_few_approvals_or_stolen_ones_permit_nothing() {
    let world = World::new();
    let with = |statements: Vec<Vec<u8>>| {
        let mut batch = batch(approval(&world, 1));
        batch.statements = statements;
        permit_of(&world, 1, &Approval::Batch(Box::new(batch)))
    };
    let mut other = World::new();
    other.header.name = name("other");
    let mut same = World::new();
    same.header = world.header.clone();
    for statements in [
        vec![],
        vec![world.approve("ada")],
        vec![world.approve("ada"), world.approve("ada2"), world.approve("ada")],
        vec![world.approve("ada"), world.approve("robot"), world.approve("forge")],
        // Other people's keys under the same names, for the very same batch.
        vec![same.approve("ada"), same.approve("bob")],
        vec![other.approve("ada"), other.approve("bob")],
        vec![world.approve("ada"), world.approve("bob"), world.say("reject", "cleo", |text| text)],
        vec![world.approve("ada"), world.approve("bob"), world.say("withdraw", "bob", |text| text)],
    ] {
        assert!(matches!(with(statements), Err(Denied::Quorum { .. })));
    }
    with(vec![world.approve("bob"), world.approve("cleo")]).expect("any two are enough");
}

#[test]
fn a_kind_in_another_tier_is_seen_by_its_own_leaf() {
    let mut world = World::new();
    world.leaves[1].kind = CommandKind::GpuReset.to_string();
    let gpu = CommandKind::GpuReset.check_payload(&payload(CommandKind::GpuReset)).expect("a payload");
    world.leaves[1].payload = Leaf::payload(&gpu);
    world.seal();
    let denied = permit_of(&world, 1, &approval(&world, 1));
    assert!(matches!(denied, Err(Denied::Flaw(Flaw::OtherTier { .. }))), "{denied:?}");
}

#[test]
fn time_is_judged_to_the_second() {
    let mut world = World::new();
    world.header.not_before = after(360);
    let (node, approval) = (Node::of(&world, 1), approval(&world, 1));
    let early = node.permit_at(&approval, after(359)).expect_err("early");
    assert!(early == Denied::NotYet(after(360)) && early.may_pass());
    node.permit_at(&approval, after(360)).expect("in time");
    node.permit_at(&approval, after(3600)).expect("in time");
    let late = node.permit_at(&approval, after(3601)).expect_err("late");
    assert!(late == Denied::Expired(after(3600)) && !late.may_pass());
}

#[test]
fn another_policy_voids_what_was_approved_and_an_unknown_one_is_waited_for() {
    let world = World::new();
    let next = world.next("max-nodes 4", "max-nodes 5");
    let (node, old) = (Node::of(&world, 1), approval(&world, 1));
    assert_eq!(node.permit_under(&next, &old, now()), Err(Denied::PolicyChanged { named: 1, present: 2 }));
    let mut later = World::new();
    later.header.under = Under { epoch: 2, digest: next.digest() };
    let behind = Node::of(&later, 1).permit(&approval(&later, 1)).expect_err("behind");
    assert!(behind == Denied::Behind { named: 2, present: 1 } && behind.may_pass());
    let mut forked = World::new();
    forked.header.under.digest = Digest::of("another policy of the same epoch");
    assert_eq!(permit_of(&forked, 1, &approval(&forked, 1)), Err(Denied::PolicyChanged { named: 1, present: 1 }));
}

#[test]
fn conditions_hold_or_it_is_refused_and_unknown_ones_do_not_hold() {
    let mut world = World::new();
    world.leaves[1].preconditions.insert("boot".to_owned(), "boot_1".to_owned());
    world.seal();
    let approval = approval(&world, 1);
    let mut node = Node::of(&world, 1);
    assert!(matches!(node.permit(&approval), Err(Denied::Precondition { .. })), "not known here");
    node.facts.insert("boot".to_owned(), "boot_2".to_owned());
    assert!(matches!(node.permit(&approval), Err(Denied::Precondition { .. })));
    node.facts.insert("boot".to_owned(), "boot_1".to_owned());
    node.permit(&approval).expect("as it should be");
}

#[test]
fn approvals_that_count_at_another_time_permit_nothing_at_any() {
    let world = World::new();
    let mut given = batch(approval(&world, 0));
    for (from, until) in [(-7200, -60), (3601, 7200)] {
        given.statements[1] = world.approve_within("bob", from, until);
        let given = Approval::Batch(Box::new(given.clone()));
        for seconds in [0, 1800, 3600] {
            let denied = Node::of(&world, 0).permit_at(&given, after(seconds)).expect_err("one is not enough");
            assert!(matches!(&denied, Denied::Quorum { .. }) && !denied.may_pass(), "{denied}");
        }
    }
}
