//! One key packet: its fingerprint, when it was made, and its raw bytes.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

use super::{ED25519, EDDSA_LEGACY, RSA};
use crate::trust::{
    key::{KeyRefusal, Material},
    wire::Reader,
};

/// The object identifier of Ed25519 in keys of version 4, behind its length.
const ED25519_OID: &[u8] = &[9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];

/// A key packet whose version is known.
#[derive(Debug, Clone)]
pub(super) struct PublicKey<'a> {
    pub(super) version: u8,
    pub(super) created: u32,
    pub(super) fingerprint: Vec<u8>,
    body: &'a [u8],
}

impl<'a> PublicKey<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, KeyRefusal> {
        let mut rest = Reader(body);
        let version = rest.byte()?;
        // The fingerprint of version 4 is SHA-1 by its definition. It only finds the key: what counts are the key's bytes.
        let algorithm = match version {
            4 if u16::try_from(body.len()).is_ok() => &SHA1_FOR_LEGACY_USE_ONLY,
            6 if u32::try_from(body.len()).is_ok() => &SHA256,
            4 | 6 => return Err(KeyRefusal::Malformed),
            other => return Err(KeyRefusal::Version(other)),
        };
        let mut this = Self { version, created: rest.u32()?, fingerprint: Vec::new(), body };
        this.fingerprint = digest(algorithm, &this.framed()).as_ref().to_vec();
        Ok(this)
    }

    /// What is hashed wherever this key is signed.
    pub(super) fn framed(&self) -> Vec<u8> {
        let length = u32::try_from(self.body.len()).unwrap_or(u32::MAX).to_be_bytes();
        let head = if self.version == 4 { [&[0x99], &length[2..]].concat() } else { [&[0x9b], &length[..]].concat() };
        [&head, self.body].concat()
    }

    /// The short name of it.
    pub(super) fn id(&self) -> &[u8] {
        if self.version == 4 { &self.fingerprint[12..] } else { &self.fingerprint[..8] }
    }

    pub(super) fn material(&self) -> Result<Material, KeyRefusal> {
        let mut rest = Reader(self.body);
        // Its version and its time.
        rest.take(5)?;
        let algorithm = rest.byte()?;
        if self.version == 6 && usize::try_from(rest.u32()?) != Ok(rest.0.len()) {
            return Err(KeyRefusal::Malformed);
        }
        let material = match (self.version, algorithm) {
            (_, RSA) => {
                let modulus = rest.mpi()?;
                Material::rsa(modulus, rest.mpi()?)?
            }
            (4, EDDSA_LEGACY) => {
                if rest.take(ED25519_OID.len())? != ED25519_OID {
                    return Err(KeyRefusal::Kind("an OpenPGP key over another curve".to_owned()));
                }
                // 0x40 says that the point is written as its native bytes.
                let [0x40, point @ ..] = rest.mpi()? else { return Err(KeyRefusal::Malformed) };
                Material::Ed25519(Material::ed25519(point.try_into().map_err(|_| KeyRefusal::Malformed)?)?)
            }
            (6, ED25519) => Material::Ed25519(Material::ed25519(rest.array()?)?),
            (version, other) => {
                return Err(KeyRefusal::Kind(format!("OpenPGP algorithm {other} in a key of version {version}")));
            }
        };
        rest.end()?;
        Ok(material)
    }
}
