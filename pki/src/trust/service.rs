//! The keys of a control plane as a service of the trust policy: it proposes batches with them, and proves that it holds them.
//! Whatever they sign, no person said it.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use schema::{fleet::trust::PrincipalKind, name::Name, time::Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    commit::{Commit, Malformed, hidden},
    key::TrustKey,
    object::ObjectId,
    policy::{KeyState, Policy, Principal},
    ssh,
};
use crate::{
    Realm,
    checkpoint::{Seal, asked_secret},
    encoding::Secret,
    provider::random,
    signed::Purpose,
};

/// Two at most: while a policy goes from one key to the next, both are there.
const MOST: usize = 2;

/// The keys that a control plane has as a service, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServiceKeys(Vec<Secret>);

/// One of them.
#[derive(Debug)]
pub struct ServiceKey(Ed25519KeyPair);

/// A commit that is to be signed.
#[derive(Debug, Clone, Copy)]
pub struct Unsigned<'a> {
    /// Its files.
    pub tree: ObjectId,
    /// The commit that it follows.
    pub parent: ObjectId,
    /// A name and a mail address, for show.
    pub by: &'a str,
    /// When it is made, for show.
    pub at: Timestamp,
    /// Its message; what is not seen of it is left out.
    pub message: &'a str,
}

impl ServiceKeys {
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes another key, which becomes the newest. Of those before, the one after it stays.
    pub(crate) fn add(&mut self) {
        self.0.insert(0, Secret(random::<32>().to_vec()));
        self.0.truncate(MOST);
    }

    pub(crate) fn is_sound(&self) -> bool {
        self.0.iter().all(|seed| Ed25519KeyPair::from_seed_unchecked(&seed.0).is_ok())
    }

    /// Each of them, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = ServiceKey> {
        self.0.iter().map(|seed| ServiceKey(Ed25519KeyPair::from_seed_unchecked(&seed.0).expect("32 bytes are a seed")))
    }

    /// The newest one with which a policy lets a service sign, and which service that is. Those in `revoked`, by name, sign nothing.
    #[must_use]
    pub fn under<'p>(
        &self,
        policy: &'p Policy,
        revoked: &BTreeSet<String>,
    ) -> Option<(ServiceKey, &'p Name, &'p Principal)> {
        self.iter().find_map(|own| {
            let key = own.public();
            let (name, holder) = policy.holder(&key)?;
            let signs = holder.kind == PrincipalKind::Service
                && policy.state(&key) == KeyState::Good
                && !revoked.contains(&key.name());
            signs.then_some((own, name, holder))
        })
    }

    /// Marks what a caller asks to be proposed, so that nothing is signed because of a row alone; `None` when there are no keys.
    #[must_use]
    pub fn seal(&self, realm: Realm) -> Option<Seal> {
        let secrets: Vec<Secret> = self.0.iter().map(asked_secret).collect();
        (!secrets.is_empty()).then(|| Seal::new(realm, Purpose::AskedProposal, &secrets))
    }
}

impl ServiceKey {
    /// Its public half.
    #[must_use]
    pub fn public(&self) -> TrustKey {
        TrustKey::from_ssh(&self.line()).expect("a key that was made here is admitted")
    }

    /// Its public half as a policy lists it.
    #[must_use]
    pub fn line(&self) -> String {
        format!("ssh-ed25519 {} better-compute", STANDARD.encode(ssh::blob(&self.0)))
    }

    /// A commit with its signature.
    ///
    /// # Errors
    /// When it would not be read as the one that was meant, such as for a name that is none.
    pub fn commit(&self, unsigned: &Unsigned<'_>) -> Result<Vec<u8>, Malformed> {
        let Unsigned { tree, parent, by, at, message } = unsigned;
        let when = format!("{} +0000", at.as_second());
        let head = format!("tree {tree}\nparent {parent}\nauthor {by} {when}\ncommitter {by} {when}\n");
        let message: String = message.chars().filter(|letter| !hidden(*letter)).collect();
        let armour = ssh::sign(&self.0, format!("{head}\n{message}").as_bytes());
        let header = tree.format().signature_header();
        let raw = format!("{head}{header} {}\n\n{message}", armour.trim_end().replace('\n', "\n ")).into_bytes();
        let read = Commit::split(tree.format(), &raw)?;
        debug_assert_eq!(
            (read.tree(), read.parents(), read.message()),
            (*tree, [*parent].as_slice(), message.as_str())
        );
        Ok(raw)
    }
}
