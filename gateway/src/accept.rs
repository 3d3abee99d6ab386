//! From TCP connections to TLS connections: handshakes have a time limit and a number of places.
//!
//! When all places are taken, the oldest handshake of the address that has the most of them makes room, once it had its
//! fair time. Whoever opens many and finishes none therefore delays a newcomer by moments, and loses only its own.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

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

use crate::{
    connection::{Activity, Connection, PeerInfo},
    places::{Places, most_crowded},
};

/// How handshakes are bounded.
#[derive(Debug, Clone)]
pub(crate) struct AcceptLimits {
    pub(crate) connections: usize,
    pub(crate) handshakes: usize,
    pub(crate) handshake_timeout: Duration,
    pub(crate) fair_time: Duration,
    pub(crate) idle_after: Duration,
    /// Connections of one address that showed no good certificate.
    pub(crate) per_address: usize,
    /// Connections of one node.
    pub(crate) per_identity: usize,
}

/// A handshake that is under way.
struct Guest {
    since: Instant,
    address: IpAddr,
    task: AbortHandle,
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
        let shares = Places::new(this.limits.per_address, this.limits.per_identity);
        let mut guests: VecDeque<Guest> = VecDeque::new();
        loop {
            let full = handshakes.len() >= this.limits.handshakes;
            let oldest = if full { oldest_of_the_crowd(&mut guests) } else { None };
            let until = oldest.map_or_else(Instant::now, |place| guests[place].since + this.limits.fair_time);
            tokio::select! {
                () = cancel.cancelled() => break,
                Some(_) = handshakes.join_next() => {
                    while guests.front().is_some_and(|guest| guest.task.is_finished()) {
                        guests.pop_front();
                    }
                }
                () = sleep_until(until), if full => {
                    if let Some(guest) = oldest.and_then(|place| guests.remove(place)) {
                        guest.task.abort();
                    }
                }
                accepted = listener.accept(), if !full => match accepted {
                    Ok((tcp, address)) => {
                        let Ok(permit) = Arc::clone(&places).try_acquire_owned() else {
                            tracing::warn!(%address, "a connection was dropped: the gateway has all that it takes");
                            continue;
                        };
                        let handshake = Arc::clone(&this).handshake(tcp, address, permit, Arc::clone(&shares), out.clone());
                        let task = handshakes.spawn(handshake);
                        guests.push_back(Guest { since: Instant::now(), address: address.ip(), task });
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
        shares: Arc<Places>,
        out: mpsc::Sender<io::Result<Connection>>,
    ) {
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%address, %error, "a connection ended before it began");
            return;
        }
        match timeout(self.limits.handshake_timeout, self.tls.accept(tcp)).await {
            Ok(Ok(io)) => {
                let peer = self.verifier.peer(io.get_ref().1.peer_certificates(), self.clock.now());
                let Some(place) = shares.take(&peer, address.ip()) else {
                    tracing::info!(%address, "a connection was dropped: its peer has all that it may have");
                    return;
                };
                let info = PeerInfo { address, peer, activity: Arc::new(Activity::default()) };
                let connection = Connection::new(io, info, self.limits.idle_after, (permit, place));
                // Nobody takes it: the server is stopping.
                out.send(Ok(connection)).await.ok();
            }
            Ok(Err(error)) => tracing::debug!(%address, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
        }
    }
}

/// The oldest handshake of the address that has the most of them.
fn oldest_of_the_crowd(guests: &mut VecDeque<Guest>) -> Option<usize> {
    guests.retain(|guest| !guest.task.is_finished());
    let crowded = most_crowded(guests.iter().map(|guest| guest.address))?;
    guests.iter().position(|guest| guest.address == crowded)
}
