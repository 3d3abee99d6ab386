//! What goes into the session core and what comes out of it.

use std::collections::BTreeMap;

use proto::agent::v1 as pb;
use schema::{
    digest::Digest,
    generation::{Epoch, Generation, IdentityGeneration},
    id::{BootId, JournalId, NodeId},
    inventory::InventorySection,
    report::ReportKind,
};

use crate::refusal::Refusal;

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The node sent a frame.
    Frame(pb::NodeFrame),
    /// The node sent something that is no frame.
    BadFrame(Refusal),
    /// The row is open.
    Opened(Box<Opened>),
    /// The row was not opened.
    NotOpened(Refusal),
    /// The node's row as it is now.
    Facts(Facts),
    /// The stored spec, asked for by [`Effect::FetchSpec`].
    Spec(Box<pb::DesiredState>),
    /// The session ends for a reason outside of it.
    End(Refusal),
    /// The gateway is going away.
    Drain,
    /// The node is gone.
    Gone,
}

/// What opening a session yields.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    /// The session's epoch.
    pub epoch: Epoch,
    /// The identity that the session was opened under.
    pub identity_generation: IdentityGeneration,
    /// The newest generation of the node's spec.
    pub generation: Generation,
    /// Digests of the stored inventory.
    pub inventory: BTreeMap<InventorySection, Digest>,
    /// Signed time over the nonce of Hello.
    pub time: pb::SignedTime,
    /// The newest trust bundle.
    pub bundle: pb::SignedTrustBundle,
}

/// What the database says about a node that has a session here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The newest session's epoch.
    pub epoch: Epoch,
    /// The newest identity.
    pub identity_generation: IdentityGeneration,
    /// The certificate of the session is no longer good.
    pub revoked: bool,
    /// The newest generation of the spec.
    pub generation: Generation,
    /// Inventory sections that the control plane wants in full.
    pub inventory_wanted: Vec<InventorySection>,
}

/// The edge has to do something.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Open the session's row and answer with [`Input::Opened`] or [`Input::NotOpened`].
    Open(Box<OpenRequest>),
    /// Send a frame.
    Send(Box<pb::gateway_frame::Frame>),
    /// The node was heard.
    Beat,
    /// Store a report under the session's epoch.
    Store(Report),
    /// Read the stored spec and answer with [`Input::Spec`].
    FetchSpec,
    /// The session is over. The last effect of a session.
    Close(Ending),
}

/// What the row of a session says about the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRequest {
    /// Which node.
    pub node_id: NodeId,
    /// Its boot.
    pub boot_id: BootId,
    /// Its journal.
    pub journal_id: JournalId,
    /// To be answered by signed time.
    pub nonce: Vec<u8>,
    /// Version of the daemon.
    pub agent_version: String,
    /// The machine is described by a file.
    pub described: bool,
}

/// Exact bytes that a node signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which kind.
    pub kind: ReportKind,
    /// Its number, as the payload says.
    pub seq: u64,
    /// Canonical JSON.
    pub payload: Vec<u8>,
    /// By the node's key.
    pub signature: Vec<u8>,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With a reason, which the node was told.
    Refused(Refusal),
    /// The gateway is going away.
    Goodbye,
    /// The node went away.
    Gone,
}
