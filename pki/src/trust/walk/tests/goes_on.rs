//! Walks that go on from what was verified, rewritten histories, and what ends by time.

use schema::fleet::trust::FILE;

use super::{
    super::{Accepted, Known, Refusal, Stuck, Verified, Walked},
    codes,
    world::{Person, World, policy},
};
use crate::trust::{
    key::TrustKey,
    policy as policies,
    revoked::{MOST_REVOKED, Revocations},
};

const RESEAL: &str = "reseal { roles \"admin\"; threshold 2; }\nchange { roles \"admin\"; threshold 1; }\n";

fn reached(walked: &Walked) -> &Verified {
    walked.reached.as_ref().expect("something counts")
}

fn known(verified: &Verified) -> Known {
    let Verified { trust_domain, fleet, policies, memory, .. } = verified.clone();
    let handed_out = policies.iter().map(|(epoch, policy)| (*epoch, policy.digest())).collect();
    Known { trust_domain, fleet, policies, handed_out, memory: Some(memory) }
}

#[test]
fn a_walk_goes_on_from_what_was_verified_and_judges_nothing_again() {
    let mut world = World::new();
    world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    let first = world.walk();
    let after = reached(&first).clone();
    assert_eq!(after.commit, world.tip());
    let nothing = world.go_on(Some(&after), None).expect("a walk");
    assert!(nothing.commits.is_empty(), "the tip is the commit that was verified");
    assert_eq!(reached(&nothing), &after);

    let text = policy(2, Some(world.policy().digest()), "change { roles \"admin\"; threshold 1; }\n");
    world.agreeing(Person::Ada, &text);
    world.unsigned(&[("sites/b.kdl", "site \"b\"")]);
    // What lies before it is not needed any more.
    world.forget(world.anchor());
    let walked = world.go_on(Some(&after), None).expect("a walk");
    assert_eq!(codes(&walked), ["trust-change", "unsigned"]);
    assert_eq!((reached(&walked).commit, reached(&walked).policies.len()), (walked.commits[0].id, 2));
    let epochs: Vec<u64> = walked.epochs.iter().map(|epoch| epoch.epoch).collect();
    assert_eq!(epochs, [2]);
}

#[test]
fn what_a_walk_answers_of_policies_is_enough_for_a_node() {
    let mut world = World::new();
    let first = world.file(FILE);
    let eve = "principal \"eve\" { kind \"human\"; roles \"admin\"; key \"@eve\"; }\n";
    let second = policy(2, Some(world.policy().digest()), &format!("{eve}trust {{ roles \"admin\"; threshold 2; }}\n"));
    world.agree(Person::Bob, &second);
    world.possess(Person::Eve, "eve", &second);
    world.agreeing(Person::Ada, &second);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "trust-change"]);
    let [one, two] = &walked.epochs[..] else { panic!("{:?}", walked.epochs) };
    assert_eq!(one.policy, first.as_bytes());
    let old = policies::first(&one.policy, one.digest).expect("the first policy");
    assert_eq!(policies::first(&two.policy, two.digest), Err(Refusal::Epoch { expected: 1, found: 2 }));
    let (fleet, mut none) = (world.fleet(), Revocations::default());
    let new = policies::step(&old, &two.policy, &two.statements, "acme.example", fleet, &mut none).expect("a step");
    assert_eq!(Some(&new), walked.policy.as_ref());
    assert_eq!(two.statements.len(), 3);
    for left_out in 0..3 {
        let mut fewer = two.statements.clone();
        fewer.remove(left_out);
        assert!(
            policies::step(&old, &two.policy, &fewer, "acme.example", fleet, &mut none).is_err(),
            "without {left_out}"
        );
    }
    let other = policies::step(&old, &two.policy, &two.statements, "other.example", fleet, &mut none);
    assert!(matches!(other, Err(Refusal::TrustThreshold { .. })), "{other:?}");
    let text = String::from_utf8(two.policy.clone()).expect("text").replace("format 1", "format 2");
    let later = policies::step(&old, text.as_bytes(), &two.statements, "acme.example", fleet, &mut none);
    assert_eq!(later, Err(Refusal::TooNew { format: 2 }));
    let pinned = schema::digest::Digest::of("another");
    assert_eq!(policies::first(&one.policy, pinned), Err(Refusal::NotPinned { pinned, found: one.digest }));
}

