//! The session core: a table of what each input does, and properties over random inputs.

mod commands;
mod model;

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use proto::agent::v1::{self as pb, gateway_frame::Frame as Down, node_frame::Frame as Up};
use schema::{
    digest::Digest,
    generation::{Epoch, Generation, IdentityGeneration},
    id::{BootId, GatewayId, JournalId, NodeId},
    inventory::InventorySection,
    time::{Duration, Timestamp},
};

use super::*;
use crate::refusal::Refusal;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
}

fn node_id() -> NodeId {
    "node_01h0000000000000000000000a".parse().expect("an id")
}

fn journal() -> JournalId {
    "journal_01h0000000000000000000000b".parse().expect("an id")
}

fn rules() -> Rules {
    Rules {
        node_id: node_id(),
        certificate_ends: at(3600),
        gateway_id: GatewayId::generate(),
        dev: false,
        hello_within: Duration::from_secs(10),
        open_within: Duration::from_secs(20),
        heartbeat: Duration::from_secs(15),
        reconnect_within: Duration::from_secs(5),
        linger: Duration::from_secs(2),
    }
}

fn hello() -> pb::Hello {
    pb::Hello {
        node_id: node_id().to_string(),
        boot_id: BootId::generate().to_string(),
        journal_id: journal().to_string(),
        nonce: vec![7; 32],
        agent_version: "0.1.0".to_owned(),
        capabilities: vec!["host".to_owned(), "commands".to_owned()],
        applied_generation: 3,
        observed_generation: 3,
        trust_version: 1,
        inventory: HashMap::new(),
        described: false,
        journal_marks: HashMap::new(),
        cannot_keep: String::new(),
        policy_epoch: 0,
    }
}

fn opened(generation: u64) -> Opened {
    let stored = BTreeMap::from([(InventorySection::Os, Digest::of("os"))]);
    Opened {
        epoch: Epoch(9),
        identity_generation: IdentityGeneration(1),
        generation: Generation(generation),
        inventory: stored,
        time: pb::SignedTime::default(),
        trust_version: 1,
        bundle: pb::SignedTrustBundle::default(),
        trust_steps: Vec::new(),
        policies: Vec::new(),
        policy_epoch: 0,
        policies_version: 0,
        replay: Vec::new(),
        allowed: None,
    }
}

fn up(frame: Up) -> Input {
    Input::Frame(Box::new(pb::NodeFrame { frame: Some(frame) }))
}

