//! Facts about the lanes, with threads and a real journal, and with work that a test steers.

use std::sync::{
    Barrier,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use schema::{clock::ManualClock, command::CommandKind};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    super::{context::Stop, journal::Stored},
    *,
};
use crate::{
    state::StateDir,
    testing::{People, command, entry, now, pen},
};

type Work = Box<dyn Fn(&Context) -> Outcome + Send + Sync>;

struct Steered(Work);

impl std::fmt::Debug for Steered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Steered")
    }
}

impl Run for Steered {
    fn run(&self, context: &Context) -> Outcome {
        (self.0)(context)
    }
}

/// The machine's clock, and how often somebody looked at it: an approval is judged by it, and nothing else here.
#[derive(Debug, Clone)]
struct Watched {
    time: ManualClock,
    looks: Arc<AtomicUsize>,
}

impl Default for Watched {
    fn default() -> Self {
        Self { time: ManualClock::new(now()), looks: Arc::default() }
    }
}

impl schema::clock::Clock for Watched {
    fn now(&self) -> Timestamp {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.time.now()
    }
}

struct World {
    lanes: Lanes,
    journal: Journal,
    pen: Pen,
    machine: Watched,
    told: UnboundedReceiver<Told>,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(work: impl Fn(&Context) -> Outcome + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::open(dir.path()).expect("made");
        let journal = Journal::open(&state, now()).expect("opens").journal;
        let machine = Watched::default();
        let clock = Arc::new(NodeClock::new(Arc::new(machine.clone())));
        let pen = pen(journal.id());
        let (tell, told) = unbounded_channel();
        let run = Arc::new(Steered(Box::new(work)));
        let lanes = Lanes::new(pen.clone(), Gate::new(journal.spent()), journal.clone(), clock, run, tell);
        Self { lanes, journal, pen, machine, told, _dir: dir }
    }

    fn proven(self) -> Self {
        self.lanes.0.clock.prove(now());
        self
    }

    fn accept(&self, kind: CommandKind, seq: u64) -> Order {
        let body = command(&self.pen, kind, seq);
        self.journal.accept(&entry(&body, self.pen.boot), &body.to_bytes()).expect("kept");
        Order { body, approval: Vec::new(), ran: false }
    }

    fn push(&self, kind: CommandKind, seq: u64) -> CommandId {
        let order = self.accept(kind, seq);
        let id = order.body.id;
        self.lanes.push(order);
        id
    }

    fn hear(&mut self) -> Told {
        self.told.blocking_recv().expect("the lanes live")
    }

    fn ended(&mut self) -> CommandId {
        loop {
            if let Told::Ended(id) = self.hear() {
                return id;
            }
        }
    }

    fn rest(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.lanes.rest());
    }

    fn update(&self, id: CommandId) -> CommandUpdate {
        let said = self.journal.said(id).expect("read").expect("ended");
        let (realm, node) = (&self.pen.realm, self.pen.node);
        self.pen.key.public().verify_command_update(realm, node, &said.update, &said.signature).expect("signed");
        CommandUpdate::read(&said.update).expect("an update")
    }
}

fn done() -> Outcome {
    Outcome::Succeeded(json!({}))
}

#[test]
fn a_command_begins_ends_and_its_signed_end_is_in_the_journal() {
    let mut world = World::new(|context| {
        context.effect("the one").expect("allowed");
        Outcome::Succeeded(json!({ "done": true }))
    })
    .proven();
    let id = world.push(CommandKind::NodeReboot, 1);
    assert_eq!(world.hear(), Told::Began(id));
    assert_eq!(world.hear(), Told::Ended(id));
    let update = world.update(id);
    assert_eq!((update.state, update.result), (UpdateState::Succeeded, Some(json!({ "done": true }))));
    let entry = &world.journal.entries().expect("read")[0];
    assert_eq!(entry.effects().map(|effect| effect.name.as_str()).collect::<Vec<_>>(), ["the one"]);
}

