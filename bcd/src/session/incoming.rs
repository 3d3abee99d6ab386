//! What the gateway says. It can delay, drop or repeat; everything that matters is signed by somebody else.

use std::{sync::Arc, time::Duration};

use pki::{bundle::SignedBundle, verify::Validity};
use proto::agent::v1::{self as pb, gateway_frame};
use schema::{
    generation::{Epoch, Generation},
    inventory::InventorySection,
    report::{BINDS_CAPABILITY, DRIFT_CAPABILITY, POLICY_CAPABILITY, TRUST_CAPABILITY},
};

use super::{Again, Core, Effect, Level, Now, Phase, Proven};
use crate::{command::Do, state::Desired, wire};

const DEFAULT_BEAT: u32 = 30;
const BEATS: std::ops::RangeInclusive<u32> = 5..=300;
/// The longest that a gateway which goes away keeps this machine from others.
const LONGEST_AWAY: Duration = Duration::from_secs(300);

fn say(level: Level, text: impl Into<String>) -> Effect {
    Effect::Say(level, text.into())
}

impl Core {
    pub(super) fn frame(&mut self, frame: gateway_frame::Frame, now: Now) -> Vec<Effect> {
        use gateway_frame::Frame;
        if let Phase::Open { heard, .. } = &mut self.phase {
            *heard = now.mono;
        }
        match (&self.phase, frame) {
            (Phase::Closed, _) => Vec::new(),
            (_, Frame::Refused(refused)) => self.refused(&refused),
            (_, Frame::Goodbye(goodbye)) => {
                self.phase = Phase::Closed;
                let within = Duration::from_secs(goodbye.reconnect_within_seconds.into()).min(LONGEST_AWAY);
                let text = "the gateway goes away; connecting again soon";
                vec![say(Level::Info, text), Effect::Close(Again::Within(within))]
            }
            (Phase::Opening { nonce, since }, Frame::Welcome(welcome)) => {
                let (nonce, age) = (*nonce, now.mono.saturating_duration_since(*since));
                self.welcome(welcome, nonce, age, now)
            }
            (Phase::Opening { .. }, _) => self.end("the gateway's first frame is no welcome"),
            (Phase::Open { .. }, Frame::DesiredState(desired)) => self.desired_state(desired, now),
            (Phase::Open { .. }, Frame::InventoryWanted(wanted)) => self.inventory_wanted(&wanted, now),
            (Phase::Open { .. }, Frame::Command(command)) => self.command(command, now),
            (Phase::Open { .. }, Frame::CancelCommand(cancel)) => self.cancel_command(&cancel),
            (Phase::Open { .. }, Frame::Trust(steps)) => self.trust_steps(steps, now),
            (Phase::Open { .. }, Frame::Policies(policies)) => self.policies(policies, now),
            (Phase::Open { .. }, Frame::RenewalWanted(_)) => vec![Effect::Renew],
            (Phase::Open { .. }, Frame::HeartbeatAck(_)) => Vec::new(),
            (Phase::Open { .. }, Frame::Welcome(_)) => vec![say(Level::Warn, "a second welcome was ignored")],
        }
    }

    fn end(&mut self, why: impl Into<String>) -> Vec<Effect> {
        self.phase = Phase::Closed;
        vec![say(Level::Warn, why), Effect::Close(Again::BackOff)]
    }

    fn refused(&mut self, refused: &pb::Refused) -> Vec<Effect> {
        self.phase = Phase::Closed;
        // A control plane that was restored from a backup does not know a later certificate, but its key; and one whose
        // authorities were rotated while this machine was away recognises the old ones when it is asked to renew.
        // And a certificate that is not valid yet was issued by a clock that was wrong.
        let codes = ["CERTIFICATE_EXPIRED", "CERTIFICATE_NOT_YET_VALID", "UNKNOWN_CERTIFICATE", "FOREIGN_CA"];
        let renew = codes.contains(&refused.code.as_str());
        let again = if renew { Again::Renew } else { Again::BackOff };
        let message: String = refused.message.chars().filter(|c| !c.is_control()).take(500).collect();
        let code: String = refused.code.chars().filter(char::is_ascii_graphic).take(60).collect();
        let warned = say(Level::Warn, format!("the control plane refuses this session: {code}: {message}"));
        // Said to a daemon that was open before it is a lie, or about a copy of it that runs elsewhere.
        let renamed = (refused.code == "JOURNAL_OLD" && self.may_be_old).then_some(Effect::RenameJournal);
        [warned].into_iter().chain(renamed).chain([Effect::Close(again)]).collect()
    }

