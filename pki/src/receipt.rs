//! The receipt of a batch: what was to be done, who agreed, what was done and what machines said of it, in one file that is
//! checked without asking anybody.
//!
//! ```text
//! pin ─▶ anchor ─▶ first policy ─▶ … ─▶ the policy that the batch names ─▶ approvals ─▶ batch digest ─▶ leaves
//!          ├────▶ command-signing root ─▶ commands              node roots ─▶ certificates ─▶ results of nodes
//!          └────▶ the audit key ─▶ lines of the log, and the file as a whole
//! ```
//!
//! The control plane seals the file as a whole, so that no bit of it can change; and everything in it is checked by itself, so
//! that its word alone is not enough: it cannot make up an approval, nor a node's result.

mod lines;
mod people;

use std::collections::BTreeSet;

use rustls_pki_types::CertificateDer;
use schema::{
    canonical,
    command::{CommandBody, CommandUpdate, UpdateState},
    digest::Digest,
    name::Name,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

pub use people::{Emergency, Gone};

use crate::{
    Realm,
    audit::{Proof, ProofRefusal, Row, Told, Vouch},
    batch::{BatchHeader, Leaf, is_this, merkle},
    checkpoint::AuditSigner,
    encoding::{Base64, bytes},
    verify::{NodeVerifier, Validity},
    worker::{CommandVerifier, Signature},
};

const FORMAT: &str = "better-compute receipt 1";

/// A policy, the raw commits that agree to it, and the revocations that were heard while it was in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyStep {
    #[serde(with = "bytes")]
    policy: Vec<u8>,
    statements: Vec<Base64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revocations: Vec<Revocation>,
}

/// A raw commit that revokes a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Revocation {
    #[serde(with = "bytes")]
    raw: Vec<u8>,
    /// It was heard before enough people had approved the batch.
    before: bool,
}

impl PolicyStep {
    /// A step.
    #[must_use]
    pub fn new(policy: Vec<u8>, statements: Vec<Vec<u8>>) -> Self {
        Self { policy, statements: statements.into_iter().map(Base64).collect(), revocations: Vec::new() }
    }

    /// A key was revoked under it; `before` enough people had approved the batch, or after that.
    pub fn revoke(&mut self, raw: Vec<u8>, before: bool) {
        self.revocations.push(Revocation { raw, before });
    }
}

/// A command as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SentCommand {
    #[serde(with = "bytes")]
    body: Vec<u8>,
    #[serde(with = "bytes")]
    worker: Vec<u8>,
    #[serde(with = "bytes")]
    root_signature: Vec<u8>,
    #[serde(with = "bytes")]
    signature: Vec<u8>,
}

impl SentCommand {
    fn read(&self) -> Option<CommandBody> {
        CommandBody::read(&self.body).ok()
    }

    /// A body and its signature.
    #[must_use]
    pub fn new(body: Vec<u8>, signature: Signature) -> Self {
        let Signature { worker, root_signature, signature } = signature;
        Self { body, worker, root_signature, signature }
    }
}

/// A node's last word, and the certificates that say whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignedResult {
    #[serde(with = "bytes")]
    payload: Vec<u8>,
    #[serde(with = "bytes")]
    signature: Vec<u8>,
    chain: Vec<Base64>,
}

impl SignedResult {
    /// A word, its signature, and the node's certificate before those that it follows from.
    #[must_use]
    pub fn new(payload: Vec<u8>, signature: Vec<u8>, chain: Vec<Vec<u8>>) -> Self {
        Self { payload, signature, chain: chain.into_iter().map(Base64).collect() }
    }
}

/// One machine of the batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Deed {
    /// The machine's name.
    pub node: String,
    /// The leaf's bytes; none where no quorum was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leaf: Option<Base64>,
    /// The command that was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<SentCommand>,
    /// What the machine said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<SignedResult>,
    /// Where the database says that it is.
    pub state: String,
}

impl Deed {
    /// One machine.
    #[must_use]
    pub fn new(
        node: String,
        leaf: Option<Vec<u8>>,
        command: Option<SentCommand>,
        result: Option<SignedResult>,
        state: String,
    ) -> Self {
        Self { node, leaf: leaf.map(Base64), command, result, state }
    }
}

