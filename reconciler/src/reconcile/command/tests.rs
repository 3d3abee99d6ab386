//! Facts about `command` and `command-sweeper`, on a real database, one pass at a time.

mod people;

use pki::{command::command_copy, keys::Keys, node_key::NodeKey, verify::Validity};
use schema::{
    command::{CommandBody, CommandKind, Refusal, UpdateState},
    generation::{Epoch, IdentityGeneration},
    id::{BootId, JournalId},
    report::StatusReport,
    time,
};
use store::{
    commands::{Claim, Command as Row, Dispatch, NewCommand, RawUpdate},
    nodes, outbox,
};

use super::*;
use crate::{
    join::Signer,
    reconcile::{
        Registry, Shared,
        jobs::Jobs,
        nodespec::decode_signature,
        testing::{House, Machine},
    },
};

struct Bench {
    house: House,
    jobs: Jobs,
    keys: Keys,
    machine: Machine,
    epoch: Epoch,
}

impl Bench {
    /// A machine with a session, and keys that this test knows.
    async fn new() -> Self {
        let house = House::new().await;
        let now = house.db.now().await.expect("time");
        let keys = Keys::generate("bc.local", now).expect("keys");
        let signer = std::sync::Arc::new(Signer::new(keys.command_root().clone(), house.shared.realm.clone(), now));
        let jobs = Jobs::new(Shared { signer: Some(signer), ..house.shared.clone() }, Registry::standard());
        let machine = house.machine_of("gpu-1", Some("h100")).await;
        let epoch = house.connect(&machine).await;
        let mut txn = house.db.begin().await.expect("begin");
        commands::witness(&mut txn, machine.id, machine.boot, machine.journal, now).await.expect("witness");
        txn.commit().await.expect("commit");
        Self { house, jobs, keys, machine, epoch }
    }

    async fn enqueue(&self, kind: CommandKind, key: &str) -> Row {
        let new = NewCommand {
            node_id: self.machine.id,
            kind,
            payload: json!({}),
            idempotency_key: key.to_owned(),
            not_after: time::Duration::from_secs(600).after(self.house.db.now().await.expect("time")),
            min_generation: None,
            batch_id: None,
            secrets: Vec::new(),
            created_by: "test".to_owned(),
        };
        let mut txn = self.house.db.begin().await.expect("begin");
        let queued = commands::enqueue(&mut txn, &new).await.expect("queued");
        txn.commit().await.expect("commit");
        queued.command
    }

    async fn tick(&self) {
        self.jobs.tick("command").await.expect("a pass");
    }

    async fn claim(&self) -> Vec<Dispatch> {
        let claim = Claim { node: self.machine.id, epoch: self.epoch, number: 1, room: [8, 4, 2] };
        commands::claim(&self.house.db.dedicated(), &[claim])
            .await
            .expect("claim")
            .pop()
            .map(|(_, list)| list)
            .unwrap_or_default()
    }

    /// A command in flight.
    async fn sent(&self, kind: CommandKind, key: &str) -> Dispatch {
        self.enqueue(kind, key).await;
        self.tick().await;
        self.claim().await.pop().expect("a command to send")
    }

    fn word(&self, id: CommandId, state: UpdateState) -> CommandUpdate {
        let update = CommandUpdate::new(id, self.machine.id, state, self.machine.journal, self.machine.boot);
        match state {
            UpdateState::Failed | UpdateState::Rejected => update.because(Reason::FAILED, "it did not work"),
            _ => update,
        }
    }

    async fn say(&self, update: &CommandUpdate) {
        self.store(update.command, update.to_bytes(), &self.machine.key).await;
    }

    /// What a gateway stores for `id`, signed with a key for this machine.
    async fn store(&self, id: CommandId, payload: Vec<u8>, key: &NodeKey) {
        let node = self.machine.id;
        let signature = key.sign_command_update(&self.house.shared.realm, node, &payload);
        let raw = RawUpdate { node, epoch: self.epoch, id, payload, signature };
        assert!(commands::store_updates(&self.house.db, &[raw]).await.expect("stored").is_empty());
        self.tick().await;
        assert!(commands::updates(&self.house.db, node).await.expect("updates").is_empty(), "each is read once");
    }

