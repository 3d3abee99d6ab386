//! Facts about the session core, with real keys and no sockets.

use pki::{anchor::Anchor, keys::Keys, worker::WorkerKey};
use schema::{
    id::JournalId,
    report::{DRIFT_CAPABILITY, DriftCause, DriftKind, DriftMode, StatusReport},
    spec::NodeSpec,
};

use super::*;
use crate::command::{Gate, Pen};

mod commands;
mod people;

struct World {
    keys: Keys,
    anchor: Anchor,
    worker: WorkerKey,
    node: NodeId,
    key: Arc<NodeKey>,
    core: Core,
    start: Instant,
    capabilities: Vec<String>,
}

const NONCE: [u8; 32] = [7; 32];

fn wall() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

impl World {
    fn new() -> Self {
        let keys = Keys::generate("bc.local", wall()).expect("keys");
        let anchor = keys.anchor("fleet-one");
        let worker = keys.command_root().certify(&anchor.realm(), wall());
        let (node, key) = (NodeId::generate(), Arc::new(NodeKey::generate()));
        let boot_id = BootId::generate();
        let me = Me {
            node_id: node,
            realm: anchor.realm(),
            key: Arc::clone(&key),
            boot_id,
            described: false,
            version: "0.1.0".into(),
        };
        let progress = Progress::begin(boot_id);
        let pen =
            Pen { node, realm: anchor.realm(), key: Arc::clone(&key), journal: progress.journal_id, boot: boot_id };
        let desk = Desk::new(pen, Gate::default(), Vec::new());
        let core = Core::new(me, TrustBundle::of_anchor(&anchor, 1), None, progress, desk);
        Self {
            keys,
            anchor,
            worker,
            node,
            key,
            core,
            start: Instant::now(),
            capabilities: vec![DRIFT_CAPABILITY.into()],
        }
    }

    fn now(&self, seconds: u64) -> Now {
        let later = Duration::from_secs(seconds);
        Now { wall: wall().saturating_add(later).expect("a time"), mono: self.start + later, proven: None }
    }

    fn open(&mut self) -> Vec<Effect> {
        let now = self.now(0);
        self.core.handle(Event::Opening { nonce: NONCE }, now);
        let welcome = self.welcome(wall());
        self.core.handle(Event::Frame(welcome), now)
    }

    fn welcome(&self, time: Timestamp) -> gateway_frame::Frame {
        let signature = self.worker.sign_server_time(self.node, &NONCE, time);
        gateway_frame::Frame::Welcome(pb::Welcome {
            epoch: 3,
            server_time: Some(pb::SignedTime {
                time: time.to_string(),
                nonce: NONCE.to_vec(),
                signature: Some(message(&signature)),
            }),
            trust_bundle: None,
            heartbeat_seconds: 15,
            gateway_id: "gw".into(),
            capabilities: self.capabilities.clone(),
            trust_steps: Vec::new(),
        })
    }

    fn spec(&self, node: NodeId, generation: u64, value: &str) -> gateway_frame::Frame {
        let mut spec = NodeSpec::default();
        spec.host.sysctl.insert("vm.swappiness".into(), value.into());
        let spec = spec.to_bytes();
        let signature = self.worker.sign_desired_state(node, Generation(generation), &spec);
        gateway_frame::Frame::DesiredState(pb::DesiredState { generation, spec, signature: Some(message(&signature)) })
    }

    fn boot(&self) -> BootId {
        self.core.progress().boot_id
    }

    fn frame(&mut self, frame: gateway_frame::Frame) -> Vec<Effect> {
        let now = self.now(1);
        self.core.handle(Event::Frame(frame), now)
    }

    fn settled(&self, generation: u64) -> Event {
        Event::Settled(Settled {
            generation: Generation(generation),
            sections: BTreeMap::new(),
            conditions: Vec::new(),
            drift: Vec::new(),
        })
    }
}

fn message(signature: &pki::worker::Signature) -> pb::Signature {
    pb::Signature {
        worker: signature.worker.clone(),
        root_signature: signature.root_signature.clone(),
        signature: signature.signature.clone(),
    }
}

fn refusal(effects: &[Effect]) -> &str {
    match effects {
        [Effect::Say(Level::Warn, text)] => text,
        other => panic!("not a refusal: {other:?}"),
    }
}

