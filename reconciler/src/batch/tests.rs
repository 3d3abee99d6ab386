//! Facts about what is next, what a budget allows, and whose text a batch is.

mod standing;

use std::collections::{BTreeMap, BTreeSet};

use pki::trust::object::{ObjectFormat, ObjectId};
use proptest::{collection, prelude::*, test_runner::TestCaseError};
use schema::{
    generation::{Generation, IdentityGeneration},
    id::{BootId, JournalId, NodeId},
    name::Name,
    node::{Connectivity, ProvisionState},
};
use store::batches::{InPool, Leaf, LeafState, Machine};

use super::{
    choose::{Choice, WaitsFor, budget, choose},
    history::{self, Untraceable},
    resolve::{BOOT, preconditions},
};
use crate::source::{Repo, fixture::Git};

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn machine(number: u32, rack: &str) -> Machine {
    Machine {
        id: NodeId::generate(),
        name: name(&format!("n{number}")),
        pool: Some(name("h100")),
        site: Some(name("fra1")),
        labels: BTreeMap::from([("rack".to_owned(), rack.to_owned())]),
        identity: IdentityGeneration(1),
        hardware_key: None,
        journal: Some(JournalId::generate()),
        boot: Some(BootId::generate()),
        applied: Generation(3),
        connectivity: Connectivity::Connected,
        cordoned: false,
        staged: false,
        renamed: false,
        provision: ProvisionState::Adopted,
        tag: None,
        vouched: true,
    }
}

fn leaf(number: u32, state: LeafState, machine: Machine) -> Leaf {
    Leaf {
        index: number,
        node_id: machine.id,
        node: machine.name.clone(),
        leaf: None,
        payload: "{}".to_owned(),
        state,
        reason: None,
        command: None,
        attempt: 0,
        began_at: None,
        ended_at: None,
        machine: Some(machine),
        command_state: None,
        handed_over: false,
        unbegun: false,
    }
}

fn waiting(racks: &[&str]) -> Vec<Leaf> {
    (0..).zip(racks).map(|(number, rack)| leaf(number, LeafState::Waiting, machine(number, rack))).collect()
}

fn pool(budget: Option<&str>, machines: u32, disturbed: u32) -> Vec<InPool> {
    vec![InPool { pool: name("h100"), budget: budget.map(str::to_owned), machines, disturbed }]
}

fn waits(choice: &Choice) -> Vec<(u32, WaitsFor)> {
    choice.waits.iter().map(|(index, waits)| (*index, *waits)).collect()
}

#[test]
fn a_share_is_rounded_down_and_is_one_machine_at_least() {
    let cases = [("5%", 40, 2), ("5%", 39, 1), ("5%", 3, 1), ("0%", 40, 0), ("100%", 7, 7), ("3", 40, 3), ("0", 40, 0)];
    for (text, machines, allowed) in cases {
        assert_eq!(budget(Some(text), machines), Some(allowed), "{text} of {machines}");
    }
    assert_eq!(budget(None, 40), None);
}

#[test]
fn as_many_go_as_are_asked_for_in_the_order_of_their_names() {
    let mut leaves = waiting(&["a", "a", "a", "a"]);
    leaves[0].state = LeafState::Sent;
    let choice = choose(&leaves, &pool(None, 4, 1), 2, None);
    assert_eq!((choice.go.as_slice(), choice.in_flight), ([1].as_slice(), 2));
    assert_eq!(waits(&choice), [(2, WaitsFor::Turn), (3, WaitsFor::Turn)]);
    leaves[0].state = LeafState::Failed;
    assert_eq!(choose(&leaves, &pool(None, 4, 0), 2, None).go, [1, 2]);
}

#[test]
fn machines_of_two_failure_domains_are_never_at_it_at_once() {
    let mut leaves = waiting(&["a", "b", "a", "b"]);
    let choice = choose(&leaves, &pool(None, 4, 0), 4, Some("rack"));
    assert_eq!(choice.go, [0, 2]);
    assert_eq!(waits(&choice), [(1, WaitsFor::Domain), (3, WaitsFor::Domain)]);
    leaves[1].state = LeafState::Sent;
    assert_eq!(choose(&leaves, &pool(None, 4, 0), 4, Some("rack")).go, [3]);
    // Who has no such label stands alone.
    let strangers = choose(&waiting(&["a", "b"]), &pool(None, 2, 0), 4, Some("row"));
    assert_eq!(strangers.go, [0]);
}

