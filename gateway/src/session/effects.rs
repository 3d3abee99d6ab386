//! What goes into the session core and what comes out of it.

use std::collections::BTreeMap;

use proto::agent::v1 as pb;
use schema::{
    command::{CommandKind, Lane, UpdateState},
    digest::Digest,
    generation::{Epoch, Generation, IdentityGeneration},
    id::{BootId, CommandId, JournalId, NodeId},
    inventory::InventorySection,
    report::ReportKind,
};

use crate::refusal::Refusal;

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The node sent a frame.
    Frame(Box<pb::NodeFrame>),
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
    /// Commands of this node may wait in the database.
    CommandsMayWait,
    /// The answer to [`Effect::Claim`].
    Claimed(Claimed),
    /// Trust bundles that came into force.
    Trust(Vec<pb::SignedTrustBundle>),
    /// What people agreed on since.
    Policies(Vec<pb::Policies>),
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
    /// The version of the newest trust bundle.
    pub trust_version: u64,
    /// The newest trust bundle.
    pub bundle: pb::SignedTrustBundle,
    /// Every one later than the node's, one version at a time.
    pub trust_steps: Vec<pb::SignedTrustBundle>,
    /// What people agreed on, as far as the node does not know it.
    pub policies: Vec<pb::Policies>,
    /// The epoch that the node believes; 0 also when it reads none.
    pub policy_epoch: u64,
    /// How much of that the node was told.
    pub policies_version: u64,
    /// What is in flight since an earlier session, by number.
    pub replay: Vec<Dispatch>,
    /// The kinds of commands that the certificate's identity accepts, when it does not accept all.
    pub allowed: Option<Vec<String>>,
}

/// How many commands of each lane, in the order of [`Lane::ALL`].
pub type Room = [usize; Lane::ALL.len()];

/// A command on its way to the node. The database says that it is dispatched.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// Which command.
    pub id: CommandId,
    /// Its number among the node's commands.
    pub seq: u64,
    /// Its lane.
    pub lane: Lane,
    /// Its kind.
    pub kind: CommandKind,
    /// What the node gets: bytes that the control plane signed.
    pub frame: pb::Command,
    /// It is to be cancelled.
    pub cancel: bool,
}

/// What the database gave this session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claimed {
    /// By number.
    pub commands: Vec<Dispatch>,
    /// The answer to an earlier claim was lost, and this is all that the session has in flight. What it has seen already
    /// is among them.
    pub recalled: bool,
}

/// The node's last word on a command: exact bytes that it signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastWord {
    /// Which command.
    pub id: CommandId,
    /// Canonical JSON.
    pub payload: Vec<u8>,
    /// By the node's key.
    pub signature: Vec<u8>,
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
    /// Nobody has the node's identity: it was revoked.
    pub vacant: bool,
    /// The node has another name than the certificate of the session was issued under.
    pub renamed: bool,
    /// The newest generation of the spec.
    pub generation: Generation,
    /// Inventory sections that the control plane wants in full.
    pub inventory_wanted: Vec<InventorySection>,
    /// Commands of this node wait to be claimed.
    pub commands_waiting: bool,
    /// Commands in flight that are to be cancelled.
    pub cancels: Vec<CommandId>,
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
    /// Claim as many commands and answer with [`Input::Claimed`]. There is one claim at a time.
    Claim(Room),
    /// Store what the node says about a command before its last word; busy makes it wait in the database again.
    Progress(CommandId, UpdateState),
    /// The node's journal is full: the command waits in the database again, and why is stored.
    JournalFull(CommandId),
    /// The node's journal cannot be written: the same.
    JournalUnusable(CommandId),
    /// The node says in Hello why it cannot keep what it has to keep.
    CannotKeep(String),
    /// Store the node's last word on a command under the session's epoch.
    Settle(LastWord),
    /// These were claimed and not sent: they wait in the database again.
    Release(Vec<CommandId>),
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
    /// The version of the node's trust bundle.
    pub trust_version: u64,
    /// The daemon runs commands.
    pub commands: bool,
    /// The epoch of the trust policy that it believes; `None` when it reads none.
    pub policy_epoch: Option<u64>,
    /// What its journal took, by lane; `None` when Hello does not say.
    pub marks: Option<[u64; Lane::ALL.len()]>,
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
