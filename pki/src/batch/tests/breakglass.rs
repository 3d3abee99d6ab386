//! Emergencies.

use super::*;

const WINDOW: (i64, i64) = (0, 3600);

fn called(world: &World, who: &str, what: (&str, &str), (from, until): (i64, i64)) -> Vec<u8> {
    world.fleet.breakglass(&world.people[who], what, &world.policy, (after(from), after(until)))
}

fn ask(world: &World, statements: &[Vec<u8>]) -> (Vec<Emergency>, Vec<&'static str>) {
    let (domain, fleet) = (&*world.fleet.trust_domain, world.fleet.id);
    let (called, refused) = emergencies(statements, domain, fleet, &world.policy, &world.revoked);
    (called, refused.into_iter().map(|refused| refused.why.code()).collect())
}

#[test]
fn people_who_say_the_same_words_call_an_emergency() {
    let world = World::new();
    let what = ("gpu.reset,node.reboot", "gpu-0,gpu-1");
    let one = called(&world, "ada", what, WINDOW);
    let (alone, _) = ask(&world, std::slice::from_ref(&one));
    assert!(!alone[0].permits(now()) && alone[0].missing == ["one more person with the role admin"]);
    let (both, refused) =
        ask(&world, &[one.clone(), called(&world, "ada", what, WINDOW), called(&world, "bob", what, WINDOW)]);
    assert!(refused.is_empty() && both.len() == 1);
    let emergency = &both[0];
    assert!(emergency.permits(now()) && emergency.permits(after(3600)) && !emergency.permits(after(3601)));
    assert!(!emergency.permits(after(-1)));
    assert_eq!((words(&emergency.people), emergency.evidence.len()), (vec!["ada", "bob"], 2));
    assert!(emergency.covers("gpu-1", "node.reboot") && !emergency.covers("gpu-2", "node.reboot"));
    assert!(!emergency.covers("gpu-1", "disk.wipe"));
    // The same words are used up once for each kind, however many people say them.
    let uses: BTreeSet<_> = ["node.reboot", "gpu.reset"].iter().flat_map(|kind| emergency.uses(kind)).collect();
    assert_eq!((uses.len(), alone[0].uses("node.reboot")), (2, emergency.uses("node.reboot")));
    for other in [("node.reboot", "gpu-0,gpu-1"), ("gpu.reset,node.reboot", "gpu-0")] {
        let (apart, _) = ask(&world, &[one.clone(), called(&world, "bob", other, WINDOW)]);
        assert!(apart.len() == 2 && apart.iter().all(|emergency| !emergency.permits(now())), "{other:?}");
    }
}

#[test]
fn what_carries_an_emergency_is_of_no_more_people_than_it_takes() {
    let mut world = World::new();
    let two = "roles \"admin\"; threshold 2; max-nodes 2;";
    let tiers = TIERS.replace(two, &two.replace("threshold 2", "threshold 1"));
    world.policy = policy(&World::text(&world.people, "epoch 1", &tiers));
    let what = ("node.reboot", "gpu-0");
    let (both, _) = ask(&world, &["ada", "bob"].map(|who| called(&world, who, what, WINDOW)));
    assert_eq!((both.len(), both[0].evidence.len(), both[0].carry.len()), (1, 2, 1));
    assert!(both[0].permits(now()));
    let statements = ["ada", "ada"].map(|who| called(&world, who, what, WINDOW));
    assert_eq!(ask(&world, &statements).0[0].evidence, [0], "one of each person");
}

#[test]
fn an_emergency_is_small_short_and_of_people_who_may() {
    let mut world = World::new();
    let usual = ("node.reboot", "gpu-0");
    let code = |world: &World, statement: Vec<u8>| ask(world, &[statement]).1;
    assert_eq!(code(&world, called(&world, "cleo", usual, WINDOW)), ["no-role"]);
    assert_eq!(code(&world, called(&world, "robot", usual, WINDOW)), ["no-person"]);
    assert_eq!(code(&world, called(&world, "eve", usual, WINDOW)), ["unknown-key"]);
    assert_eq!(code(&world, called(&world, "ada", ("disk.wipe", "gpu-0"), WINDOW)), ["other-tier"]);
    assert_eq!(code(&world, called(&world, "ada", ("node.reboot", "a,b,c"), WINDOW)), ["window"]);
    assert_eq!(code(&world, called(&world, "ada", usual, (0, 3601))), ["window"]);
    assert_eq!(code(&world, world.approve("ada")), ["other-subject"]);
    let message = String::from_utf8(called(&world, "ada", usual, WINDOW)).expect("text");
    let (_, message) = message.split_once("\n\n").expect("a message");
    let carried = world.people["ada"].commit(object("a change"), &[object("tip")], message);
    assert_eq!(code(&world, carried), ["not-empty"], "somebody's message that was picked with a change");
    let foreign = Fleet::new("staging.example");
    let foreign = foreign.breakglass(&world.people["ada"], usual, &world.policy, (now(), after(60)));
    assert_eq!(code(&world, foreign), ["other-fleet"]);
    let next = world.next("max-nodes 4", "max-nodes 5");
    let later = world.fleet.breakglass(&world.people["ada"], usual, &next, (now(), after(60)));
    assert_eq!(code(&world, later), ["other-policy"]);
    world.revoked.insert(world.people["ada"].key());
    assert_eq!(code(&world, called(&world, "ada", usual, WINDOW)), ["key-revoked"]);
    let calm = World::text(&world.people, "epoch 1", TIERS.split("breakglass").next().expect("the rest"));
    world.policy = policy(&calm);
    assert_eq!(ask(&world, &[called(&world, "bob", usual, WINDOW)]), (vec![], vec![]), "a fleet without emergencies");
}
