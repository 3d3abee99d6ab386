//! What people said under a policy that is over.

use std::collections::BTreeSet;

use pki::{
    batch::{
        BatchHeader, Question,
        testing::{Fleet, Person, object, policy},
    },
    trust::{policy::Policy, statement::Under},
};
use schema::{digest::Digest, time::Timestamp};

use super::name;
use crate::batch::standing::lapsed;

const REST: &str = r#"
path "**" { roles "admin"; }
trust { roles "admin"; threshold 1; }
revoke { roles "admin"; }
tier "reboot" { commands "node.reboot"; roles "operator"; threshold 1; max-nodes 4; max-ttl "4h"; }
"#;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

#[test]
fn what_was_said_under_a_policy_that_is_over_is_told_with_the_reason() {
    let [ada, bob, cleo] = ["ada", "bob", "cleo"].map(Person::new);
    let fleet = Fleet::new("acme.example");
    let text = |head: &str, bobs: &str, rest: &str| {
        let person = |who: &Person, roles: &str| {
            format!("principal \"{}\" {{ kind \"human\"; roles {roles}; key \"{}\"; }}\n", who.name, who.line())
        };
        let people =
            [person(&ada, "\"admin\" \"operator\""), person(&bob, bobs), person(&cleo, "\"operator\"")].concat();
        policy(&format!("policy {{ format 1; {head}; }}\n{people}{rest}"))
    };
    let first = text("epoch 1", "\"operator\" \"admin\"", REST);
    let header = BatchHeader {
        trust_domain: fleet.trust_domain.clone(),
        fleet: fleet.id,
        name: name("kernel"),
        tier: name("reboot"),
        proposer: None,
        excluded: BTreeSet::new(),
        not_before: at("2026-12-07T08:00:00Z"),
        expires: at("2026-12-07T10:00:00Z"),
        plan_commit: object("plan"),
        plan_tree: object("its tree"),
        under: Under { epoch: 1, digest: first.digest() },
        reason: "kernel".to_owned(),
        max_in_flight: 1,
        max_failures: 0,
        spread: None,
        leaves: 1,
        root: Digest::of("root"),
    };
    let statements = [fleet.approve(&ada, &header), fleet.approve(&bob, &header)];
    let next = format!("epoch 2; prev \"{}\"", first.digest());
    let told = |present: &Policy| -> Vec<(String, &'static str)> {
        let question = Question {
            header: &header,
            kinds: &BTreeSet::from(["node.reboot".to_owned()]),
            statements: &statements,
            named: &first,
            present,
            revoked: &BTreeSet::new(),
            now: at("2026-12-07T09:00:00Z"),
        };
        lapsed(&question)
            .iter()
            .map(|vote| (vote.who.as_ref().expect("somebody").to_string(), vote.why.code()))
            .collect()
    };
    let pairs = |all: &[(&str, &'static str)]| -> Vec<(String, &'static str)> {
        all.iter().map(|(who, code)| ((*who).to_owned(), *code)).collect()
    };
    let without_bob = text(&next, "\"admin\"", REST);
    assert_eq!(told(&without_bob), pairs(&[("ada", "other-policy"), ("bob", "no-role")]));
    let renamed = text(&next, "\"operator\" \"admin\"", &REST.replace("\"reboot\"", "\"restart\""));
    assert_eq!(told(&renamed), pairs(&[("ada", "other-policy"), ("bob", "other-policy")]), "the tier is gone");
}
