//! What a node does not do without people, and what it does once.

use schema::command::CommandKind;

use super::*;
use crate::testing::{People, command, now, pen};

struct World {
    people: People,
    guard: Guard,
    spent: Spent,
    body: CommandBody,
    journal: JournalId,
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

impl World {
    fn new(unbatched: u32) -> Self {
        let (people, journal) = (People::new(unbatched), JournalId::generate());
        let body = command(&pen(journal), CommandKind::NodeReboot, 1);
        Self { guard: people.guard(), people, spent: Spent::default(), body, journal }
    }

    fn ask_at(&self, approval: &[u8], now: Option<Timestamp>, wall: Timestamp) -> Result<Toll, Held> {
        let (node, journal, since) = (self.body.node_id, self.journal, self.spent.since);
        let toll = approved(&Asked { body: &self.body, approval, node, journal, now, wall, since }, &self.guard)?;
        let at = Clocks { now: now.unwrap_or(wall), wall };
        self.spent.affords(&toll, at).map_err(|short| Held::No(short.refusal(), short.to_string()))?;
        Ok(toll)
    }

    fn ask(&self, approval: &[u8]) -> Result<Toll, Held> {
        self.ask_at(approval, Some(now()), now())
    }

    fn approval(&self) -> Vec<u8> {
        self.people.approval("kernel", &self.body, self.journal)
    }
}

fn refusal(answer: Result<Toll, Held>) -> Refusal {
    match answer {
        Err(Held::No(refusal, _)) => refusal,
        Err(Held::Busy(_)) => Refusal::Busy,
        Ok(toll) => panic!("permitted: {toll:?}"),
    }
}

#[test]
fn a_node_that_knows_no_policy_lets_go_and_one_that_does_asks() {
    let mut world = World::new(0);
    assert_eq!(refusal(world.ask(&[])), Refusal::BatchUnapproved);
    assert_eq!(refusal(world.ask(b"{}")), Refusal::BatchUnapproved);
    let Ok(Toll::Permit(permit)) = world.ask(&world.approval()) else { panic!("approved") };
    assert_eq!(permit.people.len(), 1);
    world.guard.policies = None;
    assert_eq!(world.ask(&[]), Ok(Toll::Free));
}

#[test]
fn a_node_that_knows_the_fleet_and_has_no_policy_yet_waits_for_it() {
    let mut world = World::new(7);
    world.guard.policies = Some(Arc::new(world.people.pinned()));
    assert_eq!(refusal(world.ask(&world.approval())), Refusal::Busy);
    assert_eq!(
        refusal(world.ask(&[])),
        Refusal::BatchUnapproved,
        "an allowance comes from a policy and from nowhere else"
    );
}

#[test]
fn what_was_used_is_not_used_again_whatever_the_command_is_called() {
    let mut world = World::new(0);
    let approval = world.approval();
    let Ok(Toll::Permit(permit)) = world.ask(&approval) else { panic!("approved") };
    for user in [CommandId::generate(), world.body.id] {
        world.spent.uses.insert(permit.uses[0], user);
        assert_eq!(refusal(world.ask(&approval)), Refusal::BatchUnapproved, "a name may be given twice");
    }
}

#[test]
fn the_end_of_an_approval_is_judged_by_every_clock() {
    let mut world = World::new(0);
    let approval = world.approval();
    let (last, late) = (at("2026-03-01T13:00:00Z"), at("2026-03-01T13:00:01Z"));
    assert!(world.ask_at(&approval, Some(last), last).is_ok());
    assert_eq!(refusal(world.ask_at(&approval, Some(late), now())), Refusal::BatchUnapproved);
    assert_eq!(refusal(world.ask_at(&approval, Some(now()), late)), Refusal::BatchUnapproved, "the control plane lies");
    assert_eq!(refusal(world.ask_at(&approval, None, now())), Refusal::Busy);
    let long_ago = at("2011-01-01T00:00:00Z");
    world.guard.certified = Some(at("2026-03-01T06:00:00Z"));
    assert!(world.ask_at(&approval, Some(now()), long_ago).is_ok(), "a clock that lost its battery does not matter");
    world.guard.floor = Some(late);
    assert_eq!(refusal(world.ask_at(&approval, Some(now()), long_ago)), Refusal::BatchUnapproved, "it was later once");
}

#[test]
fn whoever_signs_time_begins_nothing_early() {
    let mut world = World::new(0);
    let approval = world.approval();
    let early = at("2026-03-01T11:59:59Z");
    assert_eq!(refusal(world.ask_at(&approval, Some(early), now())), Refusal::Busy);
    for certified in [None, Some(at("2026-03-01T06:00:00Z"))] {
        world.guard.certified = certified;
        // What signed time says later is no proof against the machine's clock.
        for floor in [None, Some(now())] {
            world.guard.floor = floor;
            assert_eq!(refusal(world.ask_at(&approval, Some(now()), early)), Refusal::Busy, "by its own clock");
        }
    }
    assert!(world.ask(&approval).is_ok());
}

#[test]
fn a_machine_that_was_not_looked_at_does_not_know_itself() {
    let mut world = World::new(0);
    let approval = world.approval();
    world.guard.hardware_key = None;
    assert_eq!(refusal(world.ask(&approval)), Refusal::Busy);
    world.guard.hardware_key = Some("sha256:another".to_owned());
    assert_eq!(refusal(world.ask(&approval)), Refusal::BatchUnapproved);
}

#[test]
fn the_allowance_is_the_policys_and_counts_what_began_in_the_hour_before() {
    let mut world = World::new(2);
    assert_eq!(world.ask(&[]), Ok(Toll::Unbatched { per_hour: 2 }));
    let began = |minute: u32| {
        let at = at(&format!("2026-03-01T11:{minute:02}:00Z"));
        Clocks { now: at, wall: at }
    };
    world.spent.unbatched = vec![began(0), began(1), began(59)];
    assert_eq!(refusal(world.ask(&[])), Refusal::UnbatchedLimit);
    world.spent.unbatched = vec![began(0), began(0), began(59)];
    assert_eq!(world.ask(&[]), Ok(Toll::Unbatched { per_hour: 2 }), "an hour is over");
    assert_eq!(refusal(world.ask_at(&[], None, now())), Refusal::Busy);
    // Whoever signs time moves it on; the machine's clock goes on as it does.
    world.spent.unbatched = vec![began(59), began(59)];
    let (later, wall) = (at("2026-03-02T11:00:00Z"), at("2026-03-01T12:58:59Z"));
    assert_eq!(refusal(world.ask_at(&[], Some(later), wall)), Refusal::UnbatchedLimit);
    assert_eq!(refusal(world.ask_at(&[], Some(wall), later)), Refusal::UnbatchedLimit);
    let wall = at("2026-03-01T12:59:00Z");
    assert_eq!(world.ask_at(&[], Some(later), wall), Ok(Toll::Unbatched { per_hour: 2 }));
    let set_back = at("2011-01-01T00:00:00Z");
    assert_eq!(refusal(world.ask_at(&[], Some(now()), set_back)), Refusal::UnbatchedLimit);
    assert_eq!(world.ask_at(&[], Some(later), set_back), Ok(Toll::Unbatched { per_hour: 2 }), "it does not know");
    world.body.batch = Some(schema::id::BatchId::generate());
    assert_eq!(refusal(world.ask(&[])), Refusal::BatchUnapproved, "what belongs to a batch takes no allowance");
}

#[test]
fn an_emergency_from_before_the_journal_is_none() {
    let mut world = World::new(0);
    let emergency = world.people.emergency("2026-03-01T11:30:00Z", "2026-03-01T12:30:00Z");
    assert_eq!(refusal(world.ask(&emergency)), Refusal::BatchUnapproved, "since when it knows is not known");
    world.spent.since = Some(at("2026-03-01T11:30:01Z"));
    assert_eq!(refusal(world.ask(&emergency)), Refusal::BatchUnapproved);
    world.spent.since = Some(at("2026-03-01T11:30:00Z"));
    let toll = world.ask(&emergency).expect("allowed");
    let words = Permitted::of(&toll).expect("permitted").words();
    assert_eq!(words, "break-glass by ada: the cooling is gone");
    let Toll::Permit(permit) = toll else { panic!("a permit") };
    world.spent.uses.insert(permit.uses[0], CommandId::generate());
    assert_eq!(refusal(world.ask(&emergency)), Refusal::BatchUnapproved, "once");
    world.body.kind = CommandKind::GpuReset;
    assert_eq!(refusal(world.ask(&emergency)), Refusal::BatchUnapproved, "it allows reboots");
}

#[test]
fn a_policy_that_this_version_cannot_judge_allows_nothing() {
    let mut world = World::new(3);
    let approval = world.approval();
    let mut policies = world.people.policies();
    let document = world.people.document.replace("format 1; epoch 1;", "format 9; epoch 2;").into_bytes();
    let newer = crate::policies::Offered { epoch: 2, document, statements: Vec::new() };
    let taken = policies.take(&[newer], &[]);
    assert!(taken.refused[0].contains("TrustTooNew"), "{taken:?}");
    world.guard.policies = Some(Arc::new(policies));
    assert_eq!(refusal(world.ask(&approval)), Refusal::BatchUnapproved);
    assert_eq!(refusal(world.ask(&[])), Refusal::BatchUnapproved);
    // Nobody agreed to it: an honest gateway need not bring what a hostile one made up.
    let mut policies = Policies::clone(world.guard.policies.as_ref().expect("policies"));
    policies.begin_session();
    world.guard.policies = Some(Arc::new(policies));
    assert!(world.ask(&approval).is_ok());
}

#[test]
fn a_revoked_key_and_another_policy_void_what_was_approved() {
    let mut world = World::new(0);
    let approval = world.approval();
    let revoke = world.people.fleet.revoke(&world.people.ada, &world.people.bob.key(), &world.people.policy);
    let mut policies = world.people.policies();
    assert!(policies.take(&[], &[revoke]).changed);
    world.guard.policies = Some(Arc::new(policies));
    assert_eq!(refusal(world.ask(&approval)), Refusal::BatchUnapproved);
    let mut policies = world.people.policies();
    assert!(policies.take(&[world.people.next("").1], &[]).changed);
    world.guard.policies = Some(Arc::new(policies));
    assert_eq!(refusal(world.ask(&approval)), Refusal::BatchUnapproved);
}

#[test]
fn what_is_kept_of_a_permit_is_read_again() {
    let world = World::new(0);
    let permitted = Permitted::of(&world.ask(&world.approval()).expect("approved")).expect("a permit");
    let kept = serde_json::to_string(&permitted).expect("kept");
    assert_eq!(serde_json::from_str::<Permitted>(&kept).expect("read"), permitted);
    assert_eq!(permitted.words(), "approved in batch/kernel (tier reboot, leaf 0) by bob");
}
