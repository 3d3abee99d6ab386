//! The threads that run commands: a few per lane, made when they are needed, gone when they are not.
//!
//! A lane begins its commands in the order of their numbers. A kind that panics has failed; one that hangs is given up
//! when its time is over, and its thread changes nothing any more if it ever comes back.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use schema::{
    clock::Clock as _,
    command::{CommandUpdate, Lane, Reason, Refusal, UpdateState},
    id::CommandId,
    inventory::InventorySection,
    time::Timestamp,
};
use tokio::sync::{Notify, mpsc::UnboundedSender};

use super::{
    clerk::Carried,
    context::{Context, Order, Outcome, Run, Stop, Token},
    journal::{Ended, Entry, Journal, JournalError},
    pen::Pen,
    quorum::{self, Asked, Gate, Held, Toll},
};
use crate::{agent::NodeClock, session::Inventory};

/// What became of a command, for whoever reads the log of the machine.
pub(super) fn ended(update: &CommandUpdate) {
    tracing::info!("{}", told(update));
}

/// A reason that is the state's own word is said once.
fn told(update: &CommandUpdate) -> String {
    let state = update.state.as_str();
    let reason = update.reason.as_ref().map(ToString::to_string).filter(|reason| reason != state);
    let why: String = [reason, update.message.clone()].into_iter().flatten().map(|word| format!(": {word}")).collect();
    format!("{} {state}{why}", update.command)
}

#[cfg(test)]
mod tests;

/// How many commands of a lane run at a time.
const fn width(lane: Lane) -> usize {
    match lane {
        Lane::Control | Lane::Provision => 2,
        Lane::Bulk => 1,
    }
}

/// Threads of a lane that may hang without end before it gets no other ones.
const MAX_STUCK: usize = 4;
/// How long a thread waits for another command.
const IDLE: Duration = Duration::from_secs(30);
/// How long to wait before the journal is tried again: a disk tells nobody that it takes something again.
const AGAIN: Duration = Duration::from_millis(500);
const TOO_LATE: &str = "its deadline passed before it could begin";
const UNBEGUN: &str = "it was cancelled before it began";

/// What the lanes tell the loop. What is said here is in the journal.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// A command runs.
    Began(CommandId),
    /// A command has ended.
    Ended(CommandId),
    /// The machine was looked at; these sections are to be sent whether they changed or not.
    Read(Inventory, Vec<InventorySection>),
    /// A described machine has another boot.
    Booted,
    /// The clerk did something.
    Carried(Carried),
    /// The journal cannot be written, and is tried again.
    Unkept(String),
}

/// The lanes of one daemon.
#[derive(Debug, Clone)]
pub struct Lanes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pen: Pen,
    gate: Gate,
    journal: Journal,
    clock: Arc<NodeClock>,
    run: Arc<dyn Run>,
    told: UnboundedSender<Told>,
    state: Mutex<State>,
    changed: Condvar,
    /// A command left its thread.
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    lanes: [Queue; Lane::ALL.len()],
    ending: bool,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<(u64, CommandId), Order>,
    running: BTreeMap<CommandId, Running>,
    threads: usize,
    idle: usize,
    /// Threads of commands that were given up.
    stuck: usize,
    /// Those of them that may still change what another command would work on.
    harmful: usize,
}

#[derive(Debug)]
struct Running {
    token: Token,
    retry_safe: bool,
    /// A thread works on it. None does while the machine goes down.
    on_thread: bool,
}

/// Why a command does not begin.
enum Unbegun {
    /// It has ended.
    Ends(UpdateState, Reason, String),
    /// It is for another life of the daemon to say.
    Stays,
}

