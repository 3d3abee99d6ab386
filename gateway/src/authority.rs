//! What needs authority is forwarded: this crate holds no CA and no signing key.
//!
//! The control plane serves `bettercompute.internal.v1.Authority`. Under `up` it is in the same process ([`InProcess`]);
//! a gateway apart reaches it over internal mutual TLS ([`AuthorityClient`]). Both give the same answers.

use std::{
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use hyper_util::rt::TokioIo;
use pki::keys::{IssuedGateway, Renewing};
use proto::{
    agent::v1 as pb,
    internal::v1::{self as internal, authority_client::AuthorityClient as Client, authority_server::Authority},
};
use rustls_pki_types::{CertificateDer, ServerName};
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
    /// What evidence of a machine that joins has to be made for.
    async fn join_challenge(
        &self,
        request: pb::JoinChallengeRequest,
        peer: SocketAddr,
    ) -> Result<pb::JoinChallengeResponse, Status>;
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

    async fn join_challenge(
        &self,
        request: pb::JoinChallengeRequest,
        peer: SocketAddr,
    ) -> Result<pb::JoinChallengeResponse, Status> {
        self.0.join_challenge(from_peer(request, peer)).await.map(tonic::Response::into_inner)
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

/// What the control plane said instead of an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the control plane refused: {text}")]
pub struct Refused {
    text: String,
    /// The two do not believe each other: this gateway needs new keys.
    pub is_outside: bool,
}

impl Refused {
    fn of(status: &Status) -> Self {
        let code = status.metadata().get(CODE_METADATA).is_some_and(|code| code == "not-a-gateway");
        // A handshake that fails is told in the sources of a status only.
        let words = format!("{status:?}");
        let handshake = ["UnknownIssuer", "UnknownCA"].iter().any(|word| words.contains(word));
        Self { text: status.message().to_owned(), is_outside: code || handshake }
    }
}

/// A control plane reached over internal mutual TLS.
#[derive(Debug, Clone)]
pub struct AuthorityClient {
    address: Arc<str>,
    client: Arc<RwLock<Client<Channel>>>,
}

impl AuthorityClient {
    /// A client of the service at `address` (host and port), with the configuration of `pki::tls::internal_client`. It
    /// connects when it is first used, and again whenever it must.
    #[must_use]
    pub fn new(address: String, tls: rustls::ClientConfig) -> Self {
        let address: Arc<str> = address.into();
        let client = Arc::new(RwLock::new(connecting(Arc::clone(&address), tls)));
        Self { address, client }
    }

    /// Shows and believes what this configuration says from the next call on. Calls under way end as they began.
    pub fn use_tls(&self, tls: rustls::ClientConfig) {
        let next = connecting(Arc::clone(&self.address), tls);
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Says from which revision of the control plane's keys those are that this gateway has stored, and asks for the next
    /// ones, if there is a request. The control plane's revision, and what it issued.
    ///
    /// # Errors
    /// When the control plane refuses, or is not reachable.
    pub async fn follow_keys(
        &self,
        revision: u64,
        renewing: Option<&Renewing>,
    ) -> Result<(u64, Option<IssuedGateway>), Refused> {
        let renewal = renewing.map(|renewing| internal::GatewayRenewal {
            request: renewing.request.clone(),
            signature: renewing.signature.clone(),
            serving_chain: renewing.serving_chain.iter().map(|der| der.to_vec()).collect(),
        });
        let call = internal::FollowKeysRequest { revision, renewal };
        let answer = self.client().follow_keys(call).await.map_err(|status| Refused::of(&status))?.into_inner();
        let certificates = |chain: Vec<Vec<u8>>| chain.into_iter().map(CertificateDer::from).collect();
        let issued = answer.issued.map(|issued| IssuedGateway {
            serving: certificates(issued.serving),
            internal: certificates(issued.internal),
            node_authorities: certificates(issued.node_authorities),
            internal_authorities: certificates(issued.internal_authorities),
            revision: answer.revision,
        });
        Ok((answer.revision, issued))
    }

    fn client(&self) -> Client<Channel> {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn connecting(address: Arc<str>, tls: rustls::ClientConfig) -> Client<Channel> {
    let tls = TlsConnector::from(Arc::new(tls));
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
    Client::new(channel).max_decoding_message_size(proto::MAX_FRAME_BYTES)
}

#[async_trait]
impl ControlPlane for AuthorityClient {
    async fn anchor(&self) -> Result<pb::GetAnchorResponse, Status> {
        answer(self.client().get_anchor(pb::GetAnchorRequest {}).await)
    }

    async fn join_challenge(
        &self,
        request: pb::JoinChallengeRequest,
        peer: SocketAddr,
    ) -> Result<pb::JoinChallengeResponse, Status> {
        answer(self.client().join_challenge(from_peer(request, peer)).await)
    }

    async fn join(&self, request: pb::JoinRequest, peer: SocketAddr) -> Result<pb::JoinResponse, Status> {
        answer(self.client().join(from_peer(request, peer)).await)
    }

    async fn renew_challenge(
        &self,
        request: pb::RenewChallengeRequest,
        peer: SocketAddr,
    ) -> Result<pb::RenewChallengeResponse, Status> {
        answer(self.client().renew_challenge(from_peer(request, peer)).await)
    }

    async fn renew(&self, request: pb::RenewRequest, peer: SocketAddr) -> Result<pb::RenewResponse, Status> {
        answer(self.client().renew(from_peer(request, peer)).await)
    }

    async fn request_secrets(
        &self,
        request: pb::SecretRequest,
        peer: SocketAddr,
    ) -> Result<pb::SecretResponse, Status> {
        answer(self.client().request_secrets(from_peer(request, peer)).await)
    }

    async fn server_time(&self, node: NodeId, nonce: Vec<u8>) -> Result<pb::SignedTime, Status> {
        let request = internal::ServerTimeRequest { node_id: node.to_string(), nonce };
        time(answer(self.client().server_time(request).await)?)
    }

    async fn trust(&self, since: u64) -> Result<internal::TrustBundleResponse, Status> {
        answer(self.client().trust_bundle(internal::TrustBundleRequest { since }).await)
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
