//! Histories, good and hostile, and what is concluded about each commit.

mod ahead;
mod goes_on;
mod lacking;
mod world;

use schema::{digest::Digest, fleet::trust::FILE};

use self::world::{Person, World, policy};
use super::*;
use crate::trust::{commit::Malformed, signature::SignatureRefusal};

fn codes(walked: &Walked) -> Vec<&'static str> {
    walked
        .commits
        .iter()
        .map(|commit| match &commit.verdict {
            Ok(Accepted::Anchor) => "anchor",
            Ok(Accepted::Granted) => "granted",
            Ok(Accepted::Vouched(_)) => "vouched",
            Ok(Accepted::Resealed(_)) => "resealed",
            Ok(Accepted::TrustChange { .. }) => "trust-change",
            Err(refusal) => refusal.code(),
        })
        .collect()
}

#[test]
fn a_signed_history_is_verified_from_its_anchor_to_its_tip() {
    let mut world = World::new();
    world.push(Person::Bob, &[("sites/fra1.kdl", "site \"fra1\"")]);
    world.push(Person::Ada, &[("pools/h100.kdl", "pool \"h100\" {}")]);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "granted", "granted"]);
    assert_eq!(walked.verified(), 3);
    assert_eq!(walked.policy.expect("a policy").epoch(), 1);
    assert_eq!(walked.commits[1].signer.as_ref().expect("a signer").principal.as_str(), "bob");
}

#[test]
fn what_came_before_the_policy_is_not_looked_at() {
    let mut world = World::empty();
    world.unsigned(&[("sites/fra1.kdl", "site \"fra1\"")]);
    world.push(Person::Ada, &[(FILE, &policy(1, None, ""))]);
    assert_eq!(codes(&world.walk()), ["anchor"]);
    let mut bare = World::empty();
    bare.unsigned(&[("a.kdl", "")]);
    assert_eq!(bare.try_walk().expect_err("nothing is verified"), Stuck::NoPolicy);
}

#[test]
fn a_commit_that_does_not_count_stops_the_history_and_says_why() {
    let mut world = World::new();
    world.unsigned(&[("sites/a.kdl", "site \"a\"")]);
    world.push(Person::Eve, &[("sites/b.kdl", "site \"b\"")]);
    world.push(Person::Cleo, &[("pools/c.kdl", "pool \"c\" {}")]);
    world.push(Person::Ada, &[("sites/d.kdl", "site \"d\"")]);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "unsigned", "unknown-key", "path-not-granted", "granted"]);
    assert_eq!(walked.verified(), 1, "what comes behind a refused commit does not count");
}

#[test]
fn a_commit_of_another_form_or_under_another_name_is_refused() {
    let mut world = World::new();
    let parent = world.tip();
    let raw = world.raw(Person::Ada, &[parent], "x\n");
    let text = String::from_utf8(raw).expect("text").replace("\ngpgsig ", "\nencoding x\ngpgsig ");
    world.put(text.into_bytes());
    let walked = world.walk();
    assert_eq!(walked.commits[1].verdict, Err(Refusal::Malformed(Malformed::Encoding)));

    let mut world = World::new();
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    let (id, other) = (world.tip(), world.raw(Person::Ada, &[parent], "other\n"));
    world.call(id, other);
    assert_eq!(codes(&world.walk()), ["anchor", "wrong-object"]);
}

#[test]
fn a_merge_is_answered_for_by_its_first_parents_signer() {
    let mut world = World::new();
    let base = world.tip();
    let side = world.side(None, &[base], &[("sites/s.kdl", "site \"s\"")]);
    world.merge(Person::Ada, &[side], &[("sites/s.kdl", "site \"s\"")]);
    assert_eq!(codes(&world.walk()), ["anchor", "granted"], "what it merges is not looked at");

    let mut world = World::new();
    let side = world.side(None, &[world.tip()], &[("pools/s.kdl", "pool \"s\" {}")]);
    world.merge(Person::Cleo, &[side], &[("pools/s.kdl", "pool \"s\" {}")]);
    assert_eq!(codes(&world.walk()), ["anchor", "path-not-granted"]);

    let mut world = World::new();
    let one = world.side(None, &[world.tip()], &[]);
    let two = world.side(None, &[one], &[]);
    world.merge(Person::Ada, &[one, two], &[]);
    assert_eq!(codes(&world.walk()), ["anchor", "octopus"]);
}