#[test]
fn no_more_statements_are_given_to_machines_than_they_need() {
    let mut world = World::new();
    let eve = "principal \"eve\" { kind \"human\"; roles \"admin\"; key \"@eve\"; }\n";
    let second = policy(2, Some(world.policy().digest()), eve);
    for _ in 0..policies::MAX_STATEMENTS {
        world.agree(Person::Cleo, &second);
        world.agree(Person::Bob, &second);
        world.possess(Person::Eve, "eve", &second);
    }
    world.agreeing(Person::Ada, &second);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "trust-change"]);
    assert_eq!(walked.epochs[1].statements.len(), 3, "Ada's and Bob's word, and Eve's key");

    let large = format!("{second}// {}\n", "x".repeat(policies::MAX_BYTES));
    let mut world = World::new();
    world.agreeing(Person::Ada, &large);
    assert_eq!(codes(&world.walk()), ["anchor", "policy-too-large"]);
}

#[test]
fn a_tip_that_does_not_follow_what_was_verified_is_another_history() {
    let mut world = World::new();
    let fork = world.tip();
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    let after = reached(&world.walk()).clone();
    // Back to an older tip, and to a sibling, each well signed.
    world.rewind(fork);
    for _ in 0..2 {
        let (anchor, tip) = (after.commit, world.tip());
        assert_eq!(world.go_on(Some(&after), None).expect_err("diverged"), Stuck::HistoryDiverged { anchor, tip });
        world.push(Person::Ada, &[("sites/b.kdl", "site \"b\"")]);
    }
    // A foxtrot: what was verified is the second parent.
    let foxtrot = world.merge(Person::Ada, &[after.commit], &[]);
    assert!(matches!(world.go_on(Some(&after), None), Err(Stuck::HistoryDiverged { tip, .. }) if tip == foxtrot));
}

#[test]
fn a_rewritten_history_is_accepted_by_people_and_by_nothing_else() {
    let mut world = World::with(RESEAL);
    let fork = world.tip();
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    let after = reached(&world.walk()).clone();
    let policy = world.policy();
    world.rewind(fork);
    // Not signed by anybody: those who accept it answer for it.
    let new = world.unsigned(&[("sites/b.kdl", "site \"b\"")]);
    let diverged = Stuck::HistoryDiverged { anchor: after.commit, tip: new };
    world.reseal(Person::Ada, after.commit, &policy);
    world.reseal(Person::Ada, after.commit, &policy);
    world.reseal(Person::Cleo, after.commit, &policy);
    assert_eq!(world.go_on(Some(&after), None).expect_err("one person"), diverged);
    world.reseal(Person::Bob, fork, &policy);
    assert_eq!(world.go_on(Some(&after), None).expect_err("of another tip"), diverged);
    world.reseal_to(Person::Bob, after.commit, new, &policy, "2026-12-01T00:00:00Z");
    world.seen("2026-12-01T00:00:01Z");
    assert_eq!(world.go_on(Some(&after), None).expect_err("too late"), diverged);
    world.reseal(Person::Bob, after.commit, &policy);
    let walked = world.go_on(Some(&after), None).expect("a walk");
    assert_eq!(codes(&walked), ["resealed"]);
    assert!(matches!(&walked.commits[0].verdict, Ok(Accepted::Resealed(by)) if by.len() == 2));

    // It goes on from there by the rules, and whoever begins again with the policies alone gets there, too.
    let next = world.push(Person::Bob, &[("sites/c.kdl", "site \"c\"")]);
    let again = world.go_on(None, Some(&known(&after))).expect("a walk");
    assert_eq!(codes(&again), ["resealed", "granted"]);
    assert_eq!(reached(&again).commit, next);
    let plain = world.go_on(None, None).expect("a walk");
    assert_eq!(codes(&plain), ["anchor", "unsigned", "granted"], "nobody knows the policies there");
    // Back to what it took the place of is another history again.
    world.rewind(after.commit);
    assert!(world.go_on(Some(reached(&again)), None).is_err());
}

