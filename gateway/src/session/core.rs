//! One session as a pure state machine: inputs and time in, effects out.
//!
//! ```text
//! AwaitHello ── Hello ──▶ Opening ── Opened ──▶ Open ── Drain ──▶ leaving ──▶ Closed
//!     │                      │                    └───────────────────────────▲
//!     └── late, not Hello ───┴── not opened, late ────────────────────────────┘
//! ```
//!
//! Welcome goes out once; the generation that is sent never falls; commands keep to their lanes; after
//! Goodbye what the node still says is kept and nothing more is sent; nothing comes after Close.

use proto::agent::v1::{self as pb, gateway_frame::Frame as Down, node_frame::Frame as Up};
use schema::{
    command::COMMANDS_CAPABILITY,
    generation::{Epoch, Generation, IdentityGeneration},
    id::{GatewayId, JournalId, NodeId},
    report::{BINDS_CAPABILITY, DRIFT_CAPABILITY, POLICY_CAPABILITY, ReportKind, TRUST_CAPABILITY},
    time::{Duration, Timestamp},
};

use super::{
    Effect, Ending, Facts, Input, Opened, Report,
    commands::Commands,
    hello::{self, CheckedHello},
    report,
};
use crate::{
    limit::{Bucket, Rate},
    refusal::Refusal,
};

/// What a session is held to.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The node that the certificate names.
    pub node_id: NodeId,
    /// When that certificate ends, and the session with it.
    pub certificate_ends: Timestamp,
    /// This gateway.
    pub gateway_id: GatewayId,
    /// Described machines are admitted.
    pub dev: bool,
    /// How long Hello may take.
    pub hello_within: Duration,
    /// How long opening the row may take.
    pub open_within: Duration,
    /// How often the node should say that it is there.
    pub heartbeat: Duration,
    /// Within which time a node connects again when the gateway goes away.
    pub reconnect_within: Duration,
    /// How long a node that was told to go may still say something.
    pub linger: Duration,
}

const HEARTBEATS: Rate = Rate { burst: 30, per_minute: 60 };
const STATUSES: Rate = Rate { burst: 16, per_minute: 240 };
const INVENTORIES: Rate = Rate { burst: 16, per_minute: 60 };
const SPECS_WANTED: Rate = Rate { burst: 4, per_minute: 60 };
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// One session.
#[derive(Debug)]
pub struct SessionCore {
    rules: Rules,
    state: State,
}

#[derive(Debug)]
enum State {
    AwaitHello { until: Timestamp },
    Opening { hello: Box<CheckedHello>, until: Timestamp },
    Open(Box<Open>),
    Closed,
}

#[derive(Debug)]
struct Open {
    epoch: Epoch,
    identity_generation: IdentityGeneration,
    journal_id: JournalId,
    // The newest generation that the node has or was sent.
    sent: Generation,
    last_status: u64,
    last_inventory: u64,
    waiting_status: Option<Report>,
    // The node asked for a generation that it was sent.
    send_again: bool,
    // The node asked and asks often: it is answered when its turn comes.
    spec_wanted: bool,
    specs_wanted: Bucket,
    // The inventory sections that were last asked for, and when the same may be asked for again.
    asked: Vec<String>,
    ask_again: Timestamp,
    // The node renews when it is asked to, and when it may be asked again.
    renames: bool,
    renew_again: Timestamp,
    heartbeats: Bucket,
    statuses: Bucket,
    inventories: Bucket,
    commands: Commands,
    // Goodbye was said, and this is when the session ends at the latest.
    leaving: Option<Timestamp>,
}

impl Open {
    fn wanted_spec(&mut self, now: Timestamp) -> Option<Effect> {
        let due = self.spec_wanted && self.specs_wanted.take(now);
        self.spec_wanted &= !due;
        due.then_some(Effect::FetchSpec)
    }
}

impl SessionCore {
    /// A session whose stream was opened at `now`.
    #[must_use]
    pub fn new(rules: Rules, now: Timestamp) -> Self {
        let until = rules.hello_within.after(now);
        Self { rules, state: State::AwaitHello { until } }
    }

