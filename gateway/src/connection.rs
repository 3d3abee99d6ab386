//! One TLS connection: who is at the other end, whether it still has a reason to be open, and whether what it sends is of
//! any use.
//!
//! HTTP/2 lets a peer send as many pings, settings, window updates and empty frames as it likes, and each is work. What a
//! peer sends is therefore held against the frames and calls that came out of it: who is too far behind is cut off.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use pki::verify::Peer;
use schema::places::Place;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep_until},
};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::places::PeerPlace;

/// How much a node may send before something useful came out of it: more than the largest frame.
const LENT_TO_NODES: u64 = 6 * 1024 * 1024;
/// How much anybody else may: more than the largest call.
const LENT_TO_STRANGERS: u64 = 1024 * 1024;
/// How much of that is forgiven a second: more than pings and window updates of a quiet connection take.
const FORGIVEN_PER_SECOND: u64 = 4 * 1024;
/// A connection with a session is looked at so much more seldom: a look at each of ten thousand is work, too.
const IN_SESSION: u32 = 10;
/// What a frame takes on the wire beside itself, generously.
const BESIDE_A_FRAME: u64 = 512;

/// What handlers know of the connection that a call came over.
#[derive(Debug, Clone)]
pub(crate) struct PeerInfo {
    pub(crate) address: SocketAddr,
    pub(crate) peer: Peer,
    pub(crate) activity: Arc<Activity>,
}

/// What a connection is used for.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    sessions: AtomicUsize,
    calls: AtomicU64,
    useful: AtomicU64,
}

impl Activity {
    /// A call arrived.
    pub(crate) fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.useful.fetch_add(LENT_TO_STRANGERS, Ordering::Relaxed);
    }

    /// A frame of so many bytes arrived or was sent.
    pub(crate) fn frame(&self, bytes: usize) {
        // Small pieces of a large frame have heads of their own.
        let bytes = u64::try_from(bytes).unwrap_or(0).saturating_mul(2);
        self.useful.fetch_add(BESIDE_A_FRAME + bytes, Ordering::Relaxed);
    }

    /// A session begins; it lasts as long as the guard.
    pub(crate) fn session(self: &Arc<Self>) -> InSession {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        InSession(Arc::clone(self))
    }
}

/// A session on a connection.
#[derive(Debug)]
pub(crate) struct InSession(Arc<Activity>);

impl Drop for InSession {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How far a peer is behind with useful things.
#[derive(Debug)]
struct Debt {
    bytes: u64,
    most: u64,
    since: Instant,
}

impl Debt {
    /// Whether the peer may go on after it sent `read` bytes, of which `useful` were of use.
    fn grows(&mut self, read: u64, useful: u64, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        self.since += Duration::from_secs(seconds);
        let forgiven = seconds.saturating_mul(FORGIVEN_PER_SECOND);
        self.bytes = (self.bytes + read).saturating_sub(useful).saturating_sub(forgiven);
        self.bytes <= self.most
    }
}

/// Whether a connection has a use, and when that is looked at next.
#[derive(Debug)]
struct Idle {
    after: Duration,
    calls_seen: u64,
    in_session: bool,
    at: Instant,
}

impl Idle {
    fn new(after: Duration, now: Instant) -> Self {
        Self { after, calls_seen: 0, in_session: false, at: now + after }
    }

    /// Whether it may stay open, after so many calls.
    fn stays(&mut self, calls: u64, in_session: bool, now: Instant) -> bool {
        if std::mem::replace(&mut self.in_session, in_session) && !in_session {
            self.at = now + self.after;
        }
        if now < self.at {
            return true;
        }
        let called = std::mem::replace(&mut self.calls_seen, calls) != calls;
        self.at = now + self.after * if in_session { IN_SESSION } else { 1 };
        called || in_session
    }
}

/// A connection that fails its reader when for a while nobody called and no session is open, or when all that comes is of no
/// use. Pings keep nothing open.
#[derive(Debug)]
pub(crate) struct Connection {
    io: TlsStream<TcpStream>,
    info: PeerInfo,
    idle: Idle,
    timer: Pin<Box<Sleep>>,
    debt: Debt,
    _place: (Place<IpAddr>, PeerPlace),
}

impl Connection {
    pub(crate) fn new(
        io: TlsStream<TcpStream>,
        info: PeerInfo,
        idle_after: Duration,
        place: (Place<IpAddr>, PeerPlace),
    ) -> Self {
        let most = if matches!(info.peer, Peer::Node(_)) { LENT_TO_NODES } else { LENT_TO_STRANGERS };
        let now = Instant::now();
        let (debt, idle) = (Debt { bytes: 0, most, since: now }, Idle::new(idle_after, now));
        Self { io, info, timer: Box::pin(sleep_until(idle.at)), idle, debt, _place: place }
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let activity = &self.info.activity;
        loop {
            let (calls, in_session) =
                (activity.calls.load(Ordering::Relaxed), activity.sessions.load(Ordering::Relaxed) > 0);
            if !self.idle.stays(calls, in_session, Instant::now()) {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the connection had no use for too long"));
            }
            if self.timer.deadline() != self.idle.at {
                self.timer.as_mut().reset(self.idle.at);
            }
            std::task::ready!(self.timer.as_mut().poll(cx));
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = PeerInfo;

    fn connect_info(&self) -> PeerInfo {
        self.info.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // The timer comes first, so that a peer that never stops sending pings does not hide it.
        if let Poll::Ready(error) = this.poll_idle(cx) {
            return Poll::Ready(Err(error));
        }
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        let read = u64::try_from(buf.filled().len() - before).unwrap_or(0);
        let useful = this.info.activity.useful.swap(0, Ordering::Relaxed);
        if !this.debt.grows(read, useful, Instant::now()) {
            tracing::info!(address = %this.info.address, "a connection was cut off: what it sent was of no use");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "what the peer sends is of no use")));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_sends_nothing_useful_is_cut_off_and_a_quiet_one_is_not() {
        let begin = Instant::now();
        let mut debt = Debt { bytes: 0, most: LENT_TO_STRANGERS, since: begin };
        let pings = (0..1_000_000).take_while(|_| debt.grows(17, 0, begin)).count();
        assert_eq!(pings, usize::try_from(LENT_TO_STRANGERS).expect("a size") / 17);

        let mut debt = Debt { bytes: 0, most: LENT_TO_STRANGERS, since: begin };
        let day = (0..86_400).all(|second| debt.grows(17 * 50, 0, begin + Duration::from_secs(second)));
        assert!(day, "fifty pings a second are forgiven");

        let mut debt = Debt { bytes: 0, most: LENT_TO_STRANGERS, since: begin };
        assert!(debt.grows(LENT_TO_STRANGERS, 0, begin) && debt.grows(1, 2 * LENT_TO_STRANGERS, begin));
        assert_eq!(debt.bytes, 0, "and nothing is saved up");
    }

    #[test]
    fn a_connection_is_looked_at_seldom_in_a_session_and_soon_after_it() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut idle = Idle::new(Duration::from_secs(30), begin);
        assert!(idle.stays(1, true, at(30)) && idle.at == at(330));
        assert!(idle.stays(1, false, at(40)) && idle.at == at(70), "its session has ended");
        assert!(idle.stays(1, false, at(50)) && idle.at == at(70));
        assert!(!idle.stays(1, false, at(70)));
        let mut late = Idle::new(Duration::from_secs(30), begin);
        assert!(late.stays(1, true, at(30)) && late.stays(1, false, at(330)), "it ended just then");
        assert!(late.stays(2, false, at(360)) && !late.stays(2, false, at(390)));
    }
}