#[test]
fn a_rewritten_history_keeps_the_policy_in_force() {
    let mut world = World::with(RESEAL);
    let (fork, first) = (world.tip(), world.file(FILE));
    let second = policy(2, Some(world.policy().digest()), &format!("{RESEAL}revoke {{ roles \"admin\"; }}\n"));
    world.agreeing(Person::Ada, &second);
    let after = reached(&world.walk()).clone();
    world.rewind(fork);
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    let in_force = after.policy().expect("a policy").clone();
    for who in [Person::Ada, Person::Bob] {
        world.reseal(who, after.commit, &in_force);
    }
    let walked = world.go_on(Some(&after), None).expect("a walk");
    assert_eq!(codes(&walked), ["reseals-trust"], "an older policy does not come back");
    assert!(walked.reached.is_none());
    // Under the older policy nothing is accepted any more, either.
    let older = policies::check(first.as_bytes()).policy.expect("a policy");
    world.hush();
    for who in [Person::Ada, Person::Bob] {
        world.reseal(who, after.commit, &older);
    }
    assert!(matches!(world.go_on(Some(&after), None), Err(Stuck::HistoryDiverged { .. })));
}

#[test]
fn a_revocation_works_forward_and_is_never_unlearnt() {
    let mut world = World::with("revoke { roles \"admin\"; }\n");
    let good = world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    world.push(Person::Bob, &[("sites/b.kdl", "site \"b\"")]);
    let after = reached(&world.walk()).clone();
    world.revoke(Person::Ada, &Person::Bob.key().name(), good);
    let walked = world.go_on(Some(&after), None).expect("a walk");
    assert!(walked.commits.is_empty(), "what was verified stays so");
    let learnt = reached(&walked).clone();
    assert_eq!(learnt.memory.denied().len(), 1);
    // Whoever withholds the statement from now on changes nothing.
    world.hush();
    world.push(Person::Bob, &[("sites/c.kdl", "site \"c\"")]);
    for walked in [world.go_on(Some(&learnt), None), world.go_on(None, Some(&known(&learnt)))] {
        let walked = walked.expect("a walk");
        assert_eq!(codes(&walked).last(), Some(&"key-revoked"));
        assert_eq!(reached(&walked).commit, after.commit);
    }
    // Who has no memory places it behind the last good commit.
    world.revoke(Person::Ada, &Person::Bob.key().name(), good);
    assert_eq!(codes(&world.walk()), ["anchor", "granted", "key-revoked", "key-revoked"]);
}

/// A fleet of four admins: Ada, Bob and two with keys of their own.
fn four(more: &str) -> (World, Vec<TrustKey>) {
    let line = |name: &str| crate::trust::testing::secret(&format!("ed25519.{name}")).line.clone();
    let of =
        |name: &str| format!("principal \"{name}\" {{ kind \"human\"; roles \"admin\"; key \"{}\"; }}\n", line(name));
    let world = World::with(&format!("{}{}revoke {{ roles \"admin\"; }}\n{more}", of("p1"), of("p2")));
    (world, ["p1", "p2"].iter().map(|name| TrustKey::from_ssh(&line(name)).expect("a key")).collect())
}

#[test]
fn a_stolen_key_does_not_revoke_everybody() {
    let (mut world, keys) = four("");
    let anchor = world.anchor();
    world.revoke(Person::Bob, &Person::Ada.key().name(), anchor);
    world.revoke(Person::Bob, &keys[0].name(), anchor);
    world.revoke(Person::Bob, &keys[1].name(), anchor);
    world.revoke(Person::Bob, &Person::Cleo.key().name(), anchor);
    let revoked = |world: &World| reached(&world.walk()).memory.revoked.len();
    assert_eq!(revoked(&world), 3, "three keys of others, and no more");
    // The next policy does not give three more.
    let after = reached(&world.walk()).clone();
    let mut again = after.memory.revoked.clone();
    let newest = after.policy().expect("a policy").clone();
    world.hush();
    world.revoke(Person::Bob, &Person::Forge.key().name(), anchor);
    let raw = world.heard();
    assert!(!again.hear(raw.iter().map(|heard| heard.raw.as_slice()), "acme.example", world.fleet(), &newest, None));
}

