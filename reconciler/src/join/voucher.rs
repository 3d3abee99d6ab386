//! What the attestors say of a machine, weighed: that it may come in, where to, and as whom it is known. Who it becomes is
//! decided afterwards and alike for all.

use std::collections::BTreeSet;

use pki::attest::Refusal;
use schema::{
    attested::{AttestKind, Attested},
    id::JoinTokenId,
    name::Name,
};

use super::{
    JoinRefusal,
    attest::{Rule, Stand, Testimony},
    decide::Vouched,
    refusal::{Backed, Stranger},
    rules::Expect,
};

/// A machine for which somebody spoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Voucher {
    /// The token to use up.
    pub(super) token: Option<JoinTokenId>,
    /// What it has to show besides.
    pub(super) expect: Expect,
    /// It may take back a node that has its hardware.
    pub(super) reclaim: bool,
    /// The kinds of commands that it accepts; `None` for every kind.
    pub(super) kinds: Option<Vec<String>>,
    /// Who vouches, for the audit.
    pub(super) by: String,
    /// What it proved, and how that stands to the pools.
    identities: Vec<(Attested, Vec<Stand>)>,
    /// What these say about themselves, in the same order.
    about: Vec<Option<String>>,
    /// The pool of the token.
    token_pool: Option<Name>,
    /// The pools that let it in by what it proved.
    pools: BTreeSet<Name>,
}

impl Voucher {
    /// Weighs what was heard.
    ///
    /// # Errors
    /// When nothing was.
    pub(super) fn weigh(heard: Vec<Testimony>) -> Result<Self, JoinRefusal> {
        if heard.is_empty() {
            return Err(JoinRefusal::NoToken);
        }
        let mut voucher = Self {
            token: None,
            expect: Expect::default(),
            reclaim: false,
            kinds: None,
            by: String::new(),
            identities: Vec::new(),
            about: Vec::new(),
            token_pool: None,
            pools: BTreeSet::new(),
        };
        let mut by = Vec::new();
        for testimony in heard {
            match testimony {
                Testimony::Token { id, pool, expect, reclaim, kinds, by: whose } => {
                    voucher = Self { token: Some(id), token_pool: Some(pool), expect, reclaim, kinds, ..voucher };
                    by.push(whose);
                }
                Testimony::Identity { attested, about, stands } => {
                    voucher.about.push(about);
                    by.push(attested.to_string());
                    let admitting = stands.iter().filter(|stand| stand.admits(attested.kind));
                    voucher.pools.extend(admitting.map(|stand| stand.pool.clone()));
                    voucher.identities.push((attested, stands));
                }
            }
        }
        Ok(Self { by: by.join(", "), ..voucher })
    }

    /// Everything that the machine proved to be.
    pub(super) fn attested(&self) -> Vec<Attested> {
        self.identities.iter().map(|(attested, _)| attested.clone()).collect()
    }

    fn strangers(&self) -> Vec<Stranger> {
        let stranger = |((attested, stands), about): (&(Attested, Vec<Stand>), &Option<String>)| {
            let endorsed: Vec<Name> =
                stands.iter().filter(|stand| stand.endorsed).map(|stand| stand.pool.clone()).collect();
            let backed = match (stands.is_empty(), endorsed.is_empty()) {
                (true, _) => Backed::Unasked,
                (false, true) => Backed::ByNobody,
                (false, false) => Backed::In(endorsed),
            };
            Stranger { attested: attested.clone(), about: about.clone(), backed }
        };
        self.identities.iter().zip(&self.about).map(stranger).collect()
    }

    /// What lets it in whatever documents say.
    pub(super) fn vouched(&self) -> Vouched<'_> {
        match &self.token_pool {
            Some(pool) => Vouched::Token { pool, expects: !self.expect.is_empty() },
            None => Vouched::Pools(&self.pools),
        }
    }

    /// The pool that it joins when no document says otherwise.
    ///
    /// # Errors
    /// When nobody says one, or not all the same.
    pub(super) fn pool(&self) -> Result<Name, JoinRefusal> {
        let disagree = |token: Option<&Name>| {
            Err(JoinRefusal::Disagree {
                token: token.cloned(),
                document: None,
                pools: self.pools.iter().cloned().collect(),
            })
        };
        match (&self.token_pool, self.pools.first()) {
            (None, None) => Err(JoinRefusal::AttestationUnknown(self.strangers())),
            (None, Some(_)) if self.pools.len() > 1 => disagree(None),
            (None, Some(pool)) => Ok(pool.clone()),
            (Some(pool), Some(_)) if !self.pools.contains(pool) => disagree(Some(pool)),
            (Some(pool), _) => Ok(pool.clone()),
        }
    }

    /// Whether one of these identities, which its document names, is proven in a way that counts in the document's pool. A key
    /// is its own name; what a cloud says counts by the keys of that pool and of no other.
    ///
    /// # Errors
    /// When none of them is.
    pub(super) fn believed(&self, named: &[Attested], pool: &Name) -> Result<(), JoinRefusal> {
        let mut refusal = Ok(());
        for (attested, stands) in self.identities.iter().filter(|(attested, _)| named.contains(attested)) {
            let is_key = matches!(attested.kind, AttestKind::X509 | AttestKind::Tpm);
            if is_key || stands.iter().any(|stand| stand.endorsed && stand.pool == *pool) {
                return Ok(());
            }
            refusal = Err(Refusal::Untrusted(attested.kind).into());
        }
        refusal
    }

    /// Whether it showed what a pool asks of everybody; `named` are the identities that its document names.
    pub(super) fn satisfies(&self, rule: &Rule, named: &[Attested]) -> bool {
        self.identities.iter().filter(|(attested, _)| attested.kind == rule.kind).any(|(attested, stands)| {
            let mut stands = stands.iter().filter(|stand| stand.pool == rule.pool);
            stands.any(|stand| stand.satisfies(named.contains(attested)))
        })
    }
}
