//! What a gateway is given, and the numbers that it keeps to.

use std::sync::Arc;

use pki::{tls::ServingCertificate, verify::NodeVerifier};
use schema::{clock::SharedClock, id::GatewayId, time::Duration};
use store::Db;

use crate::authority::ControlPlane;

/// What a gateway is given.
pub struct Config {
    /// This process; a new one for every start.
    pub gateway_id: GatewayId,
    /// The bound port.
    pub listener: std::net::TcpListener,
    /// What nodes are shown; replace it while the gateway runs.
    pub serving: Arc<ServingCertificate>,
    /// Judges node certificates.
    pub verifier: NodeVerifier,
    /// Machines described by a file are admitted.
    pub dev: bool,
    /// The database.
    pub db: Db,
    /// Who has authority.
    pub control_plane: Arc<dyn ControlPlane>,
    /// The clock.
    pub clock: SharedClock,
    /// How much of everything.
    pub limits: Limits,
    /// How often and how long.
    pub timing: Timing,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("gateway_id", &self.gateway_id)
            .field("listener", &self.listener)
            .field("dev", &self.dev)
            .field("limits", &self.limits)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

/// How much of everything.
#[derive(Debug, Clone)]
pub struct Limits {
    /// TLS connections, handshakes included.
    pub connections: usize,
    /// TLS handshakes in flight.
    pub handshakes: usize,
    /// Connections without a good certificate: `sessions` nodes find a place beside all of them.
    pub strangers: usize,
    /// Those of one address, or of one IPv6 network of 64 bits: machines that join behind one address are few at a time.
    pub strangers_per_address: usize,
    /// Connections of one node.
    pub connections_per_node: usize,
    /// Session streams.
    pub sessions: usize,
    /// Sessions that ask the control plane at the same time as they open.
    pub asking: usize,
    /// Streams of one connection.
    pub streams_per_connection: u32,
    /// All headers of one call, in bytes.
    pub header_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 30_000,
            handshakes: 1_024,
            strangers: 4_096,
            strangers_per_address: 512,
            connections_per_node: 6,
            sessions: 20_000,
            asking: 12,
            streams_per_connection: 16,
            header_bytes: 16 * 1024,
        }
    }
}

/// How often and how long.
#[derive(Debug, Clone)]
pub struct Timing {
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long a connection may be open without a session or a call.
    pub idle: Duration,
    /// How long Hello may take.
    pub hello_within: Duration,
    /// How long opening the row may take.
    pub open_within: Duration,
    /// How often a node says that it is there.
    pub heartbeat: Duration,
    /// How often heartbeats are written.
    pub liveness: Duration,
    /// How often the database is asked what changed. Lost pokes, a revocation among them, cost at most this.
    pub check: Duration,
    /// How often all sessions are compared with the database, whether anything changed or not.
    pub check_all: Duration,
    /// Within which time nodes connect again when the gateway goes away.
    pub reconnect_within: Duration,
    /// How long a node that was told to go may still say something.
    pub linger: Duration,
    /// How long the gateway takes to go away.
    pub drain: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            hello_within: Duration::from_secs(10),
            open_within: Duration::from_secs(20),
            heartbeat: Duration::from_secs(30),
            liveness: Duration::from_secs(5),
            check: Duration::from_secs(3),
            check_all: Duration::from_secs(300),
            reconnect_within: Duration::from_secs(5),
            linger: Duration::from_secs(2),
            drain: Duration::from_secs(10),
        }
    }
}