#[test]
fn whoever_is_left_outvotes_a_stolen_key() {
    // Two of four change the policy. Bob's key is stolen, and takes Ada away first.
    let (mut world, _) = four("trust { roles \"admin\"; threshold 2; }\n");
    let anchor = world.anchor();
    world.agree(Person::Ada, &world.file(FILE));
    let memory = |world: &World| reached(&world.walk()).memory.revoked.clone();
    world.revoke(Person::Bob, &Person::Ada.key().name(), anchor);
    let policy = world.policy();
    let rule = policy.trust().clone();
    let revoked = memory(&world);
    assert!(revoked.denies(&Person::Ada.key()));
    assert!(revoked.denies_vote(&Person::Ada.key(), &policy, &rule), "p1 and p2 are enough without the two");
    // Then one more: those who are left would not be enough, so that one counts where the fleet is saved.
    let (_, keys) = four("");
    world.revoke(Person::Bob, &keys[0].name(), anchor);
    let revoked = memory(&world);
    assert_eq!(revoked.len(), 2);
    let votes =
        [Person::Ada.key(), keys[0].clone()].iter().filter(|key| !revoked.denies_vote(key, &policy, &rule)).count();
    assert_eq!(votes, 1, "with p2 they are two");
}

#[test]
fn a_flood_of_revocations_leaves_enough_people_to_answer_it() {
    let (mut world, keys) = four("trust { roles \"admin\"; threshold 2; }\n");
    let anchor = world.anchor();
    world.agree(Person::Ada, &world.file(FILE));
    let all = [Person::Ada.key(), keys[0].clone(), keys[1].clone(), Person::Cleo.key(), Person::Forge.key()];
    world.revoke(Person::Bob, &all[0].name(), anchor);
    // Which of the others are heard depends on their digests.
    world.seen("2026-01-01T00:00:00Z");
    for _ in 0..50 {
        all.iter().for_each(|key| world.revoke(Person::Bob, &key.name(), anchor));
    }
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "key-revoked"], "it only takes away");
    let (policy, revoked) = (world.policy(), reached(&walked).memory.revoked.clone());
    assert_eq!(revoked.len(), MOST_REVOKED);
    let votes = all[..3].iter().filter(|key| !revoked.denies_vote(key, &policy, policy.trust())).count();
    assert_eq!(votes, 2, "the two who are left change the policy");
}

#[test]
fn in_a_fleet_of_two_a_revocation_takes_everything_but_the_way_out() {
    let mut world = World::with("revoke { roles \"admin\"; }\ntrust { roles \"admin\"; threshold 2; }\n");
    let anchor = world.anchor();
    world.revoke(Person::Ada, &Person::Bob.key().name(), anchor);
    world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    assert_eq!(codes(&world.walk()), ["anchor", "key-revoked"]);
    let policy = world.policy();
    let revoked = reached(&world.walk()).memory.revoked.clone();
    assert!(!revoked.denies_vote(&Person::Bob.key(), &policy, policy.trust()), "nobody else could change the policy");
    // Who gives up a key of their own has no way back.
    let mut world = World::with("trust { roles \"admin\"; threshold 2; }\n");
    let anchor = world.anchor();
    world.revoke(Person::Bob, &Person::Bob.key().name(), anchor);
    let revoked = reached(&world.walk()).memory.revoked.clone();
    assert!(revoked.denies_vote(&Person::Bob.key(), &policy, policy.trust()));
}

