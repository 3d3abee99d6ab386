//! Replacing keys without anybody who is left behind: a pure step from keys to keys.
//!
//! ```text
//!            begin                       switch                       finish
//! old only ───────▶ both are believed, ───────▶ both are believed, ───────▶ new only
//!                   the old one signs           the new one signs
//! ```
//!
//! Every step that changes what nodes believe makes the next version of the trust bundle, signed by the command-signing
//! root that signs at that moment and kept with the keys: a node that was away takes them one by one. A new root is
//! cross-signed by the one before it, and servers send that certificate for [`MAX_OFFLINE`]. Private keys that are over
//! are forgotten.
//!
//! Keys that nodes do not believe (the checkpoint key, the secret store's, the internal authority) step the same way; who has
//! to follow are processes, which say which revision of the keys they work with.

use std::collections::BTreeMap;

use rustls_pki_types::CertificateDer;
use schema::time::{Duration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Keys;
use crate::{
    bundle::{SignedBundle, TrustBundle},
    encoding::{Base64, Secret},
    issue::{Authority, AuthorityKind, SERVING_LIFE},
    provider::random,
    sealed::JoinKey,
    verify::NodeVerifier,
    worker::{CommandRoot, CommandRootKey},
};

/// For how long a machine may be away and still find its way back by itself: certificates of authorities that are over
/// are recognised when they are renewed, and servers show how the present root follows from the one it knows.
pub const MAX_OFFLINE: Duration = Duration::from_secs(400 * 86_400);

/// The version of the trust bundle that says what the first anchor says.
const FIRST_VERSION: u64 = 1;

/// What can be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RotationKind {
    /// The root that nodes believe servers by, with the authorities for nodes and servers under it.
    NodeCa,
    /// The root that certifies whatever signs specs, commands and time.
    CommandRoot,
    /// The key to which join tokens are sealed.
    JoinKey,
    /// The authority among the control plane's own processes and gateways.
    InternalAuthority,
    /// The secret behind challenges, checkpoints, manifests and the tags of commands.
    Checkpoint,
    /// The key that the values of secrets are sealed with.
    SecretStore,
}

impl RotationKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::NodeCa, Self::CommandRoot, Self::JoinKey, Self::InternalAuthority, Self::Checkpoint, Self::SecretStore];

    /// Whether nodes believe it, and learn of the next one by a trust bundle.
    #[must_use]
    pub const fn is_believed_by_nodes(self) -> bool {
        matches!(self, Self::NodeCa | Self::CommandRoot | Self::JoinKey)
    }

    /// The word that people type.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodeCa => "node-ca",
            Self::CommandRoot => "command-root",
            Self::JoinKey => "join-key",
            Self::InternalAuthority => "internal-authority",
            Self::Checkpoint => "checkpoint",
            Self::SecretStore => "secret-store",
        }
    }
}

impl std::fmt::Display for RotationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// How far a rotation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Both are believed, and the old one signs.
    Begun,
    /// Both are believed, and the new one signs.
    Switched,
}

/// A rotation under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rotation {
    /// How far it is.
    pub phase: Phase,
    /// When it began.
    pub begun_at: Timestamp,
    /// When the new one began to sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switched_at: Option<Timestamp>,
    /// The first trust bundle that names the new one: who has it, or a later one, has stepped. For keys that no bundle
    /// names, the one in force.
    pub version: u64,
}

/// Where the keys of one kind stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RotationStatus {
    /// Which keys.
    pub kind: RotationKind,
    /// When the one that is used was made, where that was noted.
    pub made_at: Option<Timestamp>,
    /// The rotation, when one is under way.
    pub rotation: Option<Rotation>,
    /// When the one before it was finished, where that was noted.
    pub finished_at: Option<Timestamp>,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advanced {
    /// Both are believed from now on.
    Begun,
    /// The new one signs from now on.
    Switched,
    /// The old one is over.
    Finished,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Authorities {
    root: Authority,
    node: Authority,
    serving: Authority,
}

/// A rotation and the other key: the next one until the switch, the one before it afterwards.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Running<T> {
    at: Rotation,
    other: T,
}

/// A certificate that is kept for a while.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    certificate: Base64,
    until: Timestamp,
}

