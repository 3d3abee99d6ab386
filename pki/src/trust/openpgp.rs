//! Detached OpenPGP signatures, as `gpg` makes them for git: one packet, over a document's bytes, by a key of the policy.
//!
//! This is no OpenPGP library and wants to be none. There is no key ring and no web of trust: the policy pins the very key
//! that signs, and its block is judged once, when the policy is read. What is left of the format is a packet with a few
//! fields, read strictly: SHA-256 or better, no critical part that is not understood, nothing in the part that no signature
//! covers but the issuer, made while its key lives.

pub(super) mod certificate;
mod key;
mod packet;
#[cfg(test)]
mod tests;

use aws_lc_rs::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

use self::packet::{Fault, Fields, Subpacket};
use super::{
    armor::{self, Dress},
    key::{Life, Material, RsaHash, TrustKey, Wrapping},
    signature::SignatureRefusal,
    wire::{Reader, Short, padded},
};

/// A signature over the bytes of a document.
const BINARY: u8 = 0x00;
const RSA: u8 = 1;
const EDDSA_LEGACY: u8 = 22;
const ED25519: u8 = 27;

/// A signature of a document.
struct Signature<'a> {
    fields: Fields<'a>,
    hash: Hash,
    issuer: Issuer,
    /// When its signer says that it was made.
    created: u32,
}

#[derive(Clone, Copy)]
struct Hash {
    id: u8,
    algorithm: &'static Algorithm,
    rsa: RsaHash,
    salt: usize,
}

const HASHES: [Hash; 3] = [
    Hash { id: 8, algorithm: &SHA256, rsa: RsaHash::Sha256, salt: 16 },
    Hash { id: 9, algorithm: &SHA384, rsa: RsaHash::Sha384, salt: 24 },
    Hash { id: 10, algorithm: &SHA512, rsa: RsaHash::Sha512, salt: 32 },
];

impl Hash {
    /// A hash that is strong enough, by its number.
    fn strong(number: u8) -> Result<Self, String> {
        HASHES.into_iter().find(|known| known.id == number).ok_or_else(|| match number {
            1 => "MD5".to_owned(),
            2 => "SHA-1".to_owned(),
            other => format!("number {other}"),
        })
    }
}

/// Which key a signature names. Both are hints that have to be true.
#[derive(Debug, Default)]
struct Issuer {
    fingerprint: Option<Vec<u8>>,
    id: Option<[u8; 8]>,
}

impl Issuer {
    fn is(&self, fingerprint: &[u8]) -> bool {
        let id = if fingerprint.len() == 20 { fingerprint.get(12..) } else { fingerprint.get(..8) };
        self.fingerprint.as_ref().is_none_or(|named| named == fingerprint)
            && self.id.is_none_or(|named| id == Some(&named[..]))
    }

    fn name(&self) -> String {
        match (&self.fingerprint, self.id) {
            (Some(fingerprint), _) => hex::encode_upper(fingerprint),
            (None, Some(id)) => hex::encode_upper(id),
            (None, None) => "without a name".to_owned(),
        }
    }
}

pub(super) fn signer<'k>(
    armour: &str,
    payload: &[u8],
    keys: impl IntoIterator<Item = &'k TrustKey>,
) -> Result<&'k TrustKey, SignatureRefusal> {
    let bytes = armor::open(armour, "PGP SIGNATURE", Dress::OpenPgp).map_err(SignatureRefusal::Armor)?;
    let signature = parse(&bytes)?;
    if signature.fields.kind != BINARY {
        return Err(SignatureRefusal::Type(signature.fields.kind));
    }
    let named = |key: &&TrustKey| match &key.wrapping {
        Wrapping::OpenPgp { fingerprint } => signature.issuer.is(fingerprint),
        Wrapping::Ssh => false,
    };
    let key = keys.into_iter().find(named).ok_or_else(|| SignatureRefusal::UnknownKey(signature.issuer.name()))?;
    if !verifies(&signature.fields, signature.hash, payload, &key.material)? {
        return Err(SignatureRefusal::Bad);
    }
    match key.life {
        Some(Life { from, .. }) if signature.created < from => Err(SignatureRefusal::BeforeKey),
        Some(Life { until: Some(until), .. }) if signature.created > until => Err(SignatureRefusal::KeyExpired),
        _ => Ok(key),
    }
}