#[test]
fn who_was_revoked_does_not_undo_it_by_a_policy() {
    let rule = "revoke { roles \"admin\"; }\n";
    let mut world = World::with(rule);
    let anchor = world.anchor();
    let after = reached(&world.walk()).clone();
    world.revoke(Person::Ada, &Person::Bob.key().name(), anchor);
    // Before anybody has looked: a policy of the thief's own, which calls the other one compromised.
    let gone = format!("{rule}revoked \"{}\" {{ as \"compromised\"; }}\n", Person::Ada.key().name());
    let next = policy(2, Some(world.policy().digest()), &gone);
    world.agreeing(Person::Bob, &next);
    for walked in [world.go_on(Some(&after), None), world.go_on(None, None)] {
        let walked = walked.expect("a walk");
        assert_eq!(codes(&walked).last(), Some(&"key-revoked"));
        let memory = &reached(&walked).memory;
        assert!(memory.declared.is_empty(), "what does not count says nothing of anybody");
        assert!(memory.revoked.denies(&Person::Bob.key()) && !memory.revoked.denies(&Person::Ada.key()));
    }
}

#[test]
fn who_left_revokes_nobody_and_a_forge_revokes_nothing() {
    let rule = "revoke { roles \"admin\"; }\n";
    let mut world = World::with(rule);
    let anchor = world.anchor();
    let retired = format!("{rule}revoked \"{}\" {{ as \"retired\"; }}\n", Person::Bob.key().name());
    let next = policy(2, Some(world.policy().digest()), &retired);
    world.agreeing(Person::Ada, &next);
    let after = reached(&world.walk()).clone();
    // Under the epoch in which he was somebody.
    world.revoke(Person::Bob, &Person::Ada.key().name(), anchor);
    world.revoke(Person::Bob, &Person::Bob.key().name(), anchor);
    world.revoke(Person::Forge, &Person::Forge.key().name(), anchor);
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    let walked = world.go_on(Some(&after), None).expect("a walk");
    assert_eq!(codes(&walked), ["granted"]);
    assert!(reached(&walked).memory.revoked.is_empty());
}

#[test]
fn a_policy_reaches_back_and_what_it_says_stays_said() {
    let mut world = World::new();
    let good = world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    world.push(Person::Bob, &[("sites/b.kdl", "site \"b\"")]);
    let after = reached(&world.walk()).clone();
    let gone = format!("revoked \"{}\" {{ as \"compromised\"; since \"{good}\"; }}\n", Person::Bob.key().name());
    let next = policy(2, Some(world.policy().digest()), &gone);
    world.agreeing(Person::Ada, &next);
    let walked = world.go_on(Some(&after), None).expect("a walk");
    assert_eq!(codes(&walked), ["anchor", "granted", "key-compromised", "trust-change"]);
    let reached = reached(&walked).clone();
    assert_eq!((reached.commit, reached.policies.len()), (good, 1));
    assert!(reached.memory.denied().contains(&Person::Bob.key().name()), "for batches, too");
    let again = world.go_on(Some(&reached), None).expect("a walk");
    assert_eq!(codes(&again), ["key-compromised", "trust-change"]);
}

#[test]
fn no_number_of_a_policy_is_given_twice() {
    let mut world = World::new();
    let good = world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    // Bob's key is stolen, and agrees to a policy, which machines take.
    let second = policy(2, Some(world.policy().digest()), "revoke { roles \"admin\"; }\n");
    world.agreeing(Person::Bob, &second);
    let before = reached(&world.walk()).clone();
    let machines = known(&before);
    assert_eq!(machines.handed_out.len(), 2);
    // The next one says so, and reaches back.
    let gone = format!("revoked \"{}\" {{ as \"compromised\"; since \"{good}\"; }}\n", Person::Bob.key().name());
    world.agreeing(Person::Ada, &policy(3, Some(world.policy().digest()), &gone));
    let after = reached(&world.go_on(Some(&before), Some(&machines)).expect("a walk")).clone();
    assert_eq!((after.commit, after.policies.len()), (good, 1), "what the stolen key agreed to does not count");

    // People go on from there. Another second policy is one that no machine would ever take.
    world.rewind(good);
    let other = policy(2, Some(world.policy().digest()), "reseal { roles \"admin\"; threshold 1; }\n");
    world.agreeing(Person::Ada, &other);
    let walked = world.go_on(Some(&after), Some(&machines)).expect("a walk");
    assert_eq!(codes(&walked), ["epoch-taken"]);
    let alone = world.go_on(Some(&after), None).expect("a walk");
    assert_eq!(codes(&alone), ["trust-change"], "who knows of no machines");

    // The one that they have comes again, agreed to by a key that is its owner's, and what follows follows.
    world.rewind(good);
    world.agreeing(Person::Ada, &second);
    world.agreeing(Person::Ada, &policy(3, Some(world.policy().digest()), &gone));
    let walked = world.go_on(Some(&after), Some(&machines)).expect("a walk");
    assert_eq!(codes(&walked), ["trust-change", "trust-change"]);
    assert_eq!(reached(&walked).policies.len(), 3);
}

