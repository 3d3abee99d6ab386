//! What the pools in force say about machines that prove something.

use pki::attest::{Proof, Refusal, Roots, gcp::KeySet};
use schema::{
    attested::AttestKind,
    fleet::{Pool as PoolDocument, kind::AttestRule},
    name::Name,
    time::Timestamp,
};

use super::{Stand, Testimony};

/// One kind of evidence in one pool.
#[derive(Debug)]
pub(in crate::join) struct Rule {
    pub(in crate::join) pool: Name,
    pub(in crate::join) kind: AttestKind,
    document: AttestRule,
    /// Certificates that are believed; `None` when the rule has none, or none that this version can read.
    pub(super) roots: Option<Roots>,
    /// Keys that are believed, alike.
    pub(super) keys: Option<KeySet>,
}

/// The rules of the pools in force. What cannot be read believes nobody.
pub(in crate::join) fn rules(pools: &[PoolDocument]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for pool in pools {
        for (kind, rule) in &pool.attest {
            let Ok(kind) = kind.parse() else { continue };
            let document = rule.value.clone();
            let roots = document.roots.as_ref().and_then(|roots| Roots::from_pem(roots).ok());
            let keys = document.keys.as_ref().and_then(|keys| KeySet::from_json(keys).ok());
            if (document.roots.is_some() && roots.is_none()) || (document.keys.is_some() && keys.is_none()) {
                tracing::warn!(pool = %pool.name, %kind, "the pool believes certificates or keys that cannot be read: nobody comes in by them");
            }
            rules.push(Rule { pool: pool.name.clone(), kind, document, roots, keys });
        }
    }
    rules
}

impl Rule {
    /// Whether every machine of the pool has to show this.
    pub(in crate::join) fn is_required(&self) -> bool {
        self.document.is_required()
    }

    /// Whether the rule says who has to stand behind an identity.
    const fn asks_for_endorsement(&self) -> bool {
        self.document.roots.is_some() || self.document.keys.is_some()
    }

    /// How somebody with these names stands to the rule.
    pub(super) fn stand<'n>(&self, names: impl IntoIterator<Item = &'n str>, endorsed: bool) -> Stand {
        Stand {
            pool: self.pool.clone(),
            endorsed,
            named: self.document.names(names),
            // Who asks nobody and names nobody is content with a document that does.
            open: self.document.only.is_empty() && self.asks_for_endorsement(),
        }
    }
}

/// A key that is its own name: it is proven already, and each rule asks who stands behind it. A certificate that some pool
/// would take, were it still valid, is refused for that.
pub(super) fn stands(proof: &Proof, rules: &[Rule], now: Timestamp) -> Result<Testimony, Refusal> {
    let kind = proof.attested.kind;
    let mut expired = None;
    let stands = rules.iter().filter(|rule| rule.kind == kind).map(|rule| {
        let endorsed = match &rule.roots {
            Some(roots) => proof.endorsed(roots, now),
            // A certificate says itself what its names are.
            None if rule.asks_for_endorsement() || kind == AttestKind::X509 => Err(Refusal::Untrusted(kind)),
            None => Ok(()),
        };
        if endorsed == Err(Refusal::Expired(kind)) {
            expired = Some(Refusal::Expired(kind));
        }
        rule.stand(proof.all_names(), endorsed.is_ok())
    });
    let stands: Vec<Stand> = stands.collect();
    match expired {
        Some(expired) if !stands.iter().any(|stand| stand.endorsed) => Err(expired),
        _ => Ok(Testimony::Identity { attested: proof.attested.clone(), about: proof.about.clone(), stands }),
    }
}

/// A document that proves something only by the keys of some rule.
pub(super) fn by_rules(
    kind: AttestKind,
    rules: &[Rule],
    prove: impl Fn(&Rule) -> Result<Proof, Refusal>,
) -> Result<Testimony, Refusal> {
    let tried: Vec<(&Rule, Result<Proof, Refusal>)> =
        rules.iter().filter(|rule| rule.kind == kind).map(|rule| (rule, prove(rule))).collect();
    let Some(proof) = tried.iter().find_map(|(_, tried)| tried.as_ref().ok()) else {
        // That it is somebody's, and wrong, says more than that it is nobody's.
        let refusals = tried.iter().filter_map(|(_, tried)| tried.as_ref().err().copied());
        let telling = refusals.into_iter().find(|refusal| *refusal != Refusal::Untrusted(kind));
        return Err(telling.unwrap_or(Refusal::Untrusted(kind)));
    };
    let stands = tried.iter().map(|(rule, tried)| rule.stand(proof.all_names(), tried.is_ok())).collect();
    Ok(Testimony::Identity { attested: proof.attested.clone(), about: proof.about.clone(), stands })
}
