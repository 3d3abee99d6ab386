//! Requests for secrets: only of nodes, bounded, and answered by the control plane. What passes here is sealed.

use std::sync::Arc;

use pki::verify::Peer;
use proto::agent::v1::{self as pb, secrets_server::Secrets};
use schema::{clock::SharedClock, id::NodeId};
use tonic::{Request, Response, Status};

use crate::{
    authority::ControlPlane,
    connection::PeerInfo,
    gate::{Gate, Width},
    join::told,
    limit::Rate,
};

const WIDTH: Width = Width {
    each: Rate { burst: 8, per_minute: 30 },
    callers: 50_000,
    at_once: 32,
    too_often: "too many requests of this node: try again in a minute",
    too_many: "too many nodes ask at the same time: try again in a moment",
};

/// Forwards requests for secrets.
pub(crate) struct SecretForwarder {
    control_plane: Arc<dyn ControlPlane>,
    clock: SharedClock,
    gate: Gate<NodeId>,
}

impl SecretForwarder {
    pub(crate) fn new(control_plane: Arc<dyn ControlPlane>, clock: SharedClock) -> Self {
        let gate = Gate::new(WIDTH, clock.now());
        Self { control_plane, clock, gate }
    }
}

#[tonic::async_trait]
impl Secrets for SecretForwarder {
    async fn request(&self, request: Request<pb::SecretRequest>) -> Result<Response<pb::SecretResponse>, Status> {
        let info = request.extensions().get::<PeerInfo>().expect("every connection carries its peer").clone();
        let now = self.clock.now();
        let Peer::Node(identity) = &info.peer else {
            return Err(Status::unauthenticated("only a node asks for secrets, with its certificate"));
        };
        if now >= identity.not_after {
            return Err(Status::unauthenticated("the certificate has ended: renew it first"));
        }
        let _permit = self.gate.enter(identity.node_id, now)?;
        info.activity.call();
        told("secrets", info.address, self.control_plane.request_secrets(request.into_inner(), info.address).await)
    }
}
