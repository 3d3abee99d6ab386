//! Public areas of TPM keys, read as strictly as their use asks: two templates, and nothing beside them.

use schema::digest::Digest;

use super::{KIND, Refusal};
use crate::{
    attest::cms::{INTEGER, OID, RSA as RSA_KEY, SEQUENCE},
    csr::element,
};

const RSA: u16 = 0x0001;
const ECC: u16 = 0x0023;
const AES: u16 = 0x0006;
pub(super) const SHA256: u16 = 0x000b;
const NULL: u16 = 0x0010;
pub(super) const ECDSA: u16 = 0x0018;
const CFB: u16 = 0x0043;
const P256: u16 = 0x0003;

const FIXED_TPM: u32 = 1 << 1;
const FIXED_PARENT: u32 = 1 << 4;
const ORIGIN: u32 = 1 << 5;
const RESTRICTED: u32 = 1 << 16;
const DECRYPT: u32 = 1 << 17;
const SIGN: u32 = 1 << 18;

/// Bytes that are read from the front.
pub(super) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(super) const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'b [u8], Refusal> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(Refusal::Malformed(KIND))?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Refusal> {
        Ok(u16::from_be_bytes(self.take(2)?.try_into().expect("two bytes were taken")))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Refusal> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes were taken")))
    }

    /// A `TPM2B`: bytes behind their length.
    pub(super) fn sized(&mut self) -> Result<&'b [u8], Refusal> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    pub(super) const fn end(&self) -> Result<(), Refusal> {
        if self.0.is_empty() { Ok(()) } else { Err(Refusal::Malformed(KIND)) }
    }

    fn is(&mut self, wanted: &[u16]) -> Result<(), Refusal> {
        for wanted in wanted {
            if self.u16()? != *wanted {
                return Err(Refusal::Unsupported(KIND));
            }
        }
        Ok(())
    }

    fn coordinate(&mut self) -> Result<[u8; 32], Refusal> {
        coordinate(self.sized()?)
    }
}

/// A number of at most 32 bytes, with the zeros that a TPM may leave out.
pub(super) fn coordinate(bytes: &[u8]) -> Result<[u8; 32], Refusal> {
    let mut padded = [0; 32];
    let start = padded.len().checked_sub(bytes.len()).ok_or(Refusal::Malformed(KIND))?;
    padded[start..].copy_from_slice(bytes);
    Ok(padded)
}

/// The area in a `TPM2B_PUBLIC`, behind type, name algorithm, attributes and policy.
fn area(bytes: &[u8], wanted: u32) -> Result<(u16, Reader<'_>, &[u8]), Refusal> {
    let mut whole = Reader::new(bytes);
    let area = whole.sized()?;
    whole.end()?;
    let mut reader = Reader::new(area);
    let kind = reader.u16()?;
    reader.is(&[SHA256])?;
    let attributes = reader.u32()?;
    let purposes = RESTRICTED | DECRYPT | SIGN;
    // A key that is not bound to its TPM, or that does other things too, proves nothing.
    let bound = FIXED_TPM | FIXED_PARENT | ORIGIN;
    if attributes & bound != bound || attributes & purposes != wanted {
        return Err(Refusal::Unsupported(KIND));
    }
    reader.sized()?;
    Ok((kind, reader, area))
}

/// What an endorsement key encrypts with.
pub(super) enum Encryption {
    /// RSA with OAEP.
    Rsa,
    /// ECDH on P-256, with this point.
    P256 { x: [u8; 32], y: [u8; 32] },
}

/// A restricted decryption key that never leaves its TPM.
pub(super) struct EndorsementKey {
    pub(super) encryption: Encryption,
    /// Of the AES key that it protects with, in bits.
    pub(super) symmetric: u16,
    /// The key as `SubjectPublicKeyInfo`, DER.
    pub(super) spki: Vec<u8>,
}

impl EndorsementKey {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let (kind, mut reader, _) = area(bytes, RESTRICTED | DECRYPT)?;
        reader.is(&[AES])?;
        let symmetric = reader.u16()?;
        if symmetric != 128 && symmetric != 256 {
            return Err(Refusal::Unsupported(KIND));
        }
        reader.is(&[CFB, NULL])?;
        let (encryption, spki) = match kind {
            RSA => {
                let bits = reader.u16()?;
                let exponent = reader.u32()?;
                let modulus = reader.sized()?;
                let whole = usize::from(bits) == modulus.len() * 8 && modulus.first().is_some_and(|top| *top >= 0x80);
                if !whole || !(2048..=4096).contains(&bits) || !matches!(exponent, 0 | 65_537) {
                    return Err(Refusal::Unsupported(KIND));
                }
                (Encryption::Rsa, rsa_spki(modulus))
            }
            ECC => {
                reader.is(&[P256, NULL])?;
                let (x, y) = (reader.coordinate()?, reader.coordinate()?);
                (Encryption::P256 { x, y }, p256_spki(&x, &y))
            }
            _ => return Err(Refusal::Unsupported(KIND)),
        };
        reader.end()?;
        Ok(Self { encryption, symmetric, spki })
    }

    /// The digest by which the TPM is known.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(&self.spki)
    }
}

/// A restricted signing key on P-256 that never leaves its TPM.
pub(super) struct AttestationKey {
    /// The uncompressed point.
    pub(super) point: [u8; 65],
    /// The name by which the TPM knows it: algorithm and digest of its public area.
    pub(super) name: Vec<u8>,
}

impl AttestationKey {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let (kind, mut reader, area) = area(bytes, RESTRICTED | SIGN)?;
        if kind != ECC {
            return Err(Refusal::Unsupported(KIND));
        }
        reader.is(&[NULL, ECDSA, SHA256, P256, NULL])?;
        let (x, y) = (reader.coordinate()?, reader.coordinate()?);
        reader.end()?;
        let mut point = [4; 65];
        point[1..33].copy_from_slice(&x);
        point[33..].copy_from_slice(&y);
        let name = [&SHA256.to_be_bytes()[..], Digest::of(area).as_bytes()].concat();
        Ok(Self { point, name })
    }
}

fn rsa_spki(modulus: &[u8]) -> Vec<u8> {
    const NO_PARAMETERS: &[u8] = &[0x05, 0x00];
    let modulus = element(INTEGER, &[&[0], modulus].concat());
    let key = element(SEQUENCE, &[modulus, element(INTEGER, &[1, 0, 1])].concat());
    spki(&[&element(OID, RSA_KEY), NO_PARAMETERS].concat(), &key)
}

fn p256_spki(x: &[u8; 32], y: &[u8; 32]) -> Vec<u8> {
    const EC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    spki(&[element(OID, EC_KEY), element(OID, CURVE)].concat(), &[&[4], x.as_slice(), y].concat())
}

/// A key with its algorithm, as certificates hold it.
fn spki(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    const BITS: u8 = 0x03;
    let bits = element(BITS, &[&[0], key].concat());
    element(SEQUENCE, &[element(SEQUENCE, algorithm), bits].concat())
}
