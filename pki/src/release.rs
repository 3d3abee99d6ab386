//! Releases of the daemon: a manifest, and who signed it. Whose word counts is what `releases` of the trust policy says, and
//! nothing else.
//!
//! A manifest travels as its exact bytes with detached signatures, each by a key that a policy lists under somebody. They are made for
//! releases of one fleet: SSH signatures name [`NAMESPACE`], and what is signed begins with the same words, because those of OpenPGP name
//! nothing. So none of them is a commit's, and no commit's is one of them. What is not signed by enough of those who count is not read.

use std::{collections::BTreeSet, fmt};

use schema::{
    fleet::trust::PrincipalKind,
    name::Name,
    release::{MAX_MANIFEST, Manifest},
};
use serde::{Deserialize, Serialize};

use crate::{
    Realm,
    batch::Trusted,
    signed::{Purpose, SignedBytes},
    trust::{
        key::TrustKey,
        policy::{KeyState, Policy, Rule},
        signature::{SignatureRefusal, signer_of},
        statement::FleetId,
    },
};

/// The most signatures that a manifest carries.
pub const MOST: usize = 32;
/// What signatures of SSH say that they are for.
pub const NAMESPACE: &str = "bc/release/v1";
/// Signatures that do not count of which a refusal tells.
const TOLD: usize = 4;

/// Why a manifest is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestRefusal {
    /// It is no signed manifest.
    #[error("it is no signed manifest: {0}")]
    Malformed(String),
    /// Nobody may sign one.
    #[error("the trust policy of epoch {0} has no `releases`: it lets nobody sign a release")]
    NoRule(u64),
    /// Too few of those who may have signed it.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
}

/// Too few of those who may have signed a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Untrusted {
    /// The policy that says who may.
    pub epoch: u64,
    /// Who signed it and counts.
    pub by: BTreeSet<Name>,
    /// How many it takes.
    pub needed: u32,
    /// Those signatures that do not count, but of whoever counts by another one.
    pub refused: Vec<NoVoice>,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, by, needed, refused } = self;
        let names: Vec<&str> = by.iter().map(Name::as_str).collect();
        let who = if names.is_empty() { "nobody who counts".to_owned() } else { names.join(", ") };
        write!(f, "{who} signed it, and `releases` of the trust policy of epoch {epoch} asks for {needed}")?;
        refused.iter().take(TOLD).try_for_each(|why| write!(f, "; {why}"))?;
        match refused.len().saturating_sub(TOLD) {
            0 => Ok(()),
            1 => f.write_str("; one more does not count"),
            more => write!(f, "; {more} more do not count"),
        }
    }
}

/// Why a signature on a manifest does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoVoice {
    /// It is not one by a key of the policy over these bytes.
    #[error("a signature does not count: {0}")]
    Signature(SignatureRefusal),
    /// The policy does not let the key sign any more, or somebody revoked it since.
    #[error("{who} does not count: the key {key} is {how}")]
    KeyOver {
        /// Whose it is.
        who: Name,
        /// Which.
        key: String,
        /// What became of it.
        how: &'static str,
    },
    /// A key that signs by itself.
    #[error("{0} does not count: it is a forge, which stands for nobody")]
    Forge(Name),
    /// Somebody else's work.
    #[error("{who} does not count: `releases` names {}", roles(.rule))]
    NoRole {
        /// Who signed.
        who: Name,
        /// Who may.
        rule: Rule,
    },
}

fn roles(rule: &Rule) -> String {
    rule.roles.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

/// A manifest with its signatures, exactly as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedManifest {
    /// The exact bytes that are signed.
    manifest: String,
    /// Each as its program armours it.
    signatures: Vec<String>,
}

impl SignedManifest {
    /// A manifest that nobody has signed.
    #[must_use]
    pub fn unsigned(manifest: &Manifest) -> Self {
        let manifest = String::from_utf8(manifest.to_bytes()).expect("JSON is UTF-8");
        Self { manifest, signatures: Vec::new() }
    }

    /// Reads what travels. Nothing is believed yet.
    ///
    /// # Errors
    /// When it is no signed manifest.
    pub fn read(text: &str) -> Result<Self, ManifestRefusal> {
        if text.len() > MAX_MANIFEST {
            return Err(ManifestRefusal::Malformed("it is longer than 64 KiB".to_owned()));
        }
        let read: Self = serde_json::from_str(text).map_err(|error| ManifestRefusal::Malformed(error.to_string()))?;
        if read.signatures.len() > MOST {
            return Err(ManifestRefusal::Malformed(format!("it has more than {MOST} signatures")));
        }
        Ok(read)
    }

