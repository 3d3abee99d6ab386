//! The socket side: TLS, limits and a shutdown that lets open requests end.
//!
//! A connection has a place as long as it lives, and lives on as long as it is used: one that has no request for a while makes room.
//! A proxy has one address for all who come through it, so its share is many connections, and they are kept for longer than
//! proxies keep one that they do not use.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use schema::seldom::Seldom;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::door::{Door, TOLD_EVERY, Width};

/// Connections that the port takes at the same time.
pub const PLACES: usize = 1_024;

/// How many connections at a time, and how long they may be of no use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) width: Width,
    /// Proxies keep a connection for a minute.
    pub(super) unused: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { width: Width { all: PLACES, each: 256 }, unused: Duration::from_secs(75) }
    }
}

const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long what is under way may take when a connection ends.
const DRAIN: Duration = Duration::from_secs(10);
/// After an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    limits: Limits,
    cancel: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let (door, broken) = (Door::new("the API", limits.width), Seldom::new(TOLD_EVERY));
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer) = tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    if let Some(times) = broken.happened(Instant::now().into_std()) {
                        tracing::warn!(times, %error, "the API could not accept connections");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        while connections.try_join_next().is_some() {}
        let place = match door.enter(peer.ip(), Instant::now().into_std()) {
            Ok(place) => place,
            Err(told) => {
                told.iter().for_each(|line| tracing::warn!("{line}"));
                continue;
            }
        };
        let (acceptor, router, cancel) = (acceptor.clone(), router.clone(), cancel.clone());
        connections.spawn(async move {
            connection(stream, acceptor, router, limits.unused, cancel).await;
            drop(place);
        });
    }
    drop(listener);
    if timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(open = connections.len(), "the API cut connections that did not end");
        connections.shutdown().await;
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    unused: Duration,
    cancel: CancellationToken,
) {
    let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let requests = Arc::new(Requests::new());
    let counted = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, under_way) = (router.clone(), UnderWay::new(&counted));
        async move {
            let answer = router.oneshot(request.map(Body::new)).await.unwrap_or_else(|never| match never {});
            drop(under_way);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // How long a request may take to arrive, we say.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_headers(64);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(64)
        .max_header_list_size(16 * 1024)
        .keep_alive_interval(Some(Duration::from_secs(30)));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = requests.end(unused) => {}
        () = cancel.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    if let Ok(Err(error)) = timeout(DRAIN, connection).await {
        tracing::debug!(error, "a connection of the API ended badly");
    }
}

/// The requests of one connection.
#[derive(Debug)]
struct Requests(Mutex<Use>);

#[derive(Debug)]
struct Use {
    under_way: usize,
    /// Since when none is.
    since: Instant,
}

impl Requests {
    fn new() -> Self {
        Self(Mutex::new(Use { under_way: 0, since: Instant::now() }))
    }

    fn lock(&self) -> MutexGuard<'_, Use> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When there was none for so long.
    async fn end(&self, unused: Duration) {
        loop {
            let now = Instant::now();
            let since = {
                let used = self.lock();
                if used.under_way > 0 { now } else { used.since }
            };
            if now.saturating_duration_since(since) >= unused {
                return;
            }
            sleep_until(since + unused).await;
        }
    }
}

/// A request that is under way.
struct UnderWay(Arc<Requests>);

impl UnderWay {
    fn new(requests: &Arc<Requests>) -> Self {
        requests.lock().under_way += 1;
        Self(Arc::clone(requests))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut used = self.0.lock();
        used.under_way -= 1;
        used.since = Instant::now();
    }
}