/// A spec that is not believed ends the session: the next one may bring it under a fresh signature.
fn distrust(effects: &[Effect]) -> &str {
    match effects {
        [Effect::Say(Level::Warn, text), Effect::Close(Again::BackOff)] => text,
        other => panic!("not an end: {other:?}"),
    }
}

fn applies(effects: &[Effect]) -> bool {
    effects.contains(&Effect::Apply)
}

#[test]
fn hello_comes_first_and_names_the_node() {
    let mut world = World::new();
    let now = world.now(0);
    let effects = world.core.handle(Event::Opening { nonce: NONCE }, now);
    let [Effect::Send(node_frame::Frame::Hello(hello))] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(hello.node_id, world.node.to_string());
    assert_eq!((hello.nonce.as_slice(), hello.trust_version), (&NONCE[..], 1));
}

#[test]
fn a_spec_is_kept_before_it_is_applied() {
    let mut world = World::new();
    world.open();
    let effects = world.frame(world.spec(world.node, 1, "1"));
    let keep = effects.iter().position(|effect| matches!(effect, Effect::KeepDesired(_))).expect("kept");
    let apply = effects.iter().position(|effect| *effect == Effect::Apply).expect("applied");
    assert!(keep < apply);
}

#[test]
fn an_older_generation_is_refused() {
    let mut world = World::new();
    world.open();
    assert!(applies(&world.frame(world.spec(world.node, 5, "1"))));
    let effects = world.frame(world.spec(world.node, 4, "2"));
    assert_eq!(refusal(&effects), "desired state 4 is refused: this node has 5 already");
    let effects = world.frame(world.spec(world.node, 5, "2"));
    assert!(refusal(&effects).contains("another one of the same generation"));
}

#[test]
fn a_spec_that_comes_again_is_answered_by_status_alone() {
    let mut world = World::new();
    world.open();
    world.frame(world.spec(world.node, 1, "1"));
    let now = world.now(2);
    world.core.handle(world.settled(1), now);
    let effects = world.frame(world.spec(world.node, 1, "1"));
    assert!(!applies(&effects));
    assert!(matches!(effects.last(), Some(Effect::Send(node_frame::Frame::Status(_)))));
}

#[test]
fn a_changed_bit_is_refused() {
    let mut world = World::new();
    world.open();
    let gateway_frame::Frame::DesiredState(mut desired) = world.spec(world.node, 1, "1") else { panic!("a spec") };
    desired.spec = br#"{"host":{"sysctl":{"vm.swappiness":"9"}}}"#.to_vec();
    let effects = world.frame(gateway_frame::Frame::DesiredState(desired));
    assert_eq!(distrust(&effects), "desired state 1 is refused: the signature does not match");
}

#[test]
fn another_nodes_spec_is_refused() {
    let mut world = World::new();
    world.open();
    let effects = world.frame(world.spec(NodeId::generate(), 1, "1"));
    assert!(distrust(&effects).contains("the signature does not match"));
}

#[test]
fn a_foreign_worker_is_refused() {
    let mut world = World::new();
    world.open();
    world.worker =
        Keys::generate("bc.local", wall()).expect("keys").command_root().certify(&world.anchor.realm(), wall());
    let effects = world.frame(world.spec(world.node, 1, "1"));
    assert!(distrust(&effects).contains("no known command-signing root"), "{effects:?}");
}

#[test]
fn a_spec_of_an_expired_worker_comes_again_in_the_next_session() {
    let mut world = World::new();
    world.open();
    let stale = world.spec(world.node, 1, "1");
    let later = world.now(3 * 86_400);
    let wall = later.wall;
    world.core.handle(Event::Opening { nonce: NONCE }, later);
    world.worker = world.keys.command_root().certify(&world.anchor.realm(), wall);
    let welcome = world.welcome(wall);
    world.core.handle(Event::Frame(welcome), later);
    assert!(distrust(&world.core.handle(Event::Frame(stale), later)).contains("refused"));

    world.core.handle(Event::Closed, later);
    world.core.handle(Event::Opening { nonce: NONCE }, later);
    let welcome = world.welcome(wall);
    world.core.handle(Event::Frame(welcome), later);
    let fresh = world.spec(world.node, 1, "1");
    assert!(applies(&world.core.handle(Event::Frame(fresh), later)));
}

