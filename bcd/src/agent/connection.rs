//! The daemon's connection and its certificate: when to connect, when to renew.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pki::{
    issue::TlsIdentity,
    tls::{LeftOpen, ServerTimes, agent_client},
};
use schema::{
    clock::{Clock as _, SharedClock},
    time::Timestamp,
};

use super::{Agent, AgentError, SAID_WITHIN, Side, chance, link::Link};
use crate::{
    dial::DialError,
    join::{JoinError, Renewal, Renewed},
    session::{Again, Event},
    state::{Identity, RenewalTried},
};

/// How long a session has to last for back-off to begin anew.
const STEADY: Duration = Duration::from_secs(5);
/// How long to wait after a renewal, whether it failed or not.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// How long renewals that nobody asked for wait while the time is not proven.
const UNPROVEN: Duration = Duration::from_secs(3_600);

/// How long the control plane keeps the steps from roots that were replaced.
const STEPS_KEPT: schema::time::Duration = schema::time::Duration::from_secs(400 * 86_400);

/// Why there is no certificate, and the way back of a machine that was away for longer than steps are kept.
pub(super) fn refusal(error: &JoinError, long_away: bool) -> String {
    match error {
        JoinError::Dial(DialError::Untrusted { .. }) if long_away => format!(
            "{error}; or this machine was away for too long and has missed a rotation of the authority: then it comes back with \
             `bcd join --force` and a token of `better-compute token create --pool POOL --reclaim`"
        ),
        _ => error.to_string(),
    }
}

impl Agent {
    pub(super) fn connect(&mut self) -> Result<(), AgentError> {
        self.connect_at = None;
        let endpoint = self.endpoints[self.attempts % self.endpoints.len()].clone();
        self.attempts += 1;
        self.links += 1;
        // Signed time comes next, and judges: also a clock that was proven may be a day behind, or far ahead.
        let left = LeftOpen::default();
        self.left_open = Some(left.clone());
        let tls = agent_client(&self.core.trust().roots(), Some(&self.tls_identity()), ServerTimes::Open(left))
            .map_err(|error| AgentError::Identity(error.to_string()))?;
        let link = Link::open(&mut self.tasks, self.links, endpoint, tls, self.link_events.clone());
        self.link = Some(link);
        self.core.say(self.hands.clerk.journal.marks());
        self.unkept_said = self.unkept_at.is_some();
        self.handle(Event::Opening { nonce: rand::random() })
    }

    pub(super) fn close(&mut self, again: Again) {
        self.link = None;
        if self.contact.session.take().is_some() {
            self.contact.session_ended = Some(self.clock.now());
            self.keep_contact();
        }
        // A session that ends as soon as it begins is no success: two daemons with one identity must not race.
        if self.opened_at.take().is_some_and(|at| at.elapsed() >= STEADY) {
            self.backoff.reset();
        }
        let wait = match again {
            Again::BackOff => self.backoff.next(chance(0.0, 1.0)),
            Again::Within(limit) => limit.mul_f64(chance(0.0, 1.0)),
            Again::Renew => {
                self.renew();
                self.backoff.next(chance(0.5, 1.0))
            }
        };
        self.connect_at = Some(Instant::now() + wait);
    }

    pub(super) fn tls_identity(&self) -> TlsIdentity {
        self.key.identity(self.identity.certificates())
    }

    pub(super) fn server_times(&self) -> ServerTimes {
        // A machine that does not know the time yet gets it from the gateway, signed.
        if self.clock.is_proven() {
            ServerTimes::Clock(Arc::clone(&self.clock) as SharedClock)
        } else {
            ServerTimes::Open(LeftOpen::default())
        }
    }

    /// The time is proven: what the handshake left open is judged by it. Whether the connection is good.
    pub(super) fn judge_left_open(&mut self, now: Timestamp) -> bool {
        let judged = self.left_open.take().map_or(Ok(()), |left| left.judge(now));
        if let Err(error) = &judged {
            tracing::warn!("the gateway is not believed after all: {error}");
        }
        judged.is_ok()
    }

