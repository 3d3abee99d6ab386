//! The socket side: TLS, limits and a shutdown that lets open requests end.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::Request};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// How many connections at a time.
const CONNECTIONS: usize = 1_024;
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(10);
/// After an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    cancel: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            () = cancel.cancelled() => break,
            place = Arc::clone(&places).acquire_owned() => place.expect("the semaphore is never closed"),
        };
        let stream = tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the API could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let (acceptor, router, cancel) = (acceptor.clone(), router.clone(), cancel.clone());
        connections.spawn(async move {
            connection(stream, acceptor, router, cancel).await;
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    if timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(open = connections.len(), "the API cut connections that did not end");
        connections.shutdown().await;
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router, cancel: CancellationToken) {
    let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            Ok::<_, Infallible>(router.oneshot(request.map(Body::new)).await.unwrap_or_else(|never| match never {}))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS).max_headers(64);
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
        () = cancel.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    if let Err(error) = connection.await {
        tracing::debug!(error, "a connection of the API ended badly");
    }
}
