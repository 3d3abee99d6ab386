//! Detached OpenPGP signatures, as `gpg` makes them for git: one packet, over a document's bytes, by a key of the policy.
//!
//! This is no OpenPGP library and wants to be none. There is no key ring, no web of trust, no trust in dates, no binding of
//! subkeys: the policy pins the very key that signs. What is left of the format is a packet with a few fields, read
//! strictly: SHA-256 or better, no critical part that is not understood, nothing in the part that no signature covers but
//! the issuer.

pub(super) mod key;
mod packet;
#[cfg(test)]
mod tests;

use aws_lc_rs::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

use self::packet::{Subpacket, subpackets};
use super::{
    armor::{self, Dress},
    key::{Material, RsaHash, TrustKey, Wrapping},
    signature::SignatureRefusal,
    wire::{Reader, padded},
};

/// A signature over the bytes of a document.
const BINARY: u8 = 0x00;
const RSA: u8 = 1;
const EDDSA_LEGACY: u8 = 22;
const ED25519: u8 = 27;

/// A signature packet, taken apart.
struct Signature<'a> {
    kind: u8,
    algorithm: u8,
    hash: Hash,
    /// What is hashed behind the document.
    trailer: Vec<u8>,
    salt: &'a [u8],
    issuer: Issuer,
    /// The first two bytes of the hash, as the packet repeats them.
    left: [u8; 2],
    numbers: &'a [u8],
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
    if signature.kind != BINARY {
        return Err(SignatureRefusal::Type(signature.kind));
    }
    let named = |key: &&TrustKey| match &key.wrapping {
        Wrapping::OpenPgp { fingerprint } => signature.issuer.is(fingerprint),
        Wrapping::Ssh => false,
    };
    let key = keys.into_iter().find(named).ok_or_else(|| SignatureRefusal::UnknownKey(signature.issuer.name()))?;
    if signature.verify(payload, &key.material)? { Ok(key) } else { Err(SignatureRefusal::Bad) }
}

fn parse(bytes: &[u8]) -> Result<Signature<'_>, SignatureRefusal> {
    let mut packets = Reader(bytes);
    let (tag, body) = packet::next(&mut packets)?;
    packets.end().map_err(|_| SignatureRefusal::Shape("it is not exactly one packet"))?;
    if tag != packet::SIGNATURE {
        return Err(SignatureRefusal::Shape("it is not a signature packet"));
    }
    let mut rest = Reader(body);
    let version = rest.byte()?;
    if !matches!(version, 4 | 6) {
        return Err(SignatureRefusal::Shape("its version is neither 4 nor 6"));
    }
    let (kind, algorithm, hash) = (rest.byte()?, rest.byte()?, rest.byte()?);
    let hash = HASHES.into_iter().find(|known| known.id == hash).ok_or_else(|| {
        SignatureRefusal::Hash(match hash {
            1 => "MD5".to_owned(),
            2 => "SHA-1".to_owned(),
            other => format!("number {other}"),
        })
    })?;
    let area = |rest: &mut Reader<'_>| -> Result<usize, SignatureRefusal> {
        let length = if version == 6 { rest.u32()? } else { rest.u16()?.into() };
        usize::try_from(length).map_err(|_| SignatureRefusal::Shape("an area is too large"))
    };
    let length = area(&mut rest)?;
    let hashed = rest.take(length)?;
    let covered = &body[..body.len() - rest.0.len()];
    let length = area(&mut rest)?;
    let unhashed = rest.take(length)?;
    let left = rest.array()?;
    let salt = if version == 6 {
        let length = usize::from(rest.byte()?);
        if length != hash.salt {
            return Err(SignatureRefusal::Shape("its salt has another length than its hash asks for"));
        }
        rest.take(length)?
    } else {
        &[]
    };
    let issuer = issuer(hashed, unhashed, version)?;
    let mut trailer = covered.to_vec();
    trailer.extend_from_slice(&[version, 0xff]);
    let covered = u32::try_from(covered.len()).map_err(|_| SignatureRefusal::Shape("it is too large"))?;
    trailer.extend_from_slice(&covered.to_be_bytes());
    Ok(Signature { kind, algorithm, hash, trailer, salt, issuer, left, numbers: rest.0 })
}

/// Looks at every part of both areas.
fn issuer(hashed: &[u8], unhashed: &[u8], version: u8) -> Result<Issuer, SignatureRefusal> {
    let mut issuer = Issuer::default();
    let mut created = 0;
    for part in subpackets(hashed)? {
        match part {
            Subpacket { kind: packet::CREATED, body, .. } if body.len() == 4 => created += 1,
            Subpacket { kind: packet::EXPIRES, .. } => {
                return Err(SignatureRefusal::Shape(
                    "it expires; what a policy says is judged by the order of commits",
                ));
            }
            part if issuer.takes(&part, version)? => {}
            Subpacket { critical: true, .. } => {
                return Err(SignatureRefusal::Shape("a critical part of it is not understood"));
            }
            _ => {}
        }
    }
    if created != 1 {
        return Err(SignatureRefusal::Shape("it does not say once when it was made"));
    }
    for part in subpackets(unhashed)? {
        if !issuer.takes(&part, version)? {
            return Err(SignatureRefusal::Shape("it has more than the issuer in the part that nothing protects"));
        }
    }
    if issuer.fingerprint.is_none() && issuer.id.is_none() {
        return Err(SignatureRefusal::Shape("it does not say whose it is"));
    }
    Ok(issuer)
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

impl Signature<'_> {
    fn verify(&self, document: &[u8], key: &Material) -> Result<bool, SignatureRefusal> {
        let text = [self.salt, document, &self.trailer].concat();
        let hashed = digest(self.hash.algorithm, &text);
        if hashed.as_ref()[..2] != self.left {
            return Ok(false);
        }
        let mut numbers = Reader(self.numbers);
        match (self.algorithm, key) {
            (RSA, Material::Rsa(modulus)) => {
                let number = numbers.mpi()?;
                numbers.end()?;
                let mut signature = vec![0; modulus.len().saturating_sub(number.len())];
                signature.extend_from_slice(number);
                Ok(TrustKey::verify_rsa(modulus, self.hash.rsa, &text, &signature))
            }
            (EDDSA_LEGACY, Material::Ed25519(point)) => {
                let (r, s) = (numbers.mpi()?, numbers.mpi()?);
                numbers.end()?;
                let both = padded::<32>(r).zip(padded::<32>(s));
                let (r, s) = both.ok_or(SignatureRefusal::Shape("a number of it is too large"))?;
                Ok(TrustKey::verify_ed25519(point, hashed.as_ref(), &[r, s].concat()))
            }
            (ED25519, Material::Ed25519(point)) => {
                let signature: [u8; 64] = numbers.array()?;
                numbers.end()?;
                Ok(TrustKey::verify_ed25519(point, hashed.as_ref(), &signature))
            }
            (other, _) => Err(SignatureRefusal::Algorithm(format!("number {other}, which is not that of its key"))),
        }
    }
}