/// Everything about a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Receipt {
    format: String,
    #[serde(with = "bytes")]
    anchor: Vec<u8>,
    vouch: Vouch,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    vouches: Vec<Vouch>,
    /// The batch's name.
    pub batch: String,
    /// Its document, canonical JSON.
    pub document: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header: Option<Base64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<Base64>,
    policies: Vec<PolicyStep>,
    statements: Vec<Base64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    emergency: Vec<Base64>,
    /// Its machines.
    pub deeds: Vec<Deed>,
    /// What the audit log says of it.
    pub audit: Vec<Proof>,
}

/// What is put together to a receipt.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The anchor's bytes.
    pub anchor: Vec<u8>,
    /// A worker's word for the key that seals.
    pub vouch: Vouch,
    /// The same for the keys before it, which signed checkpoints over lines of the log.
    pub vouches: Vec<Vouch>,
    /// The batch's name.
    pub batch: String,
    /// Its document, canonical JSON.
    pub document: String,
    /// Its header; none where no quorum was asked.
    pub header: Option<Vec<u8>>,
    /// The raw commit that it was planned at.
    pub plan: Option<Vec<u8>>,
    /// The policies from the first one to the one in force.
    pub policies: Vec<PolicyStep>,
    /// Raw commits about it.
    pub statements: Vec<Vec<u8>>,
    /// Raw commits that called the emergency that it is.
    pub emergency: Vec<Vec<u8>>,
    /// Its machines.
    pub deeds: Vec<Deed>,
    /// What the audit log says of it.
    pub audit: Vec<Proof>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sealed {
    receipt: Receipt,
    #[serde(with = "bytes")]
    signature: Vec<u8>,
}

fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    canonical::to_vec(value).expect("a receipt holds no fractions")
}

/// The file; `None` when the key that is vouched for is not held here.
#[must_use]
pub fn seal(parts: Parts, signer: &AuditSigner) -> Option<Vec<u8>> {
    let key = parts.vouch.key;
    let all = |raws: Vec<Vec<u8>>| raws.into_iter().map(Base64).collect();
    let receipt = Receipt {
        format: FORMAT.to_owned(),
        anchor: parts.anchor,
        vouch: parts.vouch,
        vouches: parts.vouches,
        batch: parts.batch,
        document: parts.document,
        header: parts.header.map(Base64),
        plan: parts.plan.map(Base64),
        policies: parts.policies,
        statements: all(parts.statements),
        emergency: all(parts.emergency),
        deeds: parts.deeds,
        audit: parts.audit,
    };
    let signature = signer.sign_end(key, &to_bytes(&receipt))?;
    let mut bytes = to_bytes(&Sealed { receipt, signature });
    bytes.push(b'\n');
    Some(bytes)
}

