//! The gateway as a whole: its tasks, how they start, and how they end.
//!
//! ```text
//! listener ─▶ accept (TLS) ─▶ tonic ─▶ join ──────────────▶ control plane
//!                                 ├──▶ secrets ───────────▶ control plane
//!                                 └──▶ session ─▶ registry ◀── facts ◀── pokes
//!                                        └──▶ opens, claims, steps, last words, reports, liveness, recorder ──▶ PostgreSQL
//! ```

use std::{net::SocketAddr, sync::Arc, time::Duration};

use pki::tls::gateway_server;
use proto::agent::v1::{join_server::JoinServer, secrets_server::SecretsServer, session_server::SessionServer};
use socket2::SockRef;
use tokio::{net::TcpListener, runtime::Handle, sync::Semaphore, task::JoinSet, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::Server;

use crate::{
    accept::{AcceptLimits, Acceptor},
    authority::ControlPlane,
    claims::Claims,
    config::{Config, Limits},
    facts::Questions,
    join::{JoinForwarder, MAX_REQUEST_BYTES},
    lanes::{AtHome, Lanes},
    last_words::LastWords,
    leaps,
    liveness::Liveness,
    opens::Opens,
    places::Shares,
    pokes::Pokes,
    policies::Policies,
    recorder::Recorder,
    registry::Registry,
    reports::Reports,
    secrets::SecretForwarder,
    session::SessionService,
    shared::Shared,
    steps::Steps,
    trust::Trust,
};

/// A connection on which nothing comes for so long is asked whether it is still there: much later than any heartbeat, so that
/// one that beats costs nothing more.
const ASKED_AFTER: Duration = Duration::from_secs(70);
/// How long it may take to answer. Both together are as long as it takes to be unreachable.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// How much a peer may send on one stream before it is read.
const WINDOW: u32 = 64 * 1024;
/// How much of its own fault a connection may have before it is closed: streams that it reset before they were accepted,
/// and streams that were reset because of it.
const RESETS: usize = 32;
/// A handshake that takes longer than this makes room when all places are taken: without a word, and when it has begun.
const FAIR_TIME: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));
/// Connections to PostgreSQL that most tasks share.
const CONNECTIONS: u32 = 6;
/// Connections of a task that asks hundreds of times a second: they have planned its statements, and nobody else's.
const OWN_CONNECTIONS: u32 = 2;
/// Connections that wait to be accepted, as far as the kernel lets them: one that finds no room tries again after a second, and
/// when a gateway dies all of its nodes come at once.
const BACKLOG: i32 = 4_096;
/// How long connections may take to close by themselves at the end.
const LAST_FRAMES: Duration = Duration::from_secs(2);

