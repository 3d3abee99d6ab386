//! One task per stream: feeds the core and carries out its effects. It waits for nothing but the next input, so a
//! database that is away costs a session nothing.

use std::{net::IpAddr, sync::Arc};

use pki::verify::NodeIdentity;
use prost::Message as _;
use proto::agent::v1::{self as pb, gateway_frame::Frame};
use schema::{command::UpdateState, generation::Epoch, id::CommandId, time::Timestamp};
use store::commands::{Progress, RawUpdate, Step};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use super::{Effect, Ending, Input, LastWord, Opened, SessionCore, open};
use crate::{
    connection::{Activity, PeerInfo},
    refusal::Refusal,
    registry::Seat,
    reports::Pending,
    shared::Shared,
};

type Opening = JoinHandle<Result<Opened, Refusal>>;

/// One session.
pub(super) struct Driver {
    shared: Arc<Shared>,
    identity: NodeIdentity,
    address: IpAddr,
    activity: Arc<Activity>,
    core: SessionCore,
    out: mpsc::Sender<Result<pb::GatewayFrame, Status>>,
    opening: Option<Opening>,
    // Opening need not begin any more when the session is over.
    over: CancellationToken,
    seat: Option<Arc<Seat>>,
    told_to_go: bool,
    ending: Option<Ending>,
}

