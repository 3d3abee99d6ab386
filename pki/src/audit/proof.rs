//! That one line is in the log, without the rest of it.

use schema::digest::Digest;
use serde::{Deserialize, Serialize};

use super::{Checkpoint, NotCanonical, Row};
use crate::{Realm, batch::merkle, encoding::bytes};

/// A line, the way to the root of a checkpoint over it, and that checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Proof {
    /// The line's text.
    pub row: String,
    /// How many lines come before those of the checkpoint.
    pub from: u64,
    /// What leads from the line to the root.
    pub path: Vec<Digest>,
    /// The checkpoint's text.
    pub checkpoint: String,
    /// Its signature.
    #[serde(with = "bytes")]
    pub signature: Vec<u8>,
}

/// Why a line is not proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofRefusal {
    /// The line or the checkpoint is not in its one form.
    #[error("the line or its checkpoint is not in its canonical form")]
    NotCanonical,
    /// The way does not lead from the line to the root.
    #[error("the line is not one of those that the checkpoint stands by")]
    NotIn,
    /// The checkpoint's signature.
    #[error("the signature of the checkpoint does not match")]
    Signature,
}

impl From<NotCanonical> for ProofRefusal {
    fn from(_: NotCanonical) -> Self {
        Self::NotCanonical
    }
}

impl Proof {
    /// The proof of one of the lines that a checkpoint stands by; `None` when it is none of them.
    #[must_use]
    pub fn of(rows: &[&str], index: usize, checkpoint: &Checkpoint, signature: &[u8]) -> Option<Self> {
        let leaves: Vec<Digest> = rows.iter().map(|row| merkle::leaf(row.as_bytes())).collect();
        Some(Self {
            row: (*rows.get(index)?).to_owned(),
            from: checkpoint.rows.checked_sub(rows.len() as u64)?,
            path: merkle::proof(&leaves, index)?,
            checkpoint: checkpoint.text(),
            signature: signature.to_vec(),
        })
    }

    /// Checks it. Whether the checkpoint's key counts is the caller's to say.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn verify(&self, realm: &Realm) -> Result<(Row, Checkpoint), ProofRefusal> {
        let (row, checkpoint) = (Row::read(&self.row)?, Checkpoint::read(&self.checkpoint)?);
        let number = |from: u64, to: u64| to.checked_sub(from).and_then(|count| u32::try_from(count).ok());
        let (index, size) = (number(self.from, row.pos), number(self.from, checkpoint.rows));
        let (Some(index), Some(size)) = (index, size) else { return Err(ProofRefusal::NotIn) };
        if !merkle::verify(merkle::leaf(self.row.as_bytes()), index, size, &self.path, checkpoint.root) {
            return Err(ProofRefusal::NotIn);
        }
        if !checkpoint.key.signed_audit(realm, self.checkpoint.as_bytes(), &self.signature) {
            return Err(ProofRefusal::Signature);
        }
        Ok((row, checkpoint))
    }
}