#[test]
fn a_lane_begins_in_the_order_of_numbers_and_lanes_do_not_wait_for_each_other() {
    let (seen, order) = mpsc::channel();
    let gate = Arc::new(Barrier::new(2));
    let (at, first) = (Arc::clone(&gate), std::sync::atomic::AtomicBool::new(true));
    let mut world = World::new(move |context| {
        let body = &context.order().body;
        if body.kind == CommandKind::LogsCollect {
            seen.send(body.seq).expect("heard");
            if first.swap(false, Ordering::SeqCst) {
                at.wait();
            }
        }
        done()
    })
    .proven();
    world.push(CommandKind::LogsCollect, 1);
    assert!(matches!(world.hear(), Told::Began(_)));
    for seq in [4, 3, 2] {
        world.push(CommandKind::LogsCollect, seq);
    }
    let other = world.push(CommandKind::InventoryRefresh, 9);
    assert_eq!(world.ended(), other);
    gate.wait();
    for _ in 0..4 {
        world.ended();
    }
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn a_kind_that_panics_has_failed_and_its_lane_goes_on() {
    let mut world = World::new(|context| {
        assert_ne!(context.order().body.seq, 1, "a bug");
        done()
    })
    .proven();
    let (first, second) = (world.push(CommandKind::LogsCollect, 1), world.push(CommandKind::LogsCollect, 2));
    assert_eq!((world.ended(), world.ended()), (first, second));
    let update = world.update(first);
    assert_eq!((update.state, update.reason), (UpdateState::Failed, Some(Reason::FAILED)));
    assert!(update.message.expect("words").contains("a bug"));
    assert_eq!(world.update(second).state, UpdateState::Succeeded);
}

#[test]
fn a_kind_that_hangs_is_given_up_and_changes_nothing_afterwards() {
    let (go, gate) = mpsc::channel::<()>();
    let (tell, late) = mpsc::channel();
    let gate = Mutex::new(gate);
    let mut world = World::new(move |context| {
        if context.order().body.seq == 1 {
            gate.lock().expect("whole").recv().ok();
            tell.send(context.effect("too late")).expect("heard");
        }
        done()
    })
    .proven();
    let first = world.push(CommandKind::LogsCollect, 1);
    assert_eq!(world.hear(), Told::Began(first));
    let second = world.push(CommandKind::LogsCollect, 2);
    world.lanes.give_up(first);
    assert_eq!((world.ended(), world.ended()), (first, second), "another thread has its place");
    go.send(()).expect("it hangs");
    assert_eq!(late.recv().expect("it came back"), Err(Stop::GivenUp));
    let update = world.update(first);
    assert_eq!((update.state, update.reason), (UpdateState::Failed, Some(Reason::TIMEOUT)));
    let third = world.push(CommandKind::LogsCollect, 3);
    while world.ended() != third {}
    assert_eq!(world.update(first).reason, Some(Reason::TIMEOUT));
}

#[test]
fn a_cancelled_command_stops_between_two_actions_or_never_begins() {
    let (begun, at) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (inside, there) = (Arc::clone(&begun), Arc::clone(&at));
    let mut world = World::new(move |context| {
        context.effect("first").expect("allowed");
        inside.wait();
        there.wait();
        match context.effect("second") {
            Ok(()) => done(),
            Err(stop) => stop.into(),
        }
    })
    .proven();
    let running = world.push(CommandKind::LogsCollect, 1);
    begun.wait();
    let waiting = world.push(CommandKind::LogsCollect, 2);
    world.lanes.cancel(waiting);
    assert_eq!(world.ended(), waiting);
    world.lanes.cancel(running);
    at.wait();
    assert_eq!(world.ended(), running);
    assert_eq!(world.update(running).state, UpdateState::Cancelled);
    assert_eq!(world.update(waiting).state, UpdateState::Cancelled);
    let entries = world.journal.entries().expect("read");
    let effects = |id| entries.iter().find(|entry| entry.id == id).expect("kept").effects().count();
    assert_eq!((effects(running), effects(waiting)), (1, 0), "what happened is not hidden");
}

#[test]
fn nothing_begins_at_its_deadline_or_after_it() {
    let mut world = World::new(|_| done());
    world.lanes.0.clock.prove("2026-03-01T12:10:00Z".parse().expect("a time"));
    world.machine.time.set("2011-01-01T00:00:00Z".parse().expect("a time"));
    let id = world.push(CommandKind::NodeReboot, 1);
    assert_eq!(world.hear(), Told::Ended(id));
    let update = world.update(id);
    assert_eq!((update.state, update.reason), (UpdateState::Rejected, Some(Refusal::Expired.into())));
    let again = Order { ran: true, ..world.accept(CommandKind::LogsCollect, 2) };
    let id = again.body.id;
    world.lanes.push(again);
    assert_eq!(world.ended(), id);
    assert_eq!(world.update(id).reason, Some(Reason::INTERRUPTED));
}

#[test]
fn nothing_destructive_happens_before_the_time_is_proven() {
    let (tell, heard) = mpsc::channel();
    let mut world = World::new(move |context| {
        tell.send((context.order().body.kind, context.effect("something").is_ok())).expect("heard");
        done()
    });
    for kind in CommandKind::ALL {
        world.push(*kind, 1);
        world.ended();
        assert_eq!(heard.recv().expect("told"), (*kind, !kind.row().destructive));
    }
}

#[test]
fn a_reboot_is_settled_by_the_next_life_or_by_its_time() {
    let mut world = World::new(|_| Outcome::Boots).proven();
    let id = world.push(CommandKind::NodeReboot, 1);
    assert_eq!(world.hear(), Told::Began(id));
    let other = world.push(CommandKind::NodeReboot, 2);
    assert_eq!(world.hear(), Told::Began(other));
    world.rest();
    assert_eq!(world.journal.said(id).expect("read"), None);
    world.lanes.give_up(id);
    assert_eq!(world.hear(), Told::Ended(id));
    assert_eq!(world.update(id).reason, Some(Reason::TIMEOUT));
}

#[test]
fn a_daemon_that_ends_begins_nothing_and_settles_nothing_that_it_interrupted() {
    let (begun, at) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (inside, there) = (Arc::clone(&begun), Arc::clone(&at));
    let mut world = World::new(move |context| {
        inside.wait();
        there.wait();
        context.go_on().map_or_else(Outcome::from, |()| done())
    })
    .proven();
    let running = world.push(CommandKind::LogsCollect, 1);
    begun.wait();
    assert_eq!(world.hear(), Told::Began(running));
    let waiting = world.push(CommandKind::LogsCollect, 2);
    world.lanes.end();
    at.wait();
    world.rest();
    let entries = world.journal.entries().expect("read");
    let entry = |id| entries.iter().find(|entry| entry.id == id).expect("kept");
    assert!(entry(running).ended.is_none() && entry(running).runs.len() == 1);
    assert!(entry(waiting).ended.is_none() && entry(waiting).runs.is_empty());
}

#[test]
fn an_end_that_was_kept_although_the_disk_said_no_is_told() {
    let mut world = World::new(|context| {
        let ended = Ended { state: UpdateState::Succeeded, reason: None, at: context.now(), approvals: None };
        let said = Stored { update: b"{}".to_vec(), signature: b"s".to_vec() };
        context.journal.settle(context.order().body.id, &ended, &said).expect("kept");
        done()
    })
    .proven();
    let id = world.push(CommandKind::LogsCollect, 1);
    assert_eq!(world.ended(), id);
    let next = world.push(CommandKind::LogsCollect, 2);
    assert_eq!(world.ended(), next, "its place is free");
}

#[test]
fn nothing_harmful_begins_beside_the_remains_of_what_was_given_up() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let mut world = World::new(move |context| {
        if context.order().body.seq == 1 {
            gate.lock().expect("whole").recv().ok();
        }
        done()
    })
    .proven();
    let first = world.push(CommandKind::GpuReset, 1);
    assert_eq!(world.hear(), Told::Began(first));
    world.lanes.give_up(first);
    assert_eq!(world.hear(), Told::Ended(first));
    let (second, harmless) = (world.push(CommandKind::GpuReset, 2), world.push(CommandKind::DiagNvml, 3));
    assert_eq!((world.hear(), world.hear()), (Told::Began(harmless), Told::Ended(harmless)));
    go.send(()).expect("it hangs");
    while world.hear() != Told::Began(second) {}
    assert_eq!(world.ended(), second);
}

