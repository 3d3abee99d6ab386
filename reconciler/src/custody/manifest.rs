//! What a revision consists of, in the words that are signed.
//!
//! A manifest names its parts by digest, one for each pool, and a part names the host templates of its pool and the words of
//! each declared machine: whatever a spec is composed from follows from one signature. A pool that a revision leaves as it is
//! keeps its part.

use std::collections::{BTreeMap, BTreeSet};

use pki::checkpoint::{CheckpointPurpose, CheckpointSigner, CheckpointVerifier};
use schema::{
    canonical,
    digest::Digest,
    fleet::{Fleet, NodeOverlay},
    id::RevisionId,
    name::Name,
};
use serde::{Deserialize, Serialize};
use store::manifests;

/// The head, which is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Manifest {
    /// The source.
    pub(crate) source: String,
    /// The revision.
    pub(crate) revision: RevisionId,
    /// The commit.
    pub(crate) commit: String,
    /// Its tree.
    pub(crate) tree: String,
    /// The anchor that the commit was verified from; none while the fleet was not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verified: Option<String>,
    /// The digest of every file.
    pub(crate) files: Digest,
    /// The digest of every document: of its address and its text.
    pub(crate) objects: Digest,
    /// Each pool's part; those of pools that are retained are from before.
    pub(crate) pools: BTreeMap<Name, Digest>,
    /// What got another name, old and new, in one step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) moved: Vec<(String, String)>,
    /// The digest of the manifest before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Digest>,
}

/// One pool's share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Part {
    /// The pool.
    pub(crate) pool: Name,
    /// Its profile.
    pub(crate) profile: Name,
    /// What its hosts should be, by profile.
    pub(crate) targets: BTreeMap<Name, Digest>,
    /// The machines that documents name, those of no pool too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) nodes: BTreeMap<Name, Words>,
}

/// What a document says of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Words {
    /// The digest of its overlay.
    pub(crate) overlay: Digest,
    /// The profile that it has instead of its pool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<Name>,
}

/// A manifest with its signature and its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) manifest: Manifest,
    parts: Vec<Part>,
    body: Vec<u8>,
    signature: Vec<u8>,
    key: [u8; 32],
}

fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    canonical::to_vec(value).expect("names and digests have canonical JSON")
}

impl Manifest {
    /// The bytes that are signed.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Reads what was stored; `None` when no key of this control plane stands behind it.
    pub(crate) fn verified(stored: &manifests::Manifest, verifier: &CheckpointVerifier) -> Option<Self> {
        verifier.verify(CheckpointPurpose::RevisionManifest, &stored.body, &stored.signature).ok()?;
        let manifest: Self = serde_json::from_slice(&stored.body).ok()?;
        (manifest.revision == stored.revision).then_some(manifest)
    }

    /// Whether it counts: where an anchor is pinned, only when its commit was verified from there.
    pub(crate) fn counts(&self, anchor: Option<&str>) -> bool {
        anchor.is_none() || self.verified.as_deref() == anchor
    }

    /// Whether its commit is the anchor, or was verified from there.
    pub(crate) fn is_verified_from(&self, anchor: &str) -> bool {
        self.verified.as_deref() == Some(anchor) || self.commit == anchor
    }

    /// Signs it.
    pub(crate) fn sign(self, parts: Vec<Part>, signer: &CheckpointSigner) -> Signed {
        let body = self.to_bytes();
        let signature = signer.sign(CheckpointPurpose::RevisionManifest, &body);
        Signed { manifest: self, parts, body, signature, key: *signer.key().as_bytes() }
    }
}

impl Part {
    /// What its digest is of.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// The parts of the pools that a fleet declares, with the words of machines whose documents are retained, by their pool
    /// if they have one.
    pub(crate) fn of_fleet(fleet: &Fleet, retained: &[(Option<Name>, Name, Words)]) -> Vec<Self> {
        let words = |node: &schema::fleet::Node| {
            let overlay = NodeOverlay::of(node);
            Words { overlay: Digest::of(to_bytes(&overlay)), profile: overlay.profile }
        };
        let mut of_pool: BTreeMap<Option<&Name>, BTreeMap<Name, Words>> = BTreeMap::new();
        for (name, node) in fleet.nodes.iter() {
            of_pool.entry(node.pool.as_ref().map(|pool| &pool.value)).or_default().insert(name.clone(), words(node));
        }
        for (pool, name, words) in retained {
            of_pool.entry(pool.as_ref()).or_default().entry(name.clone()).or_insert_with(|| words.clone());
        }
        let part = |(name, pool): (&Name, &schema::fleet::Pool)| {
            let nodes: BTreeMap<Name, Words> = [Some(name), None]
                .into_iter()
                .filter_map(|key| of_pool.get(&key))
                .flat_map(|nodes| nodes.iter().map(|(name, words)| (name.clone(), words.clone())))
                .collect();
            let own = std::iter::once(&pool.profile.value);
            let profiles: BTreeSet<&Name> =
                own.chain(nodes.values().filter_map(|words| words.profile.as_ref())).collect();
            let target = |profile: &Name| Some((profile.clone(), fleet.host_template(name, profile)?.digest()));
            let targets = profiles.into_iter().filter_map(target).collect();
            Self { pool: name.clone(), profile: pool.profile.value.clone(), targets, nodes }
        };
        fleet.pools.iter().map(part).collect()
    }

    /// Whether a machine of this pool was to be this. One that no document names has the words of none.
    pub(crate) fn grants(&self, name: &str, overlay: &str, target: Digest) -> bool {
        let profile = match self.nodes.get(name) {
            Some(words) if words.overlay == Digest::of(overlay) => words.profile.as_ref().unwrap_or(&self.profile),
            None if overlay == "{}" => &self.profile,
            _ => return false,
        };
        self.targets.get(profile) == Some(&target)
    }
}

impl Signed {
    /// As rows.
    pub(crate) fn rows(&self) -> manifests::NewManifest {
        let part = |part: &Part| {
            let body = part.to_bytes();
            manifests::Part { digest: Digest::of(&body), targets: part.targets.values().copied().collect(), body }
        };
        let Manifest { source, revision, moved, .. } = &self.manifest;
        manifests::NewManifest {
            manifest: manifests::Manifest {
                revision: *revision,
                body: self.body.clone(),
                signature: self.signature.clone(),
            },
            source: source.clone(),
            key: self.key,
            renames: !moved.is_empty(),
            parts: self.parts.iter().map(part).collect(),
        }
    }
}
