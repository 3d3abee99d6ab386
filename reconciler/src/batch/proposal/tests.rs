//! Facts about the file that a caller asks for: it says what was asked, and nothing that can be written means something else.

use std::collections::BTreeMap;

use pki::{
    batch::testing::Person,
    keys::Keys,
    trust::{
        object::ObjectId,
        policy::{Policy, check},
        statement::FleetId,
    },
};
use serde_json::json;

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

#[test]
fn the_file_says_what_was_asked_for_whatever_the_words_are() {
    let (batch, one, two, ada) = (name("kernel"), name("h100-01"), name("h100-02"), name("ada"));
    for reason in ["a new kernel", "\"; scope { pools \"all\" } //", "back\\slash #\"x\"# left", "ünïcode 🖥 {}"] {
        let payload = json!({ "reason": reason });
        let Value::Object(payload) = payload else { unreachable!("an object") };
        let wish = Wish {
            name: &batch,
            command: "node.reboot",
            payload: payload.clone(),
            nodes: vec![&one, &two],
            reason,
            proposer: Some(&ada),
            not_before: Some(at("2026-12-07T08:00:00Z")),
            expires: at("2026-12-07T16:00:00Z"),
            max_in_flight: Some(2),
            max_failures: Some(1),
            spread: Some("rack"),
        };
        let written = write(&wish).expect("it can be written");
        let read = &written.batch;
        assert_eq!(read.payload(), Value::Object(payload));
        assert_eq!(read.reason.value, reason);
        assert_eq!(
            read.scope.value.nodes.iter().map(|node| node.value.as_str()).collect::<Vec<_>>(),
            ["h100-01", "h100-02"]
        );
        assert!(read.scope.value.pools.is_empty() && read.scope.value.selector.is_empty());
        assert_eq!(read.expires.value, wish.expires);
        assert_eq!(read.not_before.as_ref().map(|at| at.value), wish.not_before);
        assert_eq!(read.max_in_flight.as_ref().map(|most| most.value), Some(2));
        assert_eq!(read.max_failures.as_ref().map(|most| most.value), Some(1));
        assert_eq!(read.spread.as_ref().map(|label| label.value.as_str()), Some("rack"));
        assert_eq!(read.proposer.as_ref().map(|who| who.value.as_str()), Some("ada"));
        assert!(written.doc.contains("\"kernel\""), "{}", written.doc);
    }
}

#[test]
fn what_does_not_fit_its_command_is_not_written_and_a_list_of_one_stays_a_list() {
    let (batch, node) = (name("kernel"), name("h100-01"));
    let gpus = |payload: Value| {
        let Value::Object(payload) = payload else { unreachable!("an object") };
        let wish = Wish {
            name: &batch,
            command: "gpu.reset",
            payload,
            nodes: vec![&node],
            reason: "why",
            proposer: None,
            not_before: None,
            expires: at("2026-12-07T16:00:00Z"),
            max_in_flight: None,
            max_failures: None,
            spread: None,
        };
        write(&wish).map(|written| written.batch.payload())
    };
    let one = json!({ "gpus": ["GPU-01234567-89ab-cdef-0123-456789abcdef"] });
    assert_eq!(gpus(one.clone()), Ok(one));
    for odd in [json!({ "gpus": { "b": 1 } }), json!({ "gpus": 1.5 }), json!({ "gpus": null }), json!({ "": "c" })] {
        assert!(gpus(odd.clone()).is_err(), "{odd}");
    }
}

#[test]
fn a_control_plane_proposes_only_as_the_service_that_the_policy_names() {
    let mut keys = Keys::generate("test.example", Timestamp::UNIX_EPOCH).expect("keys");
    let people = [Person::new("ada"), Person::new("bob")];
    let policy = |more: &str| -> Policy {
        let mut text = "policy { format 1; epoch 1; }\ntrust { roles \"admin\"; threshold 1; }\npath \"**\" { roles \"admin\"; }\n".to_owned();
        for one in &people {
            text.push_str(&format!(
                "principal \"{}\" {{ kind \"human\"; roles \"admin\"; key \"{}\"; }}\n",
                one.name,
                one.line()
            ));
        }
        check(format!("{text}{more}").as_bytes()).policy.expect("a policy")
    };
    let trust = |policies: Vec<Policy>| Trust {
        trust_domain: "test.example".to_owned(),
        fleet: FleetId::of("test.example", &ObjectId::Sha1([1; 20])),
        policies: policies.into_iter().map(|policy| (policy.epoch(), policy)).collect::<BTreeMap<_, _>>(),
        revoked: Default::default(),
    };
    let hindered =
        |keys: &Keys, trust: &Trust| speaker(keys.service(), trust, "batches/kernel.yaml").err().map(|error| error.by);
    assert_eq!(hindered(&keys, &trust(vec![policy("")])), Some(Hindrance::KeyMissing));
    keys.add_service_key();
    assert_eq!(hindered(&keys, &trust(Vec::new())), Some(Hindrance::Pending));
    assert_eq!(hindered(&keys, &trust(vec![policy("")])), Some(Hindrance::Unknown));
    let key = keys.service().iter().next().expect("a key");
    let robot = format!("principal \"robot\" {{ kind \"service\"; roles \"proposer\"; key \"{}\"; }}\n", key.line());
    assert_eq!(hindered(&keys, &trust(vec![policy(&robot)])), Some(Hindrance::Path));
    let granted = policy(&format!("{robot}path \"batches/**\" {{ roles \"admin\" \"proposer\"; }}\n"));
    let (spoken, who) = speaker(keys.service(), &trust(vec![granted.clone()]), "batches/kernel.yaml").expect("it may");
    assert_eq!((spoken.line(), who.as_str()), (key.line(), "robot"));
    let revoked = Trust { revoked: [key.public().name()].into(), ..trust(vec![granted]) };
    assert_eq!(hindered(&keys, &revoked), Some(Hindrance::Unknown));
}

#[test]
fn every_hindrance_has_a_code_that_is_explained() {
    use crate::why::catalogue::{Area, find};

    for one in Hindrance::ALL {
        assert!(find(Area::Batch, one.code()).is_some(), "{}", one.code());
        assert_eq!(Hindrance::of(one.code()), one);
    }
    assert_eq!(Hindrance::of("whatever"), Hindrance::Pending);
}
