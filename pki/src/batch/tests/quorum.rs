//! The quorum.

use super::*;

#[test]
fn two_people_approve_and_one_does_not() {
    let world = World::new();
    let tally = world.tally(&[world.approve("ada")]);
    assert_eq!((tally.approved, tally.missing), (false, vec!["one more person with the role operator".to_owned()]));
    let tally = world.tally(&[world.approve("bob"), world.approve("ada")]);
    assert!(tally.approved && tally.permits(now()), "{tally:?}");
    assert_eq!((words(&tally.yes), tally.evidence), (vec!["ada", "bob"], vec![1, 0]));
}

#[test]
fn one_human_is_one_vote_whatever_the_keys_and_copies() {
    let world = World::new();
    let one = world.approve("ada");
    // Other commits with the same signature, other statements, another key.
    let again = (0..20).map(|_| world.approve("ada"));
    let all: Vec<_> = [one.clone(), one, world.approve("ada2")].into_iter().chain(again).collect();
    let tally = world.tally(&all);
    assert_eq!((tally.approved, words(&tally.yes), tally.evidence.len()), (false, vec!["ada"], 1));
    assert!(tally.refused.is_empty());
}

#[test]
fn who_proposed_or_signed_the_document_does_not_approve_it() {
    let mut world = World::new();
    world.header.proposer = Some(name("bob"));
    world.header.excluded = BTreeSet::from([name("cleo")]);
    for who in ["bob", "cleo"] {
        assert_eq!(world.refusal(world.approve(who)), "excluded");
    }
    let tally = world.tally(&["ada", "bob", "cleo"].map(|who| world.approve(who)));
    assert!(!tally.approved && words(&tally.yes) == ["ada"]);
    assert!(world.tally(&["ada", "fay"].map(|who| world.approve(who))).approved);
}

#[test]
fn services_forges_strangers_and_people_without_the_role_count_nothing() {
    let world = World::new();
    let table = [("robot", "no-person"), ("forge", "no-person"), ("dan", "no-role"), ("eve", "unknown-key")];
    for (who, code) in table {
        assert_eq!(world.refusal(world.approve(who)), code, "{who}");
        assert_eq!(world.refusal(world.say("reject", who, |text| text)), code, "{who} rejects");
    }
}

#[test]
fn a_rejection_wins_over_any_number_and_its_own_approval() {
    let world = World::new();
    let three = ["ada", "bob", "cleo"].map(|who| world.approve(who));
    let no = world.say("reject", "ada", |text| text);
    for all in [[&three[..], std::slice::from_ref(&no)].concat(), [std::slice::from_ref(&no), &three[..]].concat()] {
        let tally = world.tally(&all);
        assert!(!tally.approved && words(&tally.no) == ["ada"] && words(&tally.yes) == ["bob", "cleo"]);
    }
    let mut proposed = World::new();
    proposed.header.proposer = Some(name("ada"));
    let no = proposed.say("reject", "ada", |text| text);
    assert_eq!(words(&proposed.tally(std::slice::from_ref(&no)).no), ["ada"], "whoever proposed it may think again");
    assert_eq!(words(&proposed.tally_at(&[no], &proposed.policy, after(9000)).no), ["ada"], "a no does not expire");
}

#[test]
fn who_withdraws_does_not_count_and_does_not_count_again() {
    let world = World::new();
    let withdraw = world.say("withdraw", "bob", |text| text);
    let tally = world.tally(&[world.approve("ada"), world.approve("bob"), withdraw, world.approve("bob")]);
    assert!(!tally.approved);
    assert_eq!((words(&tally.yes), words(&tally.withdrawn)), (vec!["ada"], vec!["bob"]));
}