impl Kept {
    fn new(certificate: &CertificateDer<'_>, life: Duration, now: Timestamp) -> Self {
        Self { certificate: Base64(certificate.to_vec()), until: life.after(now) }
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.certificate.0.clone())
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBundle {
    bytes: Base64,
    signature: Base64,
}

/// What is being replaced, and what is left of what was.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Rotations {
    node_ca: Option<Running<Authorities>>,
    command_root: Option<Running<CommandRoot>>,
    join_key: Option<Running<JoinKey>>,
    internal_authority: Option<Running<Authority>>,
    checkpoint: Option<Running<Secret>>,
    pub(super) secret_store: Option<Running<Secret>>,
    /// Every bundle there ever was, oldest first; none while the first one is in force.
    bundles: Vec<StoredBundle>,
    /// Each root under the one before it.
    crosses: Vec<Kept>,
    /// Node authorities that issue nothing any more.
    former: Vec<Kept>,
    /// Serving authorities that issue nothing any more, as long as something of theirs is valid.
    former_serving: Vec<Kept>,
    /// When the last rotation of each kind was finished.
    finished: BTreeMap<RotationKind, Timestamp>,
    /// The revision of the last step of the internal authority.
    internal_step: u64,
    /// A gateway whose keys are of a revision before this one and the control plane do not believe each other any more.
    internal_outside: u64,
}

impl Rotations {
    pub(super) fn is_empty(&self) -> bool {
        self.bundles.is_empty()
            && self.internal_authority.is_none()
            && self.checkpoint.is_none()
            && self.secret_store.is_none()
            && self.finished.is_empty()
    }

    pub(super) fn is_sound(&self) -> bool {
        let sound = |set: &Authorities| [&set.root, &set.node, &set.serving].into_iter().all(Authority::is_sound);
        self.node_ca.as_ref().is_none_or(|running| sound(&running.other))
            && self.command_root.as_ref().is_none_or(|running| running.other.is_sound())
            && self.internal_authority.as_ref().is_none_or(|running| running.other.is_sound())
    }

    pub(super) fn other_join_key(&self) -> Option<&JoinKey> {
        self.join_key.as_ref().map(|running| &running.other)
    }

    pub(super) fn other_secret_store(&self) -> Option<&Secret> {
        self.secret_store.as_ref().map(|running| &running.other)
    }

    pub(super) fn other_checkpoint(&self) -> Option<&Secret> {
        self.checkpoint.as_ref().map(|running| &running.other)
    }

    pub(super) fn checkpoint_switched(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|running| running.at.phase == Phase::Switched)
    }

    /// From the present root back, as long as somebody may need them.
    pub(super) fn crosses(&self, now: Timestamp) -> impl Iterator<Item = CertificateDer<'static>> {
        self.crosses.iter().rev().filter(move |kept| now < kept.until).map(Kept::der)
    }
}

