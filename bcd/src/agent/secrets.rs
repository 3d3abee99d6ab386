//! The daemon and the broker: what a pass lacks is asked for once, sealed to a key that only that request has.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pki::{
    broker::{Asking, MOST_WANTED, SealedValues},
    bundle::TrustBundle,
    issue::TlsIdentity,
    node_key::NodeKey,
    tls::{ServerTimes, agent_client},
    verify::Validity,
};
use proto::agent::v1::{self as pb, secrets_client::SecretsClient};
use schema::{clock::Clock as _, id::NodeId, spec::SecretVersion, time::Timestamp};

use super::{Agent, AgentError, Side, chance};
use crate::{
    dial::{Endpoint, dial},
    vault::Released,
    wire,
};

const CALL: Duration = Duration::from_secs(20);

struct Errand {
    endpoint: Endpoint,
    times: ServerTimes,
    identity: TlsIdentity,
    key: Arc<NodeKey>,
    node: NodeId,
    trust: TrustBundle,
    now: Timestamp,
    wanted: Vec<SecretVersion>,
}

impl Agent {
    /// Whether the broker can be asked now.
    pub(super) fn may_ask(&self) -> bool {
        let due = self.ask_at.is_none_or(|at| Instant::now() >= at);
        due && self.link.is_some() && self.opened_at.is_some() && self.clock.is_proven()
    }

    /// A pass lacks values: it goes on once there is an answer.
    pub(super) fn ask(&mut self, wanted: Vec<SecretVersion>) {
        let endpoint = self.endpoints[self.attempts.saturating_sub(1) % self.endpoints.len()].clone();
        let errand = Errand {
            endpoint,
            times: self.server_times(),
            identity: self.tls_identity(),
            key: Arc::clone(&self.key),
            node: self.identity.identity.node_id,
            trust: self.core.trust().clone(),
            now: self.clock.now(),
            wanted,
        };
        let sides = self.sides.clone();
        self.tasks.spawn(async move {
            let released = match tokio::time::timeout(CALL, errand.run()).await {
                Ok(released) => released,
                Err(_) => Err("the broker did not answer in time".to_owned()),
            };
            sides.send(Side::Released(released)).await.ok();
        });
    }

    /// The broker answered, or did not.
    pub(super) fn released(&mut self, released: Released) -> Result<(), AgentError> {
        self.asking = false;
        self.ask_at = match &released {
            Ok(values) => {
                self.asks.reset();
                tracing::info!("{} values of secrets were released to this node", values.len());
                None
            }
            Err(reason) => {
                tracing::warn!("secrets cannot be had: {reason}");
                Some(Instant::now() + self.asks.next(chance(0.0, 1.0)))
            }
        };
        if let Some(converger) = &mut self.converger {
            converger.fill(released);
        }
        let all = self.pass_wanted.take().unwrap_or(false);
        self.pass(all, false);
        Ok(())
    }
}

impl Errand {
    async fn run(self) -> Released {
        let tls = agent_client(&self.trust.roots(), Some(&self.identity), self.times.clone());
        let channel = dial(&self.endpoint, tls.map_err(|error| error.to_string())?).await;
        let mut client = SecretsClient::new(channel.map_err(|error| error.to_string())?)
            .max_decoding_message_size(proto::MAX_FRAME_BYTES);
        let (realm, verifier) = (self.trust.realm(), self.trust.verifier());
        let mut values = Vec::new();
        for wanted in self.wanted.chunks(MOST_WANTED) {
            let asking = Asking::new(&realm, self.node, &self.key, wanted.to_vec(), self.now);
            let call = pb::SecretRequest { request: asking.bytes.clone(), signature: asking.signature.clone() };
            let answer = client.request(call).await.map_err(|status| told(&status))?.into_inner();
            let signature = wire::signature(answer.signature);
            let sealed = SealedValues { encapsulated_key: answer.encapsulated_key, ciphertext: answer.ciphertext };
            let opened = asking.open(&sealed, &signature, &verifier, Validity::At(self.now));
            values.extend(opened.map_err(|error| error.to_string())?);
        }
        Ok(values)
    }
}

/// What the broker said, with its word in front, as the guide lists them.
fn told(status: &tonic::Status) -> String {
    match status.metadata().get("bc-code").and_then(|code| code.to_str().ok()) {
        Some(code) => format!("{code}: {}", status.message()),
        None => status.message().to_owned(),
    }
}