#[test]
fn every_slot_of_a_group_takes_another_person() {
    let mut world = World::new();
    world.leaves.iter_mut().for_each(|leaf| leaf.kind = "gpu.reset".to_owned());
    world.header.tier = name("reset");
    world.seal();
    let tally = |people: &[&str]| world.tally(&people.iter().map(|who| world.approve(who)).collect::<Vec<_>>());
    // Bob is of both groups and fills one slot; it is found out which.
    for pair in [["ada", "bob"], ["bob", "cleo"], ["cleo", "ada"]] {
        assert!(tally(&pair).approved, "{pair:?}");
    }
    let alone = tally(&["bob", "gil"]);
    assert!(!alone.approved && alone.missing.len() == 1, "{:?}", alone.missing);
    assert!(alone.missing[0].starts_with("1 of the group "), "{:?}", alone.missing);
    assert_eq!(tally(&["ada", "gil"]).missing, ["1 of the group dc"]);
    assert_eq!(tally(&[]).missing.len(), 3);
    assert_eq!(world.refusal(world.approve("fay")), "excluded");
}

#[test]
fn the_tier_is_that_of_the_kinds_and_no_higher_one() {
    let mut world = World::new();
    let flaw = |world: &World| {
        let flaw = world.tally(&["ada", "cleo"].map(|who| world.approve(who))).flaw;
        flaw.map(|flaw| flaw.code())
    };
    assert_eq!(flaw(&world), None);
    world.header.tier = name("reset");
    assert_eq!(flaw(&world), Some("other-tier"), "others are asked there");
    world.leaves.iter_mut().for_each(|leaf| leaf.kind = "gpu.reset".to_owned());
    world.seal();
    assert_eq!(flaw(&world), None);
    world.header.tier = name("reboot");
    assert_eq!(flaw(&world), Some("other-tier"), "it is heavier than it says");
    world.leaves[1].kind = "disk.wipe".to_owned();
    world.seal();
    assert_eq!(flaw(&world), Some("no-tier"));
    world.header.tier = name("mop");
    assert_eq!(flaw(&world), Some("unknown-tier"));
}

#[test]
fn a_tier_may_ask_for_a_class_of_keys() {
    let mut world = World::new();
    let text = World::text(&world.people, "epoch 1", TIERS);
    let touched = |name: &str| {
        let mut blob = Vec::new();
        for field in [&b"sk-ssh-ed25519@openssh.com"[..], Digest::of(name).as_bytes(), b"ssh:"] {
            crate::signed::push_field(&mut blob, field);
        }
        let line = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, blob);
        format!("sk-ssh-ed25519@openssh.com {line}")
    };
    let with_keys = ["ada", "bob", "cleo"].into_iter().fold(text, |text, who| {
        let own = format!("key \"{}\"; ", world.people[who].line());
        text.replacen(&own, &format!("{own}key \"{}\"; ", touched(who)), 1)
    });
    let strict = with_keys.replace("threshold 2; max-nodes 4", "threshold 2; keys \"sk-ed25519\"; max-nodes 4");
    world.policy = policy(&strict.replace("exclude \"fay\";", "exclude \"fay\"; keys \"sk-ed25519\";"));
    world.seal();
    assert_eq!(world.refusal(world.approve("ada")), "key-class");
}

#[test]
fn no_more_travels_than_is_needed() {
    let world = World::new();
    let long = world.say("approve", "cleo", |text| text.replace("I say so", "I say so ".repeat(99).trim()));
    let all = [long, world.approve("ada"), world.approve("gil"), world.approve("bob")];
    let tally = world.tally(&all);
    assert_eq!((tally.yes.len(), tally.evidence.len()), (4, 2));
    assert!(!tally.evidence.contains(&0), "{:?}", tally.evidence);
}

#[test]
fn an_approval_for_a_lower_tier_is_none_for_a_higher_one() {
    let mut world = World::new();
    world.leaves.iter_mut().for_each(|leaf| leaf.kind = "gpu.reset".to_owned());
    world.header.tier = name("reset");
    world.seal();
    assert_eq!(
        world.refusal(world.say("approve", "ada", |text| text.replace("tier: reset", "tier: reboot"))),
        "other-tier"
    );
}