/// Why a receipt proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    /// Not such a file, or not in its one form.
    #[error("this is no receipt of Better Compute, or it was changed")]
    NoReceipt,
    /// The anchor or whose fleet it is.
    #[error(transparent)]
    Anchor(crate::audit::Fault),
    /// The key that seals it.
    #[error("nobody whom the anchor names vouches for the key that seals it")]
    Vouch,
    /// The seal.
    #[error("the seal does not match: something was changed")]
    Seal,
    /// A line of the audit log.
    #[error("line {0} of what the audit log says is not proven: {1}")]
    Audit(usize, ProofRefusal),
    /// A line is about something else.
    #[error("line {0} of what the audit log says is not about this batch")]
    OtherSubject(usize),
    /// A line stands behind a checkpoint of somebody else.
    #[error("line {0} of what the audit log says is signed by a key that nobody whom the anchor names vouches for")]
    OtherKey(usize),
    /// It went on after its end.
    #[error(
        "the audit log says that the batch was {ended} at {at}, and that it was {went} after that: people or the control plane had stopped it, and it went all the same"
    )]
    AfterEnd {
        /// How it had ended.
        ended: String,
        /// When.
        at: Timestamp,
        /// What it was after that.
        went: String,
    },
    /// The document.
    #[error("the document is not the one that the audit log names")]
    Document,
    /// The plan commit.
    #[error("the plan commit does not count: {0}")]
    Plan(&'static str),
    /// The emergency.
    #[error("the statements in it call no emergency that allows what was sent: {0}")]
    NoEmergency(String),
    /// The header.
    #[error("the header is not one of this batch in this fleet")]
    Header,
    /// The leaves.
    #[error("the leaves are not those that the batch's digest binds")]
    Leaves,
    /// The policies.
    #[error("the trust policies do not lead from the one that the anchor names to the one that the batch names: {0}")]
    Policies(String),
    /// Nobody agreed.
    #[error("people did not approve it, and a command was sent all the same: {0}")]
    NotApproved(String),
    /// A command.
    #[error("the command to {node} does not count: {why}")]
    Command {
        /// The machine.
        node: String,
        /// Why.
        why: &'static str,
    },
    /// A result.
    #[error("what {node} is said to have answered does not count: {why}")]
    Result {
        /// The machine.
        node: String,
        /// Why.
        why: &'static str,
    },
}

/// What one machine did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The machine.
    pub node: String,
    /// What was asked of it.
    pub kind: Option<String>,
    /// A command was sent, signed by the control plane.
    pub sent: bool,
    /// What it signed: how it ended.
    pub said: Option<String>,
    /// What the database says, where it signed nothing.
    pub state: String,
}

/// What a receipt proves.
#[derive(Debug, Clone, PartialEq)]
pub struct Proven {
    /// Whose fleet it is.
    pub realm: Realm,
    /// The pin of the anchor.
    pub pin: Digest,
    /// The batch.
    pub batch: String,
    /// Its header; none where no quorum was asked.
    pub header: Option<BatchHeader>,
    /// Who signed the commit that it was planned at, where that is in the file.
    pub asked_by: Option<Name>,
    /// Who approved it.
    pub approved_by: BTreeSet<Name>,
    /// The emergency that it is.
    pub emergency: Option<Emergency>,
    /// The keys that were revoked.
    pub revoked: Vec<Gone>,
    /// Its machines.
    pub done: Vec<Done>,
    /// What the audit log says, in its order.
    pub lines: Vec<Row>,
}

/// Checks a file.
///
/// # Errors
/// With the first reason against it.
pub fn verify(file: &[u8], told: &Told) -> Result<Proven, Void> {
    let sealed: Sealed = serde_json::from_slice(file).map_err(|_| Void::NoReceipt)?;
    let mut again = to_bytes(&sealed);
    again.push(b'\n');
    if again != file || sealed.receipt.format != FORMAT {
        return Err(Void::NoReceipt);
    }
    let Sealed { receipt, signature } = sealed;
    let anchor = told.anchor(&receipt.anchor).map_err(Void::Anchor)?;
    let realm = anchor.realm();
    receipt.vouch.verify(&anchor.verifier()).map_err(|_| Void::Vouch)?;
    if !receipt.vouch.key.signed_end(&realm, &to_bytes(&receipt), &signature) {
        return Err(Void::Seal);
    }
    let lines = lines::proven(&receipt, &anchor)?;
    lines::stays_ended(&receipt.batch, &lines)?;
    let header =
        receipt.header.as_ref().map(|Base64(bytes)| BatchHeader::read(bytes).ok_or(Void::Header)).transpose()?;
    let nodes = NodeVerifier::new(&realm.trust_domain, &anchor.roots()).map_err(|_| Void::NoReceipt)?;
    let leaves = leaves(&receipt, header.as_ref())?;
    let people = people::heard(&receipt, &anchor, header.as_ref(), &leaves)?;
    let done = receipt
        .deeds
        .iter()
        .enumerate()
        .map(|(index, deed)| {
            let ends = header.as_ref().map(|header| header.expires);
            deed.check((leaves.get(index), ends), &anchor.verifier(), &nodes, &realm)
        })
        .collect::<Result<_, _>>()?;
    let people::Heard { asked_by, approved_by, emergency, revoked } = people;
    Ok(Proven {
        pin: anchor.pin(),
        realm,
        batch: receipt.batch,
        header,
        asked_by,
        approved_by,
        emergency,
        revoked,
        done,
        lines,
    })
}