#[test]
fn a_time_that_answers_another_nonce_ends_the_session() {
    let mut world = World::new();
    let now = world.now(0);
    world.core.handle(Event::Opening { nonce: [8; 32] }, now);
    let effects = world.core.handle(Event::Frame(world.welcome(wall())), now);
    assert!(effects.contains(&Effect::Close(Again::BackOff)), "{effects:?}");
    assert!(world.frame(world.spec(world.node, 1, "1")).is_empty(), "nothing is taken afterwards");
}

#[test]
fn a_clock_that_says_2011_is_corrected_by_signed_time() {
    let mut world = World::new();
    let wrong = Now { wall: "2011-01-01T00:00:00Z".parse().expect("a time"), mono: world.start, proven: None };
    world.core.handle(Event::Opening { nonce: NONCE }, wrong);
    let effects = world.core.handle(Event::Frame(world.welcome(wall())), wrong);
    assert!(effects.contains(&Effect::TimeProven(Proven::signed(wall(), Duration::ZERO))));
    assert_eq!(world.core.time(wrong), wall());
    assert!(applies(&world.core.handle(Event::Frame(world.spec(world.node, 1, "1")), wrong)));
}

/// What each word about the time comes to, in the order in which they come: when it came, how many days ahead it was,
/// whether the session opened, and how many days ahead the time is afterwards.
fn words(table: &[(u64, i64, bool, i64)]) {
    let mut world = World::new();
    for (at, days, opens, then) in table {
        let now = world.now(*at);
        let ahead = |days: i64| now.wall.checked_add(jiff::SignedDuration::from_hours(24 * days)).expect("a time");
        let time = ahead(*days);
        world.worker = world.keys.command_root().certify(&world.anchor.realm(), time);
        world.core.handle(Event::Opening { nonce: NONCE }, now);
        let effects = world.core.handle(Event::Frame(world.welcome(time)), now);
        assert_eq!(effects.contains(&Effect::Opened), *opens, "at {at}: {effects:?}");
        let off = world.core.time(now).duration_since(ahead(*then));
        assert!(off.as_secs().abs() < 60, "at {at}: {off}");
    }
}

#[test]
fn a_time_far_ahead_takes_two_words_a_while_apart() {
    words(&[(0, 0, true, 0), (10, 3650, false, 0), (60, 3650, false, 0), (70, 0, true, 0)]);
    words(&[(0, 0, true, 0), (10, 3650, false, 0), (60, 3650, false, 0), (140, 3650, true, 3650)]);
}

#[test]
fn a_first_word_that_was_wrong_is_taken_back_by_two_and_a_confirmed_one_by_none() {
    words(&[(0, 3650, true, 3650), (60, 0, false, 3650), (100, 0, false, 3650), (200, 0, true, 0), (300, -5, true, 0)]);
    words(&[(0, 3650, true, 3650), (200, 3650, true, 3650), (300, 0, true, 3650), (500, 0, true, 3650)]);
    // A day behind is the control plane's own affair, and moves nothing.
    words(&[(0, 0, true, 0), (60, -1, true, 0), (90, -1, true, 0), (300, -1, true, 0)]);
}

#[test]
fn a_trust_bundle_steps_and_is_kept_before_it_is_used() {
    let mut world = World::new();
    let mut next = TrustBundle::of_anchor(&world.anchor, 1);
    next.version = 2;
    let signed = world.keys.command_root().sign_bundle(&next);
    let gateway_frame::Frame::Welcome(mut welcome) = world.welcome(wall()) else { panic!("a welcome") };
    welcome.trust_bundle = Some(pb::SignedTrustBundle { bundle: signed.bytes, signature: signed.signature });
    let now = world.now(0);
    world.core.handle(Event::Opening { nonce: NONCE }, now);
    let effects = world.core.handle(Event::Frame(gateway_frame::Frame::Welcome(welcome)), now);
    assert!(effects.contains(&Effect::KeepTrust(next)));
    assert_eq!(world.core.trust().version, 2);
}

