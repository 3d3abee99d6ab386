//! Threads that serve connections. A connection belongs to one of them from its handshake to its last frame, and so does all that runs
//! for it: what a node says wakes one thread, where a pool of workers would wake others to look for work that is over by then.
//!
//! What talks to PostgreSQL or to the control plane runs at home, among the tasks of the process: a connection to either lives longer
//! than a gateway.

use std::{
    io,
    net::SocketAddr,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use proto::{agent::v1 as pb, internal::v1 as internal};
use schema::id::NodeId;
use tokio::{
    runtime::{Builder, Handle},
    sync::mpsc,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};
use tonic::Status;

use crate::{authority::ControlPlane, connection::Connection};

/// Threads, where the machine has more processors.
const MOST: usize = 16;
/// Connections whose handshake is over and that nobody serves yet.
const WAITING: usize = 64;

/// One thread.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) handle: Handle,
    /// Serves a connection.
    pub(crate) serve: mpsc::Sender<io::Result<Connection>>,
}

/// Where the connections come that one thread serves.
pub(crate) type Incoming = mpsc::Receiver<io::Result<Connection>>;

/// All threads; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    turn: AtomicUsize,
    _stop: DropGuard,
}

impl Lanes {
    /// Starts one thread for each processor; each gets its connections from one of the receivers.
    pub(crate) fn start() -> io::Result<(Self, Vec<Incoming>)> {
        let count = thread::available_parallelism().map_or(1, NonZero::get).min(MOST);
        let stop = CancellationToken::new();
        let (mut lanes, mut incoming) = (Vec::new(), Vec::new());
        for place in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let stopped = stop.clone().cancelled_owned();
            thread::Builder::new().name(format!("gateway-{place}")).spawn(move || runtime.block_on(stopped))?;
            let (serve, connections) = mpsc::channel(WAITING);
            lanes.push(Lane { handle, serve });
            incoming.push(connections);
        }
        Ok((Self { lanes, turn: AtomicUsize::new(0), _stop: stop.drop_guard() }, incoming))
    }

    /// The threads, in the order of the receivers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    /// The one whose turn it is.
    pub(crate) fn next(&self) -> &Lane {
        &self.lanes[self.turn.fetch_add(1, Ordering::Relaxed) % self.lanes.len()]
    }
}

/// The control plane for whoever asks from another thread.
pub(crate) struct AtHome {
    home: Handle,
    control_plane: Arc<dyn ControlPlane>,
}

impl AtHome {
    /// Calls run where this is called.
    pub(crate) fn new(control_plane: Arc<dyn ControlPlane>) -> Self {
        Self { home: Handle::current(), control_plane }
    }

    /// Asks, for as long as somebody waits for the answer.
    async fn ask<T, F>(&self, call: impl FnOnce(Arc<dyn ControlPlane>) -> F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let asked = AbortOnDropHandle::new(self.home.spawn(call(Arc::clone(&self.control_plane))));
        asked.await.unwrap_or_else(|_| Err(Status::unavailable("the control plane did not answer")))
    }
}

#[tonic::async_trait]
impl ControlPlane for AtHome {
    async fn anchor(&self) -> Result<pb::GetAnchorResponse, Status> {
        self.ask(|home| async move { home.anchor().await }).await
    }

    async fn join_challenge(
        &self,
        request: pb::JoinChallengeRequest,
        peer: SocketAddr,
    ) -> Result<pb::JoinChallengeResponse, Status> {
        self.ask(move |home| async move { home.join_challenge(request, peer).await }).await
    }

    async fn join(&self, request: pb::JoinRequest, peer: SocketAddr) -> Result<pb::JoinResponse, Status> {
        self.ask(move |home| async move { home.join(request, peer).await }).await
    }

    async fn renew_challenge(
        &self,
        request: pb::RenewChallengeRequest,
        peer: SocketAddr,
    ) -> Result<pb::RenewChallengeResponse, Status> {
        self.ask(move |home| async move { home.renew_challenge(request, peer).await }).await
    }

    async fn renew(&self, request: pb::RenewRequest, peer: SocketAddr) -> Result<pb::RenewResponse, Status> {
        self.ask(move |home| async move { home.renew(request, peer).await }).await
    }

    async fn request_secrets(
        &self,
        request: pb::SecretRequest,
        peer: SocketAddr,
    ) -> Result<pb::SecretResponse, Status> {
        self.ask(move |home| async move { home.request_secrets(request, peer).await }).await
    }

    async fn server_time(&self, node: NodeId, nonce: Vec<u8>) -> Result<pb::SignedTime, Status> {
        self.ask(move |home| async move { home.server_time(node, nonce).await }).await
    }

    async fn trust(&self, since: u64) -> Result<internal::TrustBundleResponse, Status> {
        self.ask(move |home| async move { home.trust(since).await }).await
    }
}
