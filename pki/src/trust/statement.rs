//! Statements: what a person says by a signed commit whose message is one line, an empty line and exactly one block.
//!
//! ```text
//! trust: bob may change pools
//!
//! bc-statement: trust/v1
//! trust-domain: acme.example
//! fleet: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! prev: sha256:…
//! …
//! ```
//!
//! The fields stand in one order, once each, in ASCII, each in one spelling. So a statement is its block, and its identity the
//! digest of the block: one signature can be wrapped in many commits, and stays one vote.

mod block;
#[cfg(test)]
mod tests;
mod write;

use std::{fmt, str::FromStr};

use schema::{
    digest::{Digest, Running},
    name::Name,
    time::Timestamp,
};

use self::block::Block;
use super::{commit::Commit, object::ObjectId};

/// The largest commit that is read as a statement.
pub const MAX_STATEMENT_BYTES: usize = 16 << 10;

/// Which fleet a statement is for: `SHA-256("bc/fleet/v1\0" ‖ trust domain ‖ anchor)`, each behind its length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetId([u8; 32]);

impl FleetId {
    /// The fleet that begins with a commit.
    #[must_use]
    pub fn of(trust_domain: &str, anchor: &ObjectId) -> Self {
        let mut bytes = b"bc/fleet/v1\0".to_vec();
        crate::signed::push_field(&mut bytes, trust_domain.as_bytes());
        crate::signed::push_field(&mut bytes, anchor.as_bytes());
        Self(*Digest::of(bytes).as_bytes())
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Why a text is no fleet id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not 64 lower-case hexadecimal digits")]
pub struct ParseFleetIdError(pub String);

impl FromStr for FleetId {
    type Err = ParseFleetIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        let lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let read = hex::decode_to_slice(text, &mut bytes).ok().filter(|()| lower);
        read.map(|()| Self(bytes)).ok_or_else(|| ParseFleetIdError(text.chars().take(80).collect()))
    }
}

schema::as_text!(FleetId);

impl fmt::Display for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is said about a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Do it.
    Approve,
    /// Do not.
    Reject,
    /// What I said before does not count any more.
    Withdraw,
}

/// Why a key is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevokeReason {
    /// Its owner has another one.
    Superseded,
    /// Somebody else has it.
    Compromised,
}

/// Under which policy something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Under {
    /// Its epoch.
    pub epoch: u64,
    /// Its digest.
    pub digest: Digest,
}

/// From which policy to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The digest of the policy before; zeros before the first one.
    pub prev: Digest,
    /// The digest of the policy after.
    pub next: Digest,
    /// The epoch of the policy after.
    pub epoch: u64,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// About a batch.
    Batch {
        /// What.
        word: Word,
        /// Its name.
        batch: Name,
        /// Its digest.
        digest: Digest,
        /// The commit that introduced its text.
        plan_commit: ObjectId,
        /// The tier that it is in.
        tier: Name,
        /// Under which policy.
        under: Under,
        /// Not before then.
        not_before: Timestamp,
        /// Not after then.
        expires: Timestamp,
    },
    /// That a change of a branch is good, whoever commits it.
    Change {
        /// The branch.
        branch: String,
        /// The commit that it follows.
        base: ObjectId,
        /// The tree that it results in.
        tree: ObjectId,
        /// Under which policy.
        under: Under,
        /// Not after then.
        expires: Timestamp,
    },
    /// That a policy follows another one.
    Trust(Step),
    /// That the speaker holds a key that a policy adds.
    Possess(Step),
    /// That a key does not count any more.
    Revoke {
        /// The key's name.
        key: String,
        /// Why.
        reason: RevokeReason,
        /// The last commit that it signed for its owner.
        last_good: ObjectId,
        /// Under which policy.
        trust_epoch: u64,
    },
    /// That a rewritten history is accepted.
    Reseal {
        /// The branch.
        branch: String,
        /// The tip that was verified.
        old: ObjectId,
        /// The tip that is accepted.
        new: ObjectId,
        /// Under which policy.
        under: Under,
        /// Not after then.
        expires: Timestamp,
    },
    /// That an emergency allows something.
    Breakglass {
        /// What, as kinds of commands.
        kinds: Vec<String>,
        /// Where.
        nodes: Vec<Name>,
        /// Why.
        reason: String,
        /// Under which policy.
        under: Under,
        /// Not before then.
        not_before: Timestamp,
        /// Not after then.
        expires: Timestamp,
    },
}

/// A statement, whoever signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The trust domain that it names.
    pub trust_domain: String,
    /// The fleet that it names.
    pub fleet: FleetId,
    /// Who says to say it. Counts only when a key of this principal signed.
    pub principal: Name,
    /// What makes it unlike all others.
    pub nonce: [u8; 16],
    /// What it says.
    pub body: Body,
    digest: Digest,
}

/// Why a message is no statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementRefusal {
    /// The commit is too large for one.
    #[error("it has {0} bytes, and a statement has at most {MAX_STATEMENT_BYTES}")]
    TooLarge(usize),
    /// It says nothing of a statement.
    #[error("its message is no statement")]
    None,
    /// The message is not one line, an empty line and one block.
    #[error("its message is not one line, an empty line and one block to the end")]
    Frame,
    /// A character that could be another one.
    #[error("its block is not plain ASCII")]
    NotAscii,
    /// A field is not where it has to be.
    #[error("{wanted:?} is expected, and {found:?} stands there")]
    Field {
        /// The field of this place.
        wanted: &'static str,
        /// The line.
        found: String,
    },
    /// A value in another spelling.
    #[error("the value of {0:?} is not in its one form")]
    Value(&'static str),
    /// There is more than the fields of this kind.
    #[error("something stands behind its last field")]
    More,
    /// A kind that this version does not know.
    #[error("there is no statement {0:?}")]
    Kind(String),
}