impl Keys {
    /// The roots that nodes believe servers by.
    pub(super) fn roots(&self) -> Vec<CertificateDer<'static>> {
        let other = self.rotations.node_ca.as_ref().map(|running| running.other.root.certificate());
        std::iter::once(self.root.certificate()).chain(other).collect()
    }

    pub(super) fn command_roots(&self) -> Vec<CommandRootKey> {
        let other = self.rotations.command_root.as_ref().map(|running| running.other.public());
        std::iter::once(self.command_root.public()).chain(other).collect()
    }

    /// The authorities whose node certificates open sessions.
    #[must_use]
    pub fn node_authorities(&self) -> Vec<CertificateDer<'static>> {
        let other = self.rotations.node_ca.as_ref().map(|running| running.other.node.certificate());
        std::iter::once(self.node.certificate()).chain(other).collect()
    }

    /// The authorities whose internal certificates count, the present one first.
    #[must_use]
    pub fn internal_authorities(&self) -> Vec<CertificateDer<'static>> {
        let other = self.rotations.internal_authority.as_ref().map(|running| running.other.certificate());
        std::iter::once(self.internal.certificate()).chain(other).collect()
    }

    /// The authorities whose serving certificates a gateway may show when it asks for its next keys: those that are over, too. Who
    /// it is its internal certificate says, and that counts only under an authority in force.
    pub(super) fn serving_authorities(&self, now: Timestamp) -> Vec<CertificateDer<'static>> {
        let other = self.rotations.node_ca.as_ref().map(|running| running.other.serving.certificate());
        let former = self.rotations.former_serving.iter().filter(|kept| now < kept.until).map(Kept::der);
        std::iter::once(self.serving.certificate()).chain(other).chain(former).collect()
    }

    /// The revision from which on a gateway's keys open the internal service.
    pub(super) const fn internal_outside(&self) -> u64 {
        self.rotations.internal_outside
    }

    /// Judges certificates that are being renewed: those of authorities that are over, too.
    #[must_use]
    pub fn renewal_verifier(&self, now: Timestamp) -> NodeVerifier {
        let former = self.rotations.former.iter().filter(|kept| now < kept.until).map(Kept::der);
        let all: Vec<_> = self.node_authorities().into_iter().chain(former).collect();
        NodeVerifier::new(&self.trust_domain, &all).expect("an own authority is a certificate")
    }

    /// Where each kind of key stands.
    #[must_use]
    pub fn rotation_status(&self) -> [RotationStatus; 6] {
        RotationKind::ALL.map(|kind| self.rotation_status_of(kind))
    }

    /// Where the keys of one kind stand.
    #[must_use]
    pub fn rotation_status_of(&self, kind: RotationKind) -> RotationStatus {
        RotationStatus {
            kind,
            made_at: self.born.get(&kind).copied(),
            rotation: self.rotation(kind),
            finished_at: self.rotations.finished.get(&kind).copied(),
        }
    }

    /// The rotation of this kind that is under way.
    #[must_use]
    pub fn rotation(&self, kind: RotationKind) -> Option<Rotation> {
        match kind {
            RotationKind::NodeCa => self.rotations.node_ca.as_ref().map(|running| running.at),
            RotationKind::CommandRoot => self.rotations.command_root.as_ref().map(|running| running.at),
            RotationKind::JoinKey => self.rotations.join_key.as_ref().map(|running| running.at),
            RotationKind::InternalAuthority => self.rotations.internal_authority.as_ref().map(|running| running.at),
            RotationKind::Checkpoint => self.rotations.checkpoint.as_ref().map(|running| running.at),
            RotationKind::SecretStore => self.rotations.secret_store.as_ref().map(|running| running.at),
        }
    }

    /// Every trust bundle of this fleet, oldest first; the last one is in force.
    #[must_use]
    pub fn bundles(&self, fleet_id: &str) -> Vec<SignedBundle> {
        if self.rotations.bundles.is_empty() {
            return vec![self.sign_next(fleet_id, FIRST_VERSION)];
        }
        let signed = |stored: &StoredBundle| SignedBundle {
            bytes: stored.bytes.0.clone(),
            signature: stored.signature.0.clone(),
        };
        self.rotations.bundles.iter().map(signed).collect()
    }

    /// The version of the trust bundle in force.
    #[must_use]
    pub fn trust_version(&self) -> u64 {
        FIRST_VERSION + u64::try_from(self.rotations.bundles.len().saturating_sub(1)).unwrap_or(u64::MAX)
    }

    /// Takes the next step of a rotation, or begins one. What may not be true yet (nodes that have not stepped) is the
    /// caller's to know.
    pub fn advance(&mut self, kind: RotationKind, fleet_id: &str, now: Timestamp) -> Advanced {
        let done = match self.rotation(kind).map(|rotation| rotation.phase) {
            None => self.begin(kind, fleet_id, now),
            Some(Phase::Begun) => self.switch(kind, now),
            Some(Phase::Switched) => self.finish(kind, now),
        };
        if kind.is_believed_by_nodes() && done != Advanced::Switched {
            self.announce(fleet_id);
        }
        self.revision += 1;
        if kind == RotationKind::InternalAuthority {
            // Who has the begin knows the next authority; who has the switch has a certificate of it.
            if done != Advanced::Begun {
                self.rotations.internal_outside = self.rotations.internal_step;
            }
            self.rotations.internal_step = self.revision;
        }
        done
    }

    fn begin(&mut self, kind: RotationKind, fleet_id: &str, now: Timestamp) -> Advanced {
        if kind.is_believed_by_nodes() && self.rotations.bundles.is_empty() {
            // The step after the first bundle has to follow from it.
            let first = self.sign_next(fleet_id, FIRST_VERSION);
            self.keep(first);
        }
        let version = self.trust_version() + u64::from(kind.is_believed_by_nodes());
        let at = Rotation { phase: Phase::Begun, begun_at: now, switched_at: None, version };
        match kind {
            RotationKind::NodeCa => {
                let root = Authority::root(&self.trust_domain, now);
                let issuing = |kind| root.issuing(kind, &self.trust_domain, now);
                let (node, serving) = (issuing(AuthorityKind::Node), issuing(AuthorityKind::Serving));
                self.rotations.node_ca = Some(Running { at, other: Authorities { root, node, serving } });
            }
            RotationKind::CommandRoot => {
                self.rotations.command_root = Some(Running { at, other: CommandRoot::generate() });
            }
            RotationKind::JoinKey => {
                // Nothing is signed with it, so the new one is used at once and the old one goes on opening.
                let at = Rotation { phase: Phase::Switched, switched_at: Some(now), ..at };
                let old = std::mem::replace(&mut self.join, JoinKey::generate());
                self.rotations.join_key = Some(Running { at, other: old });
                self.born.insert(kind, now);
            }
            RotationKind::InternalAuthority => {
                let other = self.root.issuing(AuthorityKind::Internal, &self.trust_domain, now);
                self.rotations.internal_authority = Some(Running { at, other });
            }
            RotationKind::Checkpoint => self.rotations.checkpoint = Some(Running { at, other: fresh() }),
            RotationKind::SecretStore => self.rotations.secret_store = Some(Running { at, other: fresh() }),
        }
        Advanced::Begun
    }

    fn switch(&mut self, kind: RotationKind, now: Timestamp) -> Advanced {
        let switched = |at: &mut Rotation| {
            at.phase = Phase::Switched;
            at.switched_at = Some(now);
        };
        if let (RotationKind::NodeCa, Some(running)) = (kind, &mut self.rotations.node_ca) {
            switched(&mut running.at);
            let cross = self.root.cross(&running.other.root, MAX_OFFLINE, now);
            self.rotations.crosses.push(Kept::new(&cross, MAX_OFFLINE, now));
            std::mem::swap(&mut self.root, &mut running.other.root);
            std::mem::swap(&mut self.node, &mut running.other.node);
            std::mem::swap(&mut self.serving, &mut running.other.serving);
        }
        if let (RotationKind::CommandRoot, Some(running)) = (kind, &mut self.rotations.command_root) {
            switched(&mut running.at);
            std::mem::swap(&mut self.command_root, &mut running.other);
        }
        if let (RotationKind::InternalAuthority, Some(running)) = (kind, &mut self.rotations.internal_authority) {
            switched(&mut running.at);
            std::mem::swap(&mut self.internal, &mut running.other);
        }
        if let (RotationKind::Checkpoint, Some(running)) = (kind, &mut self.rotations.checkpoint) {
            switched(&mut running.at);
            std::mem::swap(&mut self.checkpoint, &mut running.other);
        }
        if let (RotationKind::SecretStore, Some(running)) = (kind, &mut self.rotations.secret_store) {
            switched(&mut running.at);
            std::mem::swap(&mut self.secret_store, &mut running.other);
        }
        if let Some(rotation) = self.rotation(kind) {
            self.born.insert(kind, rotation.begun_at);
        }
        Advanced::Switched
    }

    fn finish(&mut self, kind: RotationKind, now: Timestamp) -> Advanced {
        match kind {
            RotationKind::NodeCa => {
                if let Some(running) = self.rotations.node_ca.take() {
                    let Authorities { node, serving, .. } = running.other;
                    self.rotations.former.push(Kept::new(&node.certificate(), MAX_OFFLINE, now));
                    self.rotations.former_serving.push(Kept::new(&serving.certificate(), SERVING_LIFE, now));
                }
            }
            RotationKind::CommandRoot => self.rotations.command_root = None,
            RotationKind::JoinKey => self.rotations.join_key = None,
            RotationKind::InternalAuthority => self.rotations.internal_authority = None,
            RotationKind::Checkpoint => self.rotations.checkpoint = None,
            RotationKind::SecretStore => self.rotations.secret_store = None,
        }
        let over = |kept: &Kept| now < kept.until;
        self.rotations.former.retain(over);
        self.rotations.former_serving.retain(over);
        self.rotations.crosses.retain(over);
        self.rotations.finished.insert(kind, now);
        Advanced::Finished
    }

    /// Makes the next trust bundle, which says what is believed now.
    fn announce(&mut self, fleet_id: &str) {
        let next = self.sign_next(fleet_id, self.trust_version() + 1);
        self.keep(next);
    }

    fn sign_next(&self, fleet_id: &str, version: u64) -> SignedBundle {
        self.command_root.sign_bundle(&TrustBundle::of_anchor(&self.anchor(fleet_id), version))
    }

    fn keep(&mut self, bundle: SignedBundle) {
        let SignedBundle { bytes, signature } = bundle;
        self.rotations.bundles.push(StoredBundle { bytes: Base64(bytes), signature: Base64(signature) });
    }
}

fn fresh() -> Secret {
    Secret(random::<32>().to_vec())
}

#[cfg(test)]
mod tests;