    async fn read(&self, id: CommandId) -> Row {
        commands::find(&self.house.db, id).await.expect("find").expect("a command")
    }

    async fn outcome(&self) -> (String, String, String) {
        let outcome = store::outcomes::find(&self.house.db, "command", &self.machine.id.to_string()).await;
        outcome.expect("read").map_or_else(Default::default, |o| (o.state, o.reason, o.message))
    }

    /// Nothing moved, and the outcome says why.
    async fn is_refused(&self, before: &Row, why: &str) {
        let (state, reason, message) = self.outcome().await;
        assert_eq!((state.as_str(), reason.as_str()), ("wait", "update-refused"));
        assert!(message.contains(why), "{message}");
        assert_eq!(self.read(before.id).await, *before);
    }
}

#[tokio::test]
async fn what_is_queued_is_signed_for_its_node_by_a_worker_that_the_root_certified() {
    let bench = Bench::new().await;
    for n in 0..3 {
        bench.enqueue(CommandKind::InventoryRefresh, &format!("k{n}")).await;
    }
    assert!(bench.claim().await.is_empty());
    bench.tick().await;
    let sent = bench.claim().await;
    assert_eq!(sent.len(), 3);
    let now = bench.house.db.now().await.expect("time");
    let verifier = bench.keys.anchor("fleet_test").verifier();
    for dispatch in &sent {
        let signature = decode_signature(&dispatch.signature).expect("a signature");
        let check = |node| verifier.command(node, &dispatch.body, &signature, Validity::At(now));
        assert_eq!(check(bench.machine.id), Ok(()));
        assert!(check(NodeId::generate()).is_err(), "it is for one node only");
        assert_eq!(CommandBody::read(&dispatch.body).expect("a body").id, dispatch.id);
    }
    assert_eq!(bench.outcome().await.0, "done");
}

#[tokio::test]
async fn a_fast_signer_leaves_nothing_to_do_and_its_absence_loses_nothing() {
    let bench = Bench::new().await;
    let queued = bench.enqueue(CommandKind::InventoryRefresh, "k").await;
    let waiting = commands::unsigned(&bench.house.db, bench.machine.id, 0, 9).await.expect("unsigned");
    let cancel = tokio_util::sync::CancellationToken::new();
    let signer = bench.house.shared.signer.clone().expect("a signer");
    let (fast, run) = FastSigner::new(bench.house.db.clone(), signer, None, cancel);
    for command in waiting {
        fast.committed(command.command).await;
    }
    drop(fast);
    run.await;
    let signed = bench.read(queued.id).await.signed_at;
    assert!(signed.is_some());
    bench.tick().await;
    assert_eq!(bench.read(queued.id).await.signed_at, signed);
    assert_eq!(bench.claim().await.len(), 1);
}

#[tokio::test]
async fn a_machine_that_shows_other_hardware_is_not_booted_and_is_asked_what_does_no_harm() {
    let bench = Bench::new().await;
    let db = &bench.house.db;
    let changed = r#"[{"type": "HardwareChanged", "status": "true", "reason": "OtherIdentifiers", "since": "2026-11-29T12:00:00Z"}]"#;
    let shows = async |conditions: &str| {
        store::testing::steal(db, &format!("UPDATE nodes SET conditions = '{conditions}'")).await.expect("set");
        bench.tick().await;
    };
    let (boot, refresh) = (
        bench.enqueue(CommandKind::NodeReboot, "boot").await.id,
        bench.enqueue(CommandKind::InventoryRefresh, "harmless").await.id,
    );
    shows(changed).await;
    assert!(bench.read(refresh).await.signed_at.is_some());
    assert_eq!(bench.read(boot).await.signed_at, None);
    assert_eq!(commands::withheld(db, boot).await.expect("read").as_deref(), Some(IS_ANOTHER));
    let (state, reason, _) = bench.outcome().await;
    assert_eq!((state.as_str(), reason.as_str()), ("wait", OTHER_HARDWARE));
    bench.house.test.advance(LOOK).await;
    shows("[]").await;
    assert!(bench.read(boot).await.signed_at.is_some(), "it is the node again");
}

