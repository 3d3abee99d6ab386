//! The commands of one open session: what may be sent, what is out, and what the node says about it.
//!
//! Per lane at most [`Lane::credits`] are out; a last word or `busy` gives a credit back. What a session before this one
//! had out is sent first, by number. The database hands out commands of a lane by number, so they leave by number.
//!
//! What the node was busy for waits in the database again, and may be handed out once more. When the answer to that is lost, nobody
//! here knows which of the two the database speaks of: the session ends, and the next one begins with what is in flight.
//!
//! An update on a command that this session did not send is of no use unless it is a last word: that one is passed on,
//! because only the control plane knows what it is worth.
//!
//! What is sent allows what is said about it, so that a node is heard out as fast as it is given work, and the credits are what
//! holds both back. What nobody asked for is held to a rate.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
};

use proto::agent::v1::{self as pb, gateway_frame::Frame as Down};
use schema::{
    command::{CommandKind, Lane, Reason, UpdateState, update::MAX_UPDATE},
    id::{CommandId, NodeId},
    time::{Duration, Timestamp},
};
use serde::Deserialize;

use super::effects::{Claimed, Dispatch, Effect, LastWord, Room};
use crate::{
    limit::{Bucket, Rate},
    refusal::{Refusal, shortened},
};

/// What is said about one command that was sent: that it is taken, that it runs, how it ended, and one of these once more.
const SAID_OF_EACH: u32 = 4;
/// Updates beyond that, and on commands that this session did not send.
const UNASKED: Rate = Rate { burst: 256, per_minute: 600 };
/// Last words among these: what a daemon says of its own after a restart.
const UNASKED_LAST_WORDS: Rate = Rate { burst: 32, per_minute: 30 };
const CANCEL_AGAIN: Duration = Duration::from_secs(30);
const MAX_SIGNATURE_BYTES: usize = 128;
/// More than the last words of one node that may wait to be stored.
const REMEMBERED: usize = 256;

/// The commands of one open session.
#[derive(Debug)]
pub(super) struct Commands {
    node_id: NodeId,
    /// Commands are sent: the node runs them, and the gateway is not going away.
    sends: bool,
    allowed: Option<Vec<String>>,
    out: BTreeMap<CommandId, Out>,
    /// What has no room yet, by number. Commands that were claimed have room, so these are replays.
    waiting: VecDeque<Dispatch>,
    /// What ended in this session, newest last: a last word that is said twice is stored once.
    over: VecDeque<CommandId>,
    /// What the node was busy for and was not handed out since, newest last.
    busy: VecDeque<CommandId>,
    /// Lanes in which the database may have more.
    may_wait: [bool; Lane::ALL.len()],
    /// The claim that is under way.
    claiming: Option<Room>,
    /// More was heard of since that claim was made; its answer may be older.
    heard_since: bool,
    unasked: Bucket,
    unasked_last_words: Bucket,
    /// Inventory reports that commands asked for and that did not come yet.
    inventories: usize,
}

#[derive(Debug)]
struct Out {
    lane: Lane,
    said: Option<UpdateState>,
    /// Updates that are still to come, at most.
    to_come: u32,
    cancelled: Option<Timestamp>,
}

impl Commands {
    pub(super) fn new(node_id: NodeId, capable: bool, allowed: Option<Vec<String>>, now: Timestamp) -> Self {
        Self {
            node_id,
            sends: capable,
            allowed,
            out: BTreeMap::new(),
            waiting: VecDeque::new(),
            over: VecDeque::new(),
            busy: VecDeque::new(),
            // What waited before the session opened.
            may_wait: [capable; Lane::ALL.len()],
            claiming: None,
            heard_since: false,
            unasked: Bucket::new(UNASKED, now),
            unasked_last_words: Bucket::new(UNASKED_LAST_WORDS, now),
            inventories: 0,
        }
    }

    /// Sends what an earlier session had in flight, and asks for more.
    pub(super) fn replay(&mut self, commands: Vec<Dispatch>, now: Timestamp) -> Vec<Effect> {
        // A node that does not run commands any more: the control plane's deadline settles them.
        if !self.sends {
            return Vec::new();
        }
        self.take(commands, now)
    }

    /// Commands may wait in the database.
    pub(super) fn may_wait(&mut self) -> Vec<Effect> {
        self.may_wait = [self.sends; Lane::ALL.len()];
        self.heard_since = self.claiming.is_some();
        self.claim().into_iter().collect()
    }

