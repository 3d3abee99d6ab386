//! The core between a database and a node, all three slow, forgetful and in any order, against what must hold of any
//! gateway: credits, order within a lane, nothing twice within a session, nothing lost from view.
//!
//! The database and the node are the simplest things that keep their own promises; what they know of the core are its
//! effects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use schema::{
    command::{Lane, UpdateState},
    id::CommandId,
};

use super::{
    commands::{cancelled, dispatch, sent, update},
    *,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    InFlight { epoch: u64 },
    Over,
}

#[derive(Debug, Clone)]
struct Row {
    id: CommandId,
    lane: Lane,
    state: State,
    cancel: bool,
    /// The node had no room for it, and this often it is not due.
    rests: u32,
    was_busy: bool,
}

/// Something that is under way to or from the database.
#[derive(Debug, Clone)]
enum Errand {
    Claim(Room),
    /// The claim was carried out, or not, and the answer was lost.
    Recall,
    Answer(Claimed),
    Step(u64, CommandId, UpdateState),
    LastWord(u64, CommandId),
    Release(u64, Vec<CommandId>),
}

#[derive(Debug)]
struct World {
    core: SessionCore,
    epoch: u64,
    rows: Vec<Row>,
    errands: VecDeque<Errand>,
    /// What the node was sent in this session and has not ended, by lane.
    out: BTreeMap<CommandId, Lane>,
    sent: BTreeSet<CommandId>,
    highest: [usize; 3],
    /// The node's journal: every command that it ever accepted, and whether it is over.
    journal: BTreeMap<CommandId, bool>,
    ran: BTreeMap<CommandId, u32>,
    told_to_stop: BTreeSet<CommandId>,
    left: bool,
    now: i64,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            core: SessionCore::new(rules(), at(0)),
            epoch: 0,
            rows: Vec::new(),
            errands: VecDeque::new(),
            out: BTreeMap::new(),
            sent: BTreeSet::new(),
            highest: [0; 3],
            journal: BTreeMap::new(),
            ran: BTreeMap::new(),
            told_to_stop: BTreeSet::new(),
            left: false,
            now: 0,
        };
        world.connect();
        world
    }

    fn row(&mut self, id: CommandId) -> &mut Row {
        self.rows.iter_mut().find(|row| row.id == id).expect("a command of this world")
    }

    fn place(&self, id: CommandId) -> usize {
        self.rows.iter().position(|row| row.id == id).expect("a command of this world")
    }

    fn dispatch(&self, id: CommandId) -> Dispatch {
        let place = self.place(id);
        dispatch(id, place as u64 + 1, self.rows[place].lane)
    }

    /// A new session. What its predecessor had under way to the database goes on, what came from there is lost or given back.
    fn connect(&mut self) {
        self.errands.retain(|errand| !matches!(errand, Errand::Claim(_) | Errand::Recall | Errand::Answer(_)));
        self.epoch += 1;
        (self.out, self.sent, self.highest) = (BTreeMap::new(), BTreeSet::new(), [0; 3]);
        (self.told_to_stop, self.left) = (BTreeSet::new(), false);
        let epoch = self.epoch;
        let mut replay = Vec::new();
        for row in self.rows.iter_mut().filter(|row| matches!(row.state, State::InFlight { .. })) {
            row.state = State::InFlight { epoch };
            replay.push(row.id);
        }
        let replay = replay.into_iter().map(|id| self.dispatch(id)).collect();
        self.core = SessionCore::new(rules(), at(self.now));
        self.feed(up(Up::Hello(hello())));
        self.feed(Input::Opened(Box::new(Opened { epoch: Epoch(epoch), replay, ..opened(3) })));
    }

    fn feed(&mut self, input: Input) {
        let effects = self.core.handle(input, at(self.now));
        self.obey(effects);
    }

    fn obey(&mut self, effects: Vec<Effect>) {
        for id in sent(&effects) {
            assert!(!self.left, "nothing is sent after Goodbye");
            assert!(self.sent.insert(id), "{id} is sent twice in one session");
            let place = self.place(id);
            let row = &self.rows[place];
            assert_eq!(row.state, State::InFlight { epoch: self.epoch }, "what is sent is this session's");
            let lane = row.lane;
            if !row.was_busy {
                assert!(place + 1 > self.highest[lane.index()], "{id} is overtaken in its lane");
                self.highest[lane.index()] = place + 1;
            }
            self.out.insert(id, lane);
            let out = self.out.values().filter(|other| **other == lane).count();
            assert!(out <= lane.credits(), "{out} of {lane} are out");
        }
        for id in cancelled(&effects) {
            assert!(self.out.contains_key(&id), "only what is out is cancelled");
            self.told_to_stop.insert(id);
        }
        for effect in effects {
            match effect {
                Effect::Claim(room) => {
                    let under_way =
                        |errand: &Errand| matches!(errand, Errand::Claim(_) | Errand::Recall | Errand::Answer(_));
                    assert!(!self.errands.iter().any(under_way), "one claim at a time");
                    self.errands.push_back(Errand::Claim(room));
                }
                Effect::Progress(id, said) => self.errands.push_back(Errand::Step(self.epoch, id, said)),
                Effect::JournalFull(id) | Effect::JournalUnusable(id) => {
                    self.errands.push_back(Errand::Step(self.epoch, id, UpdateState::Busy));
                }
                Effect::Settle(word) => self.errands.push_back(Errand::LastWord(self.epoch, word.id)),
                Effect::Release(ids) => self.errands.push_back(Errand::Release(self.epoch, ids)),
                Effect::Close(_) => assert!(self.core.is_closed()),
                _ => {}
            }
        }
    }

    fn claim(&mut self, room: Room) -> Claimed {
        let epoch = self.epoch;
        let mut taken = Vec::new();
        for lane in Lane::ALL {
            let pending = self.rows.iter_mut().filter(|row| row.lane == *lane && row.state == State::Pending);
            for row in pending.take(room[lane.index()]) {
                if row.rests > 0 {
                    break;
                }
                row.state = State::InFlight { epoch };
                taken.push(row.id);
            }
        }
        let commands = taken.into_iter().map(|id| self.dispatch(id)).collect();
        Claimed { commands, recalled: false }
    }

    /// PostgreSQL does one thing, if there is one; `lost` when the answer does not come back.
    fn database(&mut self, nth: usize, lost: bool) {
        if self.errands.is_empty() {
            return;
        }
        let Some(errand) = self.errands.remove(nth % self.errands.len()) else { return };
        let epoch = self.epoch;
        match errand {
            Errand::Claim(room) => {
                let claimed = self.claim(room);
                self.errands.push_back(if lost { Errand::Recall } else { Errand::Answer(claimed) });
            }
            Errand::Recall => {
                let flying = self.rows.iter().filter(|row| row.state == State::InFlight { epoch });
                let ids: Vec<CommandId> = flying.map(|row| row.id).collect();
                let commands = ids.into_iter().map(|id| self.dispatch(id)).collect();
                self.errands.push_back(Errand::Answer(Claimed { commands, recalled: true }));
            }
            Errand::Answer(claimed) => self.feed(Input::Claimed(claimed)),
            Errand::Step(of, id, UpdateState::Busy) => {
                let row = self.row(id);
                if row.state == (State::InFlight { epoch: of }) {
                    (row.state, row.rests) = (State::Pending, 2);
                }
            }
            Errand::Step(..) => {}
            Errand::LastWord(of, id) if of == epoch => self.row(id).state = State::Over,
            // The session was taken over; the node says it again.
            Errand::LastWord(..) => {}
            Errand::Release(of, ids) => {
                for id in ids {
                    assert!(!self.sent.contains(&id) || of != epoch, "{id} was sent and is given back");
                    let row = self.row(id);
                    if row.state == (State::InFlight { epoch: of }) {
                        row.state = State::Pending;
                    }
                }
            }
        }
    }

    fn say(&mut self, id: CommandId, state: UpdateState) {
        if state.is_terminal() || state == UpdateState::Busy {
            self.out.remove(&id);
        }
        if state == UpdateState::Busy {
            self.sent.remove(&id);
            self.row(id).was_busy = true;
        }
        self.feed(update(id, state));
    }

    /// The node does one thing with a command that it was sent.
    fn node(&mut self, nth: usize, act: u8) {
        let known: Vec<CommandId> = self.sent.iter().copied().collect();
        if known.is_empty() {
            return;
        }
        let id = known[nth % known.len()];
        let accepted = self.journal.contains_key(&id);
        match act % 6 {
            0 if !accepted && self.out.contains_key(&id) => self.say(id, UpdateState::Busy),
            1 => {
                self.journal.entry(id).or_insert(false);
                self.say(id, UpdateState::Acked);
            }
            2 => {
                self.journal.entry(id).or_insert(false);
                self.say(id, UpdateState::Running);
            }
            3 | 4 => {
                if self.journal.insert(id, true) != Some(true) {
                    *self.ran.entry(id).or_default() += 1;
                }
                self.say(id, UpdateState::Succeeded);
            }
            // Something about a command that the gateway never heard of.
            _ => self.feed(update(CommandId::generate(), UpdateState::Running)),
        }
    }

    fn look(&mut self) {
        self.rows.iter_mut().for_each(|row| row.rests = row.rests.saturating_sub(1));
        let waiting = self.rows.iter().any(|row| row.state == State::Pending && row.rests == 0);
        let flying = self.rows.iter().filter(|row| row.cancel && matches!(row.state, State::InFlight { .. }));
        let cancels = flying.map(|row| row.id).collect();
        self.feed(Input::Facts(Facts { epoch: Epoch(self.epoch), commands_waiting: waiting, cancels, ..facts(3) }));
    }
}

