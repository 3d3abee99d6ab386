//! What people agreed on, as far as this node knows: the chain of trust policies from the first one on, and the keys that they
//! revoked.
//!
//! Policies come from whoever holds the session, and are believed because each is agreed to by the one before it. The first
//! one is recognised by its digest: from the anchor that was pinned when the machine joined, or by a worker's word to a
//! machine that joined before. What was taken once is never forgotten, and no policy is ever taken back.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pki::{
    Realm,
    anchor::AnchorTrust,
    batch::Trusted,
    trust::{
        policy::{self, Policy},
        revoked::Revocations,
        statement::MAX_STATEMENT_BYTES,
        walk::Refusal,
    },
};
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// The most revocations that are looked at at once.
const MAX_REVOCATIONS: usize = 4_096;

/// What is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kept {
    /// The trust domain that statements name.
    pub trust_domain: String,
    /// The control plane's own fleet id: another one has another chain.
    pub control_plane: String,
    /// The fleet that statements name, and its first policy.
    pub trust: AnchorTrust,
    /// The policies, the first one first.
    epochs: Vec<KeptPolicy>,
    /// The keys that were revoked, each as it was judged when it was heard.
    #[serde(default, skip_serializing_if = "Revocations::is_empty")]
    revoked: Revocations,
}

/// One policy and what agreed to it, in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeptPolicy {
    document: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    statements: Vec<String>,
}

/// A policy as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// Its epoch, as whoever brings it says.
    pub epoch: u64,
    /// The bytes of its file.
    pub document: Vec<u8>,
    /// Raw commits.
    pub statements: Vec<Vec<u8>>,
}

/// What came of something that was offered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Something is to be kept.
    pub changed: bool,
    /// Good news.
    pub told: Vec<String>,
    /// What was not taken, and why.
    pub refused: Vec<String>,
}

/// What this node believes.
#[derive(Debug, Clone)]
pub struct Policies {
    kept: Kept,
    known: BTreeMap<u64, Policy>,
    /// Names of keys.
    revoked: BTreeSet<String>,
    /// What was kept and cannot be judged.
    broken: Option<String>,
    /// What a gateway brought in this session and cannot be judged.
    halted: Option<String>,
    /// Why the policy that was brought last was not taken.
    refused: Option<String>,
}

fn encoded(bytes: &[Vec<u8>]) -> Vec<String> {
    bytes.iter().map(|bytes| STANDARD.encode(bytes)).collect()
}

fn decoded(texts: &[String]) -> Vec<Vec<u8>> {
    texts.iter().filter_map(|text| STANDARD.decode(text).ok()).collect()
}

impl Policies {
    /// A node that knows with which policy its fleet begins, and has none yet.
    #[must_use]
    pub fn pinned(realm: &Realm, trust: AnchorTrust) -> Self {
        let kept = Kept {
            trust_domain: realm.trust_domain.clone(),
            control_plane: realm.fleet_id.clone(),
            trust,
            epochs: Vec::new(),
            revoked: Revocations::default(),
        };
        Self { kept, known: BTreeMap::new(), revoked: BTreeSet::new(), broken: None, halted: None, refused: None }
    }

    /// What was kept, judged again from the first policy on. Where that ends early, as when a later version of the daemon
    /// wrote it, nothing destructive is done: [`Self::halted`] says why.
    #[must_use]
    pub fn read(kept: Kept) -> Self {
        let (epochs, revoked) = (kept.epochs.clone(), names(&kept.revoked));
        let mut this = Self { kept, known: BTreeMap::new(), revoked, broken: None, halted: None, refused: None };
        // What was revoked later took nothing back.
        let mut none = Revocations::default();
        for KeptPolicy { document, statements } in &epochs {
            let judged = STANDARD.decode(document).map_err(|error| error.to_string());
            let judged = judged.and_then(|document| {
                this.judge(&document, &decoded(statements), &mut none).map_err(|refusal| words(&refusal))
            });
            match judged {
                Ok(policy) => drop(this.known.insert(policy.epoch(), policy)),
                Err(why) => {
                    this.broken = Some(why);
                    break;
                }
            }
        }
        this
    }

    /// What is to be kept.
    #[must_use]
    pub const fn kept(&self) -> &Kept {
        &self.kept
    }

    /// The trust domain and the fleet that statements name, and the first policy.
    #[must_use]
    pub const fn trust(&self) -> AnchorTrust {
        self.kept.trust
    }

    /// Whether it was learnt from this control plane.
    #[must_use]
    pub fn is_of(&self, realm: &Realm) -> bool {
        (&self.kept.trust_domain, &self.kept.control_plane) == (&realm.trust_domain, &realm.fleet_id)
    }

