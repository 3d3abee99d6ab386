//! The documents in the state directory.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pki::{anchor::Anchor, bundle::TrustBundle, node_key::NodeKey, statement::JoinIdentity};
use rustls_pki_types::CertificateDer;
use schema::{
    digest::Digest,
    generation::Generation,
    id::{BootId, JournalId},
    inventory::InventorySection,
    node::Condition,
    report::{DriftEntry, SectionStatus},
    spec::Section,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{StateDir, StateError};
use crate::{
    command::journal,
    converge::Memory,
    drift::Ledger,
    policies::{self, Policies},
};

const KEY: &str = "node.key";
const REQUEST: &str = "node.csr";
const IDENTITY: &str = "identity.json";
const TRUST: &str = "trust.json";
const POLICIES: &str = "policies.json";
const TIME: &str = "time.json";
const DESIRED: &str = "desired.json";
const PROGRESS: &str = "progress.json";
const MEMORY: &str = "memory.json";
const CONTACT: &str = "contact.json";
const DRIFT: &str = "drift.json";
/// More reports than a copy of the state can be behind.
const LEAP: u64 = 1 << 20;

/// Who this node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Where the control plane listens: tried in turn.
    pub endpoints: Vec<String>,
    /// What the control plane said at the join.
    pub identity: JoinIdentity,
    /// The anchor, as it was pinned.
    pub anchor: Anchor,
    /// The certificate chain in base64, leaf first.
    pub chain: Vec<String>,
    /// The machine is described by a file and not real.
    pub described: bool,
}

impl Identity {
    /// The certificate chain.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.chain.iter().filter_map(|text| STANDARD.decode(text).ok()).map(CertificateDer::from).collect()
    }

    /// A chain as it is kept.
    #[must_use]
    pub fn encode(chain: &[Vec<u8>]) -> Vec<String> {
        chain.iter().map(|der| STANDARD.encode(der)).collect()
    }
}

/// The latest spec that was verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Desired {
    /// Its generation.
    pub generation: Generation,
    /// The exact bytes that were signed.
    pub spec: String,
    /// The signature that was checked when it came, part by part in base64: worker, root's word, worker's word.
    pub signature: [String; 3],
}

impl Desired {
    /// A spec that was checked, as it is kept.
    #[must_use]
    pub fn new(generation: Generation, spec: String, signature: &pki::worker::Signature) -> Self {
        let parts = [&signature.worker, &signature.root_signature, &signature.signature];
        Self { generation, spec, signature: parts.map(|part| STANDARD.encode(part)) }
    }
}

/// How far this node came, and how it counts its reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The life of the journal of commands. Reports are counted within it.
    pub journal_id: JournalId,
    /// The latest boot.
    pub boot_id: BootId,
    /// No report had this number or a higher one.
    pub reserved_seq: u64,
    /// The latest spec that was verified, kept and attempted.
    pub applied: Generation,
    /// The latest spec of which every section has ended.
    pub observed: Generation,
    /// How each section ended.
    pub sections: BTreeMap<Section, SectionStatus>,
    /// The node's own conditions.
    pub conditions: Vec<Condition>,
    /// What something else changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftEntry>,
    /// The inventory that was reported last.
    pub reported: BTreeMap<InventorySection, Digest>,
}

impl Progress {
    /// The beginning of a journal.
    #[must_use]
    pub fn begin(boot_id: BootId) -> Self {
        Self {
            journal_id: JournalId::generate(),
            boot_id,
            reserved_seq: 1,
            applied: Generation::NONE,
            observed: Generation::NONE,
            sections: BTreeMap::new(),
            conditions: Vec::new(),
            drift: Vec::new(),
            reported: BTreeMap::new(),
        }
    }

    /// The progress of this boot and this journal. Each boot counts its reports from a higher number on: a state directory
    /// that was put back from a copy is ahead again of what the control plane knows.
    #[must_use]
    pub fn of(self, boot_id: BootId, journal_id: JournalId) -> Self {
        let reserved_seq = match (self.journal_id == journal_id, self.boot_id == boot_id) {
            (false, _) => 1,
            (true, true) => self.reserved_seq,
            (true, false) => (self.reserved_seq / LEAP + 1) * LEAP,
        };
        Self { boot_id, journal_id, reserved_seq, ..self }
    }
}

/// How this node last stood with the control plane. For people: what cannot be kept of it changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Contact {
    /// Since when there is a session, while a daemon runs.
    pub session: Option<Timestamp>,
    /// When the last one ended.
    pub session_ended: Option<Timestamp>,
    /// How the last renewal of the certificate went.
    pub renewal: Option<RenewalTried>,
}

/// How a renewal went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenewalTried {
    /// When that was said last.
    pub at: Timestamp,
    /// Why there was no certificate; `None` when there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The memories of all sections.
pub type Memories = BTreeMap<Section, Memory>;

impl StateDir {
    /// The node key, if there is one.
    ///
    /// # Errors
    /// When the file cannot be read or holds no key.
    pub fn key(&self) -> Result<Option<NodeKey>, StateError> {
        let Some(bytes) = self.bytes(KEY)? else { return Ok(None) };
        NodeKey::from_pkcs8(&bytes).map(Some).map_err(|_| StateError::Malformed(self.path().join(KEY)))
    }