    /// Half the life, a little more or less, the same for this node every time it starts. While the time is not proven nothing
    /// is planned: a session that is refused for the certificate asks for another one by itself.
    pub(super) fn plan_renewal(&mut self) {
        let now = Instant::now();
        let Some(proven) = self.clock.proven() else {
            self.renew_at = now + UNPROVEN;
            return;
        };
        let (from, to) = (self.certificate.not_before, self.certificate.not_after);
        let life = to.duration_since(from).unsigned_abs();
        let spread = f64::from(self.identity.identity.node_id.as_uuid().as_bytes()[15]) / 255.0;
        let at = from.saturating_add(life.mul_f64(0.45 + 0.1 * spread)).unwrap_or(to);
        self.renew_at = now + at.duration_since(proven).max(jiff::SignedDuration::ZERO).unsigned_abs();
    }

    /// The control plane has something new for this machine. A gateway that says so again and again causes few renewals.
    pub(super) fn renew_soon(&mut self) {
        let now = Instant::now();
        let soon = self.renewal_began.map_or(now, |at| now.max(at + RENEW_AGAIN));
        self.renew_at = self.renew_at.min(soon);
    }

    pub(super) fn renew(&mut self) {
        if std::mem::replace(&mut self.renewing, true) {
            return;
        }
        self.renewal_began = Some(Instant::now());
        self.renew_at = Instant::now() + RENEW_AGAIN.mul_f64(chance(0.8, 1.2));
        let endpoint = self.endpoints[self.attempts % self.endpoints.len()].clone();
        let renewal = Renewal {
            endpoint,
            left_open: LeftOpen::default(),
            key: Arc::clone(&self.key),
            trust: self.core.trust().clone(),
            current: self.certificate.clone(),
            chain: self.identity.certificates(),
            hardware: Arc::clone(&self.config.hardware),
        };
        let sides = self.sides.clone();
        let long_away = STEPS_KEPT.after(self.certificate.not_after) < self.clock.now();
        self.tasks.spawn(async move {
            let renewed = renewal.run().await.map_err(|error| refusal(&error, long_away));
            sides.send(Side::Renewed(Box::new(renewed))).await.ok();
        });
    }

    /// What is kept for people may be missing.
    pub(super) fn keep_contact(&self) {
        if let Err(error) = self.state.keep_contact(&self.contact) {
            tracing::debug!("{error}");
        }
    }

    pub(super) fn renewed(&mut self, result: Result<Renewed, String>) -> Result<(), AgentError> {
        self.renewing = false;
        if result.is_ok() || self.refused_renewal.is_empty() || result.as_ref().err() != Some(&self.refused_renewal) {
            let at = self.clock.now();
            self.contact.renewal = Some(RenewalTried { at, refused: result.as_ref().err().cloned() });
            self.keep_contact();
        }
        match result {
            Ok(renewed) => {
                let before = self.identity.clone();
                let identity = Identity {
                    chain: Identity::encode(&renewed.chain),
                    identity: renewed.identity.unwrap_or(before.identity),
                    ..before
                };
                // The trust first: with the certificate kept, whoever issued it is believed.
                if renewed.trust.version > self.core.trust().version {
                    self.state.keep_trust(&renewed.trust)?;
                    self.core.stepped(renewed.trust);
                }
                self.state.keep_identity(&identity)?;
                let before = std::mem::replace(&mut self.identity, identity).identity.node_name;
                self.certificate = renewed.certificate;
                self.refused_renewal.clear();
                self.clock.prove(renewed.time);
                tracing::info!("the certificate is renewed until {}", self.certificate.not_after);
                self.plan_renewal();
                self.renew_at = self.renew_at.max(Instant::now() + RENEW_AGAIN);
                if self.link.is_none() {
                    self.connect_at = Some(Instant::now());
                }
                let name = self.identity.identity.node_name.clone();
                if name != before {
                    tracing::info!("this was {before}, and is {name} from now on");
                    self.core.go_by(&name);
                    // The control plane knows by the certificate of a session which name its machine goes by.
                    if self.link.is_some() {
                        self.close(Again::Within(SAID_WITHIN));
                        return self.handle(Event::Closed);
                    }
                }
            }
            Err(reason) if reason == self.refused_renewal => {
                tracing::debug!("the certificate could not be renewed: {reason}");
            }
            Err(reason) => {
                tracing::warn!("the certificate could not be renewed: {reason}; asking again from time to time");
                self.refused_renewal = reason;
            }
        }
        Ok(())
    }
}
