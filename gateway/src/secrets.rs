//! Requests for secrets: only of nodes, bounded, and answered by the control plane. What passes here is sealed.

use std::sync::{Arc, Mutex, PoisonError};

use pki::verify::Peer;
use proto::agent::v1::{self as pb, secrets_server::Secrets};
use schema::{clock::SharedClock, id::NodeId};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::{
    authority::ControlPlane,
    connection::PeerInfo,
    join::told,
    limit::{Keyed, Rate},
};

const PER_NODE: Rate = Rate { burst: 8, per_minute: 30 };
const MOST_NODES: usize = 50_000;
const IN_FLIGHT: usize = 32;

/// Forwards requests for secrets.
pub(crate) struct SecretForwarder {
    control_plane: Arc<dyn ControlPlane>,
    clock: SharedClock,
    nodes: Mutex<Keyed<NodeId>>,
    in_flight: Semaphore,
}

impl SecretForwarder {
    pub(crate) fn new(control_plane: Arc<dyn ControlPlane>, clock: SharedClock) -> Self {
        let nodes = Mutex::new(Keyed::new(PER_NODE, MOST_NODES, clock.now()));
        Self { control_plane, clock, nodes, in_flight: Semaphore::new(IN_FLIGHT) }
    }
}

#[tonic::async_trait]
impl Secrets for SecretForwarder {
    async fn request(&self, request: Request<pb::SecretRequest>) -> Result<Response<pb::SecretResponse>, Status> {
        let info = request.extensions().get::<PeerInfo>().expect("every connection carries its peer").clone();
        info.activity.call();
        let now = self.clock.now();
        let Peer::Node(identity) = &info.peer else {
            return Err(Status::unauthenticated("only a node asks for secrets, with its certificate"));
        };
        if now >= identity.not_after {
            return Err(Status::unauthenticated("the certificate has ended: renew it first"));
        }
        if !self.nodes.lock().unwrap_or_else(PoisonError::into_inner).take(identity.node_id, now) {
            return Err(Status::resource_exhausted("too many requests of this node: try again in a minute"));
        }
        let _permit = self
            .in_flight
            .try_acquire()
            .map_err(|_| Status::resource_exhausted("too many nodes ask at the same time: try again in a moment"))?;
        told("secrets", info.address, self.control_plane.request_secrets(request.into_inner(), info.address).await)
    }
}
