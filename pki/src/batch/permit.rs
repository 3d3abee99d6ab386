//! Whether a node may act on a destructive command: everything recomputed from what came with it.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    command::CommandBody,
    digest::Digest,
    generation::IdentityGeneration,
    id::{JournalId, NodeId},
    name::Name,
    time::Timestamp,
};

use super::{
    approval::{Approval, BatchApproval, BreakglassApproval},
    emergency::emergencies,
    judge::{Flaw, Question, judge},
    leaf::Leaf,
    merkle,
    vote::{RefusedVote, used},
};
use crate::trust::{policy::Policy, statement::FleetId};

/// Who a node is.
#[derive(Debug, Clone, Copy)]
pub struct Me<'a> {
    /// Its name, as the signed answer to its join says.
    pub name: &'a str,
    /// Its id.
    pub node: NodeId,
    /// Which of its identities.
    pub identity_generation: IdentityGeneration,
    /// What it is recognised by, as it reads it itself.
    pub hardware_key: &'a str,
    /// The journal of its commands.
    pub journal: JournalId,
    /// What it knows of itself, by the words that preconditions use.
    pub facts: &'a BTreeMap<String, String>,
}

/// What a node believes.
#[derive(Debug, Clone, Copy)]
pub struct Trusted<'a> {
    /// The trust domain.
    pub trust_domain: &'a str,
    /// The fleet.
    pub fleet: FleetId,
    /// The policy in force.
    pub policy: &'a Policy,
    /// Keys that were revoked since, by name.
    pub revoked: &'a BTreeSet<String>,
}

/// By what a command is permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// It is a leaf of an approved batch.
    Batch {
        /// The batch's name.
        name: Name,
        /// Its digest.
        digest: Digest,
        /// The leaf.
        index: u32,
        /// The tier.
        tier: Name,
    },
    /// People called an emergency.
    Breakglass {
        /// Why.
        reason: String,
    },
}

/// A command that people permit, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// By what.
    pub by: Authority,
    /// Who.
    pub people: BTreeSet<Name>,
    /// What is used up by it. Each is written down before the act begins, and none may be there already.
    pub uses: Vec<Digest>,
    /// It begins from then on.
    pub from: Timestamp,
    /// It begins until then.
    pub until: Timestamp,
}

/// Why it is not permitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Of another trust domain or fleet.
    #[error("it was approved for another fleet")]
    OtherFleet,
    /// This node does not know the policy yet.
    #[error("it was approved under the trust policy of epoch {named}, and this node has epoch {present} so far")]
    Behind {
        /// What it names.
        named: u64,
        /// What this node has.
        present: u64,
    },
    /// The policy has changed since.
    #[error(
        "it was approved under the trust policy of epoch {named}, and epoch {present} is in force: its approvals are void"
    )]
    PolicyChanged {
        /// What it names.
        named: u64,
        /// What is in force.
        present: u64,
    },
    /// The leaf is not in the tree.
    #[error("the leaf is not in the batch: its proof does not lead to the root")]
    Proof,
    /// The leaf is another machine's, or of another time of this one.
    #[error("it was approved for {0}")]
    OtherMachine(String),
    /// The command is another one.
    #[error("another command was approved: {0}")]
    OtherCommand(&'static str),
    /// Something is not as it should be.
    #[error("it was approved on the condition that {word} is {wanted}, and it is {found}")]
    Precondition {
        /// What.
        word: String,
        /// As it should be.
        wanted: String,
        /// As it is.
        found: String,
    },
    /// Not yet.
    #[error("it was approved from {0} on")]
    NotYet(Timestamp),
    /// Not any more.
    #[error("its approvals counted until {0}")]
    Expired(Timestamp),
    /// Something is wrong with the batch itself.
    #[error("the batch is not one that can be approved: {0}")]
    Flaw(Flaw),
    /// Too few people, or somebody is against it.
    #[error("{}", too_few(.rejected, .missing, .refused))]
    Quorum {
        /// Who is against it.
        rejected: BTreeSet<Name>,
        /// What is missing.
        missing: Vec<String>,
        /// What does not count.
        refused: Vec<RefusedVote>,
    },
    /// No emergency covers it.
    #[error("no emergency that enough people called allows this here now{}", reasons(.0))]
    NoEmergency(Vec<RefusedVote>),
}

fn too_few(rejected: &BTreeSet<Name>, missing: &[String], refused: &[RefusedVote]) -> String {
    let names: Vec<&str> = rejected.iter().map(Name::as_str).collect();
    let mut text = match names.as_slice() {
        [] => format!("the approvals are not enough: it takes {}", missing.join(", and ")),
        names => format!("{} rejected it", names.join(", ")),
    };
    text.push_str(&reasons(refused));
    text
}

fn reasons(refused: &[RefusedVote]) -> String {
    let one = |refused: &RefusedVote| {
        let who = refused.who.as_ref().map_or("a statement", Name::as_str);
        format!("; {who} does not count: {}", refused.why)
    };
    refused.iter().take(4).map(one).collect()
}

impl Denied {
    /// Whether the same command may be permitted a little later, without anybody doing anything.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Behind { .. } | Self::NotYet(_))
    }
}

