//! What needs authority is forwarded: this crate holds no CA and no signing key.
//!
//! The control plane serves `bettercompute.internal.v1.Authority`. Under `up` it is in the same process ([`InProcess`]);
//! a gateway apart reaches it over internal mutual TLS ([`AuthorityClient`]). Both give the same answers.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use hyper_util::rt::TokioIo;
use proto::{
    agent::v1 as pb,
    internal::v1::{self as internal, authority_client::AuthorityClient as Client, authority_server::Authority},
};
use rustls_pki_types::ServerName;
use schema::id::NodeId;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};

/// Metadata of a forwarded call: the peer's address as the gateway saw it.
pub const PEER_METADATA: &str = "bc-peer";
/// Metadata of a refusal: its stable word.
pub const CODE_METADATA: &str = "bc-code";

const CALL_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The part of the control plane that has authority. Refusals are statuses that go to the node as they are.
#[async_trait]
pub trait ControlPlane: Send + Sync + 'static {
    /// The public anchor that a join pin is the digest of.
    async fn anchor(&self) -> Result<pb::GetAnchorResponse, Status>;
    /// Makes a machine a node.
    async fn join(&self, request: pb::JoinRequest, peer: SocketAddr) -> Result<pb::JoinResponse, Status>;
    /// What a renewal has to be signed over.
    async fn renew_challenge(
        &self,
        request: pb::RenewChallengeRequest,
        peer: SocketAddr,
    ) -> Result<pb::RenewChallengeResponse, Status>;
    /// A new certificate for a node.
    async fn renew(&self, request: pb::RenewRequest, peer: SocketAddr) -> Result<pb::RenewResponse, Status>;
    /// Values of secrets, sealed for the node that signed the request.
    async fn request_secrets(&self, request: pb::SecretRequest, peer: SocketAddr)
    -> Result<pb::SecretResponse, Status>;
    /// Signed time over a node's nonce.
    async fn server_time(&self, node: NodeId, nonce: Vec<u8>) -> Result<pb::SignedTime, Status>;
    /// The newest trust bundle, every one later than `since`, and the authorities whose node certificates count.
    async fn trust(&self, since: u64) -> Result<internal::TrustBundleResponse, Status>;
}

/// A control plane in this process.
#[derive(Debug)]
pub struct InProcess<T>(Arc<T>);

impl<T> InProcess<T> {
    /// Forwards to this service.
    #[must_use]
    pub const fn new(authority: Arc<T>) -> Self {
        Self(authority)
    }
}

#[async_trait]
impl<T: Authority> ControlPlane for InProcess<T> {
    async fn anchor(&self) -> Result<pb::GetAnchorResponse, Status> {
        self.0.get_anchor(Request::new(pb::GetAnchorRequest {})).await.map(tonic::Response::into_inner)
    }

    async fn join(&self, request: pb::JoinRequest, peer: SocketAddr) -> Result<pb::JoinResponse, Status> {
        self.0.join(from_peer(request, peer)).await.map(tonic::Response::into_inner)
    }

    async fn renew_challenge(
        &self,
        request: pb::RenewChallengeRequest,
        peer: SocketAddr,
    ) -> Result<pb::RenewChallengeResponse, Status> {
        self.0.renew_challenge(from_peer(request, peer)).await.map(tonic::Response::into_inner)
    }

    async fn renew(&self, request: pb::RenewRequest, peer: SocketAddr) -> Result<pb::RenewResponse, Status> {
        self.0.renew(from_peer(request, peer)).await.map(tonic::Response::into_inner)
    }

    async fn request_secrets(
        &self,
        request: pb::SecretRequest,
        peer: SocketAddr,
    ) -> Result<pb::SecretResponse, Status> {
        self.0.request_secrets(from_peer(request, peer)).await.map(tonic::Response::into_inner)
    }

    async fn server_time(&self, node: NodeId, nonce: Vec<u8>) -> Result<pb::SignedTime, Status> {
        let request = internal::ServerTimeRequest { node_id: node.to_string(), nonce };
        time(self.0.server_time(Request::new(request)).await?.into_inner())
    }