    /// The answer to a claim. The session ends when it leaves in doubt what is out.
    pub(super) fn claimed(&mut self, claimed: Claimed, now: Timestamp) -> Result<Vec<Effect>, Refusal> {
        let asked = self.claiming.take();
        let is_newest = !std::mem::take(&mut self.heard_since) && !claimed.recalled;
        if !self.sends {
            let unsent = claimed.commands.iter().map(|command| command.id);
            return Ok(release(unsent.filter(|id| !claimed.recalled || !self.knows(*id)).collect()));
        }
        if claimed.recalled && claimed.commands.iter().any(|command| self.busy.contains(&command.id)) {
            return Err(Refusal::Unavailable(
                "an answer of the database was lost, and with it whether a busy command is out",
            ));
        }
        for lane in Lane::ALL {
            let place = lane.index();
            let got = claimed.commands.iter().filter(|command| command.lane == *lane).count();
            let asked = asked.map_or(0, |room| room[place]);
            // A lane that gave less than there was room for has no more.
            if is_newest && got < asked {
                self.may_wait[place] = false;
            }
        }
        let new = claimed
            .commands
            .into_iter()
            .filter(|command| !(self.out.contains_key(&command.id) || claimed.recalled && self.knows(command.id)));
        let new = new.collect();
        Ok(self.take(new, now))
    }

    /// Commands that are to be cancelled, as the database says.
    pub(super) fn cancel(&mut self, ids: &[CommandId], now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        for id in ids {
            if let Some(out) = self.out.get_mut(id)
                && out.cancelled.is_none_or(|at| now >= CANCEL_AGAIN.after(at))
            {
                out.cancelled = Some(now);
                effects.push(cancel(*id));
            }
            self.waiting.iter_mut().filter(|command| command.id == *id).for_each(|command| command.cancel = true);
        }
        effects
    }

    /// What the node says about a command.
    pub(super) fn update(&mut self, frame: pb::CommandUpdate, now: Timestamp) -> Result<Vec<Effect>, Refusal> {
        let (id, state, reason) = self.check(&frame)?;
        let waits = |id| match reason.as_deref() {
            Some(word) if word == Reason::JOURNAL_FULL.as_str() => Effect::JournalFull(id),
            Some(word) if word == Reason::JOURNAL_UNUSABLE.as_str() => Effect::JournalUnusable(id),
            _ => Effect::Progress(id, UpdateState::Busy),
        };
        if !(self.comes(id) || self.unasked.take(now)) {
            return Err(Refusal::RateLimited("updates of commands that were not sent"));
        }
        let mut effects = vec![Effect::Beat];
        if state.is_terminal() {
            let waited = self.waiting.len();
            self.waiting.retain(|command| command.id != id);
            let asked = self.out.remove(&id).is_some() || self.waiting.len() < waited;
            let unasked = !asked && !self.over.contains(&id);
            if unasked && !self.unasked_last_words.take(now) {
                return Err(Refusal::RateLimited("last words on commands that were not sent"));
            }
            if asked || unasked {
                self.busy.retain(|other| *other != id);
                remember(&mut self.over, id);
                effects.push(Effect::Settle(LastWord { id, payload: frame.update, signature: frame.signature }));
            }
        } else if let Some(out) = self.out.get_mut(&id) {
            match (out.said, state) {
                (None, UpdateState::Busy) => {
                    self.out.remove(&id);
                    remember(&mut self.busy, id);
                    effects.push(waits(id));
                }
                (None, UpdateState::Acked) | (None | Some(UpdateState::Acked), UpdateState::Running) => {
                    out.said = Some(state);
                    effects.push(Effect::Progress(id, state));
                }
                _ => {}
            }
        }
        effects.extend(self.send(now));
        Ok(effects)
    }

    /// Whether a command asked for the inventory report that came.
    pub(super) fn inventory_comes(&mut self) -> bool {
        let asked = self.inventories > 0;
        self.inventories = self.inventories.saturating_sub(1);
        asked
    }

    /// The gateway is going away: nothing more is sent. What was never sent waits in the database again.
    pub(super) fn leave(&mut self) {
        self.sends = false;
        self.waiting.clear();
    }

    /// Whether an update was to come of what was sent.
    fn comes(&mut self, id: CommandId) -> bool {
        let Some(out) = self.out.get_mut(&id).filter(|out| out.to_come > 0) else { return false };
        out.to_come -= 1;
        true
    }

