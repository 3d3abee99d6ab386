//! A leaf: one command to one machine.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    generation::{Generation, IdentityGeneration},
    id::{JournalId, NodeId},
    name::Name,
};
use serde::{Deserialize, Serialize};

use super::merkle;
use crate::signed::push_field;

/// What is done to one machine, and which machine exactly that is. Another journal of its commands is another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leaf {
    /// Its place, from zero.
    pub index: u32,
    /// The machine's name.
    pub name: Name,
    /// Its id.
    pub node: NodeId,
    /// Which of its identities.
    pub identity_generation: IdentityGeneration,
    /// What it is recognised by, as [`crate::hardware::HardwareKey`] derives it; `none` when it has nothing of the kind.
    pub hardware_key: String,
    /// The journal of its commands.
    pub journal: JournalId,
    /// What is done.
    pub kind: String,
    /// SHA-256 of the canonical bytes of the payload.
    pub payload: Digest,
    /// What it must have applied.
    pub min_generation: Generation,
    /// What else must be so, by the words that [`mod@super::permit`] knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub preconditions: BTreeMap<String, String>,
}

impl Leaf {
    /// Its hash in the tree: over `"bc/leaf/v1\0"` and its fields, each behind its length.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let mut bytes = b"bc/leaf/v1\0".to_vec();
        let mut field = |field: &[u8]| push_field(&mut bytes, field);
        field(&self.index.to_be_bytes());
        field(format!("node/{}", self.name).as_bytes());
        field(self.node.to_string().as_bytes());
        field(&self.identity_generation.0.to_be_bytes());
        field(self.hardware_key.as_bytes());
        field(self.journal.to_string().as_bytes());
        field(self.kind.as_bytes());
        field(self.payload.as_bytes());
        field(&self.min_generation.0.to_be_bytes());
        field(&(self.preconditions.len() as u64).to_be_bytes());
        for (word, value) in &self.preconditions {
            field(word.as_bytes());
            field(value.as_bytes());
        }
        merkle::leaf(&bytes)
    }

    /// The digest of a payload, as a leaf binds it.
    #[must_use]
    pub fn payload(payload: &serde_json::Value) -> Digest {
        schema::canonical::digest(payload).expect("a checked payload is canonical")
    }

    /// The canonical bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        schema::canonical::to_vec(self).expect("a leaf holds no fractions")
    }

    /// Reads canonical bytes; nothing else is a leaf.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|leaf: &Self| leaf.to_bytes() == bytes)
    }
}