#[test]
fn a_rewritten_history_diverges() {
    let mut world = World::new();
    let anchor = world.tip();
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    let a = world.tip();
    let mut walk = world.walk_of();
    walk.anchor = Some(anchor);
    assert_eq!(walk_all(&world, &walk).expect("a walk").verified(), 2);

    // A foxtrot: the old history is the second parent.
    let orphan = world.side(Some(Person::Ada), &[], &[]);
    let swapped = world.side(Some(Person::Ada), &[orphan, a], &[]);
    for tip in [orphan, swapped] {
        let walk = Walk { tip, ..walk };
        assert_eq!(walk_all(&world, &walk).expect_err("diverged"), Stuck::HistoryDiverged { anchor, tip });
    }
    // A shallow clone.
    world.forget(anchor);
    assert_eq!(walk_all(&world, &walk).expect_err("shallow"), Stuck::HistoryIncomplete(anchor));
}

fn walk_all(world: &World, of: &Walk<'_>) -> Result<Walked, Stuck> {
    walk(world, of).expect("it can be read")
}

#[test]
fn a_forge_stands_for_nobody() {
    let mut world = World::with("change { roles \"admin\"; threshold 1; }\n");
    let base = world.tip();
    world.push(Person::Forge, &[("sites/a.kdl", "site \"a\"")]);
    assert_eq!(codes(&world.walk()), ["anchor", "not-vouched"]);
    world.vouch(Person::Forge, base);
    world.vouch(Person::Eve, base);
    assert_eq!(codes(&world.walk()), ["anchor", "not-vouched"], "neither a forge nor a stranger vouches");
    world.vouch(Person::Ada, base);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "vouched"]);

    let after = world.tip();
    world.push(Person::Forge, &[("any/where.kdl", "batch \"b\" {}")]);
    world.vouch(Person::Ada, after);
    assert_eq!(codes(&world.walk()), ["anchor", "vouched", "forge-cannot-propose"]);
}

#[test]
fn who_vouches_for_a_forge_may_change_it_all() {
    let mut world = World::with("change { roles \"admin\" \"contractor\"; threshold 1; }\n");
    let base = world.tip();
    world.push(Person::Forge, &[("pools/a.kdl", "pool \"a\" {}")]);
    world.vouch(Person::Cleo, base);
    assert_eq!(codes(&world.walk()), ["anchor", "not-vouched"], "a contractor may not change pools");
}

#[test]
fn what_runs_as_root_needs_a_second_person_wherever_it_stands() {
    let mut world = World::with("change { roles \"admin\"; threshold 1; }\n");
    let base = world.tip();
    world.push(Person::Ada, &[("sites/x.kdl", "profile \"p\" {\n  unit \"a.service\" enabled=#true\n}\n")]);
    world.vouch(Person::Ada, base);
    assert_eq!(codes(&world.walk()), ["anchor", "not-vouched"], "nobody vouches for an own change");
    world.vouch(Person::Bob, base);
    assert_eq!(codes(&world.walk()), ["anchor", "vouched"]);
    // A statement is for one tree on one base.
    world.push(Person::Ada, &[("sites/x.kdl", "profile \"p\" {\n  unit \"b.service\" enabled=#true\n}\n")]);
    assert_eq!(codes(&world.walk()), ["anchor", "vouched", "not-vouched"]);

    let mut alone = World::with("path \"sites/**\" { roles \"admin\"; changes 0; }\n");
    alone.push(Person::Ada, &[("sites/x.kdl", "profile \"p\" {\n  unit \"a.service\" enabled=#true\n}\n")]);
    assert_eq!(codes(&alone.walk()), ["anchor", "granted"], "unless the policy says so");
}