    /// The newest generation that the node has or was sent, while the session is open.
    #[must_use]
    pub const fn sent(&self) -> Option<Generation> {
        match &self.state {
            State::Open(open) => Some(open.sent),
            _ => None,
        }
    }

    /// Whether it is over.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// When [`tick`](Self::tick) has something to do, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        match &self.state {
            State::AwaitHello { until } | State::Opening { until, .. } => Some(*until),
            State::Open(open) => {
                let status = open.waiting_status.as_ref().map(|_| open.statuses.next());
                let spec = open.spec_wanted.then(|| open.specs_wanted.next());
                [status, spec, open.leaving, Some(self.rules.certificate_ends)].into_iter().flatten().min()
            }
            State::Closed => None,
        }
    }

    /// Time passed.
    pub fn tick(&mut self, now: Timestamp) -> Vec<Effect> {
        match &mut self.state {
            State::AwaitHello { until } if now >= *until => self.refuse(Refusal::HelloLate),
            State::Opening { until, .. } if now >= *until => {
                self.refuse(Refusal::Unavailable("the control plane did not open the session in time"))
            }
            State::Open(open) if open.leaving.is_some_and(|until| now >= until) => self.close(Ending::Goodbye),
            State::Open(_) if now >= self.rules.certificate_ends => self.refuse(Refusal::CertificateEnded),
            State::Open(open) => {
                let due = open.waiting_status.is_some() && open.statuses.take(now);
                let status = due.then(|| open.waiting_status.take()).flatten().map(Effect::Store);
                status.into_iter().chain(open.wanted_spec(now)).collect()
            }
            State::AwaitHello { .. } | State::Opening { .. } | State::Closed => Vec::new(),
        }
    }

    /// Something happened.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Vec<Effect> {
        if self.is_closed() {
            return Vec::new();
        }
        match input {
            Input::Frame(frame) => self.frame(*frame, now),
            Input::BadFrame(refusal) | Input::NotOpened(refusal) | Input::End(refusal) => self.refuse(refusal),
            Input::Opened(opened) => self.opened(*opened, now),
            Input::Facts(facts) => self.facts(&facts, now),
            Input::Spec(spec) => self.spec(*spec),
            Input::CommandsMayWait => self.commands(Commands::may_wait),
            Input::Claimed(claimed) => match &mut self.state {
                State::Open(open) => match open.commands.claimed(claimed, now) {
                    Ok(effects) => effects,
                    Err(refusal) => self.refuse(refusal),
                },
                _ => Vec::new(),
            },
            Input::Trust(trust_steps) => self.trust(trust_steps),
            Input::Policies(policies) => self.policies(policies),
            Input::Drain => self.drain(now),
            Input::Gone => self.close(Ending::Gone),
        }
    }

    fn frame(&mut self, frame: pb::NodeFrame, now: Timestamp) -> Vec<Effect> {
        let Some(frame) = frame.frame else {
            return self.refuse(Refusal::FrameUnknown);
        };
        match (&mut self.state, frame) {
            (State::AwaitHello { .. }, Up::Hello(hello)) => match hello::check(hello, &self.rules) {
                Err(refusal) => self.refuse(refusal),
                Ok(hello) => {
                    let request = Box::new(hello.open.clone());
                    let until = self.rules.open_within.after(now);
                    self.state = State::Opening { hello: Box::new(hello), until };
                    vec![Effect::Open(request)]
                }
            },
            (State::AwaitHello { .. }, _) => self.refuse(Refusal::HelloExpected),
            (_, Up::Hello(_)) => self.refuse(Refusal::HelloTwice),
            (State::Open(open), Up::Heartbeat(beat)) => {
                if !open.heartbeats.take(now) {
                    return self.refuse(Refusal::RateLimited("heartbeats"));
                }
                let answer = open.leaving.is_none();
                let ack = answer.then(|| send(Down::HeartbeatAck(pb::HeartbeatAck { sequence: beat.sequence })));
                std::iter::once(Effect::Beat).chain(ack).collect()
            }
            (State::Open(open), Up::CommandUpdate(update)) => match open.commands.update(update, now) {
                Ok(effects) => effects,
                Err(refusal) => self.refuse(refusal),
            },
            (State::Open(open), Up::DesiredStateWanted(wanted)) => {
                open.send_again |= wanted.generation <= open.sent.0;
                open.spec_wanted = open.leaving.is_none();
                std::iter::once(Effect::Beat).chain(open.wanted_spec(now)).collect()
            }
            (State::Open(_), Up::Status(report)) => self.report(ReportKind::Status, report, now),
            (State::Open(_), Up::Inventory(report)) => self.report(ReportKind::Inventory, report, now),
            (State::Opening { .. } | State::Closed, _) => {
                self.refuse(Refusal::FrameMalformed("nothing is sent between Hello and Welcome"))
            }
        }
    }

    fn report(&mut self, kind: ReportKind, report: pb::NodeReport, now: Timestamp) -> Vec<Effect> {
        let State::Open(open) = &mut self.state else { return Vec::new() };
        let report = match report::check(kind, report, self.rules.node_id, open.journal_id) {
            Ok(report) => report,
            Err(refusal) => return self.refuse(refusal),
        };
        let (last, bucket) = match kind {
            ReportKind::Status => (&mut open.last_status, &mut open.statuses),
            ReportKind::Inventory => (&mut open.last_inventory, &mut open.inventories),
        };
        if report.seq <= *last {
            return vec![Effect::Beat];
        }
        *last = report.seq;
        let asked = kind == ReportKind::Inventory && open.commands.inventory_comes();
        if asked || bucket.take(now) {
            if kind == ReportKind::Status {
                open.waiting_status = None;
            }
            return vec![Effect::Beat, Effect::Store(report)];
        }
        match kind {
            // A status says everything, so only the newest has to arrive.
            ReportKind::Status => {
                open.waiting_status = Some(report);
                vec![Effect::Beat]
            }
            ReportKind::Inventory => self.refuse(Refusal::RateLimited("inventory reports")),
        }
    }

    fn commands(&mut self, act: impl FnOnce(&mut Commands) -> Vec<Effect>) -> Vec<Effect> {
        match &mut self.state {
            State::Open(open) => act(&mut open.commands),
            _ => Vec::new(),
        }
    }

    fn opened(&mut self, opened: Opened, now: Timestamp) -> Vec<Effect> {
        let State::Opening { hello, .. } = &self.state else { return Vec::new() };
        let mut effects = vec![send(Down::Welcome(pb::Welcome {
            epoch: opened.epoch.0,
            server_time: Some(opened.time),
            trust_bundle: Some(opened.bundle),
            heartbeat_seconds: u32::try_from(self.rules.heartbeat.as_secs()).unwrap_or(u32::MAX),
            gateway_id: self.rules.gateway_id.to_string(),
            capabilities: [
                DRIFT_CAPABILITY,
                COMMANDS_CAPABILITY,
                TRUST_CAPABILITY,
                POLICY_CAPABILITY,
                BINDS_CAPABILITY,
            ]
            .map(str::to_owned)
            .to_vec(),
            trust_steps: opened.trust_steps,
        }))];
        effects.extend(opened.policies.into_iter().map(|policies| send(Down::Policies(policies))));
        if let Some(sections) = hello::wanted(&hello.inventory, &opened.inventory) {
            effects.push(send(Down::InventoryWanted(pb::InventoryWanted { sections })));
        }
        if opened.generation > hello.applied {
            effects.push(Effect::FetchSpec);
        }
        let mut commands = Commands::new(self.rules.node_id, hello.open.commands, opened.allowed, now);
        effects.extend(commands.replay(opened.replay, now));
        effects.extend(hello.cannot_keep.clone().map(Effect::CannotKeep));
        self.state = State::Open(Box::new(Open {
            epoch: opened.epoch,
            identity_generation: opened.identity_generation,
            journal_id: hello.open.journal_id,
            sent: hello.applied,
            last_status: 0,
            last_inventory: 0,
            waiting_status: None,
            send_again: false,
            spec_wanted: false,
            specs_wanted: Bucket::new(SPECS_WANTED, now),
            asked: Vec::new(),
            ask_again: now,
            renames: hello.renames,
            renew_again: now,
            heartbeats: Bucket::new(HEARTBEATS, now),
            statuses: Bucket::new(STATUSES, now),
            inventories: Bucket::new(INVENTORIES, now),
            commands,
            leaving: None,
        }));
        effects
    }

    fn facts(&mut self, facts: &Facts, now: Timestamp) -> Vec<Effect> {
        let State::Open(open) = &mut self.state else { return Vec::new() };
        if facts.identity_generation > open.identity_generation {
            return self.refuse(if facts.vacant { Refusal::CertificateRevoked } else { Refusal::IdentityReplaced });
        }
        if facts.revoked {
            return self.refuse(Refusal::CertificateRevoked);
        }
        if facts.epoch > open.epoch {
            return self.refuse(Refusal::Superseded);
        }
        if open.leaving.is_some() {
            return Vec::new();
        }
        let mut effects = open.commands.cancel(&facts.cancels, now);
        if facts.commands_waiting {
            effects.extend(open.commands.may_wait());
        }
        if facts.generation > open.sent {
            effects.push(Effect::FetchSpec);
        }
        if facts.renamed && open.renames && now >= open.renew_again {
            open.renew_again = ASK_AGAIN.after(now);
            effects.push(send(Down::RenewalWanted(pb::RenewalWanted {})));
        }
        let wanted: Vec<String> = facts.inventory_wanted.iter().map(ToString::to_string).collect();
        if !wanted.is_empty() && (wanted != open.asked || now >= open.ask_again) {
            open.ask_again = ASK_AGAIN.after(now);
            open.asked.clone_from(&wanted);
            effects.push(send(Down::InventoryWanted(pb::InventoryWanted { sections: wanted })));
        }
        effects
    }

    fn spec(&mut self, spec: pb::DesiredState) -> Vec<Effect> {
        let State::Open(open) = &mut self.state else { return Vec::new() };
        let again = std::mem::take(&mut open.send_again) && spec.generation == open.sent.0;
        if open.leaving.is_some() || !(again || spec.generation > open.sent.0) {
            return Vec::new();
        }
        open.sent = Generation(spec.generation);
        vec![send(Down::DesiredState(spec))]
    }

    fn trust(&self, trust_steps: Vec<pb::SignedTrustBundle>) -> Vec<Effect> {
        match &self.state {
            State::Open(open) if open.leaving.is_none() && !trust_steps.is_empty() => {
                vec![send(Down::Trust(pb::TrustSteps { trust_steps }))]
            }
            _ => Vec::new(),
        }
    }

    fn policies(&self, policies: Vec<pb::Policies>) -> Vec<Effect> {
        match &self.state {
            State::Open(open) if open.leaving.is_none() => {
                policies.into_iter().map(|policies| send(Down::Policies(policies))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn drain(&mut self, now: Timestamp) -> Vec<Effect> {
        let State::Open(open) = &mut self.state else {
            return self.refuse(Refusal::Unavailable("this gateway is going away"));
        };
        if open.leaving.is_some() {
            return Vec::new();
        }
        open.leaving = Some(self.rules.linger.after(now));
        open.spec_wanted = false;
        open.commands.leave();
        let mut effects: Vec<Effect> = open.waiting_status.take().map(Effect::Store).into_iter().collect();
        let seconds = u32::try_from(self.rules.reconnect_within.as_secs()).unwrap_or(u32::MAX);
        effects.push(send(Down::Goodbye(pb::Goodbye { reconnect_within_seconds: seconds })));
        effects
    }

    fn refuse(&mut self, refusal: Refusal) -> Vec<Effect> {
        // After Goodbye nothing is sent.
        let told = matches!(&self.state, State::Open(open) if open.leaving.is_some());
        let frame = pb::Refused { code: refusal.code().to_owned(), message: refusal.to_string() };
        let mut effects: Vec<Effect> = (!told).then(|| send(Down::Refused(frame))).into_iter().collect();
        effects.extend(self.close(Ending::Refused(refusal)));
        effects
    }

    fn close(&mut self, ending: Ending) -> Vec<Effect> {
        let last = match std::mem::replace(&mut self.state, State::Closed) {
            State::Open(open) if !matches!(ending, Ending::Refused(_)) => open.waiting_status,
            _ => None,
        };
        last.map(Effect::Store).into_iter().chain([Effect::Close(ending)]).collect()
    }
}

fn send(frame: Down) -> Effect {
    Effect::Send(Box::new(frame))
}
