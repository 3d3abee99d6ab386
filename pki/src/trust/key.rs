//! Keys of people, services and forges: what is admitted, and what checks their signatures.
//!
//! A key is its algorithm and its raw bytes, however it was wrapped. Nothing is admitted that a signature can be forged
//! under without the secret: no point of small order, no second spelling of a point, no RSA exponent but 65537, no modulus
//! below 3072 bits, no certificate whose authority decides elsewhere.

mod refusal;
mod ssh_line;
#[cfg(test)]
mod tests;

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use schema::digest::Digest;

pub use self::refusal::{Flaw, KeyRefusal, Part};
use crate::signed::push_field;

/// A class of keys, for tiers that ask for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyClass {
    /// Ed25519 in a file or an agent, through SSH or OpenPGP.
    Ed25519,
    /// Ed25519 in a security key that was touched.
    SkEd25519,
    /// ECDSA over P-256.
    EcdsaP256,
    /// RSA of at least 3072 bits.
    Rsa,
}

impl KeyClass {
    /// The word in a policy.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::SkEd25519 => "sk-ed25519",
            Self::EcdsaP256 => "ecdsa-p256",
            Self::Rsa => "rsa",
        }
    }
}

/// The raw public key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Material {
    Ed25519([u8; 32]),
    SkEd25519 {
        point: [u8; 32],
        application: String,
    },
    /// `04 ‖ x ‖ y`.
    EcdsaP256([u8; 65]),
    /// The exponent is 65537.
    Rsa(Vec<u8>),
}

/// Through which program a key signs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Wrapping {
    Ssh,
    /// The fingerprint has 20 bytes in version 4 and 32 in version 6.
    OpenPgp {
        fingerprint: Vec<u8>,
    },
}

/// When a key lives, in seconds since 1970 as its owner wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) from: u32,
    /// The last second.
    pub(super) until: Option<u32>,
}

/// A key that was admitted.
#[derive(Clone)]
pub struct TrustKey {
    pub(super) material: Material,
    pub(super) wrapping: Wrapping,
    /// Of OpenPGP.
    pub(super) life: Option<Life>,
}

/// A key stays the same when its owner extends its life.
impl PartialEq for TrustKey {
    fn eq(&self, other: &Self) -> bool {
        (&self.material, &self.wrapping) == (&other.material, &other.wrapping)
    }
}

impl Eq for TrustKey {}

/// What stays the same however a key is wrapped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawKey(Vec<u8>);

const EXPONENT: [u8; 3] = [1, 0, 1];

/// The points of order 1, 2, 4 and 8 as their y coordinates; the sign bit is looked away from.
const SMALL_ORDER: [&str; 5] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
];

impl Material {
    /// A point of edwards25519 in its one encoding, of large order.
    pub(super) fn ed25519(point: [u8; 32]) -> Result<[u8; 32], KeyRefusal> {
        let mut y = point;
        y[31] &= 0x7f;
        // The field's prime is 2^255 - 19: what is not below it has a shorter spelling.
        if y[31] == 0x7f && y[1..31].iter().all(|byte| *byte == 0xff) && y[0] >= 0xed {
            return Err(KeyRefusal::NonCanonical);
        }
        if SMALL_ORDER.contains(&hex::encode(y).as_str()) {
            return Err(KeyRefusal::SmallOrder);
        }
        Ok(point)
    }

    /// A point of P-256 as 65 bytes.
    pub(super) fn p256(point: &[u8]) -> Result<Self, KeyRefusal> {
        let point: [u8; 65] = point.try_into().map_err(|_| KeyRefusal::NonCanonical)?;
        if point[0] != 4 {
            return Err(KeyRefusal::NonCanonical);
        }
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).map_err(|_| KeyRefusal::NotOnCurve)?;
        Ok(Self::EcdsaP256(point))
    }

    /// A modulus, without zeros in front, and the exponent.
    pub(super) fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<Self, KeyRefusal> {
        let leading = modulus.first().map_or(8, |first| first.leading_zeros() as usize);
        let bits = (modulus.len() * 8).saturating_sub(leading);
        if !(3072..=8192).contains(&bits) {
            return Err(KeyRefusal::ModulusSize(bits));
        }
        if modulus.last().is_none_or(|last| last % 2 == 0) {
            return Err(KeyRefusal::ModulusEven);
        }
        if exponent != EXPONENT {
            return Err(KeyRefusal::Exponent);
        }
        Ok(Self::Rsa(modulus.to_vec()))
    }
}

/// The hash under an RSA signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RsaHash {
    Sha256,
    Sha384,
    Sha512,
}

impl TrustKey {
    /// A key as `~/.ssh/id_ed25519.pub` has it: type, base64, and a comment that is not looked at.
    ///
    /// # Errors
    /// With the reason why it is not admitted.
    pub fn from_ssh(line: &str) -> Result<Self, KeyRefusal> {
        ssh_line::parse(line)
    }

