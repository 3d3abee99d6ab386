//! The gRPC service: who may have a stream at all.

use std::{pin::Pin, sync::Arc};

use pki::verify::Peer;
use proto::agent::v1::{self as pb, gateway_frame::Frame, session_server::Session};
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use super::driver::Driver;
use crate::{connection::PeerInfo, refusal::Refusal, shared::Shared};

/// Frames that wait for a node to read them: more than are ever sent at once, all lanes full and all cancelled among them. A
/// node that lets more pile up is a slow reader.
const FRAMES_WAITING: usize = 64;

/// Opens sessions.
pub(crate) struct SessionService(Arc<Shared>);

impl SessionService {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    fn start(&self, info: &PeerInfo, frames: Streaming<pb::NodeFrame>) -> Result<ReceiverStream<Down>, Refusal> {
        let shared = &self.0;
        let now = shared.clock.now();
        let identity = match &info.peer {
            Peer::Node(identity) => identity.clone(),
            Peer::Anonymous => return Err(Refusal::CertificateRequired),
            Peer::Refused(why) => return Err(Refusal::Certificate(*why)),
        };
        if now >= identity.not_after {
            return Err(Refusal::CertificateEnded);
        }
        if shared.draining.is_cancelled() {
            return Err(Refusal::Unavailable("this gateway is going away"));
        }
        let admission = shared.registry.admit(identity.node_id, now)?;
        let (out, answers) = mpsc::channel(FRAMES_WAITING);
        let in_session = info.activity.session();
        let driver = Driver::new(Arc::clone(shared), identity, info, out, now);
        shared.tasks.spawn(async move {
            driver.run(frames).await;
            drop((admission, in_session));
        });
        Ok(ReceiverStream::new(answers))
    }
}

type Down = Result<pb::GatewayFrame, Status>;

#[tonic::async_trait]
impl Session for SessionService {
    type OpenStream = Pin<Box<dyn Stream<Item = Down> + Send>>;

    async fn open(&self, request: Request<Streaming<pb::NodeFrame>>) -> Result<Response<Self::OpenStream>, Status> {
        let info = request.extensions().get::<PeerInfo>().expect("every connection carries its peer").clone();
        if let Peer::Node(_) = &info.peer {
            info.activity.call();
        }
        match self.start(&info, request.into_inner()) {
            Ok(answers) => Ok(Response::new(Box::pin(answers))),
            Err(refusal) => {
                let code = refusal.code();
                match &info.peer {
                    Peer::Node(identity) => {
                        tracing::info!(node_id = %identity.node_id, peer = %info.address, code, %refusal, "a session was refused");
                        self.0.recorder.refused(identity.node_id, &refusal, self.0.clock.now());
                    }
                    Peer::Anonymous | Peer::Refused(_) => {
                        tracing::info!(peer = %info.address, code, %refusal, "a session was refused");
                        self.0.recorder.stranger(info.address.ip().to_string(), &refusal, self.0.clock.now());
                    }
                }
                let frame = Frame::Refused(pb::Refused { code: code.to_owned(), message: refusal.to_string() });
                Ok(Response::new(Box::pin(tokio_stream::once(Ok(pb::GatewayFrame { frame: Some(frame) })))))
            }
        }
    }
}