#[test]
fn every_session_begins_with_a_signed_status() {
    let mut world = World::new();
    let effects = world.open();
    let report = effects
        .iter()
        .find_map(|effect| match effect {
            Effect::Send(node_frame::Frame::Status(report)) => Some(report),
            _ => None,
        })
        .expect("a status");
    let kind = schema::report::ReportKind::Status;
    let public = world.key.public();
    public.verify_report(&world.anchor.realm(), kind, world.node, &report.payload, &report.signature).expect("signed");
    let status: StatusReport = serde_json::from_slice(&report.payload).expect("a report");
    assert_eq!((status.node_id, status.observed), (world.node, Generation::NONE));
}

#[test]
fn drift_is_reported_when_it_changes_and_only_to_who_reads_it() {
    let entry = DriftEntry {
        path: "files./etc/motd.content".into(),
        mode: DriftMode::Warn,
        kind: DriftKind::Changed,
        cause: DriftCause::WhileRunning,
        observed: Some("mine".into()),
        observed_digest: None,
        observed_bytes: Some(4),
        desired: None,
        first_seen: wall(),
        last_seen: wall(),
        corrected: false,
        times: 1,
    };
    let said = |effects: &[Effect]| -> Option<usize> {
        effects.iter().find_map(|effect| match effect {
            Effect::Send(node_frame::Frame::Status(report)) => {
                Some(serde_json::from_slice::<StatusReport>(&report.payload).expect("a report").drift.len())
            }
            _ => None,
        })
    };
    for (capabilities, told) in [(vec!["drift".to_owned()], 1), (Vec::new(), 0)] {
        let mut world = World::new();
        world.capabilities = capabilities;
        world.open();
        let now = world.now(1);
        let mut settle = |drift: Vec<DriftEntry>| {
            let Event::Settled(settled) = world.settled(1) else { panic!("settled") };
            said(&world.core.handle(Event::Settled(Settled { drift, ..settled }), now))
        };
        assert_eq!(settle(Vec::new()), Some(0));
        assert_eq!(settle(vec![entry.clone()]), Some(told));
        assert_eq!(settle(vec![entry.clone()]), None, "nothing new is nothing to say");
        assert_eq!(settle(Vec::new()), Some(0));
    }
}

#[test]
fn no_report_number_is_used_twice_after_a_crash() {
    let mut world = World::new();
    let mut kept = world.core.progress().clone();
    let mut used = Vec::new();
    let mut take = |effects: Vec<Effect>, kept: &mut Progress| {
        for effect in effects {
            match effect {
                Effect::KeepProgress(progress) => *kept = progress,
                Effect::Send(node_frame::Frame::Status(report)) => {
                    let status: StatusReport = serde_json::from_slice(&report.payload).expect("a report");
                    assert!(status.seq < kept.reserved_seq, "reserved on disk first");
                    used.push(status.seq);
                }
                _ => {}
            }
        }
    };
    take(world.open(), &mut kept);
    for generation in 1..200 {
        let now = world.now(generation);
        take(world.core.handle(world.settled(generation), now), &mut kept);
    }
    let journal: JournalId = kept.journal_id;
    world.core.progress = kept.clone();
    world.core.next_seq = kept.reserved_seq;
    take(world.open(), &mut kept);
    assert_eq!(kept.journal_id, journal);
    assert!(used.windows(2).all(|pair| pair[0] < pair[1]), "{used:?}");
}

#[test]
fn a_late_pass_over_an_older_spec_takes_nothing_back() {
    let mut world = World::new();
    world.open();
    let now = world.now(1);
    world.core.handle(world.settled(4), now);
    assert!(world.core.handle(world.settled(3), now).is_empty());
    assert_eq!(world.core.progress().observed, Generation(4));
}

