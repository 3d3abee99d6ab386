//! Whether a machine becomes a node of its own, or takes one back: a pure function of who lives here already.
//!
//! A node that is away for a moment looks like one that is gone, and a copy of its disk or its firmware tables may wait at the
//! door for that moment. So a token that reclaims takes only what is lost, a person's word only what is silent, and neither
//! takes a node that was heard while the machine at the door asked already: those are two machines.

use pki::hardware::HardwareKey;
use schema::{
    attested::AttestKind,
    id::NodeId,
    name::Name,
    node::{Connectivity, ProvisionEvent, ProvisionState},
    time::Timestamp,
};
use store::{identities::Presence, nodes::Node};

use super::{JoinRefusal, decide::Place};

/// A node that a machine at the door may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: Name,
    /// Its pool.
    pub pool: Option<Name>,
    /// Two independent identifiers stand behind its hardware key.
    pub trusted: bool,
    /// It is lost: silent for longer than its pool's grace.
    pub lost: bool,
    /// Whether its machine may still be there.
    pub presence: Presence,
    /// How far it is.
    pub provision: ProvisionState,
    /// Where it failed, when it did.
    pub failed_from: Option<ProvisionState>,
}

impl Resident {
    /// A stored node.
    #[must_use]
    pub fn of(node: &Node, presence: Presence) -> Self {
        Self {
            id: node.id,
            name: node.name.clone(),
            pool: node.pool.clone(),
            trusted: node.hardware_key_trusted,
            lost: node.connectivity == Connectivity::Lost,
            presence,
            provision: node.provision,
            failed_from: node.failed_from,
        }
    }
}

/// Who lives here already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Residents {
    /// The node with the machine's hardware key.
    pub by_hardware: Option<Resident>,
    /// The node with the name that the machine would get.
    pub by_name: Option<Resident>,
    /// The node that a person said the machine is, and when.
    pub approved: Option<(Resident, Timestamp)>,
    /// The nodes that were attested as what the machine proved, and by which kind.
    pub attested_as: Vec<(Resident, AttestKind)>,
    /// When the machine asked first; `None` when it asks for the first time.
    pub asked: Option<Timestamp>,
}

/// What a machine becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A node of its own.
    New,
    /// This node, in place, for this reason.
    TakeOver(Resident, Ground),
}

/// Why a machine may take a node over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// It has the node's hardware key, and its token says that this is enough.
    Hardware,
    /// The node's document describes it although its hardware is new, and its token says that this is enough.
    Document,
    /// A person said so.
    Approval,
}

impl Ground {
    /// For the log and the audit.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hardware => "reclaimed",
            Self::Document => "rebound by its document",
            Self::Approval => "rebound by a person",
        }
    }
}

/// Decides. `reclaim` is what the token says.
///
/// # Errors
/// With the reason against the machine: what exists is never overwritten without a word of somebody, and what proved to be
/// one node is no other.
pub fn claim(place: &Place<'_>, key: &HardwareKey, reclaim: bool, residents: &Residents) -> Result<Claim, JoinRefusal> {
    let claim = by_sight(place, key, reclaim, residents)?;
    let is_it = |owner: &Resident| matches!(&claim, Claim::TakeOver(resident, _) if resident.id == owner.id);
    match residents.attested_as.iter().find(|(owner, _)| !is_it(owner)) {
        Some((owner, _)) => Err(JoinRefusal::AttestedElsewhere(owner.name.clone())),
        None => Ok(claim),
    }
}

fn by_sight(place: &Place<'_>, key: &HardwareKey, reclaim: bool, residents: &Residents) -> Result<Claim, JoinRefusal> {
    if let Some((resident, at)) = &residents.approved {
        // No second node is known by hardware that can be believed, whatever somebody said.
        let is_other = |same: &&Resident| key.trusted && same.trusted && same.id != resident.id;
        if let Some(same) = residents.by_hardware.as_ref().filter(is_other) {
            return Err(JoinRefusal::DuplicateHardware(same.name.clone()));
        }
        return take(resident, Ground::Approval, Some(*at));
    }
    let is_document_of = |resident: &Resident| place.document.is_some_and(|document| document.name == resident.name);
    let (resident, ground, held) = match (&residents.by_hardware, &residents.by_name) {
        (None, None) => return Ok(Claim::New),
        (Some(same), _) => {
            let held = JoinRefusal::DuplicateHardware(same.name.clone());
            let fits = key.trusted && same.trusted && (place.document.is_none() || is_document_of(same));
            if !fits {
                return Err(held);
            }
            (same, Ground::Hardware, held)
        }
        (None, Some(named)) => {
            let held = JoinRefusal::NameTaken(named.name.clone());
            if !is_document_of(named) {
                return Err(held);
            }
            (named, Ground::Document, held)
        }
    };
    // A machine that proves to be the node, and for this very request, needs nobody's word for it, until somebody said that
    // the node's machine does not come back.
    let proves = |(owner, kind): &(Resident, AttestKind)| owner.id == resident.id && kind.is_fresh();
    let proven = !resident.presence.vacant && residents.attested_as.iter().any(proves);
    if !reclaim && !proven {
        return Err(held);
    }
    if resident.pool.as_ref() != Some(&place.pool) {
        return Err(JoinRefusal::ReclaimOtherPool { node: resident.name.clone(), pool: place.pool.clone() });
    }
    take(resident, ground, residents.asked)
}

/// `since` is when the machine asked first, or when a person said that the other one is gone.
fn take(resident: &Resident, ground: Ground, since: Option<Timestamp>) -> Result<Claim, JoinRefusal> {
    let Presence { heard, silent, vacant } = resident.presence;
    if heard.zip(since).is_some_and(|(heard, since)| heard > since) {
        return Err(JoinRefusal::ReclaimConnected(resident.name.clone()));
    }
    let gone = silent && (resident.lost || ground == Ground::Approval);
    if !gone && !vacant {
        return Err(JoinRefusal::ReclaimNotLost(resident.name.clone()));
    }
    if resident.provision.transition(ProvisionEvent::Rejoin, resident.failed_from).is_err() {
        return Err(JoinRefusal::ReclaimBusy { node: resident.name.clone(), state: resident.provision });
    }
    Ok(Claim::TakeOver(resident.clone(), ground))
}

#[cfg(test)]
mod tests;