/// An order that people approved, for the journal of this world.
fn approved(world: &World, people: &People, batch: &str, seq: u64) -> Order {
    let order = world.accept(CommandKind::NodeReboot, seq);
    let approval = people.approval(batch, &order.body, world.pen.journal);
    Order { approval, ..order }
}

fn guarded(people: &People) -> World {
    let world = World::new(|_| Outcome::Succeeded(json!({}))).proven();
    let guard = people.guard();
    world.lanes.0.gate.change(|own| *own = guard);
    world
}

fn reason(world: &mut World, order: Order) -> Option<Reason> {
    let id = order.body.id;
    world.lanes.push(order);
    assert_eq!(world.ended(), id);
    world.update(id).reason
}

#[test]
fn an_approval_is_asked_for_again_as_a_command_begins_and_used_up_with_it() {
    let people = People::new(0);
    let mut world = guarded(&people);
    let (one, twin) = (approved(&world, &people, "b", 1), world.accept(CommandKind::NodeReboot, 2));
    // Another command of the same kind and payload shows the same leaf.
    let twin = Order { approval: one.approval.clone(), ..twin };
    let id = one.body.id;
    assert_eq!(reason(&mut world, one), None);
    assert_eq!(world.journal.spent().lock().expect("whole").uses.values().collect::<Vec<_>>(), [&id]);
    assert_eq!(reason(&mut world, twin), Some(Refusal::BatchUnapproved.into()), "once");
    let bare = world.accept(CommandKind::NodeReboot, 3);
    assert_eq!(reason(&mut world, bare), Some(Refusal::BatchUnapproved.into()));
    assert_eq!(world.journal.entries().expect("read").iter().filter(|entry| !entry.runs.is_empty()).count(), 1);
}

