//! Facts about a whole daemon, against a small control plane in this process.

use std::path::Path;

use proto::agent::v1::node_frame::Frame;
use schema::{
    clock::ManualClock,
    generation::Generation,
    inventory::InventorySection,
    report::{InventoryReport, SectionState, StatusReport},
};

use super::*;
use crate::{
    dial::DialError,
    hardware::{Described, SAMPLE_8XH100},
    join::{self, JoinError},
    testing::{People, Plane, now},
};

const MOTD: &str =
    r#"{"host":{"files":[{"content":"hi\n","group":"root","mode":"0644","owner":"root","path":"/etc/motd"}]}}"#;

fn config(dir: &Path) -> Config {
    Config {
        root: dir.to_owned(),
        state: dir.join("var/lib/bcd"),
        hardware: Arc::new(Described::parse(SAMPLE_8XH100, Some("one"), &[]).expect("good")),
        clock: Arc::new(ManualClock::new(now())),
        gateways: Vec::new(),
        apply: true,
    }
}

async fn status_of(said: &mut mpsc::UnboundedReceiver<Frame>, generation: u64) -> StatusReport {
    loop {
        if let Frame::Status(report) = said.recv().await.expect("the plane lives") {
            let status: StatusReport = serde_json::from_slice(&report.payload).expect("a report");
            if status.observed >= Generation(generation) {
                return status;
            }
        }
    }
}

