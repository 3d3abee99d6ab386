//! Who a machine becomes, or why not: a pure function of what it claims and what the documents say.

use std::collections::{BTreeSet, HashSet};

use pki::hardware::{HardwareKey, IdentifierKind, JoinClaims, plain_serial};
use schema::{
    attested::Attested,
    digest::Digest,
    fleet::{Node as NodeDocument, kind::Admission},
    name::Name,
};

use super::JoinRefusal;

/// A machine at the door, for which somebody spoke.
#[derive(Debug)]
pub struct Knock<'a> {
    /// What it says about itself.
    pub claims: &'a JoinClaims,
    /// The key that follows from the claims.
    pub key: &'a HardwareKey,
    /// It is described by a file and not real.
    pub described: bool,
    /// The pool that it gets when no document says otherwise, or why it gets none.
    pub pool: Result<Name, JoinRefusal>,
    /// What lets it in whatever documents say.
    pub vouched: Vouched<'a>,
    /// What it proved to be.
    pub attested: &'a [Attested],
    /// The digest of its request, for the name of a machine that has nothing else.
    pub request: Digest,
    /// A person let it through although nothing describes it.
    pub approved: bool,
}

/// What lets a machine in whatever documents say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vouched<'a> {
    /// A token, which may say which machines it expects. One that does not lets in nobody whom a document puts elsewhere.
    Token {
        /// The pool that it is for.
        pool: &'a Name,
        /// It says what the machine must show.
        expects: bool,
    },
    /// The rules of these pools, by what it proved. When there are none, a document has to name that.
    Pools(&'a BTreeSet<Name>),
}

/// What the house says.
#[derive(Debug)]
pub struct House<'a> {
    /// Described machines are admitted.
    pub dev: bool,
    /// Whether a machine without a document may join.
    pub admission: Admission,
    /// Every `node` document in force.
    pub documents: &'a [NodeDocument],
}

/// What a machine becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place<'a> {
    /// Its name.
    pub name: Name,
    /// Its pool.
    pub pool: Name,
    /// The document that describes it.
    pub document: Option<&'a NodeDocument>,
}

/// Decides.
///
/// # Errors
/// With the reason against the machine.
pub fn decide<'a>(knock: &Knock<'_>, house: &House<'a>) -> Result<Place<'a>, JoinRefusal> {
    if knock.described && !house.dev {
        return Err(JoinRefusal::Described);
    }
    if !knock.key.trusted && !knock.claims.unreadable.is_empty() {
        return Err(JoinRefusal::Unreadable(knock.claims.unreadable.clone()));
    }
    let macs = knock.claims.nics.iter().filter_map(|nic| nic.mac.as_deref()).map(str::to_ascii_lowercase).collect();
    let mut matching = house.documents.iter().filter(|document| describes(document, knock, &macs));
    let document = matching.next();
    if let (Some(first), Some(second)) = (document, matching.next()) {
        let all = [first, second].into_iter().chain(matching);
        return Err(JoinRefusal::AmbiguousDocument(all.map(|document| document.name.clone()).collect()));
    }
    if let Some(document) = document {
        let pool = document.pool.as_ref().map_or_else(|| knock.pool.clone(), |pool| Ok(pool.value.clone()))?;
        return match knock.vouched {
            Vouched::Token { pool: token, expects: false } if document.attested.is_empty() && *token != pool => {
                Err(JoinRefusal::TokenOtherPool { token: token.clone(), node: document.name.clone(), pool })
            }
            Vouched::Pools(pools) if document.attested.is_empty() && !pools.contains(&pool) => {
                Err(JoinRefusal::Disagree { token: None, document: Some(pool), pools: pools.iter().cloned().collect() })
            }
            _ => Ok(Place { name: document.name.clone(), pool, document: Some(document) }),
        };
    }
    let pool = knock.pool.clone()?;
    if house.admission == Admission::Strict && !knock.approved {
        return Err(JoinRefusal::NeedsDocument);
    }
    if !knock.key.trusted && !knock.approved && knock.attested.is_empty() {
        return Err(JoinRefusal::WeakHardware);
    }
    // Of machines with a weak key several may have the same one.
    let other = || {
        let attested = knock.attested.first().map(|attested| Digest::of(attested.to_string()));
        short_of(&attested.unwrap_or(knock.request))
    };
    let short = knock.key.short().filter(|_| knock.key.trusted).unwrap_or_else(other);
    Ok(Place { name: undeclared_name(&pool, &short), pool, document: None })
}

/// Whether a document means this machine. The strongest that the document names decides alone: what the machine proves, else
/// the strongest of what it only says. So one with the right serial and a new network card is the same machine, and one with
/// only the right network card is not.
fn describes(document: &NodeDocument, knock: &Knock<'_>, macs: &HashSet<String>) -> bool {
    let Knock { claims, key, attested, .. } = knock;
    if !document.attested.is_empty() {
        return document.attested.iter().any(|wanted| attested.contains(&wanted.value));
    }
    // Serial numbers are written on machines: whoever reads them is nobody for that.
    if matches!(knock.vouched, Vouched::Pools(pools) if pools.is_empty()) {
        return false;
    }
    let is = |wanted: &str, found: &Option<String>| {
        let wanted = plain_serial(wanted);
        wanted.is_some() && wanted == found.as_deref().and_then(plain_serial)
    };
    if let Some(serial) = &document.serial {
        // The enclosure of a blade is not the blade, and did not survive.
        let chassis = key.survivors.get(&IdentifierKind::ChassisSerial).cloned();
        return is(serial, &claims.dmi.serial) || is(serial, &chassis);
    }
    if let Some(serial) = &document.board_serial {
        return is(serial, &claims.dmi.board_serial);
    }
    document.mac.iter().any(|wanted| macs.contains(&wanted.value.to_ascii_lowercase()))
}

fn short_of(request: &Digest) -> String {
    request.as_bytes().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn undeclared_name(pool: &Name, short: &str) -> Name {
    const LONGEST: usize = 63;
    let room = LONGEST - 1 - short.len();
    let head = pool.as_str().get(..room.min(pool.as_str().len())).unwrap_or_default().trim_end_matches('-');
    Name::new(format!("{head}-{short}")).expect("a shortened name and hexadecimal digits are a name")
}

#[cfg(test)]
mod tests;