    fn knows(&self, id: CommandId) -> bool {
        self.out.contains_key(&id) || self.over.contains(&id) || self.waiting.iter().any(|command| command.id == id)
    }

    fn take(&mut self, mut commands: Vec<Dispatch>, now: Timestamp) -> Vec<Effect> {
        commands.sort_by_key(|command| command.seq);
        let mut effects = Vec::new();
        for command in commands {
            let allowed =
                self.allowed.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| kind == command.kind.as_str()));
            self.busy.retain(|id| *id != command.id);
            if allowed {
                self.waiting.push_back(command);
            } else {
                // It is not this session's to send: it waits again, and its deadline ends it.
                remember(&mut self.busy, command.id);
                effects.push(Effect::Progress(command.id, UpdateState::Busy));
            }
        }
        effects.extend(self.send(now));
        effects
    }

    fn room(&self) -> Room {
        let mut room: Room = std::array::from_fn(|place| Lane::ALL[place].credits());
        let used = self.out.values().map(|out| out.lane).chain(self.waiting.iter().map(|command| command.lane));
        for lane in used {
            room[lane.index()] = room[lane.index()].saturating_sub(1);
        }
        room
    }

    /// Sends what has room now, and claims if the database may have more for the room that is left.
    fn send(&mut self, now: Timestamp) -> Vec<Effect> {
        if !self.sends {
            return Vec::new();
        }
        let mut effects = Vec::new();
        let mut left = VecDeque::new();
        for command in std::mem::take(&mut self.waiting) {
            let out = self.out.values().filter(|out| out.lane == command.lane).count();
            if out >= command.lane.credits() {
                left.push_back(command);
                continue;
            }
            let cancelled = command.cancel.then_some(now);
            if command.kind == CommandKind::InventoryRefresh {
                self.inventories = command.lane.credits().min(self.inventories + 1);
            }
            self.out.insert(command.id, Out { lane: command.lane, said: None, to_come: SAID_OF_EACH, cancelled });
            effects.push(Effect::Send(Box::new(Down::Command(command.frame))));
            effects.extend(command.cancel.then(|| cancel(command.id)));
        }
        self.waiting = left;
        effects.extend(self.claim());
        effects
    }

    fn claim(&mut self) -> Option<Effect> {
        if self.claiming.is_some() || !self.sends {
            return None;
        }
        let mut room = self.room();
        for (room, may_wait) in room.iter_mut().zip(self.may_wait) {
            *room = if may_wait { *room } else { 0 };
        }
        (room != Room::default()).then(|| {
            self.claiming = Some(room);
            Effect::Claim(room)
        })
    }

    /// Whose update it is, on which command, and what it says. Everything else is the control plane's to judge.
    fn check(&self, frame: &pb::CommandUpdate) -> Result<(CommandId, UpdateState, Option<String>), Refusal> {
        if frame.update.len() > MAX_UPDATE {
            return Err(Refusal::FrameTooLarge);
        }
        let head: Head<'_> = serde_json::from_slice(&frame.update).map_err(|_| {
            Refusal::FrameMalformed("an update of a command is not JSON with command, nodeId and state")
        })?;
        if head.node_id != self.node_id.to_string() {
            return Err(Refusal::WrongNode { certified: self.node_id, claimed: shortened(&head.node_id) });
        }
        let signed = !frame.signature.is_empty();
        if frame.signature.len() > MAX_SIGNATURE_BYTES || (head.state.is_terminal() && !signed) {
            return Err(Refusal::FrameMalformed("the signature on an update of a command has an impossible length"));
        }
        Ok((head.command, head.state, head.reason.map(Cow::into_owned)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    command: CommandId,
    #[serde(borrow)]
    node_id: Cow<'a, str>,
    state: UpdateState,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
}

fn remember(some: &mut VecDeque<CommandId>, id: CommandId) {
    if some.len() == REMEMBERED {
        some.pop_front();
    }
    some.push_back(id);
}

fn cancel(id: CommandId) -> Effect {
    Effect::Send(Box::new(Down::CancelCommand(pb::CancelCommand { command_id: id.to_string() })))
}

fn release(ids: Vec<CommandId>) -> Vec<Effect> {
    if ids.is_empty() { Vec::new() } else { vec![Effect::Release(ids)] }
}
