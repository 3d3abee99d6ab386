//! The broker: values of secrets for the node whose spec refers to them, sealed to a key that only this request has.
//!
//! What a node may have is what its stored spec names, to the version. A name that it may not have and one that does not
//! exist are answered alike.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use pki::{
    broker::{self, BadOneTimeKey, RequestRefusal, SecretRequest},
    node_key::NodePublicKey,
    secret::Address,
};
use proto::agent::v1 as pb;
use schema::{id::NodeId, name::Name, node::ProvisionState, spec::NodeSpec, time::Timestamp};
use serde_json::json;
use store::{DbError, audit, node_certs, nodes, secrets};

use super::{JoinService, wire};
use crate::reconcile::node::HARDWARE_CHANGED;

/// Requests of one node in a minute: more than a daemon ever needs.
const PER_MINUTE: u32 = 30;
/// How many nodes are counted apart before the counting begins anew.
const MOST_NODES: usize = 100_000;

/// Why a node gets no values.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokerRefusal {
    /// The request makes no sense, or is too old.
    #[error(transparent)]
    Request(#[from] RequestRefusal),
    /// The one-time key makes no sense.
    #[error(transparent)]
    Key(#[from] BadOneTimeKey),
    /// The node's present key did not sign it, or there is no such node.
    #[error("the request was not signed by a node of this fleet")]
    Signature,
    /// It asks for something else than its spec refers to.
    #[error("the spec of this node does not refer to what it asks for")]
    NotReferred,
    /// What asks shows other hardware than the node is known by.
    #[error(
        "the machine shows other hardware than node {0} is known by, so its secrets are kept back: after a repair \
         `better-compute node rebind {0}` says that it is the same machine"
    )]
    HardwareChanged(Name),
    /// Too often.
    #[error("too many requests of this node: try again in a minute")]
    TooOften,
    /// A stored value does not open.
    #[error("a stored value does not open: the control plane has other keys than the one that sealed it")]
    Unreadable,
    /// The database did not do its part.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl BrokerRefusal {
    /// Every stable word.
    #[cfg(test)]
    pub(crate) const CODES: &'static [&'static str] = &[
        "request-too-old",
        "bad-request",
        "no-possession",
        "not-referred",
        "hardware-changed",
        "too-often",
        "secret-unreadable",
        "unavailable",
    ];

    /// The stable word.
    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::Request(RequestRefusal::Time) => "request-too-old",
            Self::Request(_) | Self::Key(_) => "bad-request",
            Self::Signature => "no-possession",
            Self::NotReferred => "not-referred",
            Self::HardwareChanged(_) => "hardware-changed",
            Self::TooOften => "too-often",
            Self::Unreadable => "secret-unreadable",
            Self::Db(_) => "unavailable",
        }
    }
}

/// How often each node asked in the present minute.
#[derive(Debug, Default)]
pub(super) struct Asked(Mutex<(i64, HashMap<NodeId, u32>)>);

impl Asked {
    fn take(&self, node: NodeId, now: Timestamp) -> bool {
        let minute = now.as_second() / 60;
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.0 != minute || asked.1.len() >= MOST_NODES {
            *asked = (minute, HashMap::new());
        }
        let count = asked.1.entry(node).or_default();
        *count = count.saturating_add(1);
        *count <= PER_MINUTE
    }
}

impl JoinService {
    /// Answers a request for values, and writes down which were released.
    pub(super) async fn release(&self, sent: &pb::SecretRequest) -> Result<pb::SecretResponse, BrokerRefusal> {
        let now = self.clock.now();
        let request = SecretRequest::parse(&sent.request, now)?;
        let id = request.node_id;
        let keys = node_certs::keys(&self.db, id).await?;
        let signed = |point: &Vec<u8>| {
            let key = NodePublicKey::from_bytes(point);
            key.verify_secret_request(&self.realm, id, &sent.request, &sent.signature).is_ok()
        };
        if !keys.iter().any(signed) {
            return Err(BrokerRefusal::Signature);
        }
        // Only what the node itself signed counts against it.
        if !self.asked.take(id, now) {
            return Err(BrokerRefusal::TooOften);
        }
        let node = nodes::find(&self.db, id).await?.filter(|node| node.provision != ProvisionState::Retired);
        if let Some(node) = node.as_ref().filter(|node| node.has_condition(HARDWARE_CHANGED)) {
            return Err(BrokerRefusal::HardwareChanged(node.name.clone()));
        }
        let stored = nodes::find_spec(&self.db, id).await?;
        let spec = stored.and_then(|stored| NodeSpec::from_bytes(&stored.bytes).ok()).filter(|_| node.is_some());
        let referred = spec.map(|spec| spec.secrets()).unwrap_or_default();
        if !request.wanted.iter().all(|wanted| referred.contains(wanted)) {
            return Err(BrokerRefusal::NotReferred);
        }
        let mut values = Vec::with_capacity(request.wanted.len());
        for wanted in &request.wanted {
            let version = u64::from(wanted.version);
            let envelope = secrets::find_envelope(&self.db, &wanted.name, version).await?;
            let envelope = envelope.ok_or(BrokerRefusal::NotReferred)?;
            let address = Address { name: &wanted.name, version, tenant: None };
            values.push(self.secrets.open(address, &envelope).map_err(|_| BrokerRefusal::Unreadable)?);
        }
        let sealed = broker::seal(&self.realm, &request, &sent.request, &values)?;
        let signature = self.signer.worker(now).sign_secret_response(id, &sent.request, &sealed);

        let mut txn = self.db.begin().await?;
        let released = json!({ "secrets": request.wanted });
        audit::append(&mut txn, &id.to_string(), "secrets.release", &id.to_string(), &released).await?;
        txn.commit().await?;
        tracing::info!(node = %id, secrets = request.wanted.len(), "released secrets to a node");
        Ok(pb::SecretResponse {
            encapsulated_key: sealed.encapsulated_key,
            ciphertext: sealed.ciphertext,
            signature: Some(wire::signature(signature)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_that_asks_too_often_keeps_nobody_else_from_asking() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().expect("a time");
        let (asked, one, other) = (Asked::default(), NodeId::generate(), NodeId::generate());
        assert_eq!((0..100).filter(|_| asked.take(one, now)).count(), 30);
        assert!(asked.take(other, now));
        assert!(asked.take(one, schema::time::Duration::from_secs(60).after(now)));
    }
}
