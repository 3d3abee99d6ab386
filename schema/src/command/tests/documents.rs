//! Facts about bodies, updates and reasons.

use serde_json::json;

use super::super::{
    BodyError, CommandBody, CommandKind, CommandUpdate, Reason, Refusal, UpdateError, UpdateState,
    update::{MAX_MESSAGE, MAX_RESULT},
};
use crate::{
    digest::Digest,
    generation::Generation,
    id::{BootId, CommandId, JournalId, NodeId},
};

fn body() -> CommandBody {
    CommandBody {
        id: CommandId::generate(),
        node_id: NodeId::generate(),
        kind: CommandKind::DiagNvml,
        seq: 7,
        payload: json!({"expectedGpus": 8}),
        not_after: "2026-11-29T12:10:00Z".parse().expect("a time"),
        min_generation: Some(Generation(3)),
        batch: None,
        secrets: Vec::new(),
        journal: None,
    }
}

fn update(state: UpdateState) -> CommandUpdate {
    CommandUpdate::new(CommandId::generate(), NodeId::generate(), state, JournalId::generate(), BootId::generate())
}

#[test]
fn a_body_survives_its_bytes() {
    let body = body();
    assert_eq!(CommandBody::read(&body.to_bytes()), Ok(body));
}

#[test]
fn a_body_of_a_later_version_still_names_its_command() {
    let body = body();
    for (member, value) in [
        ("kind", json!("disk.wipe")),
        ("after", json!("cmd")),
        ("payload", json!({"gpus": 8})),
        ("minGeneration", json!("three")),
    ] {
        let mut later = serde_json::to_value(&body).expect("serialises");
        later[member] = value;
        let error = CommandBody::read(&serde_json::to_vec(&later).expect("serialises")).expect_err("not understood");
        let BodyError::Unsupported { head, .. } = error else { panic!("{error}") };
        assert_eq!((head.id, head.node_id, head.seq), (body.id, body.node_id, 7), "{member}");
    }
}

#[test]
fn what_is_no_body_names_nothing() {
    for bytes in [&b""[..], b"{}", b"null", b"\xff", br#"{"id":"cmd_1"}"#] {
        assert_eq!(CommandBody::read(bytes), Err(BodyError::Malformed));
    }
    let long = serde_json::to_vec(&json!({"x": "x".repeat(300_000)})).expect("serialises");
    assert_eq!(CommandBody::read(&long), Err(BodyError::Malformed));
}

#[test]
fn an_update_survives_its_bytes() {
    let update = update(UpdateState::Failed)
        .because(Reason::CHECKS_FAILED, "one GPU is missing")
        .with_result(json!({"passed": false}));
    assert_eq!(update.result_digest, Some(Digest::of(br#"{"passed":false}"#)));
    assert_eq!(CommandUpdate::read(&update.to_bytes()), Ok(update));
}

#[test]
fn a_long_message_is_cut_and_a_long_result_left_out_and_said() {
    let long = update(UpdateState::Failed).because(Reason::FAILED, "ü".repeat(4000));
    let message = long.message.as_deref().expect("a message");
    assert!(message.len() <= MAX_MESSAGE && message.ends_with('…'));
    let long = update(UpdateState::Succeeded).with_result(json!("x".repeat(MAX_RESULT)));
    assert!(long.result.is_none() && long.message.as_deref().is_some_and(|message| message.contains("too long")));
    let fraction = update(UpdateState::Succeeded).with_result(json!(0.5));
    assert!(fraction.result.is_none() && fraction.message.is_some());
    assert!(CommandUpdate::read(&long.to_bytes()).is_ok());
}

#[test]
fn an_update_that_contradicts_itself_is_refused() {
    let good = update(UpdateState::Succeeded).with_result(json!({"passed": true}));
    let other = CommandUpdate { result_digest: Some(Digest::of("other")), ..good.clone() };
    assert_eq!(CommandUpdate::read(&other.to_bytes()), Err(UpdateError::Digest));
    let none = CommandUpdate { result: None, ..good };
    assert_eq!(CommandUpdate::read(&none.to_bytes()), Err(UpdateError::Digest));
    assert_eq!(CommandUpdate::read(&update(UpdateState::Rejected).to_bytes()), Err(UpdateError::NoReason));
    let wordy = CommandUpdate { message: Some("x".repeat(MAX_MESSAGE + 1)), ..update(UpdateState::Succeeded) };
    assert_eq!(CommandUpdate::read(&wordy.to_bytes()), Err(UpdateError::TooLong("message")));
}

#[test]
fn reasons_are_kebab_words_or_refusals() {
    for word in ["timeout", "gpu-busy", "xid-79"].into_iter().chain(Refusal::ALL.iter().map(|refusal| refusal.as_str()))
    {
        assert_eq!(Reason::new(word).expect("a reason").as_str(), word);
    }
    for word in ["", "-", "a--b", "Timeout", "a_b", "a b", "EXPLODED", &"x".repeat(65)] {
        assert!(Reason::new(word).is_err(), "{word}");
    }
    for reason in Reason::ALL {
        assert_eq!(Reason::new(reason.as_str()).as_ref(), Ok(reason));
        assert_eq!(reason.refusal(), None);
    }
    assert_eq!(Reason::from(Refusal::Expired).refusal(), Some(Refusal::Expired));
}
