//! What every session of a gateway shares.

use std::sync::Arc;

use schema::{
    clock::SharedClock,
    id::{GatewayId, NodeId},
    time::Timestamp,
};
use store::Db;
use tokio::{runtime::Handle, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    authority::ControlPlane, claims::Claims, config::Timing, facts::Questions, last_words::LastWords,
    liveness::Liveness, opens::Opens, pokes::Pokes, policies::Policies, recorder::Recorder, registry::Registry,
    reports::Reports, session::Rules, steps::Steps, trust::Trust,
};

/// The parts that sessions use.
pub(crate) struct Shared {
    pub(crate) gateway_id: GatewayId,
    pub(crate) dev: bool,
    pub(crate) timing: Timing,
    pub(crate) db: Db,
    pub(crate) control_plane: Arc<dyn ControlPlane>,
    pub(crate) clock: SharedClock,
    pub(crate) registry: Arc<Registry>,
    pub(crate) reports: Reports,
    pub(crate) liveness: Liveness,
    pub(crate) questions: Questions,
    pub(crate) recorder: Recorder,
    pub(crate) claims: Claims,
    pub(crate) steps: Steps,
    pub(crate) last_words: LastWords,
    pub(crate) pokes: Pokes,
    pub(crate) trust: Trust,
    pub(crate) policies: Policies,
    pub(crate) opens: Opens,
    /// For sessions that ask the control plane as they open: few at the same time.
    pub(crate) asking: Semaphore,
    pub(crate) tasks: TaskTracker,
    /// Where what talks to PostgreSQL and to the control plane runs.
    pub(crate) home: Handle,
    pub(crate) draining: CancellationToken,
}

impl Shared {
    /// What a session of this node is held to.
    pub(crate) fn rules(&self, node_id: NodeId, certificate_ends: Timestamp) -> Rules {
        Rules {
            node_id,
            certificate_ends,
            gateway_id: self.gateway_id,
            dev: self.dev,
            hello_within: self.timing.hello_within,
            open_within: self.timing.open_within,
            heartbeat: self.timing.heartbeat,
            reconnect_within: self.timing.reconnect_within,
            linger: self.timing.linger,
        }
    }
}
