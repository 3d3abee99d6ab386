//! What people said, as a receipt shows it: who asked, who approved or called an emergency, and which keys did not count any more.

use std::collections::BTreeSet;

use schema::{name::Name, time::Timestamp};

use super::{Receipt, Void};
use crate::{
    anchor::{Anchor, AnchorTrust},
    batch::{self, BatchHeader, Leaf, Question, emergencies, judge},
    encoding::Base64,
    trust::{
        commit::Commit,
        object::ObjectFormat,
        policy::{self, Policy},
        revoked::Revocations,
    },
};

/// An emergency that people called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emergency {
    /// Who.
    pub people: BTreeSet<Name>,
    /// Why.
    pub reason: String,
    /// From then on.
    pub not_before: Timestamp,
    /// Until then.
    pub expires: Timestamp,
}

/// A key that was revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// The key.
    pub key: String,
    /// Whose it is.
    pub holder: Name,
    /// Who said so.
    pub by: Name,
    /// It was heard before enough people had approved the batch: what it signed does not count for it.
    pub before: bool,
}

/// What people said.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) asked_by: Option<Name>,
    pub(super) approved_by: BTreeSet<Name>,
    pub(super) emergency: Option<Emergency>,
    pub(super) revoked: Vec<Gone>,
}

pub(super) fn heard(
    receipt: &Receipt,
    anchor: &Anchor,
    header: Option<&BatchHeader>,
    leaves: &[Leaf],
) -> Result<Heard, Void> {
    if header.is_none() && receipt.emergency.is_empty() {
        let nothing = receipt.policies.is_empty() && receipt.statements.is_empty() && receipt.plan.is_none();
        return if nothing { Ok(Heard::default()) } else { Err(Void::Header) };
    }
    let pin = anchor.trust.as_ref().ok_or_else(|| Void::Policies("the anchor names none".to_owned()))?;
    let realm = anchor.realm();
    if let Some(header) = header
        && (header.name.as_str() != receipt.batch
            || header.trust_domain != realm.trust_domain
            || header.fleet != pin.fleet)
    {
        return Err(Void::Header);
    }
    let followed = Followed::of(receipt, pin, &realm.trust_domain)?;
    let sent = receipt.deeds.iter().any(|deed| deed.command.is_some());
    let (mut asked_by, mut approved_by) = (None, BTreeSet::new());
    if let Some(header) = header {
        asked_by = followed.asked_by(receipt, header)?;
        approved_by = followed.approved_by(receipt, header, leaves, sent)?;
    }
    let emergency = match receipt.emergency.as_slice() {
        [] => None,
        raws => Some(followed.emergency(receipt, raws, pin, &realm.trust_domain)?),
    };
    Ok(Heard { asked_by, approved_by, emergency, revoked: followed.revoked })
}

/// The policies from the one that the anchor names on, and the keys that were revoked on the way.
struct Followed {
    policies: Vec<Policy>,
    /// Keys that did not count any more when it was decided.
    denied: BTreeSet<String>,
    revoked: Vec<Gone>,
}

impl Followed {
    fn of(receipt: &Receipt, pin: &AnchorTrust, trust_domain: &str) -> Result<Self, Void> {
        let mut this = Self { policies: Vec::new(), denied: BTreeSet::new(), revoked: Vec::new() };
        let mut heard = Revocations::default();
        for step in &receipt.policies {
            let statements: Vec<Vec<u8>> = step.statements.iter().map(|Base64(raw)| raw.clone()).collect();
            let next = match this.policies.last() {
                None => policy::first(&step.policy, pin.digest),
                Some(old) => policy::step(old, &step.policy, &statements, trust_domain, pin.fleet, &mut heard),
            };
            let next = next.map_err(|refusal| Void::Policies(refusal.to_string()))?;
            for revocation in &step.revocations {
                if !heard.hear([revocation.raw.as_slice()], trust_domain, pin.fleet, &next, None) {
                    continue;
                }
                let one = heard.iter().last().expect("one was heard");
                let (key, holder, by) = (one.key.clone(), one.holder.clone(), one.by.clone());
                this.revoked.push(Gone { key, holder, by, before: revocation.before });
            }
            this.policies.push(next);
        }
        // A policy takes back what a key said that it calls compromised.
        this.revoked.retain(|gone| heard.names().any(|key| key == gone.key));
        this.denied = this.revoked.iter().filter(|gone| gone.before).map(|gone| gone.key.clone()).collect();
        Ok(this)
    }