#[test]
fn a_pool_is_disturbed_no_more_than_it_allows_whoever_disturbs_it() {
    let leaves = waiting(&["a", "a", "a"]);
    let choice = choose(&leaves, &pool(Some("50%"), 4, 1), 3, None);
    assert_eq!(choice.go, [0]);
    assert_eq!(waits(&choice), [(1, WaitsFor::Budget), (2, WaitsFor::Budget)]);
    assert!(choose(&leaves, &pool(Some("1"), 4, 3), 3, None).go.is_empty());
}

#[test]
fn who_is_away_or_cordoned_or_was_renamed_or_is_nobodys_is_waited_for_and_holds_nobody_up() {
    let mut leaves = waiting(&["a", "a", "a", "a", "a"]);
    if let Some(machine) = &mut leaves[0].machine {
        machine.connectivity = Connectivity::Lost;
    }
    if let Some(machine) = &mut leaves[1].machine {
        machine.cordoned = true;
    }
    if let Some(machine) = &mut leaves[2].machine {
        machine.renamed = true;
    }
    if let Some(machine) = &mut leaves[3].machine {
        machine.vouched = false;
    }
    let choice = choose(&leaves, &pool(None, 3, 0), 1, None);
    assert_eq!(choice.go, [4]);
    let others = [(0, WaitsFor::Session), (1, WaitsFor::Uncordon), (2, WaitsFor::Name), (3, WaitsFor::Place)];
    assert_eq!(waits(&choice), others);
}

#[test]
fn a_machine_that_is_not_the_one_that_was_approved_does_not_begin() {
    let there = machine(0, "a");
    let signed = pki::batch::Leaf {
        index: 0,
        name: there.name.clone(),
        node: there.id,
        identity_generation: there.identity,
        hardware_key: "none".to_owned(),
        journal: there.journal.expect("a journal"),
        kind: "node.reboot".to_owned(),
        payload: pki::batch::Leaf::payload(&serde_json::json!({})),
        min_generation: there.applied,
        preconditions: BTreeMap::from([(BOOT.to_owned(), there.boot.expect("a boot").to_string())]),
    };
    let with = |machine: Option<Machine>, signed: &pki::batch::Leaf| {
        let mut one = leaf(0, LeafState::Waiting, there.clone());
        one.leaf = Some(signed.to_bytes());
        one.machine = machine;
        let changed = choose(&[one], &[], 1, None).changed;
        changed.first().map(|(_, why)| (why.code(), why.to_string()))
    };
    let code = |machine: Machine| with(Some(machine), &signed).map(|(code, _)| code);
    assert_eq!(with(Some(there.clone()), &signed), None);
    assert_eq!(with(None, &signed), Some(("machine-changed", "it is gone".to_owned())));
    for change in [
        Machine { name: name("other"), ..there.clone() },
        Machine { identity: IdentityGeneration(2), ..there.clone() },
        Machine { journal: Some(JournalId::generate()), ..there.clone() },
        Machine { hardware_key: Some(schema::digest::Digest::of("board")), ..there.clone() },
    ] {
        assert_eq!(code(change), Some("machine-changed"));
    }
    assert_eq!(code(Machine { boot: Some(BootId::generate()), ..there.clone() }), Some("booted-since"));
    assert_eq!(code(Machine { boot: None, ..there.clone() }), Some("booted-since"), "its boot is not known any more");
    let mut more = signed.clone();
    more.preconditions.insert("power".to_owned(), "on".to_owned());
    assert_eq!(with(Some(there.clone()), &more).map(|(code, _)| code), Some("precondition"), "nobody here knows it");
}

#[test]
fn what_harms_when_it_runs_twice_is_bound_to_the_boot_that_a_machine_is_in() {
    let there = machine(0, "a");
    let boot = BTreeMap::from([(BOOT.to_owned(), there.boot.expect("a boot").to_string())]);
    for (kind, bound) in [("node.reboot", &boot), ("gpu.reset", &boot), ("inventory.refresh", &BTreeMap::new())] {
        assert_eq!(preconditions(kind, &there), *bound, "{kind}");
    }
    assert!(preconditions("node.reboot", &Machine { boot: None, ..there }).is_empty());
}

/// A batch of machines in two racks and one pool, of which another batch may disturb some as well.
#[derive(Debug)]
struct Floor {
    leaves: Vec<Leaf>,
    elsewhere: u32,
}

impl Floor {
    const MOST: u32 = 3;
    const BUDGET: u32 = 4;

