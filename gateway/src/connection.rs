//! One TLS connection: who is at the other end, and whether it still has a reason to be open.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use pki::verify::Peer;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep},
};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

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
}

impl Activity {
    /// A call arrived.
    pub(crate) fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
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

/// A connection that fails its reader when for a while nobody called and no session is open. Pings keep nothing open.
#[derive(Debug)]
pub(crate) struct Connection {
    io: TlsStream<TcpStream>,
    info: PeerInfo,
    idle_after: Duration,
    calls_seen: u64,
    timer: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    pub(crate) fn new(
        io: TlsStream<TcpStream>,
        info: PeerInfo,
        idle_after: Duration,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { io, info, idle_after, calls_seen: 0, timer: Box::pin(sleep(idle_after)), _permit: permit }
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let calls = self.info.activity.calls.load(Ordering::Relaxed);
            let used = calls != self.calls_seen || self.info.activity.sessions.load(Ordering::Relaxed) > 0;
            if !used {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the connection had no use for too long"));
            }
            self.calls_seen = calls;
            let next = Instant::now() + self.idle_after;
            self.timer.as_mut().reset(next);
        }
        Poll::Pending
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
        Pin::new(&mut this.io).poll_read(cx, buf)
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
