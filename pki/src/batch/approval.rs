//! What goes to a node beside a destructive command: everything that it needs to see for itself.

use schema::digest::Digest;
use serde::{Deserialize, Serialize};

use super::{header::BatchHeader, leaf::Leaf};
use crate::encoding::Base64;

/// The most bytes that are read.
pub const MAX_APPROVAL_BYTES: usize = 128 << 10;
/// The most statements that are read.
pub const MAX_STATEMENTS: usize = 64;
/// So much of it is kept free for statements, whatever a batch says of itself.
pub const STATEMENT_ROOM: usize = 64 << 10;
/// A proof of a tree with 2³² leaves.
const MAX_PROOF: usize = 32;

/// Why people allow a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// It is a leaf of a batch that they approved.
    Batch(Box<BatchApproval>),
    /// They called an emergency.
    Breakglass(BreakglassApproval),
}

/// A leaf of an approved batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchApproval {
    /// The batch.
    pub header: BatchHeader,
    /// The command's place in it.
    pub leaf: Leaf,
    /// From the leaf to the root, the nearest first.
    pub proof: Vec<Digest>,
    /// Raw commits: the approvals that carry it ([`super::Tally::evidence`]).
    pub statements: Vec<Vec<u8>>,
}

impl BatchApproval {
    /// Whether statements about a batch reach a machine of it, however deep its leaf is.
    ///
    /// # Errors
    /// When they do not.
    pub fn fits(header: &BatchHeader, leaf: &Leaf, statements: Vec<Vec<u8>>) -> Result<(), ApprovalRefusal> {
        let proof = vec![Digest::from_bytes([0; 32]); MAX_PROOF];
        let whole = Self { header: header.clone(), leaf: leaf.clone(), proof, statements };
        Approval::Batch(Box::new(whole)).to_send().map(drop)
    }
}

/// An emergency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakglassApproval {
    /// Raw commits that say the same, of as many people as it takes.
    pub statements: Vec<Vec<u8>>,
}

/// Why bytes are no approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalRefusal {
    /// Too large.
    #[error("the approval has {0} bytes, and {MAX_APPROVAL_BYTES} are read")]
    TooLarge(usize),
    /// Too many statements.
    #[error("the approval has {0} statements, and {MAX_STATEMENTS} are read")]
    TooMany(usize),
    /// Not in the one form.
    #[error("the approval is malformed")]
    Malformed,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields, tag = "kind")]
enum Document {
    Batch { header: Box<BatchHeader>, leaf: Box<Leaf>, proof: Vec<Digest>, statements: Vec<Base64> },
    Breakglass { statements: Vec<Base64> },
}

fn encoded(statements: &[Vec<u8>]) -> Vec<Base64> {
    statements.iter().cloned().map(Base64).collect()
}

fn decoded(statements: Vec<Base64>) -> Vec<Vec<u8>> {
    statements.into_iter().map(|Base64(raw)| raw).collect()
}

impl Approval {
    /// The canonical bytes, as they travel.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let document = match self {
            Self::Batch(batch) => Document::Batch {
                header: Box::new(batch.header.clone()),
                leaf: Box::new(batch.leaf.clone()),
                proof: batch.proof.clone(),
                statements: encoded(&batch.statements),
            },
            Self::Breakglass(emergency) => Document::Breakglass { statements: encoded(&emergency.statements) },
        };
        schema::canonical::to_vec(&document).expect("an approval holds no fractions")
    }

    /// The canonical bytes, when a machine reads them.
    ///
    /// # Errors
    /// When they are too many, or hold more statements than are read: nothing of it is to be sent.
    pub fn to_send(&self) -> Result<Vec<u8>, ApprovalRefusal> {
        let statements = match self {
            Self::Batch(batch) => batch.statements.len(),
            Self::Breakglass(emergency) => emergency.statements.len(),
        };
        if statements > MAX_STATEMENTS {
            return Err(ApprovalRefusal::TooMany(statements));
        }
        let bytes = self.to_bytes();
        if bytes.len() > MAX_APPROVAL_BYTES { Err(ApprovalRefusal::TooLarge(bytes.len())) } else { Ok(bytes) }
    }

    /// Reads bytes that may come from anybody.
    ///
    /// # Errors
    /// When they are too many, or not in the one form.
    pub fn read(bytes: &[u8]) -> Result<Self, ApprovalRefusal> {
        if bytes.len() > MAX_APPROVAL_BYTES {
            return Err(ApprovalRefusal::TooLarge(bytes.len()));
        }
        let document: Document = serde_json::from_slice(bytes).map_err(|_| ApprovalRefusal::Malformed)?;
        let approval = match document {
            Document::Batch { header, leaf, proof, statements } => Self::Batch(Box::new(BatchApproval {
                header: *header,
                leaf: *leaf,
                proof,
                statements: decoded(statements),
            })),
            Document::Breakglass { statements } => {
                Self::Breakglass(BreakglassApproval { statements: decoded(statements) })
            }
        };
        let (proof, statements) = match &approval {
            Self::Batch(batch) => (batch.proof.len(), batch.statements.len()),
            Self::Breakglass(emergency) => (0, emergency.statements.len()),
        };
        if proof > MAX_PROOF || statements > MAX_STATEMENTS || approval.to_bytes() != bytes {
            return Err(ApprovalRefusal::Malformed);
        }
        Ok(approval)
    }
}