/// Waits until the daemon has kept this of how it stands with the control plane.
async fn stands(state: &StateDir, so: impl Fn(&Contact) -> bool) -> Contact {
    loop {
        let contact = state.contact();
        if so(&contact) {
            return contact;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_state_says_whether_there_is_a_session_and_how_the_last_renewal_went() {
    let (endpoint, plane, mut said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = config(dir.path());
    let state = StateDir::look(&config.state);
    join::join(&plane.request(&endpoint, &config.state)).await.expect("admitted");
    assert_eq!(state.contact(), Contact::default());

    let cancel = CancellationToken::new();
    let daemon = tokio::spawn(run(config, cancel.clone()));
    status_of(&mut said, 0).await;
    stands(&state, |contact| contact.session.is_some()).await;
    cancel.cancel();
    daemon.await.expect("no panic").expect("a clean end");
}

#[test]
fn only_a_machine_that_was_away_for_long_is_told_the_way_back_from_roots_that_it_does_not_know() {
    let untrusted = JoinError::Dial(DialError::Untrusted {
        endpoint: "https://gw.example.org:7444".parse().expect("an address"),
        source: rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer),
    });
    assert!(connection::refusal(&untrusted, true).contains("--reclaim"));
    assert!(!connection::refusal(&untrusted, false).contains("--reclaim"));
    let silent = JoinError::Unanswered("it took too long".to_owned());
    assert_eq!(connection::refusal(&silent, true), silent.to_string());
}

#[tokio::test]
async fn a_spec_becomes_a_file_and_a_signed_status() {
    let (endpoint, plane, mut said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    *plane.spec.lock().expect("whole") = (1, MOTD.to_owned());
    join::join(&plane.request(&endpoint, &dir.path().join("var/lib/bcd"))).await.expect("admitted");

    let cancel = CancellationToken::new();
    let daemon = tokio::spawn(run(config(dir.path()), cancel.clone()));
    let status = status_of(&mut said, 1).await;
    assert!(status.sections.values().all(|section| section.state == SectionState::Converged), "{status:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("etc/motd")).expect("there"), "hi\n");
    cancel.cancel();
    daemon.await.expect("no panic").expect("a clean end");

    // The gateway is another one, the spec is a newer one, and this node was away.
    let second = plane.serve().await;
    *plane.spec.lock().expect("whole") = (2, "{}".to_owned());
    let cancel = CancellationToken::new();
    let elsewhere = Config { gateways: vec![second], ..config(dir.path()) };
    let daemon = tokio::spawn(run(elsewhere, cancel.clone()));
    status_of(&mut said, 2).await;
    assert!(!dir.path().join("etc").exists(), "what left the spec is undone");
    cancel.cancel();
    daemon.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn a_gateway_that_calls_the_journal_old_again_and_again_renames_it_once() {
    let (endpoint, plane, mut said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    join::join(&plane.request(&endpoint, &dir.path().join("var/lib/bcd"))).await.expect("admitted");
    plane.old.store(2, std::sync::atomic::Ordering::Relaxed);
    let cancel = CancellationToken::new();
    let daemon = tokio::spawn(run(config(dir.path()), cancel.clone()));
    let mut journals = Vec::new();
    while journals.len() < 3 {
        if let Frame::Hello(hello) = said.recv().await.expect("the plane lives") {
            journals.push(hello.journal_id);
        }
    }
    assert_ne!(journals[0], journals[1]);
    assert_eq!(journals[1], journals[2], "whoever says it again lies");
    cancel.cancel();
    daemon.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn the_first_session_brings_the_whole_inventory() {
    let (endpoint, plane, mut said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    join::join(&plane.request(&endpoint, &dir.path().join("var/lib/bcd"))).await.expect("admitted");
    let cancel = CancellationToken::new();
    let daemon = tokio::spawn(run(config(dir.path()), cancel.clone()));
    let report = loop {
        if let Frame::Inventory(report) = said.recv().await.expect("the plane lives") {
            break serde_json::from_slice::<InventoryReport>(&report.payload).expect("a report");
        }
    };
    assert!(report.described);
    assert_eq!(report.sections.len(), InventorySection::ALL.len());
    cancel.cancel();
    daemon.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn a_spec_that_is_not_to_be_applied_is_kept_for_diff() {
    let (endpoint, plane, mut said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    *plane.spec.lock().expect("whole") = (1, MOTD.to_owned());
    join::join(&plane.request(&endpoint, &dir.path().join("var/lib/bcd"))).await.expect("admitted");
    let cancel = CancellationToken::new();
    let daemon = tokio::spawn(run(Config { apply: false, ..config(dir.path()) }, cancel.clone()));
    let state = StateDir::open(&dir.path().join("var/lib/bcd")).expect("there");
    said.recv().await.expect("a hello");
    while state.desired().expect("read").is_none() {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    daemon.await.expect("no panic").expect("a clean end");
    assert!(!dir.path().join("etc/motd").exists());
    assert_eq!(state.progress().expect("read").expect("kept").applied, Generation::NONE);
}

#[tokio::test]
async fn a_state_that_cannot_be_written_for_a_while_ends_nothing() {
    let (endpoint, plane, mut said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let state = dir.path().join("var/lib/bcd");
    *plane.spec.lock().expect("whole") = (1, MOTD.to_owned());
    join::join(&plane.request(&endpoint, &state)).await.expect("admitted");
    // As on a full disk: the file beside cannot be written.
    let in_the_way = state.join("desired.json.new");
    std::fs::create_dir(&in_the_way).expect("made");
    let cancel = CancellationToken::new();
    let daemon = tokio::spawn(run(config(dir.path()), cancel.clone()));
    let mut said_why = Vec::new();
    while said_why.len() < 2 {
        if let Frame::Hello(hello) = said.recv().await.expect("the plane lives") {
            said_why.push(hello.cannot_keep);
        }
    }
    assert_eq!(said_why[0], "");
    assert!(said_why[1].contains("desired.json"), "the next session begins with why: {said_why:?}");
    assert!(!dir.path().join("etc/motd").exists(), "what cannot be kept is not applied");
    std::fs::remove_dir(&in_the_way).expect("removed");
    status_of(&mut said, 1).await;
    assert_eq!(std::fs::read_to_string(dir.path().join("etc/motd")).expect("there"), "hi\n");
    cancel.cancel();
    daemon.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn a_machine_that_boots_on_a_full_disk_connects_and_says_so() {
    let (endpoint, plane, mut said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let state = dir.path().join("var/lib/bcd");
    join::join(&plane.request(&endpoint, &state)).await.expect("admitted");
    // The boot is another one than at the join, and that cannot be written down.
    let in_the_way = state.join("progress.json.new");
    std::fs::create_dir(&in_the_way).expect("made");
    let cancel = CancellationToken::new();
    let daemon = tokio::spawn(run(config(dir.path()), cancel.clone()));
    for _ in 0..2 {
        let frame = said.recv().await.expect("the plane lives");
        let Frame::Hello(hello) = frame else { panic!("nothing is reported that is not numbered on disk: {frame:?}") };
        assert!(hello.cannot_keep.contains("progress.json"), "{}", hello.cannot_keep);
    }
    std::fs::remove_dir(&in_the_way).expect("removed");
    status_of(&mut said, 0).await;
    cancel.cancel();
    daemon.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn a_machine_that_has_not_joined_is_told_so() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let error = run(config(dir.path()), CancellationToken::new()).await.expect_err("no identity");
    assert!(matches!(error, AgentError::NotJoined(_)), "{error}");
}

/// The loop's beginning, on what is on disk and with what outlived the loop before it.
fn begin(dir: &Path, hands: &mut Option<Hands>) -> Agent {
    Agent::begin(config(dir), true, hands, mpsc::channel(1).0, mpsc::channel(1).0).expect("begins")
}

#[tokio::test]
async fn a_machine_begins_with_what_it_knows_and_asks_people_also_where_only_its_pin_is_left() {
    let (endpoint, plane, _said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("var/lib/bcd");
    let mut identity = join::join(&plane.request(&endpoint, &path)).await.expect("admitted");
    let state = StateDir::open(&path).expect("there");
    let trust = People::new(0).trust();
    identity.anchor.trust = Some(trust);
    state.keep_identity(&identity).expect("kept");
    assert_eq!(state.policies().expect("read").map(|policies| policies.trust()), None);
    state.keep_floor(now()).expect("kept");
    let guard = begin(dir.path(), &mut None).core.into_desk().gate().guard();
    assert_eq!(guard.policies.as_ref().map(|policies| policies.trust()), Some(trust));
    assert_eq!((guard.floor, guard.certified.is_some_and(|from| from <= now())), (Some(now()), true));
}

#[tokio::test]
async fn what_a_full_disk_did_not_keep_is_believed_by_the_next_loop() {
    let (endpoint, plane, _said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    join::join(&plane.request(&endpoint, &dir.path().join("var/lib/bcd"))).await.expect("admitted");
    let mut hands = {
        let agent = begin(dir.path(), &mut None);
        let (now, inventory) = (agent.now(), agent.config.hardware.read().inventory());
        let mut core = agent.core.believing(Some(People::new(0).policies()), Some(now.wall));
        core.handle(Event::Inventoried(inventory, Vec::new()), now);
        Some(agent.hands.rest(core))
    };
    let guard = begin(dir.path(), &mut hands).core.into_desk().gate().guard();
    assert_eq!(guard.policies.as_ref().map(|policies| policies.epoch()), Some(1));
    assert_eq!((guard.floor, guard.hardware_key.is_some(), guard.facts.is_empty()), (Some(now()), true, false));
}

#[tokio::test]
async fn a_renewal_that_brings_another_name_is_kept_and_gone_by() {
    let (endpoint, plane, _said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("var/lib/bcd");
    join::join(&plane.request(&endpoint, &path)).await.expect("admitted");
    let mut agent = begin(dir.path(), &mut None);
    let named = pki::statement::JoinIdentity {
        node_name: "node-two".to_owned(),
        kinds: Some(vec!["inventory.refresh".to_owned()]),
        ..agent.identity.identity.clone()
    };
    let renewed = Renewed {
        chain: agent.identity.certificates().iter().map(|der| der.to_vec()).collect(),
        certificate: agent.certificate.clone(),
        identity: Some(named.clone()),
        trust: agent.core.trust().clone(),
        time: now(),
    };
    agent.renewed(Ok(renewed)).expect("kept");
    let kept = StateDir::open(&path).expect("there").identity().expect("read").expect("joined");
    assert_eq!(kept.identity, named);
    assert_eq!(agent.core.into_desk().gate().guard().name, "node-two");
}

#[tokio::test]
async fn a_gateway_that_asks_for_one_renewal_after_another_causes_few() {
    let (endpoint, plane, _said) = Plane::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    join::join(&plane.request(&endpoint, &dir.path().join("var/lib/bcd"))).await.expect("admitted");
    let mut agent = begin(dir.path(), &mut None);
    agent.renew_at = Instant::now() + Duration::from_secs(36_000);
    agent.renew_soon();
    assert!(agent.renew_at <= Instant::now());
    agent.renewal_began = Some(Instant::now());
    agent.renew_at = Instant::now() + Duration::from_secs(36_000);
    agent.renew_soon();
    assert!(agent.renew_at >= Instant::now() + Duration::from_secs(30));
}