impl Lanes {
    /// Lanes that run commands with `run`.
    #[must_use]
    pub fn new(
        pen: Pen,
        gate: Gate,
        journal: Journal,
        clock: Arc<NodeClock>,
        run: Arc<dyn Run>,
        told: UnboundedSender<Told>,
    ) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Shared { pen, gate, journal, clock, run, told, state, changed, left: Notify::new() }))
    }

    /// Queues an accepted command.
    pub fn push(&self, order: Order) {
        let lane = order.row().lane;
        let mut state = self.0.lock();
        let queue = &mut state.lanes[lane.index()];
        queue.waiting.insert((order.body.seq, order.body.id), order);
        if queue.idle < queue.waiting.len() && queue.threads < width(lane) {
            self.0.spawn(lane, queue);
        }
        self.0.changed.notify_all();
    }

    /// Cancels a command: one that waits never runs, one that runs stops between two actions.
    pub fn cancel(&self, id: CommandId) {
        let mut state = self.0.lock();
        match state.lanes.iter().find_map(|queue| queue.running.get(&id)) {
            Some(running) => running.token.cancel(),
            None => self.take(&mut state, id, UpdateState::Cancelled, Reason::CANCELLED, UNBEGUN),
        }
    }

    /// Takes a command that waits past its deadline out of its lane.
    pub fn expire(&self, id: CommandId) {
        let mut state = self.0.lock();
        self.take(&mut state, id, UpdateState::Rejected, Refusal::Expired.into(), TOO_LATE);
    }

    fn take(&self, state: &mut State, id: CommandId, end: UpdateState, reason: Reason, why: &str) {
        let found = state.lanes.iter_mut().find_map(|queue| {
            let key = *queue.waiting.keys().find(|(_, waiting)| *waiting == id)?;
            queue.waiting.remove_entry(&key)
        });
        let Some((key, order)) = found else { return };
        if !self.0.try_settle(&self.0.unbegun(&order, end, reason, why)) {
            // What cannot be written down has not happened: it waits on, and is asked about again.
            state.lanes[order.row().lane.index()].waiting.insert(key, order);
        }
    }

    /// Gives up a command that runs longer than its kind may.
    pub fn give_up(&self, id: CommandId) {
        let mut state = self.0.lock();
        let Some(queue) = state.lanes.iter_mut().find(|queue| queue.running.contains_key(&id)) else { return };
        let update = self.0.pen.update(id, UpdateState::Failed);
        let update = update.because(Reason::TIMEOUT, "it took longer than its kind may");
        if !self.0.try_settle(&update) {
            return;
        }
        let Some(running) = queue.running.remove(&id) else { return };
        running.token.give_up();
        self.0.left.notify_one();
        if running.on_thread {
            queue.stuck += 1;
            queue.harmful += usize::from(!running.retry_safe);
            if queue.stuck <= MAX_STUCK {
                queue.threads -= 1;
                if let Some(order) = queue.waiting.values().next() {
                    self.0.spawn(order.row().lane, queue);
                }
            } else {
                tracing::warn!("too many commands hang; their lane does not go on until one of them ends");
            }
        }
    }

    /// Begins nothing any more, and tells what may run again to stop.
    pub fn end(&self) {
        let mut state = self.0.lock();
        state.ending = true;
        for running in state.lanes.iter().flat_map(|queue| queue.running.values()) {
            if running.retry_safe {
                running.token.end();
            }
        }
        self.0.changed.notify_all();
    }

    /// Waits until no command runs on a thread. One waits at a time.
    pub async fn rest(&self) {
        while self.is_working() {
            self.0.left.notified().await;
        }
    }

    fn is_working(&self) -> bool {
        self.0.lock().lanes.iter().any(|queue| queue.running.values().any(|running| running.on_thread))
    }
}

