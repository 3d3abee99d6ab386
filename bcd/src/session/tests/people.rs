//! Facts about people's word in a session: who is believed about the first policy, and what a command needs from then on.

use pki::anchor::AnchorTrust;
use schema::{
    command::{CommandBody, CommandKind, Refusal},
    id::CommandId,
};
use serde_json::json;

use super::*;
use crate::testing::{People, payload};

impl World {
    fn first(&self, trust: &AnchorTrust) -> pb::FirstPolicy {
        let signature = self.worker.sign_first_policy(trust);
        pb::FirstPolicy {
            fleet: trust.fleet.to_string(),
            digest: trust.digest.to_string(),
            signature: Some(message(&signature)),
        }
    }

    fn tell(&mut self, people: &People, first: Option<pb::FirstPolicy>) -> Vec<Effect> {
        let offered = people.first();
        let policy = pb::Policy { epoch: 1, document: offered.document, statements: Vec::new() };
        let frame = pb::Policies { policies: vec![policy], revocations: Vec::new(), first };
        self.frame(gateway_frame::Frame::Policies(frame))
    }

    fn reboot(&mut self, approve: impl Fn(&CommandBody) -> Vec<u8>) -> Option<Refusal> {
        let body = CommandBody {
            id: CommandId::generate(),
            node_id: self.node,
            kind: CommandKind::NodeReboot,
            seq: 1,
            payload: payload(CommandKind::NodeReboot),
            not_after: wall().saturating_add(Duration::from_secs(600)).expect("a time"),
            min_generation: None,
            batch: None,
            secrets: Vec::new(),
            journal: None,
        };
        let (bytes, approval) = (body.to_bytes(), approve(&body));
        let signature = Some(message(&self.worker.sign_command(self.node, &bytes)));
        let effects = self.frame(gateway_frame::Frame::Command(pb::Command { body: bytes, signature, approval }));
        let said = effects.iter().find_map(|effect| match effect {
            Effect::Command(what) => match what.as_ref() {
                Do::Refuse { update, .. } => Some(update.as_ref()),
                Do::Say(update) => Some(update),
                Do::Accept { .. } => None,
                other => panic!("{other:?}"),
            },
            _ => None,
        });
        said.and_then(|update| update.reason.as_ref().and_then(schema::command::Reason::refusal))
    }

    fn epoch(&self) -> u64 {
        self.core.hello(NONCE).policy_epoch
    }
}

fn kept(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::KeepPolicies(_)))
}

#[test]
fn hello_says_that_this_daemon_asks_people_and_what_it_believes() {
    let people = People::new(0);
    let mut world = World::new();
    let hello = world.core.hello(NONCE);
    assert!(hello.capabilities.contains(&"approvals".to_owned()) && hello.policy_epoch == 0);
    world.core = world.core.believing(Some(people.policies()), None);
    assert_eq!(world.epoch(), 1);
}

#[test]
fn who_reads_it_is_told_which_policy_a_machine_believes_and_why_no_other() {
    let people = People::new(0);
    let held = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Send(node_frame::Frame::Status(report)) => {
                serde_json::from_slice::<StatusReport>(&report.payload).expect("a report").policy
            }
            _ => None,
        })
    };
    let mut world = World::new();
    world.open();
    let first = world.first(&people.trust());
    assert_eq!(held(&world.tell(&people, Some(first))), None, "nobody reads it");

    let mut world = World::new();
    world.capabilities = vec!["policy".to_owned()];
    assert_eq!(held(&world.open()).map(|held| held.epoch), Some(0), "it has none");
    let first = world.first(&people.trust());
    let believed = held(&world.tell(&people, Some(first))).expect("a report");
    assert_eq!((believed.epoch, believed.digest), (1, Some(people.policy.digest())));
    assert_eq!(believed.refused, "");
    let (_, offered) = people.next("");
    let nobody = pb::Policy { epoch: 2, document: offered.document, statements: Vec::new() };
    let frame = pb::Policies { policies: vec![nobody], ..pb::Policies::default() };
    let refused = held(&world.frame(gateway_frame::Frame::Policies(frame))).expect("a report");
    assert_eq!(refused.epoch, 1);
    assert!(refused.refused.contains("takes one person to agree"), "{refused:?}");
}

#[test]
fn a_machine_says_that_it_looks_for_its_journal_to_who_reads_that() {
    for (capabilities, told) in [(vec!["binds".to_owned()], true), (vec!["policy".to_owned()], false)] {
        let mut world = World::new();
        world.capabilities = capabilities;
        let told_in = |effect: &Effect| match effect {
            Effect::Send(node_frame::Frame::Status(report)) => {
                Some(serde_json::from_slice::<StatusReport>(&report.payload).expect("a report").binds)
            }
            _ => None,
        };
        assert_eq!(world.open().iter().find_map(told_in), Some(told));
    }
}

