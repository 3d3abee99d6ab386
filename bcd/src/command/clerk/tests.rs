//! Facts about the clerk: the loop never waits for a disk.

use schema::{
    clock::ManualClock,
    command::{CommandKind, CommandUpdate},
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    super::{
        Gate,
        context::{Context, Outcome, Run},
        journal::Entry,
    },
    *,
};
use crate::{
    state::StateDir,
    testing::{command, entry, now, pen},
};

#[derive(Debug)]
struct Done;

impl Run for Done {
    fn run(&self, _: &Context) -> Outcome {
        Outcome::Succeeded(serde_json::json!({}))
    }
}

struct World {
    clerk: Clerk,
    tray: Tray,
    told: UnboundedReceiver<Told>,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::open(dir.path()).expect("made");
        let journal = Journal::open(&state, now()).expect("opens").journal;
        let clock = Arc::new(NodeClock::new(Arc::new(ManualClock::new(now()))));
        clock.prove(now());
        let pen = pen(journal.id());
        let (tell, told) = unbounded_channel();
        let lanes =
            Lanes::new(pen.clone(), Gate::default(), journal.clone(), Arc::clone(&clock), Arc::new(Done), tell.clone());
        let clerk = Clerk { pen, journal, lanes, clock };
        let tray = clerk.clone().begin(tell).expect("a thread");
        Self { clerk, tray, told, _dir: dir }
    }

    fn command(&self, seq: u64) -> (Box<Entry>, CommandBody) {
        let body = command(&self.clerk.pen, CommandKind::LogsCollect, seq);
        (Box::new(entry(&body, self.clerk.pen.boot)), body)
    }

    fn carried(&mut self) -> Carried {
        loop {
            if let Told::Carried(carried) = self.told.blocking_recv().expect("the clerk lives") {
                return carried;
            }
        }
    }
}

#[test]
fn a_disk_that_hangs_holds_nobody_up_and_what_it_cannot_take_is_sent_back() {
    let mut world = World::new();
    let journal = world.clerk.journal.clone();
    let hang = journal.hang();
    let mut sent_back = 0;
    for seq in 0..2 * PATIENCE as u64 {
        let (entry, body) = world.command(seq);
        let id = entry.id;
        let carried = world.tray.put(Do::Accept { entry, body: body.to_bytes() });
        if carried != Carried::default() {
            assert_eq!(carried.events, [Event::Kept(id, false)]);
            sent_back += 1;
        }
    }
    assert_eq!(sent_back, PATIENCE);
    drop(hang);
    for _ in 0..PATIENCE {
        assert!(matches!(world.carried().events.as_slice(), [Event::Kept(_, true)]));
    }
}

#[test]
fn a_full_journal_is_named_before_what_it_did_not_take() {
    let mut world = World::new();
    world.clerk.journal.fill();
    let (entry, body) = world.command(1);
    let id = entry.id;
    let _ = world.tray.put(Do::Accept { entry, body: body.to_bytes() });
    assert_eq!(world.carried().events, [Event::Full(id), Event::Kept(id, false)]);
}

#[test]
fn what_is_kept_is_said_in_order() {
    let mut world = World::new();
    let (entry, body) = world.command(1);
    let id = entry.id;
    let _ = world.tray.put(Do::Accept { entry, body: body.to_bytes() });
    assert_eq!(world.carried().events, [Event::Kept(id, true)]);
    let _ = world.tray.put(Do::Say(world.clerk.pen.update(id, UpdateState::Acked)));
    let said = world.carried().update.expect("said");
    assert_eq!(CommandUpdate::read(&said.update).expect("an update").state, UpdateState::Acked);
    assert!(said.signature.is_empty(), "only a last word is signed");
    let _ = world.tray.put(Do::Run(Order { body, approval: Vec::new(), ran: false }));
    while world.told.blocking_recv() != Some(Told::Ended(id)) {}
    let _ = world.tray.put(Do::Answer(id));
    let said = world.carried().update.expect("said");
    assert_eq!(CommandUpdate::read(&said.update).expect("an update").state, UpdateState::Succeeded);
    assert!(!said.signature.is_empty());
}

#[test]
fn a_command_that_can_no_longer_be_read_ends_as_interrupted() {
    let mut world = World::new();
    let (entry, _) = world.command(1);
    let id = entry.id;
    world.clerk.journal.accept(&entry, b"noise").expect("kept");
    let _ = world.tray.put(Do::RunAgain { id, ran: true });
    assert_eq!(world.carried().events, [Event::Closed(id, true)]);
    let said = world.clerk.journal.said(id).expect("read").expect("ended");
    assert_eq!(CommandUpdate::read(&said.update).expect("an update").reason, Some(Reason::INTERRUPTED));
}