    /// The node key and the request for its certificate: those that are kept, or fresh ones that are kept from now on.
    ///
    /// # Errors
    /// When the files cannot be read or written.
    pub fn key_and_request(&self) -> Result<(NodeKey, Vec<u8>), StateError> {
        if let (Some(key), Some(request)) = (self.key()?, self.bytes(REQUEST)?) {
            return Ok((key, request));
        }
        let key = NodeKey::generate();
        let request = key.request();
        // The request last: with it there, the key is the one that it was made with.
        self.remove(REQUEST)?;
        self.write(KEY, key.as_pkcs8())?;
        self.write(REQUEST, &request)?;
        Ok((key, request))
    }

    /// Who this node is; `None` before the join.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn identity(&self) -> Result<Option<Identity>, StateError> {
        self.load(IDENTITY)
    }

    /// Keeps who this node is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_identity(&self, identity: &Identity) -> Result<(), StateError> {
        self.save(IDENTITY, identity)
    }

    /// Forgets who this node was, the identity last: whoever is killed in between does it again. What it did to the host
    /// stays remembered, so that it can still be undone.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn forget_identity(&self) -> Result<(), StateError> {
        [REQUEST, KEY, TRUST, DESIRED, PROGRESS, CONTACT, journal::FILE, IDENTITY]
            .into_iter()
            .try_for_each(|name| self.remove(name))
    }

    /// The trust bundle in force.
    ///
    /// # Errors
    /// When the file cannot be read or holds no bundle.
    pub fn trust(&self) -> Result<Option<TrustBundle>, StateError> {
        let Some(bytes) = self.bytes(TRUST)? else { return Ok(None) };
        TrustBundle::from_bytes(&bytes).map(Some).map_err(|_| StateError::Malformed(self.path().join(TRUST)))
    }

    /// Keeps a trust bundle that was checked.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_trust(&self, bundle: &TrustBundle) -> Result<(), StateError> {
        self.write(TRUST, &bundle.to_bytes())
    }

    /// What people agreed on; `None` when this node was never told of a policy.
    ///
    /// # Errors
    /// When the file cannot be read. A node that cannot tell whether it knows a policy does nothing.
    pub fn policies(&self) -> Result<Option<Policies>, StateError> {
        Ok(self.load(POLICIES)?.map(Policies::read))
    }

    /// What people agreed on, as the node of this identity knows it: a machine that was pinned when it joined knows with which
    /// policy its fleet begins also where nothing else is kept of it.
    ///
    /// # Errors
    /// As [`Self::policies`].
    pub fn policies_of(&self, identity: &Identity) -> Result<Option<Policies>, StateError> {
        let anchor = &identity.anchor;
        Ok(self.policies()?.or_else(|| Some(Policies::pinned(&anchor.realm(), anchor.trust?))))
    }

    /// Keeps what people agreed on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_policies(&self, kept: &policies::Kept) -> Result<(), StateError> {
        self.save(POLICIES, kept)
    }

    /// Forgets what people agreed on: only when somebody at the machine makes it another control plane's.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget_policies(&self) -> Result<(), StateError> {
        self.remove(POLICIES)
    }

    /// How late it was at least.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn floor(&self) -> Result<Option<Timestamp>, StateError> {
        self.load(TIME)
    }

    /// Keeps how late it is at least.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_floor(&self, floor: Timestamp) -> Result<(), StateError> {
        self.save(TIME, &floor)
    }

    /// The latest spec.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn desired(&self) -> Result<Option<Desired>, StateError> {
        self.load(DESIRED)
    }

    /// Keeps a spec that was checked.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_desired(&self, desired: &Desired) -> Result<(), StateError> {
        self.save(DESIRED, desired)
    }

    /// How far this node came.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn progress(&self) -> Result<Option<Progress>, StateError> {
        self.load(PROGRESS)
    }

    /// Keeps how far this node came.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_progress(&self, progress: &Progress) -> Result<(), StateError> {
        self.save(PROGRESS, progress)
    }

    /// How this node last stood with the control plane; what cannot be read is not known.
    #[must_use]
    pub fn contact(&self) -> Contact {
        self.load(CONTACT).ok().flatten().unwrap_or_default()
    }

    /// Keeps how this node stands with the control plane.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_contact(&self, contact: &Contact) -> Result<(), StateError> {
        self.save(CONTACT, contact)
    }

    /// What was there before.
    ///
    /// # Errors
    /// When the file cannot be read. Nothing may be changed then.
    pub fn memories(&self) -> Result<Memories, StateError> {
        Ok(self.load(MEMORY)?.unwrap_or_default())
    }

    /// Keeps what was there before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_memories(&self, memories: &Memories) -> Result<(), StateError> {
        self.save(MEMORY, memories)
    }

    /// What was seen to be as desired, and what was found changed since. A ledger that cannot be read begins anew: all that
    /// is lost is the word for changes that were made before.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.load(DRIFT)
            .unwrap_or_else(|error: StateError| {
                tracing::warn!("{error}; drift is looked for anew");
                None
            })
            .unwrap_or_default()
    }

    /// Keeps the ledger of drift.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_ledger(&self, ledger: &Ledger) -> Result<(), StateError> {
        self.save(DRIFT, ledger)
    }
}