    /// Who signed the commit that the batch was planned at. A batch binds that commit and its tree, and that its signers do not
    /// approve it.
    fn asked_by(&self, receipt: &Receipt, header: &BatchHeader) -> Result<Option<Name>, Void> {
        let Some(Base64(raw)) = &receipt.plan else { return Ok(None) };
        let format = ObjectFormat::of_commit(raw).unwrap_or(ObjectFormat::Sha1);
        let commit = Commit::split(format, raw).map_err(|_| Void::Plan("it is malformed"))?;
        if (commit.id(), commit.tree()) != (header.plan_commit, header.plan_tree) {
            return Err(Void::Plan("it is not the one that the batch names"));
        }
        let signer = self.policies.iter().rev().find_map(|policy| policy.signer_of(&commit));
        let (name, _) = signer.ok_or(Void::Plan("no key of the trust policies signed it"))?;
        if !header.does_not_count().any(|other| other == name) {
            return Err(Void::Plan("the batch does not say that its signer may not approve it"));
        }
        Ok(Some(name.clone()))
    }

    fn approved_by(
        &self,
        receipt: &Receipt,
        header: &BatchHeader,
        leaves: &[Leaf],
        sent: bool,
    ) -> Result<BTreeSet<Name>, Void> {
        let named = self.policies.iter().find(|policy| policy.digest() == header.under.digest);
        let named = named.ok_or_else(|| Void::Policies("the one that the batch names is not among them".to_owned()))?;
        let kinds: BTreeSet<String> = leaves.iter().map(|leaf| leaf.kind.clone()).collect();
        let statements: Vec<Vec<u8>> = receipt.statements.iter().map(|Base64(raw)| raw.clone()).collect();
        let at = |now| {
            // What people agreed to under a policy stays agreed to: a later one voids what is open, and says nothing of what is done.
            judge(&Question {
                header,
                kinds: &kinds,
                statements: &statements,
                named,
                present: named,
                revoked: &self.denied,
                now,
            })
        };
        let tally = at(at(header.not_before).opens.max(header.not_before));
        if sent && !tally.approved {
            let why = tally.flaw.map_or_else(|| tally.missing.join(", "), |flaw| flaw.to_string());
            return Err(Void::NotApproved(why));
        }
        Ok(tally.yes)
    }

    /// The emergency that covers every command that was sent, under a policy that was in force.
    fn emergency(
        &self,
        receipt: &Receipt,
        raws: &[Base64],
        pin: &AnchorTrust,
        trust_domain: &str,
    ) -> Result<Emergency, Void> {
        let raws: Vec<Vec<u8>> = raws.iter().map(|Base64(raw)| raw.clone()).collect();
        let mut against = None;
        for policy in self.policies.iter().rev() {
            let (called, refused) = emergencies(&raws, trust_domain, pin.fleet, policy, &self.denied);
            against = against.or_else(|| refused.first().map(|refused| refused.why.to_string()));
            for called in called {
                if !called.missing.is_empty() {
                    against = Some(called.missing.join(", "));
                } else if receipt.deeds.iter().all(|deed| covers(&called, deed)) {
                    let batch::Emergency { people, reason, not_before, expires, .. } = called;
                    return Ok(Emergency { people, reason, not_before, expires });
                }
            }
        }
        Err(Void::NoEmergency(against.unwrap_or_else(|| "it is about other machines, commands or times".to_owned())))
    }
}

/// Whether what was sent to a machine is what people allowed.
fn covers(called: &batch::Emergency, deed: &super::Deed) -> bool {
    let Some(sent) = &deed.command else { return true };
    sent.read().is_some_and(|body| called.covers(&deed.node, body.kind.as_str()) && body.not_after <= called.expires)
}