    /// What travels.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts serialise")
    }

    /// What is signed for a fleet.
    #[must_use]
    pub fn to_sign(&self, trust_domain: &str, fleet: FleetId) -> SignedBytes {
        SignedBytes::new(Purpose::Release, &Realm::new(trust_domain, fleet.to_string())).field(&self.manifest)
    }

    /// What it says, whoever signed it.
    ///
    /// # Errors
    /// When that is no manifest in its one form.
    pub fn says(&self) -> Result<Manifest, ManifestRefusal> {
        let manifest: Manifest = serde_json::from_str(&self.manifest)
            .map_err(|error| ManifestRefusal::Malformed(format!("what is signed is no manifest: {error}")))?;
        if manifest.to_bytes() == self.manifest.as_bytes() {
            Ok(manifest)
        } else {
            Err(ManifestRefusal::Malformed("what is signed is not in its canonical form".to_owned()))
        }
    }

    /// This manifest with one more signature, which is by this key; an earlier one by it goes.
    ///
    /// # Errors
    /// When the signature is another one, or there is no room for it.
    pub fn with(&self, armour: String, key: &TrustKey, trusted: &Trusted<'_>) -> Result<Self, ManifestRefusal> {
        let bytes = self.to_sign(trusted.trust_domain, trusted.fleet);
        let is_by = |armour: &String| signer_of(armour, bytes.as_bytes(), NAMESPACE, [key]).map(drop);
        is_by(&armour).map_err(|why| ManifestRefusal::Malformed(why.to_string()))?;
        let others = self.signatures.iter().filter(|known| is_by(known).is_err()).cloned();
        let signatures = others.chain([armour]).collect();
        Self::read(&Self { manifest: self.manifest.clone(), signatures }.to_text())
    }

    /// Who signed exactly these bytes for this fleet and counts, when they are enough.
    ///
    /// # Errors
    /// [`ManifestRefusal`] says who is missing.
    pub fn signers(&self, trusted: &Trusted<'_>) -> Result<BTreeSet<Name>, ManifestRefusal> {
        let policy = trusted.policy;
        let rule = policy.releases().ok_or_else(|| ManifestRefusal::NoRule(policy.epoch()))?;
        let bytes = self.to_sign(trusted.trust_domain, trusted.fleet);
        let mut by = BTreeSet::new();
        let mut refused = Vec::new();
        for armour in &self.signatures {
            let key = signer_of(armour, bytes.as_bytes(), NAMESPACE, policy.keys());
            match key.map_err(NoVoice::Signature).and_then(|key| voice(key, rule, policy, trusted.revoked)) {
                Ok(who) => drop(by.insert(who.clone())),
                Err(why) => refused.push(why),
            }
        }
        if by.len() >= rule.threshold as usize {
            return Ok(by);
        }
        refused.retain(|why| !matches!(why, NoVoice::KeyOver { who, .. } if by.contains(who)));
        Err(Untrusted { epoch: policy.epoch(), by, needed: rule.threshold, refused }.into())
    }

    /// The manifest, when enough of those who count signed it.
    ///
    /// # Errors
    /// [`ManifestRefusal`] says why it is not believed.
    pub fn verify(&self, trusted: &Trusted<'_>) -> Result<Manifest, ManifestRefusal> {
        self.signers(trusted)?;
        self.says()
    }
}

/// Whose voice a key of a policy is, where it has one.
///
/// A retired key has none: a commit that it signed has its place before the policy that retires it, and a manifest has no place.
///
/// # Errors
/// With the reason why it has none.
pub fn voice<'p>(
    key: &TrustKey,
    rule: &Rule,
    policy: &'p Policy,
    revoked: &BTreeSet<String>,
) -> Result<&'p Name, NoVoice> {
    let (who, principal) = policy.holder(key).expect("a key of a policy has a holder");
    let how = match policy.state(key) {
        KeyState::Retired => Some("retired"),
        KeyState::Compromised { .. } => Some("compromised"),
        KeyState::Good => revoked.contains(&key.name()).then_some("revoked"),
    };
    if let Some(how) = how {
        return Err(NoVoice::KeyOver { who: who.clone(), key: key.name(), how });
    }
    if principal.kind == PrincipalKind::Forge {
        return Err(NoVoice::Forge(who.clone()));
    }
    if rule.names(principal) { Ok(who) } else { Err(NoVoice::NoRole { who: who.clone(), rule: rule.clone() }) }
}

/// Whose signatures on a release count; `revoked` are keys by their names.
#[must_use]
pub fn may_sign<'p>(policy: &'p Policy, revoked: &BTreeSet<String>) -> BTreeSet<&'p Name> {
    let of = |rule: &'p Rule| policy.keys().filter_map(|key| voice(key, rule, policy, revoked).ok());
    policy.releases().into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests;