    /// The epoch of the policy in force; 0 before the first one came.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.known.keys().next_back().copied().unwrap_or(0)
    }

    /// The policy in force.
    #[must_use]
    pub fn present(&self) -> Option<&Policy> {
        self.known.values().next_back()
    }

    /// Whose word counts here; `None` before a policy came.
    #[must_use]
    pub fn trusted(&self) -> Option<Trusted<'_>> {
        let Kept { trust_domain, trust, .. } = &self.kept;
        Some(Trusted { trust_domain, fleet: trust.fleet, policy: self.present()?, revoked: &self.revoked })
    }

    /// The keys that were revoked, by name.
    #[must_use]
    pub const fn revoked(&self) -> &BTreeSet<String> {
        &self.revoked
    }

    /// Why nothing destructive is done, whoever approves it: there is a policy that this version cannot judge.
    #[must_use]
    pub fn halted(&self) -> Option<&str> {
        self.broken.as_deref().or(self.halted.as_deref())
    }

    /// Why the policy that was brought last was not taken.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Another session begins. Nobody agreed to a policy that cannot be read, so a gateway may have made it up: it is for an
    /// honest one to bring it again.
    pub fn begin_session(&mut self) {
        self.halted = None;
    }

    /// Takes revocations, and the policies that follow, one epoch after the other. Whoever brings them keeps the order in which the control
    /// plane heard them: a revocation that came later says nothing of what was agreed to before.
    pub fn take(&mut self, policies: &[Offered], revocations: &[Vec<u8>]) -> Taken {
        let mut taken = Taken::default();
        let knew = !self.known.is_empty();
        self.hear(revocations, &mut taken);
        // What cannot be judged ends the chain, also where a later version kept it.
        let policies = if self.broken.is_some() { &[] } else { policies };
        for offered in policies {
            if offered.epoch <= self.epoch() {
                taken.refused.extend(self.other(offered));
                continue;
            }
            match self.follow(offered) {
                Ok(told) => {
                    self.refused = None;
                    taken.changed = true;
                    taken.told.push(told);
                }
                Err(why) => {
                    taken.refused.push(format!("the trust policy of epoch {} is not taken: {why}", offered.epoch));
                    self.refused = Some(why);
                    break;
                }
            }
        }
        // Without a policy nobody is anybody.
        if !knew {
            self.hear(revocations, &mut taken);
        }
        taken
    }

    fn hear(&mut self, revocations: &[Vec<u8>], taken: &mut Taken) {
        let Some(present) = self.known.values().next_back() else { return };
        let Kept { trust_domain, trust, revoked, .. } = &mut self.kept;
        let small = |raw: &&Vec<u8>| raw.len() <= MAX_STATEMENT_BYTES;
        let raw = revocations.iter().take(MAX_REVOCATIONS).filter(small).map(Vec::as_slice);
        if revoked.hear(raw, trust_domain, trust.fleet, present, None) {
            let names = names(revoked);
            taken.changed = true;
            taken.told.extend(names.difference(&self.revoked).map(|key| format!("the key {key} is revoked")));
            self.revoked = names;
        }
    }

    /// What is wrong with a policy of an epoch that this node has, when it is another one.
    fn other(&self, Offered { epoch, document, .. }: &Offered) -> Option<String> {
        let known = self.known.get(epoch)?.digest();
        let same = policy::check(document).policy.is_some_and(|policy| policy.digest() == known);
        (!same).then(|| {
            format!("another trust policy of epoch {epoch} is not taken: this node has one, and never goes back")
        })
    }

    fn follow(&mut self, offered: &Offered) -> Result<String, String> {
        let next = self.epoch() + 1;
        if offered.epoch != next {
            return Err(format!("this node has epoch {}, and what comes between was not sent", next - 1));
        }
        let Offered { document, statements, .. } = offered;
        let mut revoked = self.kept.revoked.clone();
        let policy = match self.judge(document, statements, &mut revoked) {
            Ok(policy) => policy,
            Err(why) => {
                if let Refusal::TooNew { .. } = why {
                    self.halted = Some(words(&why));
                }
                return Err(words(&why));
            }
        };
        if policy.epoch() != next {
            return Err(format!("it is of epoch {}", policy.epoch()));
        }
        let told = format!("the trust policy of epoch {next} ({}) is in force", policy.digest().short());
        self.kept.epochs.push(KeptPolicy { document: STANDARD.encode(document), statements: encoded(statements) });
        self.known.insert(next, policy);
        self.revoked = names(&revoked);
        self.kept.revoked = revoked;
        self.halted = None;
        Ok(told)
    }

    /// Judges the policy that comes next, and takes back what a key said that it calls compromised.
    fn judge(&self, document: &[u8], statements: &[Vec<u8>], revoked: &mut Revocations) -> Result<Policy, Refusal> {
        let Kept { trust_domain, trust, .. } = &self.kept;
        match self.present() {
            None => policy::first(document, trust.digest),
            Some(present) => policy::step(present, document, statements, trust_domain, trust.fleet, revoked),
        }
    }
}

fn names(revoked: &Revocations) -> BTreeSet<String> {
    revoked.names().map(str::to_owned).collect()
}

fn words(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooNew { format } => {
            format!("TrustTooNew: it has format {format}, which this version of bcd does not know; upgrade it")
        }
        other => other.to_string(),
    }
}