#[test]
fn the_first_policy_is_believed_on_a_workers_word_and_on_nobody_elses() {
    let people = People::new(0);
    let mut world = World::new();
    world.open();
    assert_eq!(world.reboot(|_| Vec::new()), None, "nobody told it of a policy");
    assert!(!kept(&world.tell(&people, None)), "a gateway's word is none");
    let good = world.first(&people.trust());
    let forged = pb::FirstPolicy { digest: Digest::of("another").to_string(), ..good.clone() };
    assert!(!kept(&world.tell(&people, Some(forged))));
    let stranger =
        Keys::generate("bc.local", wall()).expect("keys").command_root().certify(&world.anchor.realm(), wall());
    let signature = Some(message(&stranger.sign_first_policy(&people.trust())));
    assert!(!kept(&world.tell(&people, Some(pb::FirstPolicy { signature, ..good.clone() }))));
    assert_eq!((world.epoch(), world.reboot(|_| Vec::new())), (0, None));
    // The word alone, without any policy: from here on people are asked.
    let mut bare = World::new();
    bare.open();
    let alone = pb::Policies { first: Some(bare.first(&people.trust())), ..pb::Policies::default() };
    assert!(kept(&bare.frame(gateway_frame::Frame::Policies(alone))));
    assert_eq!((bare.epoch(), bare.reboot(|_| Vec::new())), (0, Some(Refusal::BatchUnapproved)));
    assert!(kept(&world.tell(&people, Some(good))));
    assert_eq!((world.epoch(), world.reboot(|_| Vec::new())), (1, Some(Refusal::BatchUnapproved)));
    // Another word does not count any more, whoever signed it.
    let others = People::new(9);
    let other = world.first(&others.trust());
    assert!(!kept(&world.tell(&others, Some(other))));
    assert_eq!((world.epoch(), world.reboot(|_| Vec::new())), (1, Some(Refusal::BatchUnapproved)));
}

#[test]
fn a_node_that_was_pinned_when_it_joined_takes_no_workers_word_for_another_fleet() {
    let (people, thief) = (People::new(0), People::new(9));
    let mut world = World::new();
    world.core = world.core.believing(Some(people.pinned()), None);
    world.open();
    let stolen = world.first(&thief.trust());
    assert!(!kept(&world.tell(&thief, Some(stolen))));
    assert_eq!((world.epoch(), world.reboot(|_| Vec::new())), (0, Some(Refusal::BatchUnapproved)));
    assert!(kept(&world.tell(&people, None)), "its own needs nobody's word");
}

#[test]
fn what_people_approved_for_this_machine_is_accepted_and_nothing_else() {
    let people = People::new(0);
    let mut world = World::new();
    world.core = world.core.believing(Some(people.policies()), None);
    world.core.desk.gate().change(|guard| {
        guard.name = "node-one".to_owned();
        guard.identity_generation = schema::generation::IdentityGeneration(1);
    });
    world.open();
    let journal = world.core.progress.journal_id;
    assert_eq!(
        world.reboot(|body| people.approval("b", body, journal)),
        Some(Refusal::Busy),
        "it does not know itself"
    );
    let inventory = Inventory { sections: [(InventorySection::Dmi, json!({}))].into() };
    let now = world.now(2);
    world.core.handle(Event::Inventoried(inventory, Vec::new()), now);
    assert_eq!(world.reboot(|body| people.approval("b", body, journal)), None);
    assert_eq!(world.reboot(|_| Vec::new()), Some(Refusal::BatchUnapproved));
    assert_eq!(world.reboot(|body| people.approval("c", body, JournalId::generate())), Some(Refusal::BatchUnapproved));
    let other = People::new(0);
    assert_eq!(world.reboot(|body| other.approval("d", body, journal)), Some(Refusal::BatchUnapproved));
    // A trust change voids what was approved under the policy before.
    let (_, next) = people.next("");
    let policy = pb::Policy { epoch: next.epoch, document: next.document, statements: next.statements };
    let frame = pb::Policies { policies: vec![policy], ..pb::Policies::default() };
    assert!(kept(&world.frame(gateway_frame::Frame::Policies(frame))));
    assert_eq!(world.reboot(|body| people.approval("e", body, journal)), Some(Refusal::BatchUnapproved));
}

#[test]
fn what_is_kept_of_the_time_is_what_two_words_agree_on() {
    let floor = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::KeepFloor(floor) => Some(*floor),
            _ => None,
        })
    };
    let guarded = |world: &World| world.core.desk.gate().guard().floor;
    let again = |world: &mut World, seconds| {
        let now = world.now(seconds);
        world.core.handle(Event::Opening { nonce: NONCE }, now);
        let welcome = world.welcome(now.wall);
        world.core.handle(Event::Frame(welcome), now)
    };
    let mut world = World::new();
    assert_eq!(floor(&world.open()), None, "one word is not enough for ever");
    assert_eq!(floor(&again(&mut world, 119)), None, "nor are two that one slip of a clock explains");
    assert_eq!(guarded(&world), None);
    let late = world.now(120).wall;
    assert_eq!((floor(&again(&mut world, 120)), guarded(&world)), (Some(late), Some(late)));
    assert_eq!(floor(&again(&mut world, 179)), None, "it is hardly later");
    let later = world.now(180).wall;
    assert_eq!((floor(&again(&mut world, 180)), guarded(&world)), (Some(later), Some(later)));
    let mut world = World::new();
    world.core = world.core.believing(None, Some(wall()));
    assert_eq!(floor(&world.open()), None, "it is not later than what is kept");
    assert_eq!(guarded(&world), Some(wall()));
}

#[test]
fn a_slow_clock_that_a_daemon_meets_first_makes_no_deadline_later() {
    let mut world = World::new();
    let late = world.now(3_600).wall;
    world.core = world.core.believing(None, Some(late));
    world.open();
    assert_eq!(world.core.moment(world.now(0)).now, Some(late));
    let on = world.now(7_200);
    assert!(world.core.moment(on).now.is_some_and(|now| now >= on.wall), "and what is measured since goes on");
}