/// Whether a node may act.
///
/// # Errors
/// With the first reason against it.
pub fn permit(
    body: &CommandBody,
    approval: &Approval,
    me: &Me<'_>,
    trusted: &Trusted<'_>,
    now: Timestamp,
) -> Result<Permit, Denied> {
    // What a leaf does not bind may not be in the command.
    if !body.secrets.is_empty() {
        return Err(Denied::OtherCommand("it asks for secrets"));
    }
    match approval {
        Approval::Batch(batch) => by_batch(body, batch, me, trusted, now),
        Approval::Breakglass(emergency) => by_emergency(body, emergency, me, trusted, now),
    }
}

fn by_batch(
    body: &CommandBody,
    approval: &BatchApproval,
    me: &Me<'_>,
    trusted: &Trusted<'_>,
    now: Timestamp,
) -> Result<Permit, Denied> {
    let BatchApproval { header, leaf, proof, statements } = approval;
    if header.trust_domain != trusted.trust_domain || header.fleet != trusted.fleet {
        return Err(Denied::OtherFleet);
    }
    let (named, present) = (header.under.epoch, trusted.policy.epoch());
    if named > present {
        return Err(Denied::Behind { named, present });
    }
    if named < present || header.under.digest != trusted.policy.digest() {
        return Err(Denied::PolicyChanged { named, present });
    }
    if !merkle::verify(leaf.hash(), leaf.index, header.leaves, proof, header.root) {
        return Err(Denied::Proof);
    }
    is_me(leaf, me)?;
    is_this(leaf, body)?;
    for (word, wanted) in &leaf.preconditions {
        let found = me.facts.get(word).map_or("not known here", String::as_str);
        if found != wanted {
            let (word, wanted, found) = (word.clone(), wanted.clone(), found.to_owned());
            return Err(Denied::Precondition { word, wanted, found });
        }
    }
    let kinds = BTreeSet::from([leaf.kind.clone()]);
    let (revoked, policy) = (trusted.revoked, trusted.policy);
    let tally = judge(&Question { header, kinds: &kinds, statements, named: policy, present: policy, revoked, now });
    match tally.flaw {
        Some(Flaw::Expired(at)) => return Err(Denied::Expired(at)),
        Some(flaw) => return Err(Denied::Flaw(flaw)),
        None => {}
    }
    if !tally.approved {
        let (rejected, missing, refused) = (tally.no, tally.missing, tally.refused);
        return Err(Denied::Quorum { rejected, missing, refused });
    }
    if now < tally.opens {
        return Err(Denied::NotYet(tally.opens));
    }
    let digest = header.digest();
    let uses = vec![used("bc/leaf-used/v1", &[digest.as_bytes(), &leaf.index.to_be_bytes()])];
    let by = Authority::Batch { name: header.name.clone(), digest, index: leaf.index, tier: header.tier.clone() };
    Ok(Permit { by, people: tally.yes, uses, from: tally.opens, until: tally.closes })
}

fn is_me(leaf: &Leaf, me: &Me<'_>) -> Result<(), Denied> {
    let other = |what: String| Err(Denied::OtherMachine(what));
    if leaf.node != me.node {
        return other(format!("{}, and this is {}", leaf.node, me.node));
    }
    if leaf.name.as_str() != me.name {
        return other(format!("node/{}, and this is node/{}", leaf.name, me.name));
    }
    if leaf.identity_generation != me.identity_generation {
        let (then, now) = (leaf.identity_generation, me.identity_generation);
        return other(format!("the identity {then} of this node, and this is {now}"));
    }
    if leaf.hardware_key != me.hardware_key {
        return other(format!("the hardware {}, and this is {}", leaf.hardware_key, me.hardware_key));
    }
    if leaf.journal != me.journal {
        return other(format!("the journal {}, and this is {}", leaf.journal, me.journal));
    }
    Ok(())
}

/// Whether a command is the one that a leaf stands for.
pub(crate) fn is_this(leaf: &Leaf, body: &CommandBody) -> Result<(), Denied> {
    if leaf.kind != body.kind.to_string() {
        return Err(Denied::OtherCommand("its kind differs"));
    }
    if schema::canonical::digest(&body.payload).ok() != Some(leaf.payload) {
        return Err(Denied::OtherCommand("its payload differs"));
    }
    if body.min_generation.unwrap_or_default() < leaf.min_generation {
        return Err(Denied::OtherCommand("it presupposes an older generation"));
    }
    Ok(())
}

fn by_emergency(
    body: &CommandBody,
    approval: &BreakglassApproval,
    me: &Me<'_>,
    trusted: &Trusted<'_>,
    now: Timestamp,
) -> Result<Permit, Denied> {
    let kind = body.kind.to_string();
    let (called, refused) =
        emergencies(&approval.statements, trusted.trust_domain, trusted.fleet, trusted.policy, trusted.revoked);
    let mut here = called.into_iter().filter(|emergency| emergency.covers(me.name, &kind));
    let emergency = here.find(|emergency| emergency.permits(now)).ok_or(Denied::NoEmergency(refused))?;
    let (uses, from, until) = (emergency.uses(&kind), emergency.not_before, emergency.expires);
    Ok(Permit { by: Authority::Breakglass { reason: emergency.reason }, people: emergency.people, uses, from, until })
}