#[tokio::test]
async fn a_boot_waits_for_its_machines_journal_is_signed_for_it_and_anew_for_another_one() {
    let bench = Bench::new().await;
    let (db, node) = (&bench.house.db, bench.machine.id);
    store::testing::steal(db, "DELETE FROM node_boots").await.expect("deleted");
    let (boot, refresh) = (
        bench.enqueue(CommandKind::NodeReboot, "boot").await.id,
        bench.enqueue(CommandKind::InventoryRefresh, "harmless").await.id,
    );
    bench.tick().await;
    assert_eq!(bench.read(boot).await.signed_at, None, "nobody knows its journal");
    assert!(bench.read(refresh).await.signed_at.is_some(), "what may run twice needs none");
    assert_eq!(commands::withheld(db, boot).await.expect("read").as_deref(), Some(NO_JOURNAL));
    let (state, reason, _) = bench.outcome().await;
    assert_eq!((state.as_str(), reason.as_str()), ("wait", JOURNAL_UNKNOWN));

    let says = async |journal: JournalId| {
        let now = db.now().await.expect("time");
        let mut txn = db.begin().await.expect("begin");
        commands::witness(&mut txn, node, bench.machine.boot, journal, now).await.expect("witness");
        commands::binds(&mut txn, node).await.expect("binds");
        txn.commit().await.expect("commit");
        bench.tick().await;
        let (body, _) = commands::sent(db, boot).await.expect("read").expect("signed");
        CommandBody::read(&body).expect("a body").journal
    };
    for journal in [JournalId::generate(), bench.machine.journal] {
        assert_eq!(says(journal).await, Some(journal));
    }
    let now = db.now().await.expect("time");
    let verifier = bench.keys.anchor("fleet_test").verifier();
    let sent = bench.claim().await.into_iter().find(|sent| sent.id == boot).expect("it goes");
    let signature = decode_signature(&sent.signature).expect("a signature");
    assert_eq!(verifier.command(node, &sent.body, &signature, Validity::At(now)), Ok(()));
}