/// Why a gateway stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The port cannot be listened on.
    #[error("the gateway cannot listen on its port")]
    Listen(#[source] std::io::Error),
    /// There are no more threads.
    #[error("the gateway cannot start the threads that serve connections")]
    Threads(#[source] std::io::Error),
    /// The server ended.
    #[error("the gateway's server ended")]
    Serve(#[source] tonic::transport::Error),
}

/// Runs a gateway until it is cancelled, and then drains it: every node is told to connect again, reports and heartbeats
/// are written, and the sessions' rows are closed under their own epochs.
///
/// # Errors
/// When it cannot listen, or stops by itself.
pub async fn run(config: Config, cancel: CancellationToken) -> Result<(), GatewayError> {
    let Config { gateway_id, listener, serving, verifier, dev, db, control_plane, clock, limits, timing } = config;
    let db = db.planning_once(CONNECTIONS);
    listener.set_nonblocking(true).map_err(GatewayError::Listen)?;
    SockRef::from(&listener).listen(BACKLOG).map_err(GatewayError::Listen)?;
    let address: SocketAddr = listener.local_addr().map_err(GatewayError::Listen)?;
    let listener = TcpListener::from_std(listener).map_err(GatewayError::Listen)?;
    let (lanes, incoming) = Lanes::start().map_err(GatewayError::Threads)?;
    let lanes = Arc::new(lanes);
    let trust = Trust::new(verifier.clone());
    let acceptor = Acceptor {
        tls: TlsAcceptor::from(Arc::new(gateway_server(serving, Arc::clone(&clock)))),
        verifier,
        clock: Arc::clone(&clock),
        limits: AcceptLimits {
            connections: limits.connections,
            handshakes: limits.handshakes,
            handshake_timeout: timing.handshake.to_std(),
            fair_time: FAIR_TIME,
            idle_after: timing.idle.to_std(),
            shares: Shares {
                strangers: limits.strangers,
                per_address: limits.strangers_per_address,
                per_identity: limits.connections_per_node,
            },
        },
    };
    let shared = Arc::new(Shared {
        gateway_id,
        dev,
        registry: Arc::new(Registry::new(limits.sessions, clock.now())),
        reports: Reports::default(),
        liveness: Liveness::default(),
        questions: Questions::default(),
        recorder: Recorder::default(),
        claims: Claims::default(),
        steps: Steps::default(),
        last_words: LastWords::default(),
        pokes: Pokes::default(),
        trust,
        policies: Policies::default(),
        opens: Opens::default(),
        asking: Semaphore::new(limits.asking),
        tasks: TaskTracker::new(),
        home: Handle::current(),
        draining: cancel.child_token(),
        db,
        control_plane,
        clock,
        timing,
    });
    tracing::info!(%gateway_id, %address, dev, "the gateway listens");

    let stop_writers = CancellationToken::new();
    let mut writers = spawn_writers(&shared, &stop_writers);
    let accepting = tokio::spawn(acceptor.run(listener, Arc::clone(&lanes), cancel.clone()));
    let (router, mut servers) = (router(&shared, &limits), JoinSet::new());
    for (lane, incoming) in lanes.iter().zip(incoming) {
        let (incoming, until) = (ReceiverStream::new(incoming), cancel.clone().cancelled_owned());
        servers.spawn_on(router.clone().serve_with_incoming_shutdown(incoming, until), &lane.handle);
    }

    let ended = tokio::select! {
        () = cancel.cancelled() => None,
        ended = servers.join_next() => ended,
    };
    shared.draining.cancel();
    accepting.abort();
    shared.tasks.close();
    if timeout(shared.timing.drain.to_std(), shared.tasks.wait()).await.is_err() {
        tracing::warn!("sessions were still open when the gateway's time was over");
    }
    stop_writers.cancel();
    let flush = async {
        while writers.join_next().await.is_some() {}
        shared.last_words.flush(&shared.db, &shared.registry).await;
        shared.steps.flush(&shared.db).await;
        shared.reports.flush(&shared.db, &shared.registry).await;
        shared.liveness.flush(&shared.db, &shared.registry).await;
        shared.recorder.flush(&shared.db).await;
    };
    if timeout(shared.timing.drain.to_std(), flush).await.is_err() {
        tracing::warn!("PostgreSQL did not take the last reports and heartbeats in time");
    }
    writers.shutdown().await;
    timeout(LAST_FRAMES, shared.db.close()).await.ok();
    tracing::info!(%gateway_id, "the gateway has ended");
    // The last frames are still on their way; connections that linger have no session any more.
    let rest = async { while servers.join_next().await.is_some() {} };
    timeout(LAST_FRAMES, rest).await.ok();
    match ended {
        Some(Ok(Err(error))) => Err(GatewayError::Serve(error)),
        _ => Ok(()),
    }
}

fn router(shared: &Arc<Shared>, limits: &Limits) -> tonic::transport::server::Router {
    let control_plane: Arc<dyn ControlPlane> = Arc::new(AtHome::new(Arc::clone(&shared.control_plane)));
    let join = JoinServer::new(JoinForwarder::new(Arc::clone(&control_plane), Arc::clone(&shared.clock)))
        .max_decoding_message_size(MAX_REQUEST_BYTES);
    let secrets = SecretForwarder::new(control_plane, Arc::clone(&shared.clock));
    let secrets = SecretsServer::new(secrets).max_decoding_message_size(MAX_REQUEST_BYTES);
    let session = SessionServer::new(SessionService::new(Arc::clone(shared)))
        .max_decoding_message_size(proto::MAX_FRAME_BYTES)
        .max_encoding_message_size(proto::MAX_FRAME_BYTES);
    Server::builder()
        .http2_keepalive_interval(Some(ASKED_AFTER))
        .http2_keepalive_timeout(Some(ANSWERED_WITHIN))
        .http2_max_pending_accept_reset_streams(Some(RESETS))
        .http2_max_local_error_reset_streams(Some(RESETS))
        .http2_max_header_list_size(limits.header_bytes)
        .max_concurrent_streams(limits.streams_per_connection)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(2 * WINDOW)
        .add_service(join)
        .add_service(secrets)
        .add_service(session)
}

fn spawn_writers(shared: &Arc<Shared>, stop: &CancellationToken) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    let part = || (Arc::clone(shared), stop.clone());
    let (this, stop) = part();
    writers.spawn(async move { this.reports.run(&this.db, &this.registry, stop).await });
    let (this, stop) = part();
    writers
        .spawn(async move { this.liveness.run(&this.db, &this.registry, this.timing.liveness.to_std(), stop).await });
    let (this, stop) = part();
    writers.spawn(async move { this.questions.listen(&this.db, &this.registry, &this.policies, stop).await });
    let ((this, stop), db) = (part(), shared.db.planning_once(OWN_CONNECTIONS));
    writers.spawn(async move { this.opens.run(&db, &this.pokes, stop).await });
    let (this, stop) = part();
    writers.spawn(async move { this.questions.answer_facts(&this.db, &this.registry, &this.timing, stop).await });
    let (this, stop) = part();
    writers.spawn(async move { this.questions.answer_specs(&this.db, &this.registry, stop).await });
    let (this, stop) = part();
    writers.spawn(async move { this.recorder.run(&this.db, &this.registry, &*this.clock, stop).await });
    let ((this, stop), db) = (part(), shared.db.planning_once(OWN_CONNECTIONS).dedicated());
    writers.spawn(async move { this.claims.run(&db, &this.registry, (&this.steps, &this.last_words), stop).await });
    let (this, stop) = part();
    writers.spawn(async move { this.steps.run(&this.db, stop).await });
    let ((this, stop), db) = (part(), shared.db.planning_once(OWN_CONNECTIONS));
    writers.spawn(async move { this.last_words.run(&db, &this.registry, &this.claims, stop).await });
    let (this, stop) = part();
    writers.spawn(async move { this.pokes.run(&this.db, stop).await });
    let (this, stop) = part();
    let period = shared.timing.check.to_std();
    writers.spawn(async move { leaps::watch(&*this.clock, &this.registry, period, stop).await });
    let (this, stop) = part();
    writers.spawn(async move { this.trust.run(&this, period, stop).await });
    writers
}
