//! The audit log as something that can be proven: lines chained by hashes, checkpoints over them, and their export as one
//! file that an auditor checks without asking anybody.
//!
//! ```text
//! row 0 ─▶ row 1 ─▶ … row k ─▶ … row m        link(n) = H(link(n-1), row n)
//!                     ▲            ▲
//!               checkpoint 0 ◀─ checkpoint 1   Merkle root over its rows, the link so far, the one before, its key, the next key
//!                                  ▲
//!                                 end          how many there were when the file was made
//! ```
//!
//! The key of the last checkpoint is vouched for by a worker, that one by the command-signing root, and that one by the
//! anchor, which people know by its pin. Everything before follows by hashes.

use schema::{digest::Digest, time::Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Realm,
    batch::merkle,
    checkpoint::{AuditSigner, CheckpointKey},
    encoding::bytes,
    signed::{Purpose, SignedBytes},
    verify::Validity,
    worker::{CommandVerifier, Signature, SignatureRefusal, WorkerKey},
};

mod export;
mod proof;

pub use export::{Broken, Export, ExportEnd, Fault, Outside, Reader, Told, Verified};
pub use proof::{Proof, ProofRefusal};

/// A line of the log at its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Row {
    /// Its place, counted from zero.
    pub pos: u64,
    /// Its id.
    pub id: String,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// Did what.
    pub action: String,
    /// To what.
    pub subject: String,
    /// The rest.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

impl Row {
    /// Its one text, on one line. A number that is not an integer has no text that is the same everywhere, and is written as
    /// a string.
    #[must_use]
    pub fn text(&self) -> String {
        let row = Self { detail: without_fractions(self.detail.clone()), ..self.clone() };
        text(&row)
    }

    /// The row in its text.
    ///
    /// # Errors
    /// When it is not the text of a row.
    pub fn read(text: &str) -> Result<Self, NotCanonical> {
        read(text)
    }
}

fn without_fractions(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => Value::String(number.to_string()),
        Value::Array(items) => items.into_iter().map(without_fractions).collect(),
        Value::Object(members) => members.into_iter().map(|(key, value)| (key, without_fractions(value))).collect(),
        other => other,
    }
}

fn text(value: &impl Serialize) -> String {
    let bytes = schema::canonical::to_vec(value).expect("integers and texts have canonical JSON");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// A text that is not the one text of what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not in its canonical form")]
pub struct NotCanonical;

fn read<T: Serialize + DeserializeOwned>(from: &str) -> Result<T, NotCanonical> {
    let value: T = serde_json::from_str(from).map_err(|_| NotCanonical)?;
    if schema::canonical::to_vec(&value).is_ok_and(|bytes| bytes == from.as_bytes()) {
        Ok(value)
    } else {
        Err(NotCanonical)
    }
}

/// What binds a row and everything before it; nothing is before the first.
#[must_use]
pub fn link(before: Option<Digest>, row: &str) -> Digest {
    let mut bytes = b"bc/audit-link/v1\0".to_vec();
    bytes.extend_from_slice(before.unwrap_or(Digest::from_bytes([0; 32])).as_bytes());
    bytes.extend_from_slice(row.as_bytes());
    Digest::of(bytes)
}

/// What the control plane stands by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoint {
    /// Its number, counted from zero.
    pub n: u64,
    /// How many rows there are up to it.
    pub rows: u64,
    /// The link of the last of them.
    pub link: Digest,
    /// The Merkle root over the rows since the checkpoint before.
    pub root: Digest,
    /// The digest of the checkpoint before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// The key that signs it.
    pub key: CheckpointKey,
    /// The key that will sign, once it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<CheckpointKey>,
    /// When it was made.
    pub at: Timestamp,
}

impl Checkpoint {
    /// The text that is signed.
    #[must_use]
    pub fn text(&self) -> String {
        text(self)
    }

    /// The checkpoint in its text.
    ///
    /// # Errors
    /// When it is not the text of one.
    pub fn read(text: &str) -> Result<Self, NotCanonical> {
        read(text)
    }

    /// What the next one binds.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.text())
    }

    /// Whether the key of the checkpoint before lets this one sign.
    #[must_use]
    pub fn follows(&self, before: &Self) -> bool {
        self.before == Some(before.digest())
            && self.n == before.n + 1
            && self.rows >= before.rows
            && (self.key == before.key || before.next == Some(self.key))
    }
}

/// The next checkpoint over rows since the one before, and its signature. While the key is replaced one checkpoint names the
/// next key before that one signs; where nobody did in time, the key before does it, as long as it is held.
#[must_use]
pub fn next(
    signer: &AuditSigner,
    before: Option<&Checkpoint>,
    last: Digest,
    rows: &[&str],
    now: Timestamp,
) -> (Checkpoint, Vec<u8>) {
    let handover = before.filter(|before| {
        before.key != signer.key() && before.next != Some(signer.key()) && signer.before() == Some(before.key)
    });
    let (key, next) = match handover {
        Some(before) => (before.key, Some(signer.key())),
        None => (signer.key(), signer.next()),
    };
    let leaves: Vec<Digest> = rows.iter().map(|row| merkle::leaf(row.as_bytes())).collect();
    let checkpoint = Checkpoint {
        n: before.map_or(0, |before| before.n + 1),
        rows: before.map_or(0, |before| before.rows) + rows.len() as u64,
        link: last,
        root: merkle::root(&leaves),
        before: before.map(Checkpoint::digest),
        key,
        next,
        at: now,
    };
    let signature = signer.sign_as(key, checkpoint.text().as_bytes()).expect("a signer holds the key that it chose");
    (checkpoint, signature)
}

/// Whether a checkpoint has to be made although no row is new: the next key is not named yet, or has to begin.
#[must_use]
pub fn is_due_for_keys(signer: &AuditSigner, before: &Checkpoint) -> bool {
    before.key != signer.key() || before.next != signer.next()
}

/// A worker's word for the key that signs checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Vouch {
    /// The key.
    pub key: CheckpointKey,
    #[serde(with = "bytes")]
    worker: Vec<u8>,
    #[serde(with = "bytes")]
    root_signature: Vec<u8>,
    #[serde(with = "bytes")]
    signature: Vec<u8>,
}

impl Vouch {
    /// A worker vouches.
    #[must_use]
    pub fn make(worker: &WorkerKey, key: CheckpointKey) -> Self {
        let Signature { worker, root_signature, signature } = worker.sign(&vouched(worker.realm(), key));
        Self { key, worker, root_signature, signature }
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> String {
        text(self)
    }

    /// The word in its text.
    ///
    /// # Errors
    /// When it is not the text of one.
    pub fn read(text: &str) -> Result<Self, NotCanonical> {
        read(text)
    }

    /// Checks it by the command-signing roots of an anchor. It holds at any time: what a worker signed while its certificate
    /// was good stays good.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn verify(&self, verifier: &CommandVerifier) -> Result<(), SignatureRefusal> {
        let signature = Signature {
            worker: self.worker.clone(),
            root_signature: self.root_signature.clone(),
            signature: self.signature.clone(),
        };
        verifier.verify(&vouched(verifier.realm(), self.key), &signature, Validity::Open)
    }
}

fn vouched(realm: &Realm, key: CheckpointKey) -> SignedBytes {
    SignedBytes::new(Purpose::AuditKey, realm).field(key.as_bytes())
}

#[cfg(test)]
mod tests;
