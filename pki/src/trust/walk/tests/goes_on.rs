//! Walks that go on from what was verified, rewritten histories, and what ends by time.

use schema::fleet::trust::FILE;

use super::{
    super::{Accepted, Known, Refusal, Stuck, Verified, Walked},
    codes,
    world::{Person, World, policy},
};
use crate::trust::policy as policies;

const RESEAL: &str = "reseal { roles \"admin\"; threshold 2; }\nchange { roles \"admin\"; threshold 1; }\n";

fn reached(walked: &Walked) -> &Verified {
    walked.reached.as_ref().expect("something counts")
}

fn known(verified: &Verified) -> Known {
    let Verified { trust_domain, fleet, policies, revoked, .. } = verified.clone();
    Known { trust_domain, fleet, policies, revoked }
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
    let fleet = world.fleet();
    let new = policies::step(&old, &two.policy, &two.statements, "acme.example", fleet).expect("a step");
    assert_eq!(Some(&new), walked.policy.as_ref());
    assert_eq!(two.statements.len(), 3);
    for left_out in 0..3 {
        let mut fewer = two.statements.clone();
        fewer.remove(left_out);
        assert!(policies::step(&old, &two.policy, &fewer, "acme.example", fleet).is_err(), "without {left_out}");
    }
    let other = policies::step(&old, &two.policy, &two.statements, "other.example", fleet);
    assert!(matches!(other, Err(Refusal::TrustThreshold { .. })), "{other:?}");
    let text = String::from_utf8(two.policy.clone()).expect("text").replace("format 1", "format 2");
    let later = policies::step(&old, text.as_bytes(), &two.statements, "acme.example", fleet);
    assert_eq!(later, Err(Refusal::TooNew { format: 2 }));
    let pinned = schema::digest::Digest::of("another");
    assert_eq!(policies::first(&one.policy, pinned), Err(Refusal::NotPinned { pinned, found: one.digest }));
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
    // Whoever accepts it by a key that was found out is not heard.
    let mut found_out = known(&after);
    found_out.revoked.insert((Person::Bob.key().name(), None));
    assert_eq!(codes(&world.go_on(None, Some(&found_out)).expect("a walk"))[0], "anchor");
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
fn a_key_that_is_revoked_later_takes_back_what_was_verified_and_nothing_is_unlearnt() {
    let mut world = World::with("revoke { roles \"admin\"; }\n");
    let good = world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    world.push(Person::Bob, &[("sites/b.kdl", "site \"b\"")]);
    let after = reached(&world.walk()).clone();
    world.revoke(Person::Ada, &Person::Bob.key().name(), good);
    let walked = world.go_on(Some(&after), None).expect("a walk");
    assert_eq!(codes(&walked), ["anchor", "granted", "key-compromised"], "all of it is judged again");
    assert_eq!(reached(&walked).commit, good);
    // Whoever withholds the statement later on changes nothing.
    let learnt = reached(&walked).clone();
    world.hush();
    let walked = world.go_on(Some(&learnt), None).expect("a walk");
    assert_eq!(codes(&walked), ["key-compromised"]);
    assert_eq!(codes(&world.go_on(None, Some(&known(&learnt))).expect("a walk"))[2], "key-compromised");
}

#[test]
fn a_stolen_key_does_not_revoke_everybody() {
    let people = ["p1", "p2", "p3", "p4"];
    let keys: Vec<String> =
        people.iter().map(|name| crate::trust::testing::secret(&format!("ed25519.{name}")).line.clone()).collect();
    let listed: String = people
        .iter()
        .zip(&keys)
        .map(|(name, key)| format!("principal \"{name}\" {{ kind \"human\"; roles \"helper\"; key \"{key}\"; }}\n"))
        .collect();
    let mut world = World::with(&format!("{listed}revoke {{ roles \"admin\"; }}\n"));
    let anchor = world.anchor();
    for key in &keys {
        let key = crate::trust::key::TrustKey::from_ssh(key).expect("a key");
        world.revoke(Person::Ada, &key.name(), anchor);
    }
    let revoked = |world: &World| reached(&world.walk()).revoked.len();
    assert_eq!(revoked(&world), 3, "three keys of others under one policy, and no more");
    world.hush();
    // The people who change the policy: one of the two has to stay.
    let mut world = World::with("revoke { roles \"admin\"; }\ntrust { roles \"admin\"; threshold 2; }\n");
    let anchor = world.anchor();
    world.revoke(Person::Ada, &Person::Bob.key().name(), anchor);
    world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    assert_eq!(codes(&world.walk()), ["anchor", "granted"], "it would lock the policy");
    world.revoke(Person::Bob, &Person::Bob.key().name(), anchor);
    assert_eq!(codes(&world.walk()), ["anchor", "key-compromised"], "who gives up a key of their own is heard");
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