#[test]
fn a_forge_makes_no_second_person_of_one() {
    let mut world = World::with("change { roles \"admin\"; threshold 1; }\n");
    let base = world.tip();
    world.push(Person::Forge, &[("sites/x.kdl", "profile \"p\" {\n  unit \"a.service\" enabled=#true\n}\n")]);
    world.vouch(Person::Ada, base);
    assert_eq!(codes(&world.walk()), ["anchor", "not-vouched"], "Ada's change, merged by a forge, is Ada's alone");
    world.vouch(Person::Bob, base);
    assert_eq!(codes(&world.walk()), ["anchor", "vouched"]);
}

#[test]
fn a_policy_is_changed_by_the_old_threshold_and_the_new_one() {
    let mut world = World::new();
    let first = world.policy();
    let next = policy(2, Some(first.digest()), "reseal { roles \"admin\"; threshold 1; }\n");
    world.push(Person::Ada, &[(FILE, &next)]);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-threshold"]);
    world.agree(Person::Forge, &next);
    world.agree(Person::Cleo, &next);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-threshold"], "only who may change it agrees");
    world.agree(Person::Bob, &next);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "trust-change"]);
    assert_eq!(walked.policy.expect("a policy").epoch(), 2);
    // What comes after is judged by the new one, and what came before by the old one.
    world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    assert_eq!(world.walk().commits[2].epoch, 2);
}

#[test]
fn a_statement_is_made_on_purpose() {
    // A block in the message of a commit with files: somebody else's, which a person picked and so signed.
    let mut world = World::new();
    let next = policy(2, Some(world.policy().digest()), "reseal { roles \"admin\"; threshold 1; }\n");
    world.agree_with_files(Person::Ada, &next);
    world.push(Person::Ada, &[(FILE, &next)]);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-threshold"]);
    world.agree(Person::Ada, &next);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change"]);
}

#[test]
fn two_statements_of_one_person_are_one_voice() {
    let mut world = World::with("trust { roles \"admin\"; threshold 2; }\n");
    let next = policy(
        2,
        Some(world.policy().digest()),
        "trust { roles \"admin\"; threshold 2; }\nreseal { roles \"admin\"; threshold 1; }\n",
    );
    world.push(Person::Ada, &[(FILE, &next)]);
    world.agree(Person::Ada, &next);
    world.agree(Person::Ada, &next);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-threshold"]);
    world.agree(Person::Bob, &next);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change"]);
}

#[test]
fn a_first_policy_needs_its_own_threshold() {
    let mut world = World::empty();
    let first = policy(1, None, "trust { roles \"admin\"; threshold 2; }\n");
    world.push(Person::Ada, &[(FILE, &first)]);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["trust-threshold"]);
    assert!(walked.policy.is_none());
    world.agree(Person::Bob, &first);
    assert_eq!(codes(&world.walk()), ["anchor"]);
    let mut foreign = World::empty();
    foreign.push(Person::Eve, &[(FILE, &first)]);
    foreign.push(Person::Ada, &[("a.kdl", "")]);
    assert_eq!(codes(&foreign.walk()), ["unknown-key", "no-policy-in-force"]);
}

#[test]
fn who_adds_a_key_shows_to_hold_it_and_is_not_judged_by_it() {
    let mut world = World::new();
    let eve = "principal \"eve\" {\n  kind \"human\"\n  roles \"admin\"\n  key \"@eve\"\n}\n";
    let next = policy(2, Some(world.policy().digest()), eve);
    // A commit that adds a key and is signed by it.
    world.push(Person::Eve, &[(FILE, &next)]);
    world.agree(Person::Ada, &next);
    assert_eq!(codes(&world.walk()), ["anchor", "unknown-key"]);

    let mut world = World::new();
    world.push(Person::Ada, &[(FILE, &next)]);
    world.agree(Person::Ada, &next);
    assert_eq!(codes(&world.walk()), ["anchor", "key-not-proven"]);
    world.possess(Person::Bob, "eve", &next);
    assert_eq!(codes(&world.walk()), ["anchor", "key-not-proven"], "another key proves nothing");
    world.possess(Person::Eve, "eve", &next);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change"]);
    world.push(Person::Eve, &[("sites/e.kdl", "site \"e\"")]);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change", "granted"]);
}