    fn step(&self) -> Choice {
        let own = self.leaves.iter().filter(|leaf| leaf.state == LeafState::Sent).count() as u32;
        let pools = pool(Some("4"), 40, self.elsewhere + own);
        choose(&self.leaves, &pools, Self::MOST, Some("rack"))
    }

    /// What has to hold after every step, whoever made it.
    fn holds(&self) -> Result<(), TestCaseError> {
        let at_it: Vec<&Leaf> = self.leaves.iter().filter(|leaf| leaf.state == LeafState::Sent).collect();
        prop_assert!(at_it.len() as u32 <= Self::MOST, "{} at it", at_it.len());
        let racks: BTreeSet<_> = at_it.iter().filter_map(|leaf| leaf.machine.as_ref()?.labels.get("rack")).collect();
        prop_assert!(racks.len() <= 1, "{racks:?}");
        Ok(())
    }
}

proptest! {
    /// A step is one transaction, so that a process that dies in one leaves the rows as they were before it or as they are after.
    #[test]
    fn whoever_goes_on_after_a_crash_disturbs_no_more_than_is_allowed(
        racks in collection::vec(0..3_u32, 1..24),
        events in collection::vec((0..4_u32, 0..24_usize, any::<bool>()), 1..80),
    ) {
        let leaves = (0..).zip(&racks).map(|(number, rack)| leaf(number, LeafState::Waiting, machine(number, &rack.to_string())));
        let mut floor = Floor { leaves: leaves.collect(), elsewhere: 0 };
        for (event, at, dies) in events {
            let choice = floor.step();
            if !dies {
                let (begun, room) = (choice.go.len() as u32, Floor::BUDGET.saturating_sub(floor.elsewhere));
                let own = floor.leaves.iter().filter(|leaf| leaf.state == LeafState::Sent).count() as u32;
                prop_assert!(begun == 0 || own + begun <= room, "{begun} begin beside {own}, with room for {room}");
                for index in &choice.go {
                    prop_assert_eq!(floor.leaves[*index as usize].state, LeafState::Waiting, "nobody begins twice");
                    floor.leaves[*index as usize].state = LeafState::Sent;
                }
            }
            floor.holds()?;
            let Some(leaf) = floor.leaves.get_mut(at) else { continue };
            match (event, leaf.state) {
                (0, LeafState::Sent) => leaf.state = LeafState::Succeeded,
                (1, LeafState::Sent) => leaf.state = LeafState::Failed,
                // Its command waited past its deadline and never left.
                (2, LeafState::Sent) => leaf.state = LeafState::Waiting,
                (3, _) => floor.elsewhere = at as u32 % (Floor::BUDGET + 2),
                _ => {}
            }
        }
    }
}

fn id(text: &str) -> ObjectId {
    ObjectId::parse_as(ObjectFormat::Sha1, text.as_bytes()).expect("an id")
}

#[test]
fn the_plan_commit_is_the_newest_that_changed_the_text_and_all_that_did_are_known() {
    let fixture = Git::empty();
    let commit = |path: &str, text: &str| {
        fixture.write(path, text);
        fixture.commit("a commit")
    };
    let batch = |reason: &str| format!("batch \"kernel\" {{ command \"node.reboot\"; reason \"{reason}\"; }}\n");
    let escaped = |reason: &str| batch(reason).replace("kernel", "k\\u{65}rnel");
    let first = commit("fleet.kdl", "fleet \"t\"\n");
    let added = commit("batches/k.kdl", &escaped("a"));
    let other = commit("sites/s.kdl", "site \"s\"\n");
    let changed = commit("batches/k.kdl", &batch("b"));
    let comment = commit("batches/k.kdl", &format!("// why\n{}", batch("b")));
    let repo = Repo::open(fixture.path()).expect("a repository");
    let history = repo.trust_history("");
    let trace = |tip: &str, anchor: Option<&str>| history::trace(&history, id(tip), anchor.map(id), &name("kernel"));
    let origin = trace(&comment, Some(&first)).expect("an origin");
    assert_eq!((origin.plan, origin.commits), (id(&changed), vec![id(&changed), id(&added)]));
    let origin = trace(&other, None).expect("an origin");
    assert_eq!((origin.plan, origin.commits), (id(&added), vec![id(&added)]));
    // What was there before anybody is trusted is nobody's, whoever changed it since.
    assert!(matches!(trace(&comment, Some(&other)), Err(Untraceable::BeforeAnchor(_))));
    let policies: [&pki::trust::policy::Policy; 0] = [];
    assert!(matches!(history::signers(&history, &[id(&added)], &policies), Err(Untraceable::Unsigned(_))));
}