#[derive(Debug, Clone)]
enum Step {
    Enqueue(usize),
    Poke,
    Look,
    Database(usize, bool),
    Node(usize, u8),
    Cancel(usize),
    Cut,
    Drain,
    Wait(i64),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_usize).prop_map(Step::Enqueue),
        3 => Just(Step::Poke),
        2 => Just(Step::Look),
        10 => (any::<usize>(), prop::bool::weighted(0.15)).prop_map(|(nth, lost)| Step::Database(nth, lost)),
        10 => (any::<usize>(), any::<u8>()).prop_map(|(nth, act)| Step::Node(nth, act)),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => Just(Step::Cut),
        1 => Just(Step::Drain),
        1 => (0..40_i64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_order_of_events_breaks_a_promise(steps in proptest::collection::vec(steps(), 0..200)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Enqueue(lane) => world.rows.push(Row {
                    id: CommandId::generate(),
                    lane: Lane::ALL[lane],
                    state: State::Pending,
                    cancel: false,
                    rests: 0,
                    was_busy: false,
                }),
                Step::Poke => world.feed(Input::CommandsMayWait),
                Step::Look => world.look(),
                Step::Database(nth, lost) => world.database(nth, lost),
                Step::Node(nth, act) => world.node(nth, act),
                Step::Cancel(nth) => {
                    let count = world.rows.len().max(1);
                    world.rows.iter_mut().skip(nth % count).take(1).for_each(|row| row.cancel = true);
                }
                Step::Cut => {
                    world.feed(Input::Gone);
                    world.connect();
                }
                Step::Drain => {
                    world.feed(Input::Drain);
                    world.left = true;
                }
                Step::Wait(seconds) => {
                    world.now += seconds;
                    let effects = world.core.tick(at(world.now));
                    world.obey(effects);
                }
            }
            if world.core.is_closed() {
                world.connect();
            }
        }
        // The faults stop: everything that was ever asked for comes to its end, and nothing ran twice.
        world.feed(Input::Gone);
        world.connect();
        for _ in 0..10_000 {
            if world.rows.iter().all(|row| row.state == State::Over) {
                break;
            }
            world.look();
            let flying: Vec<CommandId> = world.out.keys().copied().collect();
            for id in flying {
                let row = world.row(id);
                prop_assert!(!row.cancel || world.told_to_stop.contains(&id), "{} is cancelled and not told", id);
                if world.journal.insert(id, true) != Some(true) {
                    *world.ran.entry(id).or_default() += 1;
                }
                world.say(id, UpdateState::Succeeded);
            }
            while !world.errands.is_empty() {
                world.database(0, false);
            }
        }
        prop_assert!(world.rows.iter().all(|row| row.state == State::Over), "lost from view: {:?}", world.rows);
        prop_assert!(world.ran.values().all(|times| *times == 1));
    }
}
