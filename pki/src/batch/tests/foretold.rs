//! What is told before somebody signs is what is concluded about it afterwards.

use super::*;
use crate::trust::{key::TrustKey, statement::Word};

const WORDS: [(Word, &str); 3] = [(Word::Approve, "approve"), (Word::Reject, "reject"), (Word::Withdraw, "withdraw")];

impl World {
    /// What is told to somebody who is about to say something, after others said theirs.
    fn foretold(&self, said: &[Vec<u8>], word: Word, who: &str, now: Timestamp) -> Result<(), NoVote> {
        let by = &self.people[who];
        let key = TrustKey::from_ssh(&by.line()).expect("a key");
        let (header, kinds, policy, revoked) = (&self.header, &self.kinds(), &self.policy, &self.revoked);
        let question = Question { header, kinds, statements: said, named: policy, present: policy, revoked, now };
        may_say(&question, word, &name(&by.name), &key)
    }

    fn code(&self, said: &[Vec<u8>], word: Word, who: &str) -> Option<&'static str> {
        self.foretold(said, word, who, now()).err().map(|why| why.code())
    }

    fn candidates(&self, said: &[Vec<u8>]) -> Vec<String> {
        let (header, kinds, policy, revoked) = (&self.header, &self.kinds(), &self.policy, &self.revoked);
        let question =
            Question { header, kinds, statements: said, named: policy, present: policy, revoked, now: now() };
        candidates(&question, &judge(&question)).iter().map(ToString::to_string).collect()
    }

    fn attainable(&self, said: &[Vec<u8>]) -> bool {
        let (header, kinds, policy, revoked) = (&self.header, &self.kinds(), &self.policy, &self.revoked);
        let question =
            Question { header, kinds, statements: said, named: policy, present: policy, revoked, now: now() };
        attainable(&question, &judge(&question))
    }
}

#[test]
fn whoever_is_refused_beforehand_is_refused_afterwards_with_the_same_code() {
    let mut world = World::new();
    world.header.proposer = Some(name("gil"));
    world.revoked.insert(world.people["cleo"].key());
    for (word, text) in WORDS {
        for who in ["ada", "ada2", "bob", "cleo", "dan", "fay", "gil", "robot", "forge"] {
            let tally = world.tally(&[world.say(text, who, |text| text)]);
            let concluded = tally.refused.first().map(|refused| refused.why.code());
            assert_eq!(world.code(&[], word, who), concluded, "{who} says {text}");
        }
    }
    assert_eq!(world.code(&[], Word::Approve, "cleo"), Some("key-revoked"));
    assert_eq!(world.code(&[], Word::Approve, "gil"), Some("excluded"));
    assert_eq!(world.code(&[], Word::Reject, "gil"), None, "whoever proposed it may think again");
}

#[test]
fn a_withdrawal_is_final_for_its_text_and_a_no_for_everybody() {
    let world = World::new();
    let back = [world.approve("ada"), world.say("withdraw", "ada", |text| text)];
    assert_eq!(world.code(&back, Word::Approve, "ada"), Some("taken-back"));
    assert_eq!(world.code(&back, Word::Approve, "ada2"), Some("taken-back"), "whatever the key");
    assert_eq!(world.code(&back, Word::Withdraw, "ada"), Some("taken-back"));
    assert_eq!(world.code(&back, Word::Reject, "ada"), None);
    assert_eq!(world.code(&back, Word::Approve, "bob"), None);
    let no = [world.say("reject", "bob", |text| text)];
    for (word, _) in WORDS {
        assert_eq!(world.code(&no, word, "ada"), Some("rejected"));
    }
}

#[test]
fn nothing_is_said_about_a_batch_of_which_nothing_can_come() {
    let mut world = World::new();
    let late = world.foretold(&[], Word::Reject, "ada", after(3601));
    assert_eq!(late.map_err(|why| why.code()), Err("expired"));
    world.header.tier = name("mop");
    assert_eq!(world.code(&[], Word::Withdraw, "ada"), Some("unknown-tier"));
}

#[test]
fn those_who_could_still_approve_are_people_with_a_key_that_counts_who_said_nothing() {
    let mut world = World::new();
    assert_eq!(world.candidates(&[]), ["ada", "bob", "cleo", "fay", "gil"]);
    world.header.excluded = BTreeSet::from([name("bob")]);
    world.revoked.insert(world.people["cleo"].key());
    world.revoked.insert(world.people["ada2"].key());
    assert_eq!(world.candidates(&[]), ["ada", "fay", "gil"], "one of two keys is enough");
    let said = [world.approve("fay"), world.say("withdraw", "gil", |text| text)];
    assert_eq!(world.candidates(&said), ["ada"]);
}

#[test]
fn a_batch_is_out_of_reach_once_too_few_are_left_to_approve_it() {
    let mut world = World::new();
    let withdrawn = |world: &World, who: &str| world.say("withdraw", who, |text| text);
    world.header.excluded = ["bob", "cleo", "fay"].map(name).into();
    assert_eq!((world.candidates(&[]), world.attainable(&[])), (vec!["ada".to_owned(), "gil".to_owned()], true));
    assert!(world.attainable(&[world.approve("ada")]), "gil is left, and two are enough");
    assert!(!world.attainable(&[world.approve("ada"), withdrawn(&world, "gil")]));
    assert!(!world.attainable(&[withdrawn(&world, "ada")]), "gil alone is not enough");
    assert!(world.attainable(&[world.approve("ada"), world.approve("gil")]), "it is approved");
}

#[test]
fn who_may_call_an_emergency_is_known_before() {
    let mut world = World::new();
    let asked = |world: &World, who: &str| {
        let by = &world.people[who];
        let key = TrustKey::from_ssh(&by.line()).expect("a key");
        may_call(&world.policy, &world.revoked, &name(&by.name), &key)
            .map(|tier| tier.max_nodes)
            .map_err(|why| why.code())
    };
    assert_eq!(asked(&world, "ada"), Ok(2));
    assert_eq!(asked(&world, "cleo"), Err("no-role"));
    assert_eq!(asked(&world, "robot"), Err("no-person"));
    world.revoked.insert(world.people["ada"].key());
    assert_eq!(asked(&world, "ada"), Err("key-revoked"));
    let calm = World::text(&world.people, "epoch 1", TIERS.split("breakglass").next().expect("the rest"));
    world.policy = policy(&calm);
    assert_eq!(asked(&world, "bob"), Err("no-emergencies"));
}