enum Event {
    Input(Input),
    Opened(Result<Box<Opened>, Refusal>),
    Time,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        identity: NodeIdentity,
        info: &PeerInfo,
        out: mpsc::Sender<Result<pb::GatewayFrame, Status>>,
        now: Timestamp,
    ) -> Self {
        let core = SessionCore::new(shared.rules(identity.node_id, identity.not_after), now);
        Self {
            shared,
            identity,
            address: info.address.ip(),
            activity: Arc::clone(&info.activity),
            core,
            out,
            opening: None,
            over: CancellationToken::new(),
            seat: None,
            told_to_go: false,
            ending: None,
        }
    }

    pub(super) async fn run(mut self, mut frames: Streaming<pb::NodeFrame>) {
        while self.ending.is_none() {
            let event = self.next(&mut frames).await;
            let now = self.shared.clock.now();
            let effects = match event {
                Event::Time => self.core.tick(now),
                Event::Input(input) => self.core.handle(input, now),
                Event::Opened(Err(refusal)) => self.core.handle(Input::NotOpened(refusal), now),
                Event::Opened(Ok(opened)) => {
                    let (epoch, identity_generation) = (opened.epoch, opened.identity_generation);
                    let serial = self.identity.serial.clone();
                    let seat = Seat::new(self.identity.node_id, epoch, identity_generation, serial);
                    seat.trusts(opened.trust_version);
                    seat.believes(opened.policy_epoch, opened.policies_version);
                    let effects = self.core.handle(Input::Opened(opened), now);
                    self.sit(seat);
                    effects
                }
            };
            self.carry_out(effects, now);
        }
        self.finish().await;
    }

    fn sit(&mut self, seat: Arc<Seat>) {
        tracing::info!(node_id = %seat.node_id, epoch = %seat.epoch, "a session opened");
        self.shared.recorder.opened(seat.node_id);
        self.shared.recorder.came_in(seat.node_id, &self.address.to_string());
        self.shared.registry.seat(&seat);
        // What changed since the row was opened, and what the control plane wants to know.
        self.shared.questions.look(seat.node_id);
        self.seat = Some(seat);
    }

    async fn next(&mut self, frames: &mut Streaming<pb::NodeFrame>) -> Event {
        let deadline = wait(self.core.next_deadline(), self.shared.clock.now());
        let (seat, out, draining) = (self.seat.clone(), &self.out, &self.shared.draining);
        tokio::select! {
            biased;
            () = out.closed() => Event::Input(Input::Gone),
            () = draining.cancelled(), if !self.told_to_go => {
                self.told_to_go = true;
                Event::Input(Input::Drain)
            }
            input = mail(seat.as_deref()) => Event::Input(input),
            opened = finished(&mut self.opening) => Event::Opened(opened.map(Box::new)),
            () = deadline => Event::Time,
            // Nothing is read while the row is being opened: the stream's own flow control holds the node back.
            frame = frames.message(), if self.opening.is_none() => {
                if let Ok(Some(frame)) = &frame {
                    self.activity.frame(frame.encoded_len());
                }
                Event::Input(read(frame))
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>, now: Timestamp) {
        for effect in effects {
            match effect {
                Effect::Open(request) => {
                    let opening =
                        open::open(Arc::clone(&self.shared), self.identity.clone(), *request, self.over.clone());
                    self.opening = Some(self.shared.home.spawn(opening));
                }
                Effect::Send(frame) => self.send(*frame, now),
                Effect::Beat => self.seat.iter().for_each(|seat| seat.hear()),
                Effect::Store(report) => {
                    let Some(seat) = &self.seat else { continue };
                    let pending = Pending { node_id: seat.node_id, epoch: seat.epoch, report };
                    if !self.shared.reports.put(&self.shared.registry, pending) {
                        let full = Refusal::Unavailable("the gateway has no room for more reports");
                        seat.mailbox.end(full);
                    }
                }
                Effect::Claim(room) => {
                    self.seat.iter().for_each(|seat| self.shared.claims.ask(seat.node_id, seat.epoch, room));
                }
                Effect::Progress(id, said) => self.progress(id, said),
                Effect::JournalFull(id) => self.step(id, Step::JournalFull),
                Effect::JournalUnusable(id) => self.step(id, Step::JournalUnusable),
                Effect::CannotKeep(why) => self.shared.recorder.cannot_keep(self.identity.node_id, why),
                Effect::Settle(LastWord { id, payload, signature }) => {
                    let Some(seat) = &self.seat else { continue };
                    let word = RawUpdate { node: seat.node_id, epoch: seat.epoch, id, payload, signature };
                    if !self.shared.last_words.put(&self.shared.registry, word) {
                        seat.mailbox.end(Refusal::Unavailable("the gateway has no room for more last words"));
                    }
                }
                Effect::Release(ids) => {
                    let Some(seat) = &self.seat else { continue };
                    self.shared.steps.release(seat.node_id, seat.epoch, ids);
                }
                Effect::FetchSpec => self.shared.questions.fetch_spec(self.identity.node_id),
                Effect::Close(ending) => self.ending = Some(self.ending.take().unwrap_or(ending)),
            }
        }
        if let (Some(seat), Some(sent)) = (&self.seat, self.core.sent()) {
            seat.has(sent);
        }
    }

    fn progress(&self, id: CommandId, said: UpdateState) {
        self.step(
            id,
            match said {
                UpdateState::Acked => Step::Acked,
                UpdateState::Running => Step::Running,
                UpdateState::Busy => Step::Busy,
                UpdateState::Succeeded | UpdateState::Failed | UpdateState::Rejected | UpdateState::Cancelled => return,
            },
        );
    }

    fn step(&self, id: CommandId, step: Step) {
        let Some(seat) = &self.seat else { return };
        self.shared.steps.put(Progress { id, node: seat.node_id, epoch: seat.epoch, step });
    }

    fn send(&mut self, frame: Frame, now: Timestamp) {
        // The node answers with a window for more.
        self.activity.frame(0);
        let full = self.out.try_send(Ok(pb::GatewayFrame { frame: Some(frame) }));
        if let Err(mpsc::error::TrySendError::Full(_)) = full
            && !self.core.is_closed()
        {
            // There is no room for telling the node either.
            let refusal = Refusal::SlowReader;
            self.core.handle(Input::End(refusal.clone()), now);
            self.ending = Some(Ending::Refused(refusal));
        }
    }

    async fn finish(self) {
        let node_id = self.identity.node_id;
        let epoch = self.seat.as_ref().map(|seat| seat.epoch);
        match self.ending {
            Some(Ending::Refused(refusal)) => {
                let code = refusal.code();
                tracing::info!(%node_id, epoch = epoch.map(|Epoch(epoch)| epoch), code, %refusal, "a session was refused or ended");
                if refusal.is_of_a_known_node() {
                    self.shared.recorder.refused(node_id, &refusal, self.shared.clock.now());
                } else {
                    self.shared.recorder.stranger(node_id.to_string(), &refusal, self.shared.clock.now());
                }
            }
            ending => tracing::info!(%node_id, epoch = epoch.map(|Epoch(epoch)| epoch), ?ending, "a session ended"),
        }
        drop(self.out);
        self.over.cancel();
        if let Some(seat) = self.seat {
            self.shared.registry.unseat(&seat);
            for input in seat.mailbox.close() {
                if let Input::Claimed(claimed) = input {
                    self.shared.steps.give_back(node_id, seat.epoch, &claimed);
                }
            }
            self.shared.liveness.close(node_id, seat.epoch);
        }
        // A row that opens after its session ended is closed again.
        if let Some(opening) = self.opening
            && let Ok(Ok(opened)) = opening.await
        {
            self.shared.liveness.close(node_id, opened.epoch);
        }
    }
}

async fn mail(seat: Option<&Seat>) -> Input {
    match seat {
        Some(seat) => seat.mailbox.next().await,
        None => std::future::pending().await,
    }
}

async fn finished(opening: &mut Option<Opening>) -> Result<Opened, Refusal> {
    match opening {
        Some(handle) => {
            let result = handle.await;
            *opening = None;
            result.unwrap_or(Err(Refusal::Unavailable("the gateway could not open the session")))
        }
        None => std::future::pending().await,
    }
}

async fn wait(deadline: Option<Timestamp>, now: Timestamp) {
    match deadline {
        Some(deadline) => {
            let left = deadline.as_millisecond().saturating_sub(now.as_millisecond());
            tokio::time::sleep(std::time::Duration::from_millis(u64::try_from(left).unwrap_or(0))).await;
        }
        None => std::future::pending().await,
    }
}

fn read(frame: Result<Option<pb::NodeFrame>, Status>) -> Input {
    match frame {
        Ok(Some(frame)) => Input::Frame(Box::new(frame)),
        Ok(None) => Input::Gone,
        Err(status) => match status.code() {
            Code::OutOfRange | Code::ResourceExhausted => Input::BadFrame(Refusal::FrameTooLarge),
            Code::Unimplemented => Input::BadFrame(Refusal::FrameMalformed("compressed frames are not taken")),
            Code::Internal if std::error::Error::source(&status).is_none() => {
                Input::BadFrame(Refusal::FrameMalformed("it does not decode"))
            }
            _ => Input::Gone,
        },
    }
}
