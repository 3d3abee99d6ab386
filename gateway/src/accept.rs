//! From TCP connections to TLS connections: handshakes have a time limit and a number of places.
//!
//! When all places are taken, the oldest handshake that had its fair time makes room. Whoever opens many and finishes
//! none therefore delays a newcomer by moments, and loses only its own.

use std::{collections::VecDeque, io, net::SocketAddr, sync::Arc, time::Duration};

use pki::verify::NodeVerifier;
use schema::clock::SharedClock;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::connection::{Activity, Connection, PeerInfo};

/// How handshakes are bounded.
#[derive(Debug, Clone)]
pub(crate) struct AcceptLimits {
    pub(crate) connections: usize,
    pub(crate) handshakes: usize,
    pub(crate) handshake_timeout: Duration,
    pub(crate) fair_time: Duration,
    pub(crate) idle_after: Duration,
}

/// Turns accepted sockets into judged connections.
pub(crate) struct Acceptor {
    pub(crate) tls: TlsAcceptor,
    pub(crate) verifier: NodeVerifier,
    pub(crate) clock: SharedClock,
    pub(crate) limits: AcceptLimits,
}

impl Acceptor {
    /// Accepts until it is cancelled or nobody takes connections any more.
    pub(crate) async fn run(
        self,
        listener: TcpListener,
        out: mpsc::Sender<io::Result<Connection>>,
        cancel: CancellationToken,
    ) {
        let this = Arc::new(self);
        let places = Arc::new(Semaphore::new(this.limits.connections));
        let mut handshakes = JoinSet::new();
        let mut order: VecDeque<(Instant, AbortHandle)> = VecDeque::new();
        loop {
            while order.front().is_some_and(|(_, handle)| handle.is_finished()) {
                order.pop_front();
            }
            let full = handshakes.len() >= this.limits.handshakes;
            let oldest = order.front().map_or_else(Instant::now, |(since, _)| *since + this.limits.fair_time);
            tokio::select! {
                () = cancel.cancelled() => break,
                Some(_) = handshakes.join_next() => {}
                () = sleep_until(oldest), if full => {
                    if let Some((_, handle)) = order.pop_front() {
                        handle.abort();
                    }
                }
                accepted = listener.accept(), if !full => match accepted {
                    Ok((tcp, address)) => {
                        let Ok(permit) = Arc::clone(&places).try_acquire_owned() else {
                            tracing::warn!(%address, "a connection was dropped: the gateway has all that it takes");
                            continue;
                        };
                        let task = Arc::clone(&this).handshake(tcp, address, permit, out.clone());
                        order.push_back((Instant::now(), handshakes.spawn(task)));
                    }
                    Err(error) => {
                        // Out of file descriptors, mostly: it passes when connections close.
                        tracing::warn!(%error, "a connection was not accepted");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }

    async fn handshake(
        self: Arc<Self>,
        tcp: TcpStream,
        address: SocketAddr,
        permit: OwnedSemaphorePermit,
        out: mpsc::Sender<io::Result<Connection>>,
    ) {
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%address, %error, "a connection ended before it began");
            return;
        }
        match timeout(self.limits.handshake_timeout, self.tls.accept(tcp)).await {
            Ok(Ok(io)) => {
                let peer = self.verifier.peer(io.get_ref().1.peer_certificates(), self.clock.now());
                let info = PeerInfo { address, peer, activity: Arc::new(Activity::default()) };
                let connection = Connection::new(io, info, self.limits.idle_after, permit);
                // Nobody takes it: the server is stopping.
                out.send(Ok(connection)).await.ok();
            }
            Ok(Err(error)) => tracing::debug!(%address, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
        }
    }
}