impl Queue {
    /// The next command. What is not safe to run twice does not begin beside the remains of such a one.
    fn pop(&mut self) -> Option<Order> {
        let harmful = self.harmful > 0;
        let next = self.waiting.iter().find(|(_, order)| !harmful || order.row().retry_safe).map(|(key, _)| *key)?;
        self.waiting.remove(&next)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(self: &Arc<Self>, lane: Lane, queue: &mut Queue) {
        let shared = Arc::clone(self);
        let spawned = thread::Builder::new().name(format!("lane-{lane}")).spawn(move || shared.work(lane));
        match spawned {
            Ok(_) => queue.threads += 1,
            Err(error) => tracing::warn!("no thread for the lane {lane}: {error}"),
        }
    }

    fn work(&self, lane: Lane) {
        while let Some((order, token)) = self.next(lane) {
            let (id, retry_safe) = (order.body.id, order.row().retry_safe);
            let stays = self.one(order, token);
            let mut state = self.lock();
            self.left.notify_one();
            let queue = &mut state.lanes[lane.index()];
            match queue.running.get_mut(&id) {
                Some(running) if stays => running.on_thread = false,
                Some(_) => drop(queue.running.remove(&id)),
                // Given up meanwhile: another thread has this one's place, if the lane still got one.
                None => {
                    let replaced = queue.stuck <= MAX_STUCK;
                    queue.stuck -= 1;
                    queue.harmful -= usize::from(!retry_safe);
                    self.changed.notify_all();
                    if replaced {
                        return;
                    }
                }
            }
        }
    }

    fn next(&self, lane: Lane) -> Option<(Order, Token)> {
        let mut state = self.lock();
        let until = Instant::now() + IDLE;
        loop {
            let ending = state.ending;
            let queue = &mut state.lanes[lane.index()];
            let waited = Instant::now() >= until;
            if !ending && let Some(order) = queue.pop() {
                let token = Token::default();
                let retry_safe = order.row().retry_safe;
                let running = Running { token: token.clone(), retry_safe, on_thread: true };
                queue.running.insert(order.body.id, running);
                return Some((order, token));
            }
            if ending || waited {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            let wait = until.saturating_duration_since(Instant::now());
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            state.lanes[lane.index()].idle -= 1;
        }
    }

    /// Runs one command. Whether it stays in its lane though no thread works on it any more.
    fn one(&self, order: Order, token: Token) -> bool {
        let id = order.body.id;
        let entry = match self.begin(&order, &token) {
            Ok(entry) => entry,
            Err(Unbegun::Ends(end, reason, why)) => {
                self.settle(&self.unbegun(&order, end, reason, &why));
                return false;
            }
            Err(Unbegun::Stays) => return false,
        };
        tracing::info!("{id} begins: {}", entry.kind);
        self.told.send(Told::Began(id)).ok();
        let context = Context {
            before: Context::effects_of(&entry),
            since: Instant::now(),
            token,
            journal: self.journal.clone(),
            clock: Arc::clone(&self.clock),
            told: self.told.clone(),
            guard: self.gate.guard(),
            order,
        };
        let ran = catch_unwind(AssertUnwindSafe(|| self.run.run(&context)));
        let outcome = ran.unwrap_or_else(|panic| Outcome::Failed {
            reason: Reason::FAILED,
            message: format!("the daemon has a bug: {}", words_of(&*panic)),
            result: None,
        });
        let update = match outcome {
            Outcome::Succeeded(result) => self.pen.update(id, UpdateState::Succeeded).with_result(result),
            Outcome::Failed { reason, message, result } => {
                with(self.pen.update(id, UpdateState::Failed).because(reason, message), result)
            }
            Outcome::Cancelled { message, result } => {
                with(self.pen.update(id, UpdateState::Cancelled).because(Reason::CANCELLED, message), result)
            }
            Outcome::Boots => return true,
            Outcome::Booted => {
                self.told.send(Told::Booted).ok();
                return true;
            }
            Outcome::Interrupted => return false,
        };
        self.settle(&update);
        false
    }

    /// Begins a command, as soon as that can be decided and written down.
    fn begin(&self, order: &Order, token: &Token) -> Result<Entry, Unbegun> {
        let id = order.body.id;
        let refused = |refusal: Refusal, why| Unbegun::Ends(UpdateState::Rejected, refusal.into(), why);
        loop {
            if let Err(Stop::Cancelled) = token.go_on() {
                return Err(Unbegun::Ends(UpdateState::Cancelled, Reason::CANCELLED, UNBEGUN.to_owned()));
            }
            if self.lock().ending {
                return Err(Unbegun::Stays);
            }
            // A daemon that begins anew may meet a slow clock first. It was later than that already.
            let floor = self.gate.guard().floor;
            if self.clock.now().max(floor.unwrap_or(Timestamp::MIN)) >= order.body.not_after {
                return Err(refused(Refusal::Expired, TOO_LATE.to_owned()));
            }
            // A policy, a revocation or the end of an approval may have come while it waited.
            let toll = match self.approved(order) {
                Ok(toll) => toll,
                // As when the loop began anew, and the machine is looked at first.
                Err(Held::Busy(why)) => {
                    tracing::debug!("{id} does not begin yet: {why}");
                    thread::sleep(AGAIN);
                    continue;
                }
                Err(Held::No(refusal, why)) => return Err(refused(refusal, why)),
            };
            match self.journal.start(id, self.clock.clocks(), &toll) {
                Ok(entry) => return Ok(entry),
                Err(JournalError::Unpaid(short)) => return Err(refused(short.refusal(), short.to_string())),
                Err(error) if self.waits(id, &error) => {}
                Err(_) => return Err(Unbegun::Stays),
            }
        }
    }

    /// Whether it may still begin, and what that costs.
    fn approved(&self, order: &Order) -> Result<Toll, Held> {
        if !order.row().destructive {
            return Ok(Toll::Free);
        }
        let asked = Asked {
            body: &order.body,
            approval: &order.approval,
            node: self.pen.node,
            journal: self.pen.journal,
            now: self.clock.proven(),
            wall: self.clock.machine(),
            since: self.gate.spent().since,
        };
        quorum::approved(&asked, &self.gate.guard())
    }

    /// The end of a command that does not begin. One that ran in an earlier life was interrupted then.
    fn unbegun(&self, order: &Order, end: UpdateState, reason: Reason, why: &str) -> CommandUpdate {
        if order.ran {
            let why = format!("the daemon or the machine stopped while it ran; {why} again");
            return self.pen.update(order.body.id, UpdateState::Failed).because(Reason::INTERRUPTED, why);
        }
        self.pen.update(order.body.id, end).because(reason, why)
    }

    /// Settles, however long the journal takes nothing: what was done is lost on no account.
    fn settle(&self, update: &CommandUpdate) {
        let said = self.pen.sign(update);
        loop {
            match self.journal.settle(update.command, &Ended::of(update, self.clock.now()), &said) {
                // A write that said no may have been kept all the same; whatever the end is, it is in the journal.
                Ok(_) | Err(JournalError::Over(_)) => break ended(update),
                Err(error) if self.waits(update.command, &error) => {}
                Err(_) => return,
            }
        }
        self.told.send(Told::Ended(update.command)).ok();
    }

    /// Settles, unless the journal takes nothing now.
    fn try_settle(&self, update: &CommandUpdate) -> bool {
        match self.journal.settle(update.command, &Ended::of(update, self.clock.now()), &self.pen.sign(update)) {
            Ok(_) | Err(JournalError::Over(_)) => {
                ended(update);
                self.told.send(Told::Ended(update.command)).ok();
                true
            }
            Err(error) => {
                tracing::warn!("{}: {error}", update.command);
                false
            }
        }
    }

    /// Whether to try the journal again, after a while.
    fn waits(&self, id: CommandId, error: &JournalError) -> bool {
        match error {
            JournalError::Over(_) | JournalError::Closed | JournalError::Unknown(_) => {
                tracing::warn!("{id}: {error}");
                false
            }
            error => {
                tracing::warn!("{id}: {error}; trying again");
                self.told.send(Told::Unkept(error.to_string())).ok();
                thread::sleep(AGAIN);
                true
            }
        }
    }
}

fn with(update: CommandUpdate, result: Option<serde_json::Value>) -> CommandUpdate {
    match result {
        Some(result) => update.with_result(result),
        None => update,
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}