#[test]
fn a_reseal_that_nobody_signed_freezes_nothing() {
    let mut world = World::with(RESEAL);
    let after = reached(&world.walk()).clone();
    let policy = world.policy();
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    for who in [Person::Eve, Person::Cleo, Person::Ada] {
        world.reseal(who, after.commit, &policy);
        assert_eq!(codes(&world.go_on(Some(&after), None).expect("a walk")), ["granted"], "{who:?}");
    }
}

#[test]
fn keys_of_yesterday_begin_no_history() {
    let mut world = World::with(RESEAL);
    let first = world.policy();
    let names = [Person::Ada.key().name(), Person::Bob.key().name()];
    let eve = "principal \"eve\" { kind \"human\"; roles \"admin\"; key \"@eve\"; }\n";
    let gone = format!("{eve}revoke {{ roles \"admin\"; }}\nrevoked \"{}\" {{ as \"retired\"; }}\n", names[1]);
    let second = policy(2, Some(first.digest()), &gone);
    world.possess(Person::Eve, "eve", &second);
    world.agreeing(Person::Ada, &second);
    let after = reached(&world.walk()).clone();
    // Whoever retired accepts a history that holds the policy of yesterday.
    world.rewind(world.anchor());
    let new = world.unsigned(&[("sites/evil.kdl", "site \"evil\"")]);
    for who in [Person::Ada, Person::Bob] {
        world.reseal_to(who, after.commit, new, &first, "2026-12-01T00:00:00Z");
    }
    let mut forgetful = known(&after);
    forgetful.memory = None;
    let walked = world.go_on(None, Some(&forgetful)).expect("a walk");
    assert_eq!(codes(&walked), ["anchor", "unsigned"], "the newest policy has no such rule, and one of the two keys");
}

#[test]
fn a_change_statement_ends_unless_it_was_seen_in_time() {
    let mut world = World::with("change { roles \"admin\"; threshold 1; }\n");
    let base = world.tip();
    world.push(Person::Forge, &[("sites/a.kdl", "site \"a\"")]);
    world.vouch(Person::Ada, base);
    assert_eq!(codes(&world.walk()), ["anchor", "vouched"]);
    world.seen("2026-12-01T00:00:00Z");
    assert_eq!(codes(&world.walk()), ["anchor", "vouched"], "to the second");
    world.seen("2026-12-01T00:00:00.001Z");
    assert_eq!(codes(&world.walk()), ["anchor", "not-vouched"]);
}

#[test]
fn a_merge_that_was_held_back_is_not_vouched_for_any_more() {
    let mut world = World::with("change { roles \"admin\"; threshold 1; }\n");
    let after = reached(&world.walk()).clone();
    let base = world.tip();
    world.push(Person::Forge, &[("sites/a.kdl", "site \"a\"")]);
    world.vouch(Person::Ada, base);
    world.seen("2026-11-30T00:00:00Z");
    for (now, code) in [("2026-12-01T00:00:00Z", "vouched"), ("2026-12-01T00:00:01Z", "not-vouched")] {
        let now = Some(now.parse().expect("a time"));
        assert_eq!(codes(&world.go_on_at(Some(&after), None, now).expect("a walk")), [code]);
    }
}