/// Waits until a command that cannot begin yet was judged, and is judged again.
fn judged_again(world: &mut World) {
    let before = world.machine.looks.load(Ordering::SeqCst);
    while world.machine.looks.load(Ordering::SeqCst) < before + 2 {
        assert_eq!(world.told.try_recv().ok(), None, "nothing is decided yet");
        thread::yield_now();
    }
}

/// A command that people approved, on a machine that was not looked at since its loop began anew.
fn unseen(people: &People) -> (World, CommandId) {
    let mut world = guarded(people);
    world.lanes.0.gate.change(|guard| guard.hardware_key = None);
    let order = approved(&world, people, "b", 1);
    let id = order.body.id;
    world.lanes.push(order);
    judged_again(&mut world);
    (world, id)
}

#[test]
fn what_cannot_be_judged_yet_waits_and_then_begins() {
    let people = People::new(0);
    let (mut world, id) = unseen(&people);
    world.lanes.0.gate.change(|guard| guard.hardware_key = Some("none".to_owned()));
    assert_eq!((world.hear(), world.hear()), (Told::Began(id), Told::Ended(id)));
    assert_eq!(world.update(id).state, UpdateState::Succeeded);
}

#[test]
fn what_cannot_be_judged_yet_ends_with_its_time_or_a_cancellation_and_not_with_the_daemon() {
    let people = People::new(0);
    let (mut world, id) = unseen(&people);
    world.lanes.cancel(id);
    assert_eq!(world.ended(), id);
    assert_eq!(world.update(id).state, UpdateState::Cancelled);

    let (mut world, id) = unseen(&people);
    world.lanes.0.clock.prove("2026-03-01T12:10:00Z".parse().expect("a time"));
    assert_eq!(world.ended(), id);
    assert_eq!(world.update(id).reason, Some(Refusal::Expired.into()));

    let (world, id) = unseen(&people);
    world.lanes.end();
    world.rest();
    assert_eq!(world.journal.said(id).expect("read"), None, "another life says what became of it");
}

#[test]
fn a_beginning_that_was_kept_although_the_disk_said_no_is_not_used_up_by_itself() {
    let people = People::new(0);
    let mut world = guarded(&people);
    let order = approved(&world, &people, "b", 1);
    let toll = world.lanes.0.approved(&order).expect("approved");
    world.journal.start(order.body.id, world.lanes.0.clock.clocks(), &toll).expect("kept");
    assert_eq!(reason(&mut world, order), None);
}

#[test]
fn what_is_revoked_while_a_command_waits_does_not_begin() {
    let people = People::new(0);
    let mut world = guarded(&people);
    let order = approved(&world, &people, "b", 1);
    let mut policies = people.policies();
    policies.take(&[], &[people.fleet.revoke(&people.ada, &people.bob.key(), &people.policy)]);
    world.lanes.0.gate.change(|guard| guard.policies = Some(Arc::new(policies)));
    assert_eq!(reason(&mut world, order), Some(Refusal::BatchUnapproved.into()));
}

#[test]
fn the_allowance_ends_at_its_number() {
    let people = People::new(1);
    let mut world = guarded(&people);
    let (one, two) = (world.accept(CommandKind::NodeReboot, 1), world.accept(CommandKind::NodeReboot, 2));
    assert_eq!(reason(&mut world, one), None);
    assert_eq!(reason(&mut world, two), Some(Refusal::UnbatchedLimit.into()));
}

#[test]
fn a_reason_that_is_the_states_own_word_is_told_once() {
    let said = |state, reason| {
        let (id, node) = (CommandId::generate(), schema::id::NodeId::generate());
        let boot = schema::id::BootId::generate();
        let update =
            CommandUpdate::new(id, node, state, schema::id::JournalId::generate(), boot).because(reason, UNBEGUN);
        told(&update).replace(&id.to_string(), "cmd")
    };
    assert_eq!(said(UpdateState::Cancelled, Reason::CANCELLED), "cmd cancelled: it was cancelled before it began");
    assert_eq!(said(UpdateState::Failed, Reason::TIMEOUT), "cmd failed: timeout: it was cancelled before it began");
}
