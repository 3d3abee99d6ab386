//! Whether a command is accepted: the rules in the order in which their refusals are reported. A pure function.
//!
//! The signature is checked before anything is waited for, asked for or written down. Its refusal is *reported* in its
//! place in the order all the same, so that the answer says the first rule that is broken.

use pki::worker::SignatureRefusal;
use schema::{
    command::{BodyError, CommandBody, CommandHead, CommandKind, Refusal},
    generation::Generation,
    id::{JournalId, NodeId},
    time::Timestamp,
};

use super::quorum::{self, Asked, Clocks, Guard, Held, Spent, Toll};

/// A command as it came.
#[derive(Debug)]
pub struct Offer<'a> {
    /// Its body, as far as it can be read.
    pub body: &'a Result<CommandBody, BodyError>,
    /// What people are said to have approved; empty when nothing came.
    pub approval: &'a [u8],
    /// What is known of its worker's signature.
    pub signature: Result<(), SignatureRefusal>,
}

/// What a node knows about itself at that moment.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// This node.
    pub node: NodeId,
    /// The only kinds that a restricted identity accepts.
    pub allowed: Option<&'a [CommandKind]>,
    /// The spec that was attempted last.
    pub applied: Generation,
    /// The time that the control plane proved; `None` before it did.
    pub now: Option<Timestamp>,
    /// What its own clock says.
    pub wall: Timestamp,
    /// The journal of its commands.
    pub journal: JournalId,
    /// What it holds against destructive commands.
    pub guard: &'a Guard,
    /// What was used up.
    pub spent: &'a Spent,
    /// How many more commands the lane takes.
    pub room: usize,
}

/// What becomes of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is accepted, at this price.
    Accept(Toll),
    /// It waits for the spec that it presupposes, until its deadline.
    Wait,
    /// It is refused.
    Refuse(Refusal, String),
    /// Nothing is said, for it is no command.
    Ignore,
}

/// Judges a command.
#[must_use]
pub fn accept(offer: &Offer<'_>, facts: &Facts<'_>) -> Verdict {
    let refuse = |refusal, why: String| Verdict::Refuse(refusal, why);
    let (head, body) = match offer.body {
        Ok(body) => (body.head(), Ok(body)),
        Err(BodyError::Unsupported { head, message }) => (head.as_ref().clone(), Err(message)),
        Err(BodyError::Malformed) => return Verdict::Ignore,
    };
    let body = match supported(&head, body, facts) {
        Ok(body) => body,
        Err(why) => return refuse(Refusal::Unsupported, why),
    };
    let stale = body.min_generation.filter(|wanted| *wanted > facts.applied);
    let late = facts.now.is_some_and(|now| now >= body.not_after);
    match stale {
        Some(_) if offer.signature.is_ok() && !late => return Verdict::Wait,
        Some(wanted) => {
            let why = format!("it presupposes generation {wanted}, and this node has applied {}", facts.applied);
            return refuse(Refusal::StaleGeneration, why);
        }
        None => {}
    }
    if late {
        return refuse(Refusal::Expired, format!("its deadline {} has passed", body.not_after));
    }
    if let Err(why) = offer.signature {
        return refuse(Refusal::BadSignature, why.to_string());
    }
    if let Some(journal) = body.journal.filter(|journal| *journal != facts.journal) {
        let why = format!("it was signed for the journal {journal}, and this machine's is {}", facts.journal);
        return refuse(Refusal::JournalOther, why);
    }
    let toll = match approved(body, offer.approval, facts) {
        Ok(toll) => toll,
        Err(Held::Busy(why)) => return refuse(Refusal::Busy, why),
        Err(Held::No(refusal, why)) => return refuse(refusal, why),
    };
    let Facts { now: Some(now), wall, .. } = *facts else {
        return refuse(Refusal::Busy, "the time is not proven yet".to_owned());
    };
    if let Err(short) = facts.spent.affords(&toll, Clocks { now, wall }) {
        return refuse(short.refusal(), short.to_string());
    }
    if facts.room == 0 {
        let lane = body.kind.row().lane;
        return refuse(Refusal::Busy, format!("the lane {lane} has as many commands as it takes"));
    }
    Verdict::Accept(toll)
}

fn approved(body: &CommandBody, approval: &[u8], facts: &Facts<'_>) -> Result<Toll, Held> {
    if !body.kind.row().destructive {
        return Ok(Toll::Free);
    }
    let Facts { node, journal, now, wall, guard, spent, .. } = *facts;
    quorum::approved(&Asked { body, approval, node, journal, now, wall, since: spent.since }, guard)
}

fn supported<'a>(
    head: &CommandHead,
    body: Result<&'a CommandBody, &String>,
    facts: &Facts<'_>,
) -> Result<&'a CommandBody, String> {
    if head.node_id != facts.node {
        return Err(format!("it is for {}, and this is {}", head.node_id, facts.node));
    }
    let body = body.map_err(Clone::clone)?;
    let kind = body.kind;
    if facts.allowed.is_some_and(|allowed| !allowed.contains(&kind)) {
        return Err(format!("this node's identity does not accept {kind}"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests;
