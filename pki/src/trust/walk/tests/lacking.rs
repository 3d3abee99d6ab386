//! Commits whose files are not all there: nothing is concluded about them, and nothing is forgotten for it.

use super::{
    super::{Refusal, Stuck},
    codes,
    world::{Person, World, policy},
};

const RULE: &str = "reseal { roles \"admin\"; threshold 1; }\n";

#[test]
fn a_commit_that_cannot_be_read_ends_what_counts_and_what_came_before_it_stands() {
    let mut world = World::new();
    world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    let second = policy(2, Some(world.policy().digest()), RULE);
    world.agreeing(Person::Ada, &second);
    let good = world.tip();
    world.push(Person::Bob, &[("sites/b.kdl", "site \"b\"")]);
    for path in [None, Some("sites/b.kdl")] {
        let lost = world.lose(path);
        let walked = world.walk();
        assert_eq!(codes(&walked), ["anchor", "granted", "trust-change", "object-broken"]);
        let (judged, refusal) = walked.refused().expect("one");
        assert_eq!((judged.id, walked.verified()), (world.tip(), 3));
        assert!(refusal.to_string().contains(&lost.to_string()), "{refusal}");
        let reached = walked.reached.expect("something counts");
        assert_eq!((reached.commit, walked.policy.expect("a policy").epoch()), (good, 2));
        assert_eq!(codes(&world.go_on(Some(&reached), None).expect("a walk")), ["object-broken"]);
        world.find();
        assert_eq!(codes(&world.go_on(Some(&reached), None).expect("a walk")), ["granted"]);
    }
}

#[test]
fn what_follows_a_commit_that_cannot_be_read_does_not_count() {
    let mut world = World::new();
    world.push(Person::Cleo, &[("pools/p.kdl", "pool \"p\" {}")]);
    world.lose(Some("pools/p.kdl"));
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "path-not-granted", "granted"], "who may not change it is told so");
    let mut world = World::new();
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    world.lose(Some("sites/a.kdl"));
    world.push(Person::Ada, &[("sites/b.kdl", "site \"b\"")]);
    world.unsigned(&[("sites/c.kdl", "site \"c\"")]);
    world.lose(Some("sites/c.kdl"));
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "object-broken", "granted", "unsigned"]);
    assert_eq!(walked.verified(), 1);
}

#[test]
fn what_counted_is_not_taken_back_because_it_cannot_be_read() {
    let mut world = World::new();
    world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    let good = world.tip();
    let lost = world.lose(Some("sites/a.kdl"));
    world.push(Person::Ada, &[("sites/b.kdl", "site \"b\"")]);
    world.find();
    let after = world.walk().reached.expect("it counts");
    let gone = format!("revoked \"{}\" {{ as \"compromised\"; since \"{good}\"; }}\n", Person::Bob.key().name());
    let second = policy(2, Some(world.policy().digest()), &gone);
    world.agreeing(Person::Ada, &second);
    world.lose_again(lost);
    let stuck = world.go_on(Some(&after), None).expect_err("the policy reaches back to what is not there");
    assert!(matches!(&stuck, Stuck::Lacking { commit, what } if *commit == good && what.contains(&lost.to_string())));
    // What was never judged is told as ever.
    world.find();
    world.push(Person::Ada, &[("sites/c.kdl", "site \"c\"")]);
    world.lose(Some("sites/c.kdl"));
    let walked = world.go_on(Some(&after), None).expect("a walk");
    assert_eq!(codes(&walked), ["anchor", "granted", "granted", "trust-change", "object-broken"]);
    world.find();
    assert!(world.go_on(Some(&after), None).expect("a walk").refused().is_none());
}

#[test]
fn a_beginning_that_cannot_be_read_begins_nothing() {
    let mut world = World::with(RULE);
    world.lose(None);
    let walked = world.go_on(None, None).expect("a walk");
    assert_eq!((codes(&walked), walked.reached), (vec!["object-broken"], None));
    world.find();
    // Another history, which people accept.
    let reached = world.walk().reached.expect("it counts");
    let (old, under) = (world.tip(), world.policy());
    let new = world.side(Some(Person::Ada), &[], &[("sites/n.kdl", "site \"n\"")]);
    world.rewind(new);
    world.lose(None);
    world.reseal(Person::Bob, old, &under);
    let walked = world.go_on(Some(&reached), None).expect("a walk");
    assert!(matches!(walked.refused(), Some((_, Refusal::Lacking(_)))) && walked.reached.is_none());
    world.find();
    assert_eq!(codes(&world.go_on(Some(&reached), None).expect("a walk")), ["resealed"]);
}
