//! From TCP connections to TLS connections: handshakes have a time limit and a number of places.
//!
//! When all places are taken, a handshake of the network that has the most of them makes room, once it had its fair time: a
//! short one for whoever has not said a word, a longer one for whoever has begun, because that may be waiting for this process.
//! Whoever opens many and finishes none therefore delays a newcomer by moments, and loses only its own.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pki::verify::NodeVerifier;
use schema::{
    clock::SharedClock,
    places::{Place, Places, most_crowded, network},
    seldom::Seldom,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::{Activity, Connection, PeerInfo},
    lanes::Lanes,
    places::{Peers, Shares},
};

/// How often the log says that connections are dropped.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// How handshakes are bounded.
#[derive(Debug, Clone)]
pub(crate) struct AcceptLimits {
    pub(crate) connections: usize,
    pub(crate) handshakes: usize,
    pub(crate) handshake_timeout: Duration,
    /// Of whoever has not said a word, and of whoever has begun.
    pub(crate) fair_time: (Duration, Duration),
    pub(crate) idle_after: Duration,
    pub(crate) shares: Shares,
}

/// Peers that are known by now, and those who were dropped.
struct Known {
    peers: Peers,
    dropped: Seldom,
}

/// A connection that came.
struct Came {
    tcp: std::net::TcpStream,
    address: SocketAddr,
    has_begun: Arc<AtomicBool>,
    place: Place<IpAddr>,
}

/// A handshake that is under way.
struct Guest {
    since: Instant,
    network: IpAddr,
    has_begun: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Guest {
    /// Until when it may stay though others wait.
    fn fair_until(&self, (silent, begun): (Duration, Duration)) -> Instant {
        self.since + if self.has_begun.load(Ordering::Relaxed) { begun } else { silent }
    }
}

/// Turns accepted sockets into judged connections.
pub(crate) struct Acceptor {
    pub(crate) tls: TlsAcceptor,
    pub(crate) verifier: NodeVerifier,
    pub(crate) clock: SharedClock,
    pub(crate) limits: AcceptLimits,
}

impl Acceptor {
    /// Accepts until it is cancelled.
    pub(crate) async fn run(self, listener: TcpListener, lanes: Arc<Lanes>, cancel: CancellationToken) {
        let this = Arc::new(self);
        let places = Places::new(this.limits.connections, this.limits.connections);
        let (full_up, broken) = (Seldom::new(TOLD_EVERY), Seldom::new(TOLD_EVERY));
        let mut handshakes = JoinSet::new();
        let peers = Arc::new(Known { peers: Peers::new(this.limits.shares), dropped: Seldom::new(TOLD_EVERY) });
        let mut guests: VecDeque<Guest> = VecDeque::new();
        loop {
            let full = handshakes.len() >= this.limits.handshakes;
            let fair = this.limits.fair_time;
            let first = if full { first_of_the_crowd(&mut guests, fair) } else { None };
            let until = first.map_or_else(Instant::now, |place| guests[place].fair_until(fair));
            tokio::select! {
                () = cancel.cancelled() => break,
                Some(_) = handshakes.join_next() => {
                    while guests.front().is_some_and(|guest| guest.task.is_finished()) {
                        guests.pop_front();
                    }
                }
                () = sleep_until(until), if full => {
                    // It may have begun meanwhile.
                    let place = first.filter(|place| guests[*place].fair_until(fair) <= Instant::now());
                    if let Some(guest) = place.and_then(|place| guests.remove(place)) {
                        guest.task.abort();
                    }
                }
                accepted = accept(&listener), if !full => match accepted {
                    Ok((tcp, address)) => {
                        let network = network(address.ip());
                        let Ok(place) = places.take(network) else {
                            if let Some(dropped) = full_up.happened(Instant::now().into_std()) {
                                let (most, has) = places.most().unwrap_or((network, 0));
                                tracing::warn!(
                                    dropped, connections = this.limits.connections, %most, has,
                                    "connections are dropped: the gateway has all that it takes; run another gateway, or close \
                                     the port to the address that has the most if that is no site of yours"
                                );
                            }
                            continue;
                        };
                        let has_begun = Arc::new(AtomicBool::new(false));
                        let (this, peers, lane) = (Arc::clone(&this), Arc::clone(&peers), lanes.next());
                        let came = Came { tcp, address, has_begun: Arc::clone(&has_begun), place };
                        let handshake = this.handshake(came, peers, lane.serve.clone());
                        let task = handshakes.spawn_on(handshake, &lane.handle);
                        guests.push_back(Guest { since: Instant::now(), network, has_begun, task });
                    }
                    Err(error) => {
                        // Out of file descriptors, mostly: it passes when connections close.
                        if let Some(times) = broken.happened(Instant::now().into_std()) {
                            tracing::warn!(times, %error, "connections were not accepted");
                        }
                        sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }

    async fn handshake(self: Arc<Self>, came: Came, known: Arc<Known>, out: mpsc::Sender<io::Result<Connection>>) {
        let Came { tcp, address, has_begun, place } = came;
        let tcp = match tcp.set_nodelay(true).and_then(|()| TcpStream::from_std(tcp)) {
            Ok(tcp) => tcp,
            Err(error) => {
                tracing::debug!(%address, %error, "a connection ended before it began");
                return;
            }
        };
        let shake = async {
            let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), tcp).await?;
            has_begun.store(true, Ordering::Relaxed);
            hello.into_stream(Arc::clone(self.tls.config())).await
        };
        match timeout(self.limits.handshake_timeout, shake).await {
            Ok(Ok(io)) => {
                let peer = self.verifier.peer(io.get_ref().1.peer_certificates(), self.clock.now());
                let Ok(share) = known.peers.take(&peer, address.ip()) else {
                    if let Some(dropped) = known.dropped.happened(Instant::now().into_std()) {
                        tracing::warn!(dropped, last = %address, "connections are dropped: their peers have all that they may have");
                    }
                    return;
                };
                let info = PeerInfo { address, peer, activity: Arc::new(Activity::default()) };
                let connection = Connection::new(io, info, self.limits.idle_after, (place, share));
                // Nobody takes it: the server is stopping.
                out.send(Ok(connection)).await.ok();
            }
            Ok(Err(error)) => tracing::debug!(%address, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
        }
    }
}

/// The next connection, for whichever thread serves it.
async fn accept(listener: &TcpListener) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let (tcp, address) = listener.accept().await?;
    Ok((tcp.into_std()?, address))
}

/// Of the network that has the most handshakes, the one whose fair time is over first.
fn first_of_the_crowd(guests: &mut VecDeque<Guest>, fair: (Duration, Duration)) -> Option<usize> {
    guests.retain(|guest| !guest.task.is_finished());
    let crowded = most_crowded(guests.iter().map(|guest| guest.network))?;
    let crowd = guests.iter().enumerate().filter(|(_, guest)| guest.network == crowded);
    crowd.min_by_key(|(_, guest)| guest.fair_until(fair)).map(|(place, _)| place)
}