fn report(seq: u64) -> pb::NodeReport {
    let payload = format!(r#"{{"journalId":"{}","nodeId":"{}","seq":{seq}}}"#, journal(), node_id());
    pb::NodeReport { payload: payload.into_bytes(), signature: vec![1; 70] }
}

fn spec(generation: u64) -> Input {
    Input::Spec(Box::new(pb::DesiredState { generation, spec: b"{}".to_vec(), signature: None }))
}

fn facts(generation: u64) -> Facts {
    Facts {
        epoch: Epoch(9),
        identity_generation: IdentityGeneration(1),
        revoked: false,
        vacant: false,
        renamed: false,
        generation: Generation(generation),
        inventory_wanted: Vec::new(),
        commands_waiting: false,
        cancels: Vec::new(),
    }
}

fn open_session(rules: Rules) -> SessionCore {
    let mut core = SessionCore::new(rules, at(0));
    core.handle(up(Up::Hello(hello())), at(0));
    core.handle(Input::Opened(Box::new(opened(3))), at(0));
    core
}

fn code(effects: &[Effect]) -> Option<&str> {
    match effects {
        [Effect::Send(frame), Effect::Close(Ending::Refused(refusal))] => match &**frame {
            Down::Refused(frame) if frame.code == refusal.code() => Some(refusal.code()),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn a_good_hello_opens_and_welcome_follows() {
    let mut core = SessionCore::new(rules(), at(0));
    let effects = core.handle(up(Up::Hello(hello())), at(1));
    assert!(matches!(effects.as_slice(), [Effect::Open(request)] if request.node_id == node_id()));
    let effects = core.handle(Input::Opened(Box::new(opened(3))), at(2));
    let [Effect::Send(frame), Effect::Claim(room)] = effects.as_slice() else { panic!("only Welcome: {effects:?}") };
    assert!(matches!(&**frame, Down::Welcome(welcome) if welcome.epoch == 9 && welcome.heartbeat_seconds == 15));
    assert_eq!(*room, [8, 4, 2], "what waited before the session is asked for at once");
}

#[test]
fn a_node_that_is_behind_gets_the_spec_after_welcome() {
    let mut core = SessionCore::new(rules(), at(0));
    core.handle(up(Up::Hello(hello())), at(0));
    let effects = core.handle(Input::Opened(Box::new(opened(4))), at(0));
    assert!(matches!(effects.as_slice(), [Effect::Send(_), Effect::FetchSpec, Effect::Claim(_)]));
    assert!(matches!(core.handle(spec(4), at(0)).as_slice(), [Effect::Send(_)]));
    assert!(core.handle(spec(4), at(0)).is_empty(), "the same spec is not sent twice");
    assert!(core.handle(Input::Facts(facts(4)), at(0)).is_empty());
    assert_eq!(core.handle(Input::Facts(facts(5)), at(0)), [Effect::FetchSpec]);
}

#[test]
fn hello_is_refused_for_its_first_fault() {
    type Fault = fn(&mut pb::Hello);
    let table: [(&str, Fault); 12] = [
        ("WRONG_NODE", |h| h.node_id = NodeId::generate().to_string()),
        ("WRONG_NODE", |h| h.node_id.clear()),
        ("DESCRIBED_HARDWARE", |h| h.described = true),
        ("HELLO_MALFORMED", |h| h.boot_id.clear()),
        ("HELLO_MALFORMED", |h| h.journal_id = NodeId::generate().to_string()),
        ("HELLO_MALFORMED", |h| h.journal_marks = HashMap::from([("control".to_owned(), 7)])),
        ("HELLO_MALFORMED", |h| h.nonce.truncate(31)),
        ("HELLO_MALFORMED", |h| h.agent_version = "x".repeat(65)),
        ("HELLO_MALFORMED", |h| h.agent_version = "1\n2".to_owned()),
        ("HELLO_MALFORMED", |h| h.capabilities = vec![String::new(); 65]),
        ("HELLO_MALFORMED", |h| h.applied_generation = u64::MAX),
        ("HELLO_MALFORMED", |h| _ = h.inventory.insert("os".to_owned(), "not a digest".to_owned())),
    ];
    for (expected, fault) in table {
        let mut hello = hello();
        fault(&mut hello);
        let mut core = SessionCore::new(rules(), at(0));
        assert_eq!(code(&core.handle(up(Up::Hello(hello.clone())), at(0))), Some(expected), "{hello:?}");
        assert!(core.is_closed());
    }
}

#[test]
fn described_hardware_is_admitted_by_a_dev_control_plane() {
    let mut core = SessionCore::new(Rules { dev: true, ..rules() }, at(0));
    let effects = core.handle(up(Up::Hello(pb::Hello { described: true, ..hello() })), at(0));
    assert!(matches!(effects.as_slice(), [Effect::Open(request)] if request.described));
}

#[test]
fn a_node_that_cannot_keep_anything_is_told_of_with_its_session() {
    let mut core = SessionCore::new(rules(), at(0));
    let full = "progress.json: write: No space\u{1b}[2J left on device";
    core.handle(up(Up::Hello(pb::Hello { cannot_keep: full.to_owned(), ..hello() })), at(0));
    let effects = core.handle(Input::Opened(Box::new(opened(3))), at(1));
    let printable = "progress.json: write: No space[2J left on device".to_owned();
    assert!(effects.contains(&Effect::CannotKeep(printable)), "{effects:?}");
    let fine = core_after(pb::Hello { cannot_keep: "\n".to_owned(), ..hello() });
    assert!(!fine.iter().any(|effect| matches!(effect, Effect::CannotKeep(_))), "{fine:?}");
}

fn core_after(hello: pb::Hello) -> Vec<Effect> {
    let mut core = SessionCore::new(rules(), at(0));
    core.handle(up(Up::Hello(hello)), at(0));
    core.handle(Input::Opened(Box::new(opened(3))), at(1))
}

#[test]
fn the_first_frame_is_hello_and_it_comes_once_and_in_time() {
    let mut core = SessionCore::new(rules(), at(0));
    assert_eq!(code(&core.handle(up(Up::Heartbeat(pb::Heartbeat::default())), at(0))), Some("HELLO_EXPECTED"));

    let mut core = SessionCore::new(rules(), at(0));
    assert_eq!(core.next_deadline(), Some(at(10)));
    assert!(core.tick(at(9)).is_empty());
    assert_eq!(code(&core.tick(at(10))), Some("HELLO_LATE"));

    let mut core = open_session(rules());
    assert_eq!(code(&core.handle(up(Up::Hello(hello())), at(1))), Some("HELLO_TWICE"));
}

#[test]
fn a_session_that_does_not_open_in_time_is_refused() {
    let mut core = SessionCore::new(rules(), at(0));
    core.handle(up(Up::Hello(hello())), at(5));
    assert_eq!(core.next_deadline(), Some(at(25)));
    assert_eq!(code(&core.tick(at(25))), Some("UNAVAILABLE"));
    assert!(
        core.handle(Input::Opened(Box::new(opened(3))), at(26)).is_empty(),
        "an answer that is late changes nothing"
    );
}

#[test]
fn frames_that_nobody_knows_or_that_do_not_decode_end_the_session() {
    assert_eq!(code(&open_session(rules()).handle(Input::Frame(Box::default()), at(1))), Some("FRAME_UNKNOWN"));
    let bad = Input::BadFrame(Refusal::FrameTooLarge);
    assert_eq!(code(&open_session(rules()).handle(bad, at(1))), Some("FRAME_TOO_LARGE"));
}

#[test]
fn a_heartbeat_is_heard_and_answered() {
    let effects = open_session(rules()).handle(up(Up::Heartbeat(pb::Heartbeat { sequence: 5 })), at(1));
    let [Effect::Beat, Effect::Send(frame)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(**frame, Down::HeartbeatAck(pb::HeartbeatAck { sequence: 5 }));
}

#[test]
fn reports_of_the_node_are_stored_once() {
    let mut core = open_session(rules());
    assert!(
        matches!(core.handle(up(Up::Status(report(1))), at(1)).as_slice(), [Effect::Beat, Effect::Store(r)] if r.seq == 1)
    );
    assert_eq!(core.handle(up(Up::Status(report(1))), at(1)), [Effect::Beat]);
    assert!(matches!(core.handle(up(Up::Inventory(report(1))), at(1)).as_slice(), [Effect::Beat, Effect::Store(_)]));
}

#[test]
fn a_report_that_is_not_this_nodes_ends_the_session() {
    type Fault = fn(&mut pb::NodeReport);
    let table: [(&str, Fault); 7] = [
        ("WRONG_NODE", |r| r.payload = String::from_utf8_lossy(&r.payload).replace("00a", "00c").into_bytes()),
        ("FRAME_MALFORMED", |r| r.payload = String::from_utf8_lossy(&r.payload).replace("00b", "00c").into_bytes()),
        ("FRAME_MALFORMED", |r| r.payload = b"{}".to_vec()),
        ("FRAME_MALFORMED", |r| r.payload = vec![0xff; 10]),
        ("FRAME_MALFORMED", |r| r.signature.clear()),
        ("FRAME_MALFORMED", |r| r.signature = vec![0; 129]),
        ("FRAME_TOO_LARGE", |r| r.payload = vec![b' '; 512 * 1024 + 1]),
    ];
    for (expected, fault) in table {
        let mut report = report(1);
        fault(&mut report);
        assert_eq!(code(&open_session(rules()).handle(up(Up::Status(report)), at(1))), Some(expected));
    }
    for seq in [0, u64::MAX] {
        assert_eq!(code(&open_session(rules()).handle(up(Up::Status(report(seq))), at(1))), Some("FRAME_MALFORMED"));
    }
}

#[test]
fn a_flood_of_statuses_is_thinned_to_the_newest() {
    let mut core = open_session(rules());
    let stored: Vec<u64> = (1..=100)
        .flat_map(|seq| core.handle(up(Up::Status(report(seq))), at(1)))
        .filter_map(|effect| match effect {
            Effect::Store(report) => Some(report.seq),
            _ => None,
        })
        .collect();
    assert_eq!(stored, (1..=16).collect::<Vec<_>>());
    let due = core.next_deadline().expect("the newest waits");
    assert!(due < at(2));
    assert!(matches!(core.tick(due).as_slice(), [Effect::Store(report)] if report.seq == 100));
    assert_eq!(core.next_deadline(), Some(at(3600)));
}

#[test]
fn floods_of_heartbeats_and_inventories_end_the_session() {
    let frames: [fn() -> Up; 2] = [|| Up::Heartbeat(pb::Heartbeat::default()), || Up::Inventory(report(1))];
    for (index, frame) in frames.into_iter().enumerate() {
        let mut core = open_session(rules());
        for seq in 1..200_u64 {
            let frame = if index == 0 { frame() } else { Up::Inventory(report(seq)) };
            core.handle(up(frame), at(1));
        }
        assert!(core.is_closed());
    }
}

#[test]
fn a_renamed_machine_is_asked_to_renew_now_and_then_if_it_says_that_it_takes_names() {
    let renamed = || Input::Facts(Facts { renamed: true, ..facts(3) });
    let asked = |effects: &[Effect]| {
        effects.iter().any(|effect| matches!(effect, Effect::Send(frame) if matches!(**frame, Down::RenewalWanted(_))))
    };
    assert!(!asked(&open_session(rules()).handle(renamed(), at(1))), "an older daemon knows no such frame");
    let mut core = SessionCore::new(rules(), at(0));
    let capabilities = vec!["renames".to_owned()];
    core.handle(up(Up::Hello(pb::Hello { capabilities, ..hello() })), at(0));
    core.handle(Input::Opened(Box::new(opened(3))), at(0));
    assert!(!asked(&core.handle(Input::Facts(facts(3)), at(1))));
    assert_eq!([1, 2, 60, 61].map(|second| asked(&core.handle(renamed(), at(second)))), [true, false, false, true]);
}

#[test]
fn what_the_database_says_ends_a_session_that_should_not_be() {
    let table = [
        ("IDENTITY_REPLACED", Facts { identity_generation: IdentityGeneration(2), revoked: true, ..facts(3) }),
        (
            "CERTIFICATE_REVOKED",
            Facts { identity_generation: IdentityGeneration(2), revoked: true, vacant: true, ..facts(3) },
        ),
        ("CERTIFICATE_REVOKED", Facts { revoked: true, ..facts(3) }),
        ("SUPERSEDED", Facts { epoch: Epoch(10), ..facts(3) }),
    ];
    for (expected, facts) in table {
        assert_eq!(code(&open_session(rules()).handle(Input::Facts(facts), at(1))), Some(expected));
    }
}

#[test]
fn inventory_is_asked_for_when_digests_differ_and_not_without_end() {
    let mut core = SessionCore::new(rules(), at(0));
    let digests = [("os", "os"), ("gpus", "new"), ("later-kind", "x")];
    let inventory = digests.map(|(section, doc)| (section.to_owned(), Digest::of(doc).to_string())).into();
    core.handle(up(Up::Hello(pb::Hello { inventory, ..hello() })), at(0));
    let effects = core.handle(Input::Opened(Box::new(opened(3))), at(0));
    let wanted = |sections: &[&str]| {
        let sections = sections.iter().map(|section| (*section).to_owned()).collect();
        Effect::Send(Box::new(Down::InventoryWanted(pb::InventoryWanted { sections })))
    };
    assert_eq!(effects.get(1), Some(&wanted(&["gpus"])));

    let asks = |section| Input::Facts(Facts { inventory_wanted: vec![section], ..facts(3) });
    assert_eq!(core.handle(asks(InventorySection::Cpu), at(1)), [wanted(&["cpu"])]);
    assert!(core.handle(asks(InventorySection::Cpu), at(2)).is_empty());
    assert_eq!(core.handle(asks(InventorySection::Nics), at(2)), [wanted(&["nics"])]);
    assert_eq!(core.handle(asks(InventorySection::Nics), at(62)), [wanted(&["nics"])]);
}

#[test]
fn a_session_ends_with_its_certificate() {
    let mut core = open_session(rules());
    assert_eq!(core.next_deadline(), Some(at(3600)));
    assert_eq!(code(&core.tick(at(3600))), Some("CERTIFICATE_EXPIRED"));
}

#[test]
fn a_draining_gateway_says_goodbye_and_hears_the_last_words() {
    let mut core = open_session(rules());
    for seq in 1..=17 {
        core.handle(up(Up::Status(report(seq))), at(1));
    }
    let effects = core.handle(Input::Drain, at(1));
    let [Effect::Store(stored), Effect::Send(frame)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((stored.seq, &**frame), (17, &Down::Goodbye(pb::Goodbye { reconnect_within_seconds: 5 })));
    assert!(core.handle(Input::Drain, at(1)).is_empty());
    assert!(core.handle(Input::Facts(facts(8)), at(1)).is_empty(), "nothing is begun any more");
    assert_eq!(core.handle(up(Up::Heartbeat(pb::Heartbeat::default())), at(1)), [Effect::Beat]);
    let effects = core.handle(up(Up::Inventory(report(18))), at(2));
    assert!(matches!(effects.as_slice(), [Effect::Beat, Effect::Store(stored)] if stored.seq == 18));
    assert_eq!(core.next_deadline(), Some(at(3)));
    assert_eq!(core.tick(at(3)), [Effect::Close(Ending::Goodbye)]);
    assert_eq!(code(&SessionCore::new(rules(), at(0)).handle(Input::Drain, at(0))), Some("UNAVAILABLE"));
}

#[test]
fn a_node_that_asks_for_its_spec_gets_it_again_and_not_without_end() {
    let mut core = open_session(rules());
    core.handle(spec(4), at(0));
    let wanted = |generation| up(Up::DesiredStateWanted(pb::DesiredStateWanted { generation }));
    assert_eq!(core.handle(wanted(4), at(1)), [Effect::Beat, Effect::FetchSpec]);
    assert!(matches!(core.handle(spec(4), at(1)).as_slice(), [Effect::Send(_)]));
    assert!(core.handle(spec(4), at(1)).is_empty());
    let fetched = (0..100).flat_map(|_| core.handle(wanted(4), at(1))).filter(|effect| *effect == Effect::FetchSpec);
    assert_eq!(fetched.count(), 3);
    let due = core.next_deadline().expect("the last ask waits");
    assert!(due <= at(2));
    assert_eq!(core.tick(due), [Effect::FetchSpec]);
}

#[test]
fn trust_that_moves_on_reaches_an_open_session() {
    let mut core = open_session(rules());
    let steps = vec![pb::SignedTrustBundle { bundle: vec![1], signature: vec![2] }];
    let effects = core.handle(Input::Trust(steps.clone()), at(1));
    assert_eq!(effects, [Effect::Send(Box::new(Down::Trust(pb::TrustSteps { trust_steps: steps })))]);
    assert!(core.handle(Input::Trust(Vec::new()), at(1)).is_empty());
}

fn inputs() -> impl Strategy<Value = Input> {
    let text = prop_oneof![Just(node_id().to_string()), Just(journal().to_string()), ".{0,40}"];
    let hello_input = (text.clone(), text, any::<u64>(), any::<bool>(), 30..34_usize).prop_map(
        |(node, boot, applied, described, nonce)| {
            up(Up::Hello(pb::Hello {
                node_id: node,
                boot_id: boot,
                applied_generation: applied,
                described,
                nonce: vec![1; nonce],
                ..hello()
            }))
        },
    );
    let payload = prop_oneof![Just(None), proptest::collection::vec(any::<u8>(), 0..60).prop_map(Some)];
    let report = (payload, 0..20_u64, any::<bool>()).prop_map(|(payload, seq, status)| {
        let mut report = report(seq);
        report.payload = payload.unwrap_or(report.payload);
        up(if status { Up::Status(report) } else { Up::Inventory(report) })
    });
    let facts_input = (0..12_u64, 0..3_u64, 0..8_u64, prop::bool::weighted(0.05)).prop_map(
        |(epoch, identity, generation, revoked)| {
            Input::Facts(Facts {
                epoch: Epoch(epoch),
                identity_generation: IdentityGeneration(identity),
                revoked,
                ..facts(generation)
            })
        },
    );
    prop_oneof![
        2 => Just(up(Up::Hello(hello()))),
        1 => hello_input,
        3 => (0..8_u64).prop_map(|generation| Input::Opened(Box::new(opened(generation)))),
        4 => report,
        3 => any::<u64>().prop_map(|sequence| up(Up::Heartbeat(pb::Heartbeat { sequence }))),
        4 => facts_input,
        4 => (0..8_u64).prop_map(spec),
        1 => (0..8_u64).prop_map(|generation| up(Up::DesiredStateWanted(pb::DesiredStateWanted { generation }))),
        2 => Just(Input::CommandsMayWait),
        2 => Just(Input::Claimed(Claimed::default())),
        1 => Just(Input::Frame(Box::default())),
        1 => Just(Input::NotOpened(Refusal::UnknownCertificate)),
        1 => Just(Input::BadFrame(Refusal::FrameTooLarge)),
        1 => Just(Input::End(Refusal::Superseded)),
        1 => Just(Input::Drain),
        1 => Just(Input::Gone),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_a_session_keeps_its_promises(
        begun in any::<bool>(),
        steps in proptest::collection::vec((inputs(), -20..4000_i64, any::<bool>()), 0..60),
    ) {
        let mut core = if begun { open_session(rules()) } else { SessionCore::new(rules(), at(0)) };
        let (mut welcomes, mut sent, mut closed, mut goodbye) = (usize::from(begun), 3, false, false);
        for (input, time, tick) in steps {
            let effects = if tick { core.tick(at(time)) } else { core.handle(input, at(time)) };
            for effect in effects {
                prop_assert!(!closed, "nothing comes after Close: {effect:?}");
                match effect {
                    Effect::Close(_) => closed = true,
                    Effect::Store(_)
                    | Effect::Beat
                    | Effect::Progress(..)
                    | Effect::JournalFull(_)
                    | Effect::JournalUnusable(_)
                    | Effect::CannotKeep(_)
                    | Effect::Settle(_)
                    | Effect::Release(_) => prop_assert_eq!(welcomes, 1),
                    Effect::FetchSpec | Effect::Claim(_) => prop_assert!(welcomes == 1 && !goodbye),
                    Effect::Open(_) => prop_assert_eq!(welcomes, 0),
                    Effect::Send(_) if goodbye => prop_assert!(false, "nothing is sent after Goodbye"),
                    Effect::Send(frame) => match *frame {
                        Down::Welcome(_) => welcomes += 1,
                        Down::Goodbye(_) => goodbye = true,
                        Down::Refused(_) => {}
                        Down::DesiredState(state) => {
                            prop_assert!(state.generation >= sent, "the generation does not fall");
                            prop_assert_eq!(welcomes, 1);
                            sent = state.generation;
                        }
                        _ => prop_assert_eq!(welcomes, 1),
                    },
                }
            }
            prop_assert!(welcomes <= 1);
            prop_assert_eq!(core.is_closed(), closed);
            prop_assert_eq!(core.next_deadline().is_none(), closed);
        }
    }
}

#[test]
fn policies_come_after_welcome_and_before_commands_and_only_to_nodes_that_read_them() {
    let epoch = |capabilities: &[&str]| {
        let said = pb::Hello {
            capabilities: capabilities.iter().map(|word| (*word).to_owned()).collect(),
            policy_epoch: 4,
            ..hello()
        };
        let mut core = SessionCore::new(rules(), at(0));
        let effects = core.handle(up(Up::Hello(said)), at(0));
        let [Effect::Open(request)] = effects.as_slice() else { panic!("{effects:?}") };
        request.policy_epoch
    };
    assert_eq!(epoch(&["commands", "approvals"]), Some(4));
    assert_eq!(epoch(&["commands"]), None);
    let mut core = SessionCore::new(rules(), at(0));
    core.handle(up(Up::Hello(hello())), at(0));
    let policies = vec![pb::Policies { revocations: vec![vec![1]], ..pb::Policies::default() }];
    let effects = core.handle(Input::Opened(Box::new(Opened { policies: policies.clone(), ..opened(3) })), at(0));
    let sent: Vec<&Down> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send(frame) => Some(frame.as_ref()),
            _ => None,
        })
        .collect();
    assert!(matches!(sent[..2], [Down::Welcome(_), Down::Policies(_)]), "{sent:?}");
    assert_eq!(
        core.handle(Input::Policies(policies.clone()), at(1)),
        [Effect::Send(Box::new(Down::Policies(policies[0].clone())))]
    );
    core.handle(Input::Drain, at(2));
    assert_eq!(core.handle(Input::Policies(policies), at(3)), []);
}
