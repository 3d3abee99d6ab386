//! The calls that need no client certificate: bounded here, answered by the control plane.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use proto::agent::v1::{self as pb, join_server::Join};
use schema::{clock::SharedClock, places::network};
use tokio::sync::SemaphorePermit;
use tonic::{Request, Response, Status};

use crate::{
    authority::{CODE_METADATA, ControlPlane},
    connection::PeerInfo,
    gate::{Gate, Width},
    limit::Rate,
};

/// The largest request of these calls, in bytes.
pub(crate) const MAX_REQUEST_BYTES: usize = 512 * 1024;

/// Per network, so that one machine cannot take the whole service; a site behind one address still joins.
const WIDTH: Width = Width {
    each: Rate { burst: 64, per_minute: 600 },
    callers: 10_000,
    at_once: 64,
    too_often: "too many calls from this address: try again in a minute",
    too_many: "too many machines join at the same time: try again in a moment",
};

/// Forwards anchor, join and renewal.
pub(crate) struct JoinForwarder {
    control_plane: Arc<dyn ControlPlane>,
    clock: SharedClock,
    gate: Gate<IpAddr>,
}

impl JoinForwarder {
    pub(crate) fn new(control_plane: Arc<dyn ControlPlane>, clock: SharedClock) -> Self {
        let gate = Gate::new(WIDTH, clock.now());
        Self { control_plane, clock, gate }
    }

    fn enter<T>(&self, request: &Request<T>) -> Result<(SocketAddr, SemaphorePermit<'_>), Status> {
        let info = request.extensions().get::<PeerInfo>().expect("every connection carries its peer");
        let permit = self.gate.enter(network(info.address.ip()), self.clock.now())?;
        // A call that is refused keeps no connection open.
        info.activity.call();
        Ok((info.address, permit))
    }
}

#[tonic::async_trait]
impl Join for JoinForwarder {
    async fn get_anchor(
        &self,
        request: Request<pb::GetAnchorRequest>,
    ) -> Result<Response<pb::GetAnchorResponse>, Status> {
        let (peer, _permit) = self.enter(&request)?;
        told("anchor", peer, self.control_plane.anchor().await)
    }

    async fn join_challenge(
        &self,
        request: Request<pb::JoinChallengeRequest>,
    ) -> Result<Response<pb::JoinChallengeResponse>, Status> {
        let (peer, _permit) = self.enter(&request)?;
        told("join-challenge", peer, self.control_plane.join_challenge(request.into_inner(), peer).await)
    }

    async fn join(&self, request: Request<pb::JoinRequest>) -> Result<Response<pb::JoinResponse>, Status> {
        let (peer, _permit) = self.enter(&request)?;
        told("join", peer, self.control_plane.join(request.into_inner(), peer).await)
    }

    async fn renew_challenge(
        &self,
        request: Request<pb::RenewChallengeRequest>,
    ) -> Result<Response<pb::RenewChallengeResponse>, Status> {
        let (peer, _permit) = self.enter(&request)?;
        told("renew-challenge", peer, self.control_plane.renew_challenge(request.into_inner(), peer).await)
    }

    async fn renew(&self, request: Request<pb::RenewRequest>) -> Result<Response<pb::RenewResponse>, Status> {
        let (peer, _permit) = self.enter(&request)?;
        told("renew", peer, self.control_plane.renew(request.into_inner(), peer).await)
    }
}

pub(crate) fn told<T>(call: &str, peer: SocketAddr, answer: Result<T, Status>) -> Result<Response<T>, Status> {
    if let Err(status) = &answer {
        let code = status.metadata().get(CODE_METADATA).and_then(|value| value.to_str().ok()).unwrap_or_default();
        tracing::info!(call, %peer, code, message = status.message(), "a machine was refused");
    }
    answer.map(Response::new)
}