    fn welcome(&mut self, welcome: pb::Welcome, nonce: [u8; 32], age: Duration, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        let steps = welcome.trust_steps.into_iter().chain(welcome.trust_bundle).map(wire::bundle).collect::<Vec<_>>();
        effects.extend(self.step_trust(&steps));
        let signed = wire::proven_time(&self.trust, self.me.node_id, &nonce, welcome.server_time);
        match signed.and_then(|time| Ok((time, self.prove(Proven::signed(time, age), now)?))) {
            Ok((time, proven)) => {
                effects.push(Effect::TimeProven(proven));
                // A time that is taken back is taken back to what is known for good, and no further.
                let since = self.floor.map_or(proven.at_most(), |floor| floor.max(proven.at_most()));
                effects.push(Effect::Command(Box::new(Do::Proven(since))));
                effects.extend(self.floor(proven));
                let off = now.wall.duration_since(time).as_secs();
                if off.abs() > 5 {
                    effects.push(say(Level::Warn, format!("this machine's clock is {off} s off; using signed time")));
                }
            }
            Err(why) => {
                effects.extend(self.end(why));
                return effects;
            }
        }
        let reads = |wanted: &str| welcome.capabilities.iter().any(|word| word == wanted);
        self.reads_drift = reads(DRIFT_CAPABILITY);
        self.reads_trust = reads(TRUST_CAPABILITY);
        self.reads_policy = reads(POLICY_CAPABILITY);
        self.reads_binds = reads(BINDS_CAPABILITY);
        let beat = if BEATS.contains(&welcome.heartbeat_seconds) { welcome.heartbeat_seconds } else { DEFAULT_BEAT };
        let every = Duration::from_secs(beat.into());
        let epoch = Epoch(welcome.epoch);
        self.phase = Phase::Open { every, next_beat: now.mono + every, beat: 0, heard: now.mono };
        effects.push(say(Level::Info, format!("session {epoch} is open with gateway {}", welcome.gateway_id)));
        effects.push(Effect::Opened);
        if let Some(policies) = &mut self.policies {
            Arc::make_mut(policies).begin_session();
            self.guard();
        }
        self.may_be_old = false;
        effects.extend(self.report_status(now));
        effects.extend(self.report_changed_inventory(&[], now));
        effects
    }

    /// Steps through the trust bundles that are news. Each has to follow from the one before.
    fn step_trust(&mut self, steps: &[SignedBundle]) -> Vec<Effect> {
        let (next, refused) = self.trust.step_through(steps);
        let mut effects = Vec::new();
        if next.version > self.trust.version {
            effects.push(say(Level::Info, format!("trust bundle {} is in force", next.version)));
            effects.push(Effect::KeepTrust(next.clone()));
            self.trust = next;
        }
        effects.extend(refused.map(|why| say(Level::Warn, format!("a trust bundle was not taken: {why}"))));
        effects
    }

    fn trust_steps(&mut self, steps: pb::TrustSteps, now: Now) -> Vec<Effect> {
        let before = self.trust.version;
        let steps: Vec<_> = steps.trust_steps.into_iter().map(wire::bundle).collect();
        let mut effects = self.step_trust(&steps);
        if self.trust.version != before {
            // Whoever rotates keys waits for this word.
            effects.extend(self.report_status(now));
        }
        effects
    }

    fn desired_state(&mut self, desired: pb::DesiredState, now: Now) -> Vec<Effect> {
        let generation = Generation(desired.generation);
        let refuse = |why: String| vec![say(Level::Warn, format!("desired state {generation} is refused: {why}"))];
        let signature = wire::signature(desired.signature);
        let verified = self.trust.verifier().desired_state(
            self.me.node_id,
            generation,
            &desired.spec,
            &signature,
            Validity::At(self.time(now)),
        );
        if let Err(error) = verified {
            // It is sent once in a session; in another one it may come under a fresh signature.
            return self.end(format!("desired state {generation} is refused: {error}"));
        }
        let Ok(spec) = String::from_utf8(desired.spec) else { return refuse("it is not text".to_owned()) };
        if generation < self.kept {
            return refuse(format!("this node has {} already", self.kept));
        }
        if generation == self.kept {
            if self.kept_spec.as_deref() != Some(&spec) {
                return refuse("this node has another one of the same generation".to_owned());
            }
            return if self.progress.applied < generation { vec![Effect::Apply] } else { self.report_status(now) };
        }
        self.kept = generation;
        self.kept_spec = Some(spec.clone());
        vec![
            Effect::KeepDesired(Desired::new(generation, spec, &signature)),
            say(Level::Info, format!("desired state {generation} is verified")),
            Effect::Apply,
        ]
    }

    fn inventory_wanted(&mut self, wanted: &pb::InventoryWanted, now: Now) -> Vec<Effect> {
        let named: Vec<InventorySection> = wanted.sections.iter().filter_map(|name| name.parse().ok()).collect();
        let sections = if wanted.sections.is_empty() { InventorySection::ALL.to_vec() } else { named };
        if self.inventory.sections.is_empty() {
            // The machine is being looked at; all of it travels then.
            self.progress.reported.clear();
            return vec![Effect::Collect];
        }
        self.report_inventory(&sections, now)
    }
}
