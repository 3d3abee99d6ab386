//! How a node follows what people agree on, and whom it does not follow.

use pki::batch::testing::Person;

use super::*;
use crate::{state::StateDir, testing::People};

#[test]
fn the_first_policy_is_the_pinned_one_and_no_other() {
    let people = People::new(0);
    let mut policies = people.pinned();
    assert_eq!((policies.epoch(), policies.present()), (0, None));
    let other = Offered { document: People::new(0).document.into_bytes(), ..people.first() };
    assert!(!policies.take(&[other], &[]).refused.is_empty());
    assert!(!policies.take(&[people.next("").1], &[]).refused.is_empty(), "none is left out");
    assert_eq!(policies.epoch(), 0);
    let taken = policies.take(&[people.first(), people.next("").1], &[]);
    assert!(taken.changed && taken.refused.is_empty(), "{taken:?}");
    assert_eq!(policies.epoch(), 2);
}

#[test]
fn a_policy_that_its_people_did_not_agree_to_is_not_taken_and_an_old_one_never_again() {
    let people = People::new(0);
    let (next, offered) = people.next("");
    let eve = Person::new("eve");
    let mut policies = people.policies();
    for statements in [vec![], vec![people.fleet.trust(&eve, people.policy.digest(), &next)]] {
        let taken = policies.take(&[Offered { statements, ..offered.clone() }], &[]);
        assert!(!taken.changed && taken.refused.len() == 1, "{taken:?}");
    }
    let jump = Offered { epoch: u64::MAX, ..offered.clone() };
    assert!(!policies.take(&[jump], &[]).changed);
    let called = Offered { epoch: 2, ..people.first() };
    assert!(!policies.take(&[called], &[]).changed, "the first one again, under another number");
    assert!(policies.take(&[offered], &[]).changed);
    assert_eq!(policies.take(&[people.first()], &[]), Taken::default());
    assert_eq!(policies.present().map(Policy::epoch), Some(2));
}

#[test]
fn who_was_revoked_agrees_to_nothing_any_more() {
    let people = People::new(0);
    let (next, _) = people.next("");
    let by_bob = Offered {
        statements: vec![people.fleet.trust(&people.bob, people.policy.digest(), &next)],
        ..people.next("").1
    };
    let revoke = people.fleet.revoke(&people.ada, &people.bob.key(), &people.policy);
    let mut policies = people.policies();
    // Both in one frame: what takes away is heard first.
    let taken = policies.take(&[by_bob], &[revoke]);
    assert!(taken.changed && taken.refused.len() == 1, "{taken:?}");
    assert_eq!((policies.epoch(), policies.revoked().len()), (1, 1));
    assert!(policies.take(&[people.next("").1], &[]).changed, "Ada still does");
}

#[test]
fn revocations_only_take_away_are_of_people_who_may_and_are_few() {
    let people = People::new(0);
    let mut policies = people.policies();
    let eve = Person::new("eve");
    let stranger = people.fleet.revoke(&eve, &people.ada.key(), &people.policy);
    let foreign =
        pki::batch::testing::Fleet::new("other.example").revoke(&people.ada, &people.bob.key(), &people.policy);
    assert_eq!(policies.take(&[], &[stranger, foreign, b"junk".to_vec()]), Taken::default());
    let own = people.fleet.revoke(&people.bob, &people.bob.key(), &people.policy);
    assert!(policies.take(&[], std::slice::from_ref(&own)).changed, "whoever holds a key may give it up");
    assert_eq!(policies.take(&[], &[own]), Taken::default(), "once");
    let again = people.fleet.revoke(&people.ada, &people.bob.key(), &people.policy);
    assert_eq!(policies.take(&[], &[again]), Taken::default(), "one word for each key is enough");
}

#[test]
fn what_is_kept_is_judged_again_and_what_was_changed_on_disk_allows_nothing() {
    let people = People::new(0);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let state = StateDir::open(dir.path()).expect("made");
    assert!(state.policies().expect("read").is_none());
    let mut policies = people.policies();
    let revoke = people.fleet.revoke(&people.ada, &people.bob.key(), &people.policy);
    policies.take(&[people.next("").1], &[revoke]);
    state.keep_policies(policies.kept()).expect("written");
    let read = state.policies().expect("read").expect("there");
    assert_eq!((read.epoch(), read.revoked(), read.halted()), (2, policies.revoked(), None));
    assert_eq!(read.kept(), policies.kept());
    let mut changed = policies.kept().clone();
    changed.epochs[1].statements.clear();
    let changed = Policies::read(changed);
    assert_eq!(changed.epoch(), 1);
    assert!(changed.halted().is_some());
    state.forget_identity().expect("forgotten");
    assert!(state.policies().expect("read").is_some(), "whoever a machine is next, it remembers its people");
}