#[test]
fn policies_follow_each_other_without_a_gap_or_a_way_back() {
    let world = World::new();
    let digest = world.policy().digest();
    let more = "reseal { roles \"admin\"; threshold 1; }\n";
    for (text, code) in [
        (policy(3, Some(digest), more), "epoch-out-of-order"),
        (policy(u32::MAX.into(), Some(digest), more), "epoch-out-of-order"),
        (policy(1, None, more), "epoch-out-of-order"),
        (policy(2, Some(Digest::of("another")), more), "prev-unknown"),
        (policy(2, Some(digest), "trust { roles \"admin\"; threshold 9; }\n"), "policy-invalid"),
        ("principal {".to_owned(), "policy-invalid"),
    ] {
        let mut world = World::new();
        world.push(Person::Ada, &[(FILE, &text)]);
        assert_eq!(codes(&world.walk()), ["anchor", code], "{text}");
    }
    // The older policy, put back as it was.
    let mut world = World::new();
    let first = world.file(FILE);
    let next = policy(2, Some(digest), more);
    world.agreeing(Person::Ada, &next);
    world.push(Person::Ada, &[(FILE, &first)]);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change", "epoch-out-of-order"]);
}

#[test]
fn a_key_is_one_principals_for_ever_and_what_was_revoked_stays_so() {
    let name = Person::Bob.key().name();
    let retired = format!("revoked \"{name}\" {{ as \"retired\"; }}\n");
    let compromised = format!("revoked \"{name}\" {{ as \"compromised\"; }}\n");
    let plain = |world: &World, nodes: &str| policy(2, Some(world.policy().digest()), nodes);
    type Change = Box<dyn Fn(&World) -> String>;
    let cases: [(&str, Change); 5] = [
        ("", Box::new(move |world| plain(world, "").replace(&Person::Bob.line(), &Person::Eve.line()))),
        ("", Box::new(move |world| plain(world, "").replace("principal \"bob\"", "principal \"robert\""))),
        (&retired, Box::new(move |world| plain(world, ""))),
        (&compromised, Box::new(move |world| plain(world, ""))),
        (
            &compromised,
            Box::new({
                let retired = retired.clone();
                move |world| plain(world, &retired)
            }),
        ),
    ];
    for (before, next) in cases {
        let mut world = World::with(before);
        let next = next(&world);
        world.agreeing(Person::Ada, &next);
        assert_eq!(codes(&world.walk()), ["anchor", "key-forgotten"], "{next}");
    }
    let mut world = World::with(&retired);
    let next = plain(&world, &compromised);
    world.agreeing(Person::Ada, &next);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change"], "what is worse may become known");
}

#[test]
fn a_change_of_trust_stands_alone() {
    let mut world = World::new();
    let next = policy(2, Some(world.policy().digest()), "reseal { roles \"admin\"; threshold 1; }\n");
    world.push(Person::Ada, &[(FILE, &next), ("sites/a.kdl", "site \"a\"")]);
    world.agree(Person::Ada, &next);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-mixed"]);

    let mut world = World::new();
    world.push(Person::Ada, &[("trust/more.kdl", "x")]);
    assert_eq!(codes(&world.walk()), ["anchor", "stray-trust-file"]);
}

#[test]
fn without_a_policy_nothing_moves() {
    let mut world = World::new();
    let first = world.file(FILE);
    world.remove(Person::Ada, FILE);
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    world.unsigned(&[("sites/b.kdl", "site \"b\"")]);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-removed", "trust-removed", "trust-removed"]);
    world.push(Person::Ada, &[(FILE, &first)]);
    let walked = world.walk();
    assert_eq!(walked.verified(), 1);
    assert_eq!(walked.policy.expect("the last good one").epoch(), 1);
}

#[test]
fn a_retired_key_signed_for_good_and_signs_no_more() {
    let mut world = World::new();
    world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    let retired = format!("revoked \"{}\" {{ as \"retired\"; }}\n", Person::Bob.key().name());
    let next = policy(2, Some(world.policy().digest()), &retired);
    world.agreeing(Person::Ada, &next);
    world.push(Person::Bob, &[("sites/b.kdl", "site \"b\"")]);
    assert_eq!(codes(&world.walk()), ["anchor", "granted", "trust-change", "key-retired"]);
}

