//! One key out of an exported block: the primary key or a subkey, by its fingerprint.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

use super::{ED25519, EDDSA_LEGACY, RSA, packet};
use crate::trust::{
    armor::{self, Dress},
    key::{KeyRefusal, Material, TrustKey, Wrapping},
    wire::Reader,
};

/// The object identifier of Ed25519 in keys of version 4, behind its length.
const ED25519_OID: &[u8] = &[9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];
/// Keys of a block that are looked at.
const MOST_KEYS: usize = 64;

/// Picks the key with a fingerprint; spaces in it are for people.
pub(in crate::trust) fn pick(block: &str, fingerprint: &str) -> Result<TrustKey, KeyRefusal> {
    let digits: String = fingerprint.chars().filter(|letter| *letter != ' ').collect();
    let wanted = hex::decode(digits).map_err(|_| KeyRefusal::Fingerprint(Vec::new()))?;
    let bytes = armor::open(block, "PGP PUBLIC KEY BLOCK", Dress::OpenPgp).map_err(KeyRefusal::Armor)?;
    let mut rest = Reader(&bytes);
    let mut seen = Vec::new();
    while !rest.0.is_empty() {
        let (tag, body) = packet::next(&mut rest)?;
        if !matches!(tag, packet::PUBLIC_KEY | packet::PUBLIC_SUBKEY) || seen.len() >= MOST_KEYS {
            continue;
        }
        let found = name(body)?;
        if found == wanted {
            return Ok(TrustKey { material: material(body)?, wrapping: Wrapping::OpenPgp { fingerprint: found } });
        }
        seen.push(hex::encode_upper(found));
    }
    Err(KeyRefusal::Fingerprint(seen))
}

/// The fingerprint of a key packet.
fn name(body: &[u8]) -> Result<Vec<u8>, KeyRefusal> {
    let version = *body.first().ok_or(KeyRefusal::Malformed)?;
    let head = match version {
        4 => {
            let length = u16::try_from(body.len()).map_err(|_| KeyRefusal::Malformed)?;
            [&[0x99][..], &length.to_be_bytes()].concat()
        }
        6 => {
            let length = u32::try_from(body.len()).map_err(|_| KeyRefusal::Malformed)?;
            [&[0x9b][..], &length.to_be_bytes()].concat()
        }
        other => return Err(KeyRefusal::Version(other)),
    };
    // The fingerprint of version 4 is SHA-1 by its definition. It only finds the key: what counts are the key's bytes.
    let algorithm = if version == 4 { &SHA1_FOR_LEGACY_USE_ONLY } else { &SHA256 };
    Ok(digest(algorithm, &[&head, body].concat()).as_ref().to_vec())
}

fn material(body: &[u8]) -> Result<Material, KeyRefusal> {
    let mut rest = Reader(body);
    let version = rest.byte()?;
    rest.u32()?;
    let algorithm = rest.byte()?;
    if version == 6 && usize::try_from(rest.u32()?) != Ok(rest.0.len()) {
        return Err(KeyRefusal::Malformed);
    }
    let material = match algorithm {
        RSA => {
            let modulus = rest.mpi()?;
            Material::rsa(modulus, rest.mpi()?)?
        }
        EDDSA_LEGACY if version == 4 => {
            if rest.take(ED25519_OID.len())? != ED25519_OID {
                return Err(KeyRefusal::Kind("an OpenPGP key over another curve".to_owned()));
            }
            // 0x40 says that the point is written as its native bytes.
            let [0x40, point @ ..] = rest.mpi()? else { return Err(KeyRefusal::Malformed) };
            Material::Ed25519(Material::ed25519(point.try_into().map_err(|_| KeyRefusal::Malformed)?)?)
        }
        ED25519 => Material::Ed25519(Material::ed25519(rest.array()?)?),
        other => return Err(KeyRefusal::Kind(format!("OpenPGP algorithm {other}"))),
    };
    rest.end()?;
    Ok(material)
}