/// The leaves, in their order, when they are those that the header binds.
fn leaves(receipt: &Receipt, header: Option<&BatchHeader>) -> Result<Vec<Leaf>, Void> {
    let Some(header) = header else { return Ok(Vec::new()) };
    let read = |deed: &Deed| deed.leaf.as_ref().and_then(|Base64(bytes)| Leaf::read(bytes)).ok_or(Void::Leaves);
    let leaves: Vec<Leaf> = receipt.deeds.iter().map(read).collect::<Result<_, _>>()?;
    let hashes: Vec<Digest> = leaves.iter().map(Leaf::hash).collect();
    let placed = leaves.iter().zip(0_u32..).all(|(leaf, index)| leaf.index == index);
    let count = u32::try_from(leaves.len()) == Ok(header.leaves);
    if placed && count && merkle::root(&hashes) == header.root { Ok(leaves) } else { Err(Void::Leaves) }
}

impl Deed {
    fn check(
        &self,
        (leaf, ends): (Option<&Leaf>, Option<Timestamp>),
        commands: &CommandVerifier,
        nodes: &NodeVerifier,
        realm: &Realm,
    ) -> Result<Done, Void> {
        let node = self.node.clone();
        let done = Done {
            node: node.clone(),
            kind: leaf.map(|leaf| leaf.kind.clone()),
            sent: false,
            said: None,
            state: self.state.clone(),
        };
        if leaf.is_some_and(|leaf| leaf.name.as_str() != node) {
            return Err(Void::Leaves);
        }
        let Some(sent) = &self.command else {
            return if self.result.is_none() { Ok(done) } else { Err(Void::Result { node, why: "nothing was sent" }) };
        };
        let bad = |why| Void::Command { node: node.clone(), why };
        let body = CommandBody::read(&sent.body).map_err(|_| bad("it is no command"))?;
        let signature = Signature {
            worker: sent.worker.clone(),
            root_signature: sent.root_signature.clone(),
            signature: sent.signature.clone(),
        };
        commands
            .command(body.node_id, &sent.body, &signature, Validity::Open)
            .map_err(|_| bad("no worker of this control plane signed it"))?;
        if leaf.is_some_and(|leaf| leaf.node != body.node_id || is_this(leaf, &body).is_err()) {
            return Err(bad("it is not what its leaf says"));
        }
        if ends.is_some_and(|ends| body.not_after > ends) {
            return Err(bad("it could begin after the window of its batch"));
        }
        let done = Done { kind: Some(body.kind.to_string()), sent: true, ..done };
        let Some(result) = &self.result else { return Ok(done) };
        let bad = |why| Void::Result { node: node.clone(), why };
        let chain: Vec<CertificateDer<'_>> =
            result.chain.iter().map(|Base64(der)| CertificateDer::from(der.as_slice())).collect();
        let identity = nodes
            .identify(&chain, Validity::Open)
            .map_err(|_| bad("its certificate does not follow from a root that the anchor names"))?;
        if identity.node_id != body.node_id {
            return Err(bad("another machine's certificate is with it"));
        }
        identity
            .public_key
            .verify_command_update(realm, body.node_id, &result.payload, &result.signature)
            .map_err(|_| bad("the machine did not sign it"))?;
        let update = CommandUpdate::read(&result.payload).map_err(|_| bad("it is no answer to a command"))?;
        if update.command != body.id {
            return Err(bad("it answers another command"));
        }
        // A machine with another journal than the one that was approved refuses, and says so in that one.
        if update.state == UpdateState::Succeeded && leaf.is_some_and(|leaf| leaf.journal != update.journal_id) {
            return Err(bad("it was done under another journal than the one that was approved"));
        }
        Ok(Done { said: Some(update.state.to_string()), ..done })
    }
}

#[cfg(test)]
mod tests;