#[test]
fn a_batch_is_no_larger_and_no_longer_than_its_tier_allows() {
    let mut world = World::new();
    let flaw = |world: &World| {
        let tally = world.tally(&["ada", "bob"].map(|who| world.approve(who)));
        assert_eq!(tally.approved, tally.flaw.is_none());
        tally.flaw.map(|flaw| flaw.code())
    };
    world.leaves = (0..4).map(leaf).collect();
    world.seal();
    assert_eq!(flaw(&world), None);
    world.leaves = (0..5).map(leaf).collect();
    world.seal();
    assert_eq!(flaw(&world), Some("too-many-nodes"));
    world.leaves.truncate(1);
    world.seal();
    world.header.expires = after(4 * 3600);
    assert_eq!(flaw(&world), None);
    world.header.expires = after(4 * 3600 + 1);
    assert_eq!(flaw(&world), Some("window"));
    world.header.expires = world.header.not_before;
    assert_eq!(flaw(&world), Some("window"));
}

#[test]
fn a_window_opens_and_closes_to_the_second() {
    let mut world = World::new();
    world.header.not_before = after(360);
    let both = ["ada", "bob"].map(|who| world.approve(who));
    let at = |seconds: i64| {
        let tally = world.tally_at(&both, &world.policy, after(seconds));
        (tally.approved, tally.permits(after(seconds)))
    };
    assert_eq!(at(0), (true, false), "six minutes early");
    assert_eq!(at(359), (true, false));
    assert_eq!(at(360), (true, true));
    assert_eq!(at(3600), (true, true));
    assert_eq!(at(3601), (false, false));
}

impl World {
    /// An approval with a window of its own.
    pub(super) fn approve_within(&self, who: &str, from: i64, until: i64) -> Vec<u8> {
        self.say("approve", who, |text| {
            let own = (self.header.not_before.to_string(), self.header.expires.to_string());
            let text = text.replace(&format!("not-before: {}", own.0), &format!("not-before: {}", after(from)));
            text.replace(&format!("expires: {}", own.1), &format!("expires: {}", after(until)))
        })
    }
}

#[test]
fn an_approval_has_a_window_of_its_own() {
    let world = World::new();
    let window = |from: i64, until: i64| world.approve_within("bob", from, until);
    let tally =
        |from, until, at| world.tally_at(&[world.approve("ada"), window(from, until)], &world.policy, after(at));
    assert!(tally(0, 600, 600).permits(after(600)));
    let over = tally(0, 600, 601);
    assert!(!over.approved && over.refused[0].why.code() == "expired");
    let later = tally(300, 900, 0);
    assert!(later.approved && !later.permits(after(299)) && later.permits(after(300)));
    assert_eq!((later.opens, later.closes), (after(300), after(900)));
    assert_eq!(tally(0, 4 * 3600 + 1, 0).refused[0].why.code(), "window");
    assert_eq!(tally(600, 600, 0).refused[0].why.code(), "window");
    // Whoever counts later holds nobody up.
    let three = [world.approve("ada"), world.approve("cleo"), window(300, 900)];
    let early = world.tally(&three);
    assert!(early.permits(now()) && early.evidence == [0, 1]);
}

#[test]
fn an_approval_whose_window_is_beside_that_of_the_batch_is_none() {
    let mut world = World::new();
    world.header.not_before = after(360);
    let tally = |from, until| world.tally(&[world.approve("ada"), world.approve_within("bob", from, until)]);
    for (from, until) in [(0, 359), (3601, 7200)] {
        let beside = tally(from, until);
        assert!(!beside.approved && words(&beside.yes) == ["ada"], "{beside:?}");
        assert_eq!(beside.missing, ["one more person with the role operator"]);
        assert_eq!(beside.refused[0].why.code(), "window-apart");
        let why = beside.refused[0].why.to_string();
        assert!([after(from), after(until), after(360), after(3600)].iter().all(|at| why.contains(&at.to_string())));
    }
    for (from, until, moment) in [(0, 360, 360), (3600, 7200, 3600)] {
        let touching = tally(from, until);
        assert!(touching.approved && touching.permits(after(moment)), "{touching:?}");
        assert_eq!((touching.opens, touching.closes), (after(moment), after(moment)));
    }
}