    async fn trust(&self, since: u64) -> Result<internal::TrustBundleResponse, Status> {
        let request = Request::new(internal::TrustBundleRequest { since });
        self.0.trust_bundle(request).await.map(tonic::Response::into_inner)
    }
}

/// A control plane reached over internal mutual TLS.
#[derive(Debug, Clone)]
pub struct AuthorityClient(Client<Channel>);

impl AuthorityClient {
    /// A client of the service at `address` (host and port), with the configuration of `pki::tls::internal_client`. It
    /// connects when it is first used, and again whenever it must.
    #[must_use]
    pub fn new(address: String, tls: rustls::ClientConfig) -> Self {
        let tls = TlsConnector::from(Arc::new(tls));
        let address: Arc<str> = address.into();
        let connector = tower::service_fn(move |_: http::Uri| {
            let (tls, address) = (tls.clone(), Arc::clone(&address));
            async move {
                let name = ServerName::try_from(pki::keys::INTERNAL_NAME).expect("the internal name is a DNS name");
                let tcp = TcpStream::connect(&*address).await?;
                tcp.set_nodelay(true)?;
                tls.connect(name, tcp).await.map(TokioIo::new)
            }
        });
        // The scheme is `http` because the connector, not the channel, speaks TLS.
        let channel = Endpoint::from_static("http://authority.internal")
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(CALL_TIMEOUT)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .connect_with_connector_lazy(connector);
        Self(Client::new(channel).max_decoding_message_size(proto::MAX_FRAME_BYTES))
    }
}

#[async_trait]
impl ControlPlane for AuthorityClient {
    async fn anchor(&self) -> Result<pb::GetAnchorResponse, Status> {
        answer(self.0.clone().get_anchor(pb::GetAnchorRequest {}).await)
    }

    async fn join(&self, request: pb::JoinRequest, peer: SocketAddr) -> Result<pb::JoinResponse, Status> {
        answer(self.0.clone().join(from_peer(request, peer)).await)
    }

    async fn renew_challenge(
        &self,
        request: pb::RenewChallengeRequest,
        peer: SocketAddr,
    ) -> Result<pb::RenewChallengeResponse, Status> {
        answer(self.0.clone().renew_challenge(from_peer(request, peer)).await)
    }

    async fn renew(&self, request: pb::RenewRequest, peer: SocketAddr) -> Result<pb::RenewResponse, Status> {
        answer(self.0.clone().renew(from_peer(request, peer)).await)
    }

    async fn request_secrets(
        &self,
        request: pb::SecretRequest,
        peer: SocketAddr,
    ) -> Result<pb::SecretResponse, Status> {
        answer(self.0.clone().request_secrets(from_peer(request, peer)).await)
    }

    async fn server_time(&self, node: NodeId, nonce: Vec<u8>) -> Result<pb::SignedTime, Status> {
        let request = internal::ServerTimeRequest { node_id: node.to_string(), nonce };
        time(answer(self.0.clone().server_time(request).await)?)
    }

    async fn trust(&self, since: u64) -> Result<internal::TrustBundleResponse, Status> {
        answer(self.0.clone().trust_bundle(internal::TrustBundleRequest { since }).await)
    }
}

fn from_peer<T>(message: T, peer: SocketAddr) -> Request<T> {
    let mut request = Request::new(message);
    let value = peer.to_string().parse().expect("an address is ASCII");
    request.metadata_mut().insert(PEER_METADATA, value);
    request
}

fn time(response: internal::ServerTimeResponse) -> Result<pb::SignedTime, Status> {
    response.time.ok_or_else(|| Status::internal("the control plane answered without a time"))
}

// A node must not take a broken wire between two of our processes for an answer.
fn answer<T>(result: Result<tonic::Response<T>, Status>) -> Result<T, Status> {
    result.map(tonic::Response::into_inner).map_err(|status| {
        let lost = matches!(status.code(), Code::Unknown | Code::Cancelled | Code::DeadlineExceeded)
            || std::error::Error::source(&status).is_some();
        if !lost {
            return status;
        }
        tracing::warn!(error = ?status, "the control plane's internal service is not reachable");
        Status::unavailable("the control plane is not reachable from this gateway: try again")
    })
}
