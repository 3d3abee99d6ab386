//! SHA-256 digests, written `sha256:<64 hex digits>`.

use std::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest of exact bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The digest of bytes that come piece by piece: that of [`Digest::of`] over all of them.
#[derive(Debug, Clone, Default)]
pub struct Running(Sha256);

impl Running {
    /// Adds a piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all pieces.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// A digest over parts, each with its length before it, so that no two lists of parts are confused.
#[derive(Debug, Clone)]
pub struct Digester(Sha256);

impl Digester {
    /// Begins a digest whose meaning a word names.
    #[must_use]
    pub fn new(purpose: &str) -> Self {
        let mut digester = Self(Sha256::new());
        digester.part(purpose.as_bytes());
        digester
    }

    /// Adds a part.
    pub fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// The digest of all parts.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Why a text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not sha256: and 64 hexadecimal digits")]
pub struct ParseDigestError(pub String);

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes.as_ref()).into())
    }

    /// The digest that a 32-byte column holds.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 hexadecimal digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        hex::encode(&self.0[..6])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseDigestError(text.chars().take(100).collect());
        let digits = text.strip_prefix("sha256:").ok_or_else(refuse)?;
        if digits.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(refuse());
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| refuse())?;
        Ok(Self(bytes))
    }
}

crate::as_text!(Digest = "^sha256:[0-9a-f]{64}$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_abc_is_the_published_one() {
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of("abc").to_string(), text);
        assert_eq!(text.parse(), Ok(Digest::of("abc")));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "sha256:", "sha256:00", "md5:00", "sha256:é"] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