impl Statement {
    /// Reads the statement that a commit's message is.
    ///
    /// # Errors
    /// With the first way in which it is none.
    pub fn parse(commit: &Commit<'_>) -> Result<Self, StatementRefusal> {
        if commit.bytes() > MAX_STATEMENT_BYTES {
            return Err(StatementRefusal::TooLarge(commit.bytes()));
        }
        Self::parse_message(commit.message())
    }

    /// Reads a message.
    ///
    /// # Errors
    /// With the first way in which it is no statement.
    pub fn parse_message(message: &str) -> Result<Self, StatementRefusal> {
        if !message.contains("\nbc-statement: ") {
            return Err(StatementRefusal::None);
        }
        let (line, block) = message.split_once("\n\n").ok_or(StatementRefusal::Frame)?;
        let inside = block.strip_suffix('\n').ok_or(StatementRefusal::Frame)?;
        if line.trim().is_empty() || line.contains('\n') || !block.starts_with("bc-statement: ") {
            return Err(StatementRefusal::Frame);
        }
        if !inside.bytes().all(|byte| byte == b'\n' || byte.is_ascii_graphic() || byte == b' ') {
            return Err(StatementRefusal::NotAscii);
        }
        let mut fields = Block::new(inside);
        let kind = fields.text("bc-statement")?;
        let trust_domain = fields.text("trust-domain")?.to_owned();
        let fleet = FleetId(fields.hex("fleet")?);
        let (body, principal, nonce) = said(kind, &mut fields)?;
        let mut running = Running::default();
        running.add(b"bc/stmt/v1\0");
        running.add(block.as_bytes());
        Ok(Self { trust_domain, fleet, principal, nonce, body, digest: running.finish() })
    }

    /// Its identity.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }
}

fn said(kind: &str, fields: &mut Block<'_>) -> Result<(Body, Name, [u8; 16]), StatementRefusal> {
    let word = match kind {
        "approve/v1" => Some(Word::Approve),
        "reject/v1" => Some(Word::Reject),
        "withdraw/v1" => Some(Word::Withdraw),
        _ => None,
    };
    if let Some(word) = word {
        let (batch, digest) = (fields.name("batch")?, fields.digest("batch-digest")?);
        let (plan_commit, tier) = (fields.id("plan-commit")?, fields.name("tier")?);
        let (under, principal, nonce) = (fields.under()?, fields.name("principal")?, fields.hex("nonce")?);
        let (not_before, expires) = (fields.time("not-before")?, fields.last_time("expires")?);
        let body = Body::Batch { word, batch, digest, plan_commit, tier, under, not_before, expires };
        return Ok((body, principal, nonce));
    }
    match kind {
        "change/v1" => {
            let (branch, base, tree) = (fields.branch()?, fields.id("base")?, fields.id("tree")?);
            let (under, principal, nonce) = (fields.under()?, fields.name("principal")?, fields.hex("nonce")?);
            let expires = fields.last_time("expires")?;
            Ok((Body::Change { branch, base, tree, under, expires }, principal, nonce))
        }
        "trust/v1" | "possess/v1" => {
            let (prev, next) = (fields.digest("prev")?, fields.digest("next")?);
            let step = Step { prev, next, epoch: fields.number("epoch")? };
            let (principal, nonce) = (fields.name("principal")?, fields.hex("nonce")?);
            fields.end()?;
            let body = if kind == "trust/v1" { Body::Trust(step) } else { Body::Possess(step) };
            Ok((body, principal, nonce))
        }
        "revoke/v1" => {
            let key = fields.text("key")?.to_owned();
            let reason = match fields.text("reason")? {
                "superseded" => RevokeReason::Superseded,
                "compromised" => RevokeReason::Compromised,
                _ => return Err(StatementRefusal::Value("reason")),
            };
            let (last_good, trust_epoch) = (fields.id("last-good")?, fields.number("trust-epoch")?);
            let (principal, nonce) = (fields.name("principal")?, fields.hex("nonce")?);
            fields.end()?;
            Ok((Body::Revoke { key, reason, last_good, trust_epoch }, principal, nonce))
        }
        "reseal/v1" => {
            let (branch, old, new) = (fields.branch()?, fields.id("old")?, fields.id("new")?);
            let (under, principal, nonce) = (fields.under()?, fields.name("principal")?, fields.hex("nonce")?);
            let expires = fields.last_time("expires")?;
            Ok((Body::Reseal { branch, old, new, under, expires }, principal, nonce))
        }
        "breakglass/v1" => {
            let kinds = fields.list("kinds", |kind| Some(kind.to_owned()))?;
            let nodes = fields.list("nodes", |node| Name::new(node).ok())?;
            let reason = fields.text("reason")?.to_owned();
            let (under, principal, nonce) = (fields.under()?, fields.name("principal")?, fields.hex("nonce")?);
            let (not_before, expires) = (fields.time("not-before")?, fields.last_time("expires")?);
            Ok((Body::Breakglass { kinds, nodes, reason, under, not_before, expires }, principal, nonce))
        }
        other => Err(StatementRefusal::Kind(other.chars().take(40).collect())),
    }
}