#[test]
fn an_unknown_kind_in_a_policy_is_a_word() {
    let people = People::new(0);
    let mut policies = people.policies();
    let tier = "tier \"melt\" { commands \"disk.melt\"; roles \"admin\"; threshold 1; max-nodes 1; max-ttl \"1h\"; }\n";
    let head = format!("format 1; epoch 2; prev \"{}\";", people.policy.digest());
    let document = People::text(&people.ada, &people.bob, &head, tier);
    // What this version would not write it reads: people of a later one agree to it.
    let next = policy::step(
        &people.policy,
        document.as_bytes(),
        &[],
        "bc.local",
        people.fleet.id,
        &mut Revocations::default(),
    );
    let Err(Refusal::TrustThreshold { step, .. }) = next else { panic!("{next:?}") };
    let agrees = people.fleet.trust_to(&people.ada, people.policy.digest(), (2, step.next));
    let offered = Offered { epoch: 2, document: document.into_bytes(), statements: vec![agrees] };
    let taken = policies.take(&[offered], &[]);
    assert!(taken.changed, "{taken:?}");
    assert_eq!(
        policies.present().and_then(|policy| policy.tier_of("disk.melt")).map(|tier| tier.name.as_str()),
        Some("melt")
    );
}

/// Four admins, of whom two change the policy.
struct Four {
    fleet: pki::batch::testing::Fleet,
    people: [Person; 4],
}

impl Four {
    fn new() -> Self {
        let people = ["ada", "bob", "p1", "p2"].map(Person::new);
        Self { fleet: pki::batch::testing::Fleet::new("bc.local"), people }
    }

    fn text(&self, epoch: u64, prev: Option<&Policy>, more: &str) -> String {
        let one = |person: &Person| {
            let (name, key) = (&person.name, person.line());
            format!("principal \"{name}\" {{ kind \"human\"; roles \"admin\"; key \"{key}\"; }}\n")
        };
        let prev = prev.map_or_else(String::new, |prev| format!(" prev \"{}\";", prev.digest()));
        format!(
            "policy {{ format 1; epoch {epoch};{prev} }}\n{}path \"**\" {{ roles \"admin\"; }}\n\
             trust {{ roles \"admin\"; threshold 2; }}\nrevoke {{ roles \"admin\"; }}\n{more}",
            self.people.iter().map(one).collect::<String>()
        )
    }

    fn offered(&self, prev: &Policy, text: &str, by: [usize; 2]) -> Offered {
        let next = pki::batch::testing::policy(text);
        let statements = by.map(|who| self.fleet.trust(&self.people[who], prev.digest(), &next));
        Offered { epoch: next.epoch(), document: text.as_bytes().to_vec(), statements: statements.to_vec() }
    }
}

#[test]
fn what_a_stolen_key_revoked_counts_again_once_a_policy_says_that_it_was_stolen() {
    let four = Four::new();
    let first = four.text(1, None, "");
    let one = pki::batch::testing::policy(&first);
    let trust = AnchorTrust { fleet: four.fleet.id, digest: one.digest() };
    let mut policies = Policies::pinned(&Realm::new("bc.local", "fleet-one"), trust);
    let offered = Offered { epoch: 1, document: first.into_bytes(), statements: Vec::new() };
    assert!(policies.take(&[offered], &[]).changed);
    // Whoever has Ada's key takes Bob away.
    let [ada, bob, ..] = &four.people;
    assert!(policies.take(&[], &[four.fleet.revoke(ada, &bob.key(), &one)]).changed);
    assert!(policies.revoked().contains(&bob.key()));

    let second = four.text(2, Some(&one), &format!("revoked \"{}\" {{ as \"compromised\"; }}\n", ada.key()));
    let (two, second) = (pki::batch::testing::policy(&second), four.offered(&one, &second, [2, 3]));
    let third = four.text(3, Some(&two), &format!("revoked \"{}\" {{ as \"compromised\"; }}\n", ada.key()));
    let third = four.offered(&two, &third, [1, 2]);
    let taken = policies.take(&[second, third], &[]);
    assert!(taken.refused.is_empty(), "{taken:?}");
    assert_eq!((policies.epoch(), policies.revoked().len()), (3, 0), "Bob is somebody again, and agrees");
    // Whoever brings the thief's word again is told nothing by it.
    assert!(!policies.take(&[], &[four.fleet.revoke(ada, &bob.key(), &two)]).changed);
    let again = Policies::read(policies.kept().clone());
    assert_eq!((again.epoch(), again.revoked().len(), again.halted()), (3, 0, None));
}