#[test]
fn approvals_that_count_at_no_time_together_are_not_enough() {
    let world = World::new();
    let mut said = vec![world.approve_within("ada", 0, 600), world.approve_within("bob", 700, 900)];
    let apart = world.tally(&said);
    assert!(!apart.approved && words(&apart.yes) == ["ada", "bob"], "{apart:?}");
    assert_eq!(apart.missing, ["approvals that count at the same time"]);
    // Whoever says it again has both, and each at its time.
    said.push(world.approve_within("ada", 650, 800));
    let again = world.tally(&said);
    assert!(again.approved && !again.permits(after(699)) && again.permits(after(700)), "{again:?}");
    assert_eq!((again.closes, again.evidence), (after(800), vec![2, 1]));
    said.push(world.approve_within("cleo", 500, 600));
    let early = world.tally(&said);
    assert_eq!((early.opens, early.closes, early.evidence), (after(500), after(600), vec![0, 3]));
}

#[test]
fn a_key_counts_under_the_policy_that_is_named_and_under_the_present_one() {
    let world = World::new();
    let both = ["ada", "cleo"].map(|who| world.approve(who));
    let under = |present: &Policy| {
        let tally = world.tally_at(&both, present, now());
        (tally.approved, tally.refused.first().map(|refused| refused.why.code()))
    };
    assert_eq!(under(&world.policy), (true, None));
    let cleo = world.people["cleo"].key();
    for state in ["retired", "compromised"] {
        let revoked = format!("revoked \"{cleo}\" {{ as \"{state}\"; }}\nrevoke {{");
        assert_eq!(under(&world.next("revoke {", &revoked)), (false, Some("key-revoked")), "{state}");
    }
    let (was, is) = ("\"human\"; roles \"operator\"; groups \"dc\"", "\"human\"; roles \"contractor\"; groups \"dc\"");
    assert_eq!(under(&world.next(was, is)), (false, Some("no-role")), "removed after the vote");
    let three = world.next("roles \"operator\"; threshold 2", "roles \"operator\"; threshold 3");
    assert_eq!(under(&three), (false, None), "three are needed by then");
}

#[test]
fn who_came_later_has_no_vote() {
    let mut world = World::new();
    let text = World::text(&world.people, &format!("epoch 2; prev \"{}\"", world.policy.digest()), TIERS);
    let eve = format!(
        "principal \"eve\" {{ kind \"human\"; roles \"operator\"; key \"{}\"; }}\n",
        world.people["eve"].line()
    );
    let next = policy(&(text + &eve));
    let tally = world.tally_at(&[world.approve("ada"), world.approve("eve")], &next, now());
    assert!(!tally.approved && tally.refused[0].why.code() == "unknown-key");
    // Under the policy that has her she counts, and what names that one is nothing to the old one.
    let old = std::mem::replace(&mut world.policy, next);
    world.seal();
    assert!(world.tally(&[world.approve("ada"), world.approve("eve")]).approved);
    let revoked = &world.revoked;
    let (header, kinds, statements) = (&world.header, &world.kinds(), &[world.approve("ada")][..]);
    let tally =
        judge(&Question { header, kinds, statements, named: &old, present: &world.policy, revoked, now: now() });
    assert_eq!(tally.flaw.expect("a flaw").code(), "other-policy");
}

#[test]
fn a_key_that_was_revoked_by_a_statement_says_nothing() {
    let mut world = World::new();
    world.revoked.insert(world.people["bob"].key());
    assert_eq!(world.refusal(world.approve("bob")), "key-revoked");
    world.revoked.insert(world.people["ada"].key());
    assert!(!world.tally(&["ada", "cleo"].map(|who| world.approve(who))).approved);
    assert!(world.tally(&["ada2", "cleo"].map(|who| world.approve(who))).approved, "she has another key");
}