    /// The key with a fingerprint in an armoured public key block, as `gpg --armor --export` writes it. The policy pins the
    /// key, and the block has to show that it is for signing, as `gpg` would judge it.
    ///
    /// # Errors
    /// With the reason why it is not admitted.
    pub fn from_openpgp(block: &str, fingerprint: &str) -> Result<Self, KeyRefusal> {
        super::openpgp::certificate::pick(block, fingerprint)
    }

    /// A key as SSH signatures carry it.
    pub(super) fn from_blob(blob: &[u8]) -> Result<Self, KeyRefusal> {
        ssh_line::blob(blob)
    }

    /// Its class.
    #[must_use]
    pub const fn class(&self) -> KeyClass {
        match self.material {
            Material::Ed25519(_) => KeyClass::Ed25519,
            Material::SkEd25519 { .. } => KeyClass::SkEd25519,
            Material::EcdsaP256(_) => KeyClass::EcdsaP256,
            Material::Rsa(_) => KeyClass::Rsa,
        }
    }

    /// What it is beneath its wrapping: the same secret stands behind equal ones.
    #[must_use]
    pub fn raw(&self) -> RawKey {
        let mut bytes = Vec::new();
        match &self.material {
            Material::Ed25519(point) | Material::SkEd25519 { point, .. } => {
                push_field(&mut bytes, b"edwards25519");
                push_field(&mut bytes, point);
            }
            Material::EcdsaP256(point) => {
                push_field(&mut bytes, b"p-256");
                push_field(&mut bytes, point);
            }
            Material::Rsa(modulus) => {
                push_field(&mut bytes, b"rsa");
                push_field(&mut bytes, modulus);
            }
        }
        RawKey(bytes)
    }

    /// The name by which people and statements call it: `SHA256:…` as `ssh-keygen -l` prints it, or the OpenPGP
    /// fingerprint in capitals.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.wrapping {
            Wrapping::Ssh => {
                let digest = Digest::of(self.blob());
                format!("SHA256:{}", STANDARD_NO_PAD.encode(digest.as_bytes()))
            }
            Wrapping::OpenPgp { fingerprint } => hex::encode_upper(fingerprint),
        }
    }

    /// The canonical fields of the key, for the digest of a policy.
    pub(super) fn fields(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_field(&mut bytes, self.class().as_str().as_bytes());
        push_field(&mut bytes, &self.raw().0);
        if let Material::SkEd25519 { application, .. } = &self.material {
            push_field(&mut bytes, application.as_bytes());
        }
        if let Wrapping::OpenPgp { fingerprint } = &self.wrapping {
            push_field(&mut bytes, fingerprint);
        }
        // When it was made is part of the fingerprint.
        if let Some(Life { until: Some(until), .. }) = self.life {
            push_field(&mut bytes, &until.to_be_bytes());
        }
        bytes
    }

    /// The key as SSH writes it.
    fn blob(&self) -> Vec<u8> {
        let mut blob = Vec::new();
        match &self.material {
            Material::Ed25519(point) => {
                push_field(&mut blob, b"ssh-ed25519");
                push_field(&mut blob, point);
            }
            Material::SkEd25519 { point, application } => {
                push_field(&mut blob, b"sk-ssh-ed25519@openssh.com");
                push_field(&mut blob, point);
                push_field(&mut blob, application.as_bytes());
            }
            Material::EcdsaP256(point) => {
                push_field(&mut blob, b"ecdsa-sha2-nistp256");
                push_field(&mut blob, b"nistp256");
                push_field(&mut blob, point);
            }
            Material::Rsa(modulus) => {
                push_field(&mut blob, b"ssh-rsa");
                push_field(&mut blob, &EXPONENT);
                let mut number = modulus.clone();
                if number.first().is_some_and(|first| *first >= 0x80) {
                    number.insert(0, 0);
                }
                push_field(&mut blob, &number);
            }
        }
        blob
    }

    /// Whether 64 bytes sign a text under an Edwards point.
    pub(super) fn verify_ed25519(point: &[u8; 32], text: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, point).verify(text, signature).is_ok()
    }

    /// Whether `r ‖ s` signs a text under a point of P-256.
    pub(super) fn verify_p256(point: &[u8; 65], text: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(text, signature).is_ok()
    }

    /// Whether a number as long as the modulus signs a text under it.
    pub(super) fn verify_rsa(modulus: &[u8], hash: RsaHash, text: &[u8], signature: &[u8]) -> bool {
        let parameters = match hash {
            RsaHash::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
            RsaHash::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
            RsaHash::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
        };
        signature.len() == modulus.len()
            && RsaPublicKeyComponents { n: modulus, e: &EXPONENT }.verify(parameters, text, signature).is_ok()
    }
}

impl fmt::Display for TrustKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.wrapping == Wrapping::Ssh { "" } else { "openpgp " };
        write!(f, "{how}{} {}", self.class().as_str(), self.name())
    }
}

impl fmt::Debug for TrustKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
