//! The attestors: what may vouch for a machine, behind one trait.
//!
//! ```text
//!  request ─▶ opened, rows read ─▶ Case ─▶ token │ x509 │ tpm │ aws │ gcp │ azure ─▶ Testimony … ─▶ Voucher
//! ```
//!
//! Each attestor looks at the part of a request that is its own and says nothing when there is none. What one finds wrong
//! ends the join: evidence that is shown and not good is no reason to look away. They are pure; everything that they need
//! was read before.

use pki::attest::Binding;
use schema::{
    attested::{AttestKind, Attested},
    id::JoinTokenId,
    name::Name,
    time::Timestamp,
};

use super::{JoinRefusal, rules::Expect};

mod cloud;
mod evidence;
mod rule;
mod token;
mod tpm;
mod x509;

#[cfg(test)]
mod tests;

pub(super) use evidence::{Evidence, keys_of};
pub(super) use rule::{Rule, rules};
pub(super) use token::Shown;

/// What is known of a machine's request before anybody vouches for it.
#[derive(Debug)]
pub(super) struct Case<'a> {
    /// The request that evidence has to be made for.
    pub(super) binding: Binding<'a>,
    /// Its token, with what is stored of it.
    pub(super) token: Option<&'a Shown>,
    /// Its evidence.
    pub(super) evidence: &'a Evidence,
    /// What the pools say, in the order of their names.
    pub(super) rules: &'a [Rule],
    /// The time.
    pub(super) now: Timestamp,
}

/// What an attestor says of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Testimony {
    /// It has a token.
    Token {
        /// Which.
        id: JoinTokenId,
        /// The pool that the token is for.
        pool: Name,
        /// What the machine has to show besides.
        expect: Expect,
        /// It may take back a node that has its hardware.
        reclaim: bool,
        /// The kinds of commands that the machine accepts; `None` for every kind.
        kinds: Option<Vec<String>>,
        /// Who made it.
        by: String,
    },
    /// It proved an identity.
    Identity {
        /// Who it is.
        attested: Attested,
        /// What it says about itself.
        about: Option<String>,
        /// How it stands to the rules of its kind, one each.
        stands: Vec<Stand>,
    },
}

/// How a proven identity stands to one pool's rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stand {
    /// The pool.
    pub(super) pool: Name,
    /// Somebody who is believed there stands behind it.
    pub(super) endorsed: bool,
    /// The rule names it.
    pub(super) named: bool,
    /// The rule takes everybody whom somebody believed there stands behind.
    pub(super) open: bool,
}

impl Stand {
    /// Whether this alone lets the machine into the pool.
    pub(super) const fn admits(&self, kind: AttestKind) -> bool {
        // Who issues certificates says who gets one. A maker of TPMs and a cloud sell to anybody.
        self.endorsed && (self.named || self.open && matches!(kind, AttestKind::X509))
    }

    /// Whether this is what the pool wants to see of everybody. A document that names the identity stands for a name here.
    pub(super) const fn satisfies(&self, by_document: bool) -> bool {
        self.endorsed && (self.named || self.open || by_document)
    }
}

/// One way to vouch for a machine.
pub(super) trait Attestor: Sync {
    /// What it says of a machine; `None` when the request has nothing for it.
    fn attest(&self, case: &Case<'_>) -> Result<Option<Testimony>, JoinRefusal>;
}

/// Every attestor.
const ATTESTORS: [&dyn Attestor; 6] = [&token::Token, &x509::X509, &tpm::Tpm, &cloud::Aws, &cloud::Gcp, &cloud::Azure];

/// Hears them all.
///
/// # Errors
/// With what the first one found wrong.
pub(super) fn hear(case: &Case<'_>) -> Result<Vec<Testimony>, JoinRefusal> {
    let heard = ATTESTORS.into_iter().map(|attestor| attestor.attest(case));
    heard.filter_map(Result::transpose).collect()
}
