//! What people agreed on, as it comes in a session: policies that follow one another, and keys that were revoked.

use std::sync::Arc;

use pki::{anchor::AnchorTrust, trust::policy::Policy, verify::Validity};
use proto::agent::v1 as pb;
use schema::{inventory::InventorySection, report::PolicyHeld, time::Timestamp};

use super::{Claims, Core, Effect, HardwareKey, Level, Now, Proven, proven::LEAP};
use crate::{
    policies::{Offered, Policies},
    wire,
};

/// How much later it has to be before that is written down.
const WORTH_KEEPING: std::time::Duration = std::time::Duration::from_secs(60);

/// Characters of why a policy is not taken that are said.
const MOST_WHY: usize = 300;

impl Core {
    /// Tells whoever judges destructive commands what this node believes and what it is.
    pub(super) fn guard(&self) {
        let digests = self.inventory.digests();
        let mut facts: std::collections::BTreeMap<String, String> =
            digests.iter().map(|(section, digest)| (format!("inventory/{section}"), digest.to_string())).collect();
        facts.insert("boot".to_owned(), self.me.boot_id.to_string());
        let hardware_key = self.hardware_key();
        let policies = self.policies.clone();
        self.desk.gate().change(|guard| {
            (guard.policies, guard.floor) = (policies, self.floor);
            // A loop that begins anew does not take away what the one before it saw of this machine.
            if hardware_key.is_some() {
                (guard.hardware_key, guard.facts) = (hardware_key, facts);
            }
        });
    }

    /// Goes by another name from now on: what is approved for that one is for this node.
    pub fn go_by(&self, name: &str) {
        self.desk.gate().change(|guard| name.clone_into(&mut guard.name));
    }

    /// What this machine is recognised by, as it reads it itself; `None` before it was looked at.
    fn hardware_key(&self) -> Option<String> {
        if self.inventory.sections.is_empty() {
            return None;
        }
        let dmi = self.inventory.sections.get(&InventorySection::Dmi);
        let dmi = dmi.and_then(|document| serde_json::from_value(document.clone()).ok()).unwrap_or_default();
        let key = HardwareKey::derive(&Claims::of_dmi(&dmi)).digest;
        Some(key.map_or_else(|| "none".to_owned(), |digest| digest.to_string()))
    }

    /// The epoch of the policy in force, for Hello.
    pub(super) fn policy_epoch(&self) -> u64 {
        self.policies.as_deref().map_or(0, Policies::epoch)
    }

    /// The policy in force, for the control plane.
    pub(super) fn policy_held(&self) -> PolicyHeld {
        let present = self.policies.as_deref().and_then(Policies::present);
        let refused = self.policies.as_deref().and_then(Policies::refused).unwrap_or_default();
        PolicyHeld {
            epoch: self.policy_epoch(),
            digest: present.map(Policy::digest),
            refused: refused.chars().take(MOST_WHY).collect(),
        }
    }

    pub(super) fn policies(&mut self, frame: pb::Policies, now: Now) -> Vec<Effect> {
        let (mut effects, mut changed) = (Vec::new(), false);
        let warn = |text: String| Effect::Say(Level::Warn, text);
        if let Some(first) = frame.first {
            match self.first_policy(first, now) {
                Ok(began) => changed = began,
                Err(why) => {
                    effects.push(warn(format!("with which trust policy the fleet begins is not believed: {why}")))
                }
            }
        }
        let offered: Vec<Offered> = frame
            .policies
            .into_iter()
            .map(|pb::Policy { epoch, document, statements }| Offered { epoch, document, statements })
            .collect();
        let Some(policies) = self.policies.as_mut().map(Arc::make_mut) else {
            let text = "trust policies came, and nobody signed with which one the fleet begins; they are not taken";
            effects.push(warn(text.to_owned()));
            return effects;
        };
        let before = policies.refused().map(str::to_owned);
        let taken = policies.take(&offered, &frame.revocations);
        let refused = policies.refused() != before.as_deref();
        effects.extend(taken.told.into_iter().map(|text| Effect::Say(Level::Info, text)));
        effects.extend(taken.refused.into_iter().map(warn));
        let news = changed || taken.changed;
        if news {
            effects.push(Effect::KeepPolicies(policies.kept().clone()));
        }
        self.guard();
        if (news || refused) && self.reads_policy {
            effects.extend(self.report_status(now));
        }
        effects
    }

    /// Takes a worker's word on the first policy. Whether that is news: a node that knows takes no other word.
    fn first_policy(&mut self, first: pb::FirstPolicy, now: Now) -> Result<bool, String> {
        let fleet = first.fleet.parse().map_err(|error| format!("{error}"))?;
        let digest = first.digest.parse().map_err(|error| format!("{error}"))?;
        let trust = AnchorTrust { fleet, digest };
        if let Some(known) = &self.policies {
            let same = known.trust() == trust;
            return if same { Ok(false) } else { Err("this node knows another one".to_owned()) };
        }
        let signature = wire::signature(first.signature);
        let verified = self.trust.verifier().first_policy(&trust, &signature, Validity::At(self.time(now)));
        verified.map_err(|error| error.to_string())?;
        self.policies = Some(Arc::new(Policies::pinned(&self.me.realm, trust)));
        Ok(true)
    }

    /// It is at least this late, for good: what two words agree on, or what follows what was known within a day.
    pub(super) fn floor(&mut self, proven: Proven) -> Option<Effect> {
        let (late, known) = (proven.at_least(), self.floor);
        let later = |known: Timestamp, by| known.saturating_add(by).unwrap_or(Timestamp::MAX);
        let sure = self.unconfirmed.is_none() || known.is_some_and(|known| late <= later(known, LEAP));
        let worth = known.is_none_or(|known| late >= later(known, WORTH_KEEPING));
        if !sure || !worth {
            return None;
        }
        self.floor = Some(late);
        self.guard();
        Some(Effect::KeepFloor(late))
    }
}