#[test]
fn what_a_compromised_key_signed_after_its_last_good_commit_does_not_count() {
    let mut world = World::new();
    world.push(Person::Bob, &[("sites/a.kdl", "site \"a\"")]);
    let good = world.tip();
    world.push(Person::Bob, &[("sites/b.kdl", "site \"b\"")]);
    world.push(Person::Ada, &[("sites/c.kdl", "site \"c\"")]);
    let gone = format!("revoked \"{}\" {{ as \"compromised\"; since \"{good}\"; }}\n", Person::Bob.key().name());
    let next = policy(2, Some(world.policy().digest()), &gone);
    world.agreeing(Person::Ada, &next);
    let walked = world.walk();
    assert_eq!(codes(&walked), ["anchor", "granted", "key-compromised", "granted", "trust-change"]);
    assert_eq!(walked.verified(), 2);
    assert_eq!(walked.policy.expect("a policy").epoch(), 1);
}

#[test]
fn one_person_revokes_a_key_and_its_votes_go_with_it() {
    let mut world = World::with("revoke { roles \"admin\"; }\n");
    let good = world.tip();
    let next = policy(
        2,
        Some(world.policy().digest()),
        "revoke { roles \"admin\"; }\nreseal { roles \"admin\"; threshold 1; }\n",
    );
    world.push(Person::Ada, &[(FILE, &next)]);
    world.agree(Person::Bob, &next);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change"]);
    world.revoke(Person::Cleo, &Person::Bob.key().name(), good);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change"], "a contractor revokes nobody");
    world.revoke(Person::Ada, &Person::Bob.key().name(), good);
    assert_eq!(codes(&world.walk()), ["anchor", "trust-threshold"]);
}

#[test]
fn a_key_that_was_found_out_revokes_nobody() {
    let rule = "revoke { roles \"admin\"; }\n";
    let mut world = World::with(rule);
    let good = world.tip();
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    world.revoke(Person::Bob, &Person::Ada.key().name(), good);
    assert_eq!(codes(&world.walk()), ["anchor", "key-revoked"], "before anybody knows");
    let gone = format!("{rule}revoked \"{}\" {{ as \"compromised\"; }}\n", Person::Bob.key().name());
    let mut world = World::with(rule);
    world.push(Person::Ada, &[("sites/a.kdl", "site \"a\"")]);
    let next = policy(2, Some(world.policy().digest()), &gone);
    world.agreeing(Person::Ada, &next);
    let after = world.walk().reached.expect("it counts");
    world.revoke(Person::Bob, &Person::Ada.key().name(), good);
    world.push(Person::Ada, &[("sites/b.kdl", "site \"b\"")]);
    assert_eq!(codes(&world.go_on(Some(&after), None).expect("a walk")), ["granted"]);
}

#[test]
fn a_statement_is_for_one_fleet_and_signed_by_whom_it_names() {
    let next = |world: &World| policy(2, Some(world.policy().digest()), "reseal { roles \"admin\"; threshold 1; }\n");
    let mut world = World::new();
    let text = next(&world);
    world.push(Person::Ada, &[(FILE, &text)]);
    world.agree_as(Person::Cleo, "bob", &text, "acme.example");
    assert_eq!(codes(&world.walk()), ["anchor", "trust-threshold"], "signed by another than it names");
    world.agree_as(Person::Bob, "bob", &text, "staging.example");
    assert_eq!(codes(&world.walk()), ["anchor", "trust-threshold"], "for another fleet");
    world.agree_as(Person::Bob, "bob", &text, "acme.example");
    assert_eq!(codes(&world.walk()), ["anchor", "trust-change"]);
}

#[test]
fn a_signature_over_another_commit_is_bad() {
    let mut world = World::new();
    let parent = world.tip();
    let raw = String::from_utf8(world.raw(Person::Ada, &[parent], "x\n")).expect("text");
    world.put(raw.replace("\n\nx\n", "\n\ny\n").into_bytes());
    assert_eq!(world.walk().commits[1].verdict, Err(Refusal::Signature(SignatureRefusal::Bad)));
}
