//! What a history hears before it is asked.

use super::{
    codes,
    world::{Person, World, policy},
};

#[test]
fn only_what_somebody_of_the_policy_signed_is_announced() {
    let mut world = World::new();
    let mut signed = vec![world.tree_of_tip()];
    for place in 0..40 {
        world.push(Person::Bob, &[("sites/fra1.kdl", &format!("site \"fra1\" {{ title \"{place}\"; }}"))]);
        signed.push(world.tree_of_tip());
    }
    world.push(Person::Eve, &[("sites/ams1.kdl", "site \"ams1\"")]);
    world.push(Person::Ada, &[("sites/par1.kdl", "site \"par1\"")]);
    let walked = world.walk();
    assert_eq!(walked.verified(), 41);
    assert_eq!(codes(&walked).last(), Some(&"granted"), "what comes behind is looked at by itself");
    let mut heard = world.ahead.take();
    heard.dedup();
    assert_eq!(heard, signed);
}

#[test]
fn who_signed_is_found_anew_under_each_policy() {
    let mut world = World::new();
    let eve = "principal \"eve\" { kind \"human\"; roles \"admin\"; key \"@eve\"; }\n";
    let second = policy(2, Some(world.policy().digest()), eve);
    world.possess(Person::Eve, "eve", &second);
    world.agreeing(Person::Ada, &second);
    world.push(Person::Eve, &[("sites/ams1.kdl", "site \"ams1\"")]);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change", "granted"]);
}
