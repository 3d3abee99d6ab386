//! The service as gateways call it: the generated trait in process, or gRPC over internal mutual TLS.

use std::{sync::Arc, time::Duration};

use pki::{broker::RequestRefusal, keys::GatewayRefusal, tls::InternalServer};
use proto::{
    agent::v1 as pb,
    internal::v1::{
        self as internal,
        authority_server::{Authority, AuthorityServer},
    },
};
use schema::{id::NodeId, seldom::Seldom};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, metadata::MetadataValue};

use super::{
    JoinRefusal, JoinService, RenewRefusal, admit::JoinError, gateways::FollowRefusal, refusal::Standing,
    renew::RenewError, secrets::BrokerRefusal, wire,
};
use crate::door::{Door, TOLD_EVERY, Width};

/// Where the stable word of a refusal travels.
const CODE: &str = "bc-code";
/// Where a gateway says who called it.
const PEER: &str = "bc-peer";
/// A gateway that does not finish its handshake by then is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes that are under way at once.
const HANDSHAKES: Width = Width { all: 64, each: 16 };
/// How long a connection lives: who is believed no more after a rotation shows its certificate again and is refused.
const LIVES: Duration = Duration::from_secs(600);

#[tonic::async_trait]
impl Authority for JoinService {
    async fn get_anchor(&self, _: Request<pb::GetAnchorRequest>) -> Result<Response<pb::GetAnchorResponse>, Status> {
        Ok(Response::new(pb::GetAnchorResponse { anchor: self.anchor().to_bytes() }))
    }

    async fn join_challenge(
        &self,
        request: Request<pb::JoinChallengeRequest>,
    ) -> Result<Response<pb::JoinChallengeResponse>, Status> {
        self.join_challenge(request.into_inner()).map(Response::new).map_err(|refusal| join_status(&refusal))
    }

    async fn join(&self, request: Request<pb::JoinRequest>) -> Result<Response<pb::JoinResponse>, Status> {
        let peer = peer(&request);
        self.admit(request.into_inner(), peer.as_deref()).await.map(Response::new).map_err(|error| match error {
            JoinError::Refused(refusal) => join_status(&refusal),
            JoinError::Busy => refused(Code::Aborted, "busy", error.to_string()),
            JoinError::Db(error) => unavailable(&error),
        })
    }

    async fn renew_challenge(
        &self,
        request: Request<pb::RenewChallengeRequest>,
    ) -> Result<Response<pb::RenewChallengeResponse>, Status> {
        let request = request.into_inner();
        is_nonce(&request.nonce)?;
        self.challenge(&request).map(Response::new).map_err(|refusal| renew_status(&refusal))
    }

    async fn renew(&self, request: Request<pb::RenewRequest>) -> Result<Response<pb::RenewResponse>, Status> {
        let peer = peer(&request);
        self.reissue(request.get_ref(), peer.as_deref()).await.map(Response::new).map_err(|error| match error {
            RenewError::Refused(refusal) => renew_status(&refusal),
            RenewError::Db(error) => unavailable(&error),
        })
    }

    async fn request_secrets(
        &self,
        request: Request<pb::SecretRequest>,
    ) -> Result<Response<pb::SecretResponse>, Status> {
        self.release(request.get_ref()).await.map(Response::new).map_err(|refusal| secret_status(&refusal))
    }

    async fn server_time(
        &self,
        request: Request<internal::ServerTimeRequest>,
    ) -> Result<Response<internal::ServerTimeResponse>, Status> {
        let internal::ServerTimeRequest { node_id, nonce } = request.into_inner();
        let node: NodeId = node_id.parse().map_err(|_| Status::invalid_argument("the node id is malformed"))?;
        is_nonce(&nonce)?;
        let (time, signature) = Self::server_time(self, node, &nonce);
        let time = pb::SignedTime { time: time.to_string(), nonce, signature: Some(wire::signature(signature)) };
        Ok(Response::new(internal::ServerTimeResponse { time: Some(time) }))
    }

    async fn trust_bundle(
        &self,
        request: Request<internal::TrustBundleRequest>,
    ) -> Result<Response<internal::TrustBundleResponse>, Status> {
        let keyring = self.keyring();
        Ok(Response::new(internal::TrustBundleResponse {
            trust_bundle: Some(wire::bundle(keyring.newest())),
            trust_steps: keyring.since(request.get_ref().since).iter().map(wire::bundle).collect(),
            node_authorities: wire::chain(&keyring.node_authorities),
            first_policy: keyring.anchor.trust.map(|trust| self.first_policy(&trust)),
        }))
    }

    async fn follow_keys(
        &self,
        request: Request<internal::FollowKeysRequest>,
    ) -> Result<Response<internal::FollowKeysResponse>, Status> {
        let shown = request.peer_certs();
        let shown = shown.as_ref().and_then(|chain| chain.first());
        let done = self.follow(shown, request.into_inner()).await;
        done.map(Response::new).map_err(|refusal| follow_status(&refusal))
    }
}

fn follow_status(refusal: &FollowRefusal) -> Status {
    let code = match refusal {
        FollowRefusal::Db(error) => return unavailable(error),
        FollowRefusal::Keys(GatewayRefusal::Time) => Code::Aborted,
        FollowRefusal::TooOften => Code::ResourceExhausted,
        FollowRefusal::Keys(GatewayRefusal::Malformed | GatewayRefusal::Request(_)) => Code::InvalidArgument,
        FollowRefusal::Keys(_) | FollowRefusal::Ended => Code::PermissionDenied,
    };
    refused(code, refusal.code(), refusal.to_string())
}