#[tokio::test]
async fn a_last_word_that_the_node_signed_ends_its_command_once() {
    let bench = Bench::new().await;
    let sent = bench.sent(CommandKind::DiagNvml, "k").await;
    let word = bench.word(sent.id, UpdateState::Succeeded).with_result(json!({ "checks": [] }));
    bench.say(&word).await;
    let ended = bench.read(sent.id).await;
    assert_eq!((ended.state, ended.result.as_deref()), (CommandState::Succeeded, Some(r#"{"checks":[]}"#)));
    let evidence = commands::evidence(&bench.house.db, sent.id).await.expect("read").expect("an attested kind");
    let key = NodePublicKey::from_bytes(&evidence.key);
    let realm = &bench.house.shared.realm;
    assert!(key.verify_command_update(realm, bench.machine.id, &evidence.payload, &evidence.signature).is_ok());
    assert_eq!(evidence.payload, word.to_bytes());

    bench.say(&word).await;
    assert_eq!(bench.read(sent.id).await, ended, "the same word again is nothing new");
    bench.say(&bench.word(sent.id, UpdateState::Failed)).await;
    let late = bench.read(sent.id).await;
    assert_eq!((late.state, late.result.as_deref()), (CommandState::Succeeded, ended.result.as_deref()));
    assert_eq!(late.late.as_ref().map(|late| late.state.as_str()), Some("failed"));
    let all = store::testing::events(&bench.house.db, outbox::Cursor::default(), &[], 3).await;
    let kinds: Vec<&str> = all.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["node.command.queued", "command.settled", "node.command.late"]);
}

#[tokio::test]
async fn every_last_word_lands_from_wherever_the_command_is_in_flight() {
    let bench = Bench::new().await;
    let words = [
        (UpdateState::Succeeded, CommandState::Succeeded),
        (UpdateState::Failed, CommandState::Failed),
        (UpdateState::Rejected, CommandState::Rejected),
        (UpdateState::Cancelled, CommandState::Cancelled),
    ];
    for (said, state) in words {
        let sent = bench.sent(CommandKind::InventoryRefresh, said.as_str()).await;
        bench.say(&bench.word(sent.id, said)).await;
        let ended = bench.read(sent.id).await;
        assert_eq!((ended.state, ended.has_evidence), (state, false), "a lost acknowledgement stops no result");
    }
}

#[tokio::test]
async fn a_result_after_the_timeout_changes_nothing_and_is_kept() {
    let bench = Bench::new().await;
    let sent = bench.sent(CommandKind::DiagNvml, "k").await;
    bench.house.test.advance(Duration::from_secs(600 + 300)).await;
    bench.jobs.tick("command-sweeper").await.expect("a pass");
    let ended = bench.read(sent.id).await;
    assert_eq!((ended.state, ended.reason.as_deref()), (CommandState::Failed, Some("timeout")));
    bench.say(&bench.word(sent.id, UpdateState::Succeeded).with_result(json!({}))).await;
    let after = bench.read(sent.id).await;
    assert_eq!(Row { late: None, ..after.clone() }, ended);
    assert_eq!(after.late.map(|late| late.state), Some("succeeded".to_owned()));
    let audit = audit::list(&bench.house.db, Some(&sent.id.to_string()), None, 9).await.expect("audit");
    assert_eq!(
        (audit.len(), audit[0].action.as_str(), &audit[0].detail["said"]),
        (2, "commands.late", &json!("succeeded")),
        "how it ended by the clock, and what was said after that"
    );
}

#[tokio::test]
async fn what_somebody_else_signed_changes_nothing() {
    let bench = Bench::new().await;
    let sent = bench.sent(CommandKind::NodeReboot, "k").await;
    let before = bench.read(sent.id).await;
    let word = bench.word(sent.id, UpdateState::Succeeded);
    let stranger = bench.house.machine_of("gpu-2", Some("h100")).await;
    bench.store(sent.id, word.to_bytes(), &stranger.key).await;
    bench.is_refused(&before, "no certificate of the node's current identity").await;

    let mut txn = bench.house.db.begin().await.expect("begin");
    node_certs::revoke_all(&mut txn, bench.machine.id, "stolen").await.expect("revoked");
    txn.commit().await.expect("commit");
    bench.say(&word).await;
    bench.is_refused(&before, "no certificate of the node's current identity").await;
}

#[tokio::test]
async fn a_word_under_an_older_identity_changes_nothing_and_the_next_good_one_clears_the_refusal() {
    let bench = Bench::new().await;
    let sent = bench.sent(CommandKind::NodeReboot, "k").await;
    let before = bench.read(sent.id).await;
    let mut txn = bench.house.db.begin().await.expect("begin");
    nodes::bump_identity(&mut txn, bench.machine.id).await.expect("bumped");
    txn.commit().await.expect("commit");
    let word = bench.word(sent.id, UpdateState::Succeeded);
    bench.say(&word).await;
    bench.is_refused(&before, "no certificate of the node's current identity").await;

    let now = bench.house.db.now().await.expect("time");
    let new = NodeKey::generate();
    let cert = node_certs::NodeCert {
        serial: vec![9],
        node_id: bench.machine.id,
        public_key: new.public().as_bytes().to_vec(),
        identity_generation: IdentityGeneration(2),
        not_before: now,
        not_after: time::Duration::from_secs(86_400).after(now),
        revoked_at: None,
        allowed_kinds: None,
        node_name: None,
    };
    let mut txn = bench.house.db.begin().await.expect("begin");
    node_certs::insert(&mut txn, &cert).await.expect("certificate");
    txn.commit().await.expect("commit");
    bench.store(sent.id, word.to_bytes(), &new).await;
    assert_eq!(bench.read(sent.id).await.state, CommandState::Succeeded);
    assert_eq!(bench.outcome().await.0, "done");
}

#[tokio::test]
async fn a_word_about_another_command_or_by_another_node_or_that_is_none_changes_nothing() {
    let bench = Bench::new().await;
    let sent = bench.sent(CommandKind::NodeReboot, "k").await;
    let before = bench.read(sent.id).await;
    let other = bench.sent(CommandKind::InventoryRefresh, "other").await;
    let word = bench.word(other.id, UpdateState::Succeeded);
    bench.store(sent.id, word.to_bytes(), &bench.machine.key).await;
    bench.is_refused(&before, "another command than the one that was signed").await;
    assert_eq!(bench.read(other.id).await.state, CommandState::Dispatched);

    let theirs = CommandUpdate { node_id: NodeId::generate(), ..bench.word(sent.id, UpdateState::Succeeded) };
    bench.store(sent.id, theirs.to_bytes(), &bench.machine.key).await;
    bench.is_refused(&before, "speaks for another node").await;
    bench.store(sent.id, b"{}".to_vec(), &bench.machine.key).await;
    bench.is_refused(&before, "not an update of a command").await;
    bench.say(&bench.word(sent.id, UpdateState::Running)).await;
    bench.is_refused(&before, "running is not a last word").await;
    bench.say(&bench.word(CommandId::generate(), UpdateState::Succeeded)).await;
    bench.is_refused(&before, "no such command").await;
    let waiting = bench.enqueue(CommandKind::InventoryRefresh, "waiting").await;
    bench.tick().await;
    bench.say(&bench.word(waiting.id, UpdateState::Succeeded)).await;
    bench.is_refused(&before, "the command is pending, and cannot be succeeded from there").await;
    assert_eq!(bench.read(waiting.id).await.state, CommandState::Pending);
}

#[tokio::test]
async fn the_refusal_of_a_spoilt_copy_ends_nothing_and_that_of_the_copy_that_was_sent_does() {
    let bench = Bench::new().await;
    let sent = bench.sent(CommandKind::NodeReboot, "k").await;
    let before = bench.read(sent.id).await;
    let genuine = decode_signature(&sent.signature).expect("a signature");
    let mut spoilt = genuine.clone();
    spoilt.signature[0] ^= 1;
    let rejected = |signature| CommandUpdate {
        copy: Some(command_copy(&sent.body, signature)),
        ..bench.word(sent.id, UpdateState::Rejected).because(Refusal::BadSignature, "the signature does not match")
    };
    bench.say(&rejected(&spoilt)).await;
    bench.is_refused(&before, "a copy of the command that this control plane did not sign").await;
    bench.say(&rejected(&genuine)).await;
    let ended = bench.read(sent.id).await;
    assert_eq!((ended.state, ended.reason.as_deref()), (CommandState::Rejected, Some("BAD_SIGNATURE")));
}

#[tokio::test]
async fn refused_approvals_that_were_not_sent_end_nothing_and_have_the_command_sent_again() {
    let bench = Bench::new().await;
    let sent = bench.sent(CommandKind::NodeReboot, "k").await;
    let refused = |approvals: &[u8]| CommandUpdate {
        approvals: Some(Digest::of(approvals)),
        ..bench.word(sent.id, UpdateState::Rejected).because(Refusal::BatchUnapproved, "they are not enough")
    };
    bench.say(&refused(b"spoilt")).await;
    let (_, reason, message) = bench.outcome().await;
    assert!(reason == "update-refused" && message.contains("it refuses approvals that were not sent"), "{message}");
    let waits = bench.read(sent.id).await;
    assert_eq!((waits.state, waits.busy_reason.as_deref()), (CommandState::Pending, Some("approvals-spoilt")));
    store::testing::steal(&bench.house.db, "UPDATE commands SET not_before = compute_now()").await.expect("its time");
    assert_eq!(bench.claim().await, std::slice::from_ref(&sent));
    // Nothing was sent with it, and that is what is refused.
    bench.say(&refused(b"")).await;
    let ended = bench.read(sent.id).await;
    assert_eq!((ended.state, ended.reason.as_deref()), (CommandState::Rejected, Some("BATCH_UNAPPROVED")));
}

#[tokio::test]
async fn a_message_with_a_nul_is_stored_without_it() {
    let bench = Bench::new().await;
    let sent = bench.sent(CommandKind::InventoryRefresh, "k").await;
    let word = CommandUpdate {
        message: Some("a\0b".to_owned()),
        ..bench.word(sent.id, UpdateState::Failed).with_result(json!({ "text": "c\0d" }))
    };
    bench.say(&word).await;
    let ended = bench.read(sent.id).await;
    assert_eq!(ended.message.as_deref(), Some("a\u{fffd}b"));
    assert_eq!(ended.result.as_deref(), Some(r#"{"text":"c\u0000d"}"#));
}

/// The machine comes back and says so, in a session and in a report of its own signature.
async fn rejoin(bench: &mut Bench, new_boot: bool, new_journal: bool, seq: u64) -> Vec<Dispatch> {
    if new_boot {
        bench.machine.boot = BootId::generate();
    }
    if new_journal {
        bench.machine.journal = JournalId::generate();
    }
    bench.epoch = bench.house.connect(&bench.machine).await;
    let (boot, journal) = (bench.machine.boot, bench.machine.journal);
    let mut txn = bench.house.db.begin().await.expect("begin");
    let again = commands::resume(&mut txn, bench.machine.id, bench.epoch, boot, journal).await.expect("resume");
    txn.commit().await.expect("commit");
    bench.tick().await;
    let now = bench.house.db.now().await.expect("time");
    let status = StatusReport { at: now, ..bench.machine.status(seq, 0) };
    bench.house.report_status(&bench.machine, &status).await;
    again
}

#[tokio::test]
async fn a_new_boot_that_the_node_signed_is_what_a_reboot_succeeds_by() {
    let mut bench = Bench::new().await;
    let reboot = bench.sent(CommandKind::NodeReboot, "k").await;
    let again = rejoin(&mut bench, true, false, 1).await;
    assert!(again.is_empty(), "a reboot is not sent again to the boot after it");
    assert_eq!(bench.read(reboot.id).await.state, CommandState::Dispatched, "a gateway's word is not enough");
    bench.jobs.tick("node").await.expect("a pass");
    bench.tick().await;
    let ended = bench.read(reboot.id).await;
    assert_eq!((ended.state, ended.result.as_deref()), (CommandState::Succeeded, Some(r#"{"rebooted":true}"#)));
}

#[tokio::test]
async fn a_lost_journal_fails_what_is_not_safe_to_run_twice_and_the_rest_is_sent_again() {
    let mut bench = Bench::new().await;
    let reboot = bench.sent(CommandKind::NodeReboot, "unsafe").await;
    let diag = bench.sent(CommandKind::DiagNvml, "safe").await;
    let again = rejoin(&mut bench, false, true, 1).await;
    assert_eq!(again, [diag]);
    bench.jobs.tick("node").await.expect("a pass");
    bench.tick().await;
    let ended = bench.read(reboot.id).await;
    assert_eq!((ended.state, ended.reason.as_deref()), (CommandState::Failed, Some("journal-lost")));
}

#[tokio::test]
async fn a_reboot_that_the_journal_knows_is_for_the_journal_to_answer() {
    let mut bench = Bench::new().await;
    let reboot = bench.sent(CommandKind::NodeReboot, "k").await;
    let step =
        commands::Progress { id: reboot.id, node: bench.machine.id, epoch: bench.epoch, step: commands::Step::Acked };
    commands::progress(&bench.house.db, &[step]).await.expect("progress");
    let again = rejoin(&mut bench, true, false, 1).await;
    assert_eq!(again, std::slice::from_ref(&reboot));
    bench.jobs.tick("node").await.expect("a pass");
    bench.tick().await;
    assert_eq!(bench.read(reboot.id).await.state, CommandState::Acked);
    bench.say(&bench.word(reboot.id, UpdateState::Rejected)).await;
    assert_eq!(
        bench.read(reboot.id).await.state,
        CommandState::Rejected,
        "it refused, and was booted by somebody else"
    );
}

#[tokio::test]
async fn last_words_wait_for_all_their_commands_before_they_touch_the_nodes_work() {
    let bench = Bench::new().await;
    let (one, two) =
        (bench.sent(CommandKind::InventoryRefresh, "1").await, bench.sent(CommandKind::InventoryRefresh, "2").await);
    let node = bench.machine.id;
    let raw = |id| {
        let payload = bench.word(id, UpdateState::Succeeded).to_bytes();
        let signature = bench.machine.key.sign_command_update(&bench.house.shared.realm, node, &payload);
        RawUpdate { node, epoch: bench.epoch, id, payload, signature }
    };
    commands::store_updates(&bench.house.db, &[raw(one.id), raw(two.id)]).await.expect("stored");
    // Somebody who cancels has the second command, and wants the node's work row next.
    let mut other = bench.house.db.begin().await.expect("begin");
    commands::lock(&mut other, node, &[two.id]).await.expect("locked");
    let taken = async {
        bench.tick().await;
        assert_eq!(bench.read(one.id).await.state, CommandState::Succeeded);
        assert_eq!(bench.read(two.id).await.state, CommandState::Succeeded);
    };
    let cancelling = async {
        while !bench.house.test.waits_for_a_lock().await {
            tokio::task::yield_now().await;
        }
        queue::enqueue(&mut other, &queue::NODE, [node]).await.expect("the work row is free");
        other.commit().await.expect("commit");
    };
    tokio::join!(taken, cancelling);
    assert_eq!(bench.outcome().await.0, "done", "nobody was in the way of anybody");
}

#[tokio::test]
async fn an_idle_sweep_writes_nothing_and_a_due_one_ends_what_is_past_its_time() {
    let bench = Bench::new().await;
    let waiting = bench.enqueue(CommandKind::InventoryRefresh, "k").await;
    bench.jobs.tick("command-sweeper").await.expect("a pass");
    assert_eq!(bench.read(waiting.id).await.state, CommandState::Pending);
    bench.house.test.advance(Duration::from_secs(600)).await;
    bench.jobs.tick("command-sweeper").await.expect("a pass");
    let ended = bench.read(waiting.id).await;
    assert_eq!((ended.state, ended.reason.as_deref()), (CommandState::Expired, Some("not-after")));
}

#[tokio::test]
async fn a_command_that_is_written_into_the_database_is_not_signed_and_ends_as_not_ours() {
    let bench = Bench::new().await;
    let genuine = bench.enqueue(CommandKind::InventoryRefresh, "genuine").await;
    for (key, change) in [
        ("copied", "mark = NULL"),
        ("marked", "mark = (SELECT mark FROM commands WHERE idempotency_key = 'genuine')"),
        ("changed", "body = replace(encode(body, 'escape'), 'inventory.refresh', 'node.reboot')::bytea"),
    ] {
        let id = bench.enqueue(CommandKind::InventoryRefresh, key).await.id;
        let statement = format!("UPDATE commands SET {change} WHERE id = '{}'", id.as_uuid());
        store::testing::probes::steal(&bench.house.db, &statement).await.expect("a superuser may");
    }
    bench.tick().await;
    assert!(bench.read(genuine.id).await.signed_at.is_some());
    for key in ["copied", "marked", "changed"] {
        let forged = commands::find_by_key(&bench.house.db, bench.machine.id, key).await.expect("read").expect("there");
        assert_eq!((forged.state, forged.signed_at), (CommandState::Cancelled, None), "{key}");
        assert_eq!(forged.reason.as_deref(), Some("not-ours"), "{key}");
        let told = audit::list(&bench.house.db, Some(&forged.id.to_string()), None, 9).await.expect("read");
        assert!(told.iter().any(|line| line.action == "commands.cancelled" && line.detail["reason"] == "not-ours"));
    }
}