#[test]
fn inventory_that_changed_travels_and_nothing_else() {
    let mut world = World::new();
    world.open();
    let inventory = |mib: u64| {
        let sections = BTreeMap::from([
            (InventorySection::Memory, serde_json::json!({ "totalMib": mib })),
            (InventorySection::Cpu, serde_json::json!({ "cores": 96 })),
        ]);
        Event::Inventoried(Inventory { sections }, Vec::new())
    };
    let sent = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Send(node_frame::Frame::Inventory(report)) => {
                let report: schema::report::InventoryReport =
                    serde_json::from_slice(&report.payload).expect("a report");
                Some(report.sections.keys().copied().collect::<Vec<_>>())
            }
            _ => None,
        })
    };
    let now = world.now(1);
    let first = sent(&world.core.handle(inventory(1), now));
    assert_eq!(first, Some(vec![InventorySection::Cpu, InventorySection::Memory]));
    assert_eq!(sent(&world.core.handle(inventory(1), now)), None);
    assert_eq!(sent(&world.core.handle(inventory(2), now)), Some(vec![InventorySection::Memory]));
    let wanted = pb::InventoryWanted { sections: vec!["cpu".into()] };
    let asked = world.frame(gateway_frame::Frame::InventoryWanted(wanted));
    assert_eq!(sent(&asked), Some(vec![InventorySection::Cpu]));
}

#[test]
fn a_silent_gateway_is_left() {
    let mut world = World::new();
    world.open();
    let beat = world.now(15);
    assert!(matches!(world.core.handle(Event::Tick, beat).as_slice(), [Effect::Send(node_frame::Frame::Heartbeat(_))]));
    let late = world.now(61);
    assert!(world.core.handle(Event::Tick, late).contains(&Effect::Close(Again::BackOff)));
}

#[test]
fn refusals_and_goodbyes_say_when_to_come_back() {
    let mut world = World::new();
    world.open();
    for code in ["CERTIFICATE_EXPIRED", "UNKNOWN_CERTIFICATE"] {
        let refused = pb::Refused { code: code.into(), message: "renew\n".into() };
        let effects = world.frame(gateway_frame::Frame::Refused(refused));
        assert!(effects.contains(&Effect::Close(Again::Renew)), "{effects:?}");
        world.open();
    }
    let effects = world.frame(gateway_frame::Frame::Goodbye(pb::Goodbye { reconnect_within_seconds: 3 }));
    assert!(effects.contains(&Effect::Close(Again::Within(Duration::from_secs(3)))));
    world.open();
    let forever = pb::Goodbye { reconnect_within_seconds: u32::MAX };
    let effects = world.frame(gateway_frame::Frame::Goodbye(forever));
    assert!(effects.contains(&Effect::Close(Again::Within(Duration::from_secs(300)))), "{effects:?}");
}

#[test]
fn what_the_journal_took_is_always_said_and_an_old_copy_is_renamed_until_a_session_was_open() {
    let mut world = World::new();
    world.core.say([7, 0, 2]);
    world.core.may_be_old = true;
    let marks = |world: &mut World| {
        let now = world.now(0);
        let effects = world.core.handle(Event::Opening { nonce: NONCE }, now);
        let [Effect::Send(node_frame::Frame::Hello(hello))] = effects.as_slice() else {
            panic!("no hello: {effects:?}")
        };
        ["control", "provision", "bulk"].map(|lane| hello.journal_marks.get(lane).copied())
    };
    assert_eq!(marks(&mut world), [Some(7), Some(0), Some(2)]);
    let refused = || gateway_frame::Frame::Refused(pb::Refused { code: "JOURNAL_OLD".into(), message: String::new() });
    let effects = world.frame(refused());
    assert!(
        matches!(effects.as_slice(), [Effect::Say(..), Effect::RenameJournal, Effect::Close(Again::BackOff)]),
        "{effects:?}"
    );
    world.open();
    world.core.say([9, 0, 2]);
    assert_eq!(marks(&mut world), [Some(9), Some(0), Some(2)], "a copy may run elsewhere");
    let effects = world.frame(refused());
    assert!(
        matches!(effects.as_slice(), [Effect::Say(..), Effect::Close(Again::BackOff)]),
        "nobody puts a copy back under a daemon that runs: {effects:?}"
    );
}

#[test]
fn a_session_that_does_not_open_is_given_up() {
    let mut world = World::new();
    let now = world.now(0);
    world.core.handle(Event::Opening { nonce: NONCE }, now);
    assert_eq!(world.core.wake_at(world.now(10)), Some(world.now(25).mono));
    let late = world.now(25);
    assert!(world.core.handle(Event::Tick, late).contains(&Effect::Close(Again::BackOff)));
}