fn peer<T>(request: &Request<T>) -> Option<String> {
    let peer = request.metadata().get(PEER).and_then(|peer| peer.to_str().ok());
    peer.map(|peer| peer.chars().take(64).collect())
}

fn is_nonce(nonce: &[u8]) -> Result<(), Status> {
    if (16..=64).contains(&nonce.len()) {
        return Ok(());
    }
    Err(Status::invalid_argument("the nonce must have 16 to 64 bytes"))
}

fn join_status(refusal: &JoinRefusal) -> Status {
    let code = match (refusal, refusal.standing()) {
        (JoinRefusal::Request(_) | JoinRefusal::Claims | JoinRefusal::Evidence, _) => Code::InvalidArgument,
        // It asks again with a fresh challenge.
        (JoinRefusal::Challenge(_), _) => Code::Aborted,
        (_, Standing::Refused) => Code::PermissionDenied,
        (_, Standing::Held | Standing::Waiting) => Code::FailedPrecondition,
    };
    refused(code, refusal.code(), refusal.to_string())
}

fn renew_status(refusal: &RenewRefusal) -> Status {
    let code = match refusal {
        RenewRefusal::Request(_) => Code::InvalidArgument,
        // It waits for somebody, or asks again with a fresh challenge.
        RenewRefusal::Late(_) => Code::FailedPrecondition,
        RenewRefusal::Challenge(_) | RenewRefusal::ChallengeUsed => Code::Aborted,
        _ => Code::PermissionDenied,
    };
    refused(code, refusal.code(), refusal.to_string())
}

fn secret_status(refusal: &BrokerRefusal) -> Status {
    let code = match refusal {
        BrokerRefusal::Db(error) => return unavailable(error),
        BrokerRefusal::Request(RequestRefusal::Time) => Code::Aborted,
        BrokerRefusal::Request(_) | BrokerRefusal::Key(_) => Code::InvalidArgument,
        BrokerRefusal::Signature | BrokerRefusal::NotReferred => Code::PermissionDenied,
        BrokerRefusal::TooOften => Code::ResourceExhausted,
        BrokerRefusal::Unreadable | BrokerRefusal::HardwareChanged(_) => Code::FailedPrecondition,
    };
    refused(code, refusal.code(), refusal.to_string())
}

fn refused(code: Code, word: &'static str, message: String) -> Status {
    let mut status = Status::new(code, message);
    status.metadata_mut().insert(CODE, MetadataValue::from_static(word));
    status
}

fn unavailable(error: &store::DbError) -> Status {
    tracing::error!(error = error as &dyn std::error::Error, "the join service cannot reach its database");
    let mut status = Status::unavailable("the control plane cannot reach its database; try again");
    status.metadata_mut().insert(CODE, MetadataValue::from_static("unavailable"));
    status
}

/// Why the internal service does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The HTTP/2 server failed.
    #[error("the internal service failed")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves gateways that run apart, until cancelled: HTTP/2 over TLS 1.3, both sides certified by the internal authority.
///
/// # Errors
/// When the server fails.
pub async fn serve(
    service: Arc<JoinService>,
    listener: TcpListener,
    tls: Arc<InternalServer>,
    cancel: CancellationToken,
) -> Result<(), ServeError> {
    serve_for(LIVES, service, listener, tls, cancel).await
}

/// The same, with connections that live for so long.
pub(super) async fn serve_for(
    lives: Duration,
    service: Arc<JoinService>,
    listener: TcpListener,
    tls: Arc<InternalServer>,
    cancel: CancellationToken,
) -> Result<(), ServeError> {
    let (sender, connections) = mpsc::channel(HANDSHAKES.all);
    let accepting = accept(listener, tls, sender, cancel.clone());
    let serving = tonic::transport::Server::builder()
        .max_connection_age(lives)
        .add_service(AuthorityServer::from_arc(service))
        .serve_with_incoming_shutdown(ReceiverStream::new(connections), cancel.cancelled_owned());
    let ((), served) = tokio::join!(accepting, serving);
    served.map_err(ServeError::from)
}

type Connection = Result<TlsStream<TcpStream>, std::io::Error>;

async fn accept(
    listener: TcpListener,
    tls: Arc<InternalServer>,
    sender: mpsc::Sender<Connection>,
    cancel: CancellationToken,
) {
    let (door, broken) = (Door::new("the internal port", HANDSHAKES), Seldom::new(TOLD_EVERY));
    let failed = Arc::new(Seldom::new(TOLD_EVERY));
    let mut handshakes = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = cancel.cancelled() => break,
            Some(_) = handshakes.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(times) = broken.happened(Instant::now().into_std()) {
                    tracing::warn!(times, %error, "the internal port could not accept connections");
                }
                // Out of file descriptors, most likely: give connections time to end.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let place = match door.enter(peer.ip(), Instant::now().into_std()) {
            Ok(place) => place,
            Err(told) => {
                told.iter().for_each(|line| tracing::warn!("{line}"));
                continue;
            }
        };
        let (acceptor, sender, failed) = (TlsAcceptor::from(tls.config()), sender.clone(), Arc::clone(&failed));
        handshakes.spawn(async move {
            let why = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    sender.send(Ok(stream)).await.ok();
                    drop(place);
                    return;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the handshake took too long".to_owned(),
            };
            if let Some(times) = failed.happened(Instant::now().into_std()) {
                tracing::warn!(times, last = %peer, why, "internal connections were refused");
            }
        });
    }
    handshakes.shutdown().await;
}