fn parse(bytes: &[u8]) -> Result<Signature<'_>, SignatureRefusal> {
    let mut packets = Reader(bytes);
    let (tag, body) = packet::next(&mut packets)?;
    packets.end().map_err(|_| SignatureRefusal::Shape("it is not exactly one packet"))?;
    if tag != packet::SIGNATURE {
        return Err(SignatureRefusal::Shape("it is not a signature packet"));
    }
    let fields = Fields::read(body)?;
    if fields.version == 5 {
        return Err(Fault::Version.into());
    }
    let hash = Hash::strong(fields.hash).map_err(SignatureRefusal::Hash)?;
    let (issuer, created) = parts(&fields)?;
    Ok(Signature { fields, hash, issuer, created })
}

impl From<Fault> for SignatureRefusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Short => Short.into(),
            Fault::Version => Self::Shape("its version is neither 4 nor 6"),
            Fault::TooLarge => Self::Shape("one of its areas has more than 10000 octets"),
        }
    }
}

/// Looks at every part of both areas.
fn parts(fields: &Fields<'_>) -> Result<(Issuer, u32), SignatureRefusal> {
    let mut issuer = Issuer::default();
    for part in &fields.hashed {
        match part {
            Subpacket { kind: packet::CREATED, .. } => {}
            Subpacket { kind: packet::EXPIRES, .. } => {
                return Err(SignatureRefusal::Shape(
                    "it expires; what a policy says is judged by the order of commits",
                ));
            }
            part if issuer.takes(part, fields.version)? => {}
            Subpacket { critical: true, .. } => {
                return Err(SignatureRefusal::Shape("a critical part of it is not understood"));
            }
            _ => {}
        }
    }
    let created = fields.created().ok_or(SignatureRefusal::Shape("it does not say once when it was made"))?;
    for part in &fields.unhashed {
        if !issuer.takes(part, fields.version)? {
            return Err(SignatureRefusal::Shape("it has more than the issuer in the part that nothing protects"));
        }
    }
    if issuer.fingerprint.is_none() && issuer.id.is_none() {
        return Err(SignatureRefusal::Shape("it does not say whose it is"));
    }
    Ok((issuer, created))
}

impl Issuer {
    /// Takes a part that names the issuer; a second one of a kind is one too many.
    fn takes(&mut self, part: &Subpacket<'_>, version: u8) -> Result<bool, SignatureRefusal> {
        const TWICE: SignatureRefusal = SignatureRefusal::Shape("it names its issuer twice, or in another form");
        match part.kind {
            packet::ISSUER => {
                let id = part.body.try_into().map_err(|_| TWICE)?;
                if self.id.replace(id).is_some() { Err(TWICE) } else { Ok(true) }
            }
            packet::ISSUER_FINGERPRINT => {
                let length = if version == 6 { 32 } else { 20 };
                let [named, fingerprint @ ..] = part.body else { return Err(TWICE) };
                if *named != version || fingerprint.len() != length {
                    return Err(TWICE);
                }
                let first = self.fingerprint.replace(fingerprint.to_vec());
                if first.is_some() { Err(TWICE) } else { Ok(true) }
            }
            _ => Ok(false),
        }
    }
}

/// Whether a key made a signature over these bytes.
fn verifies(fields: &Fields<'_>, hash: Hash, signed: &[u8], key: &Material) -> Result<bool, SignatureRefusal> {
    if fields.version == 6 && fields.salt.len() != hash.salt {
        return Err(SignatureRefusal::Shape("its salt has another length than its hash asks for"));
    }
    let text = fields.text(signed);
    let hashed = digest(hash.algorithm, &text);
    if hashed.as_ref()[..2] != fields.left {
        return Ok(false);
    }
    let mut numbers = Reader(fields.numbers);
    match (fields.version, fields.algorithm, key) {
        (_, RSA, Material::Rsa(modulus)) => {
            let number = numbers.mpi()?;
            numbers.end()?;
            let mut signature = vec![0; modulus.len().saturating_sub(number.len())];
            signature.extend_from_slice(number);
            Ok(TrustKey::verify_rsa(modulus, hash.rsa, &text, &signature))
        }
        (4, EDDSA_LEGACY, Material::Ed25519(point)) => {
            let (r, s) = (numbers.mpi()?, numbers.mpi()?);
            numbers.end()?;
            let both = padded::<32>(r).zip(padded::<32>(s));
            let (r, s) = both.ok_or(SignatureRefusal::Shape("a number of it is too large"))?;
            Ok(TrustKey::verify_ed25519(point, hashed.as_ref(), &[r, s].concat()))
        }
        (6, ED25519, Material::Ed25519(point)) => {
            let signature: [u8; 64] = numbers.array()?;
            numbers.end()?;
            Ok(TrustKey::verify_ed25519(point, hashed.as_ref(), &signature))
        }
        (_, other, _) => Err(SignatureRefusal::Algorithm(format!("number {other}, which is not that of its key"))),
    }
}
