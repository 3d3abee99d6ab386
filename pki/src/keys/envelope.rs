//! Bytes sealed under a secret: AES-256-GCM, with the key drawn from the secret by PBKDF2-HMAC-SHA256.
//!
//! `"bckeys1\0" ‖ iterations (4, big endian) ‖ salt (16) ‖ nonce (12) ‖ ciphertext and tag`; the head is authenticated.

use std::num::NonZeroU32;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    pbkdf2,
};
use zeroize::{Zeroize as _, Zeroizing};

use crate::provider::random;

const MAGIC: &[u8; 8] = b"bckeys1\0";
const SALT: usize = 16;
const HEAD: usize = MAGIC.len() + 4 + SALT + NONCE_LEN;
const ITERATIONS: u32 = 200_000;
/// A changed head must not keep the process busy for hours.
const MOST_ITERATIONS: u32 = 10_000_000;

/// Why sealed keys were not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Not a file of this kind.
    #[error("these are not sealed keys of Better Compute")]
    Malformed,
    /// Another secret, or changed bytes: the two cannot be told apart.
    #[error("the deployment secret does not open these keys, or they were changed")]
    WrongSecret,
}

fn key(secret: &[u8], salt: &[u8], iterations: NonZeroU32) -> LessSafeKey {
    let mut key = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, secret, &mut key);
    let unbound = UnboundKey::new(&AES_256_GCM, &key).expect("the key has 32 bytes");
    key.zeroize();
    LessSafeKey::new(unbound)
}

pub(super) fn seal(plain: &[u8], secret: &[u8]) -> Vec<u8> {
    let iterations = NonZeroU32::new(ITERATIONS).expect("not zero");
    let (salt, nonce) = (random::<SALT>(), random::<NONCE_LEN>());
    let mut sealed = Vec::with_capacity(HEAD + plain.len() + 16);
    sealed.extend_from_slice(MAGIC);
    sealed.extend_from_slice(&ITERATIONS.to_be_bytes());
    sealed.extend_from_slice(&salt);
    sealed.extend_from_slice(&nonce);
    let mut body = plain.to_vec();
    key(secret, &salt, iterations)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(&sealed), &mut body)
        .expect("keys are far smaller than the cipher's limit");
    sealed.extend_from_slice(&body);
    sealed
}

pub(super) fn open(sealed: &[u8], secret: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let (head, body) = sealed.split_at_checked(HEAD).ok_or(OpenError::Malformed)?;
    let rest = head.strip_prefix(MAGIC.as_slice()).ok_or(OpenError::Malformed)?;
    let (iterations, rest) = rest.split_first_chunk::<4>().ok_or(OpenError::Malformed)?;
    let iterations = u32::from_be_bytes(*iterations);
    let iterations =
        NonZeroU32::new(iterations).filter(|count| count.get() <= MOST_ITERATIONS).ok_or(OpenError::Malformed)?;
    let (salt, nonce) = rest.split_at(SALT);
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| OpenError::Malformed)?;
    let mut body = Zeroizing::new(body.to_vec());
    let length = key(secret, salt, iterations)
        .open_in_place(nonce, Aad::from(head), &mut body)
        .map_err(|_| OpenError::WrongSecret)?
        .len();
    body.truncate(length);
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_opens() {
        let sealed = seal(b"keys", b"secret");
        assert_eq!(open(&sealed, b"secret").expect("same secret").as_slice(), b"keys");
        assert_eq!(open(&sealed, b"other").map(|_| ()), Err(OpenError::WrongSecret));
    }

    #[test]
    fn no_byte_can_change() {
        let sealed = seal(b"keys", b"secret");
        for position in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[position] ^= 1;
            assert!(open(&changed, b"secret").is_err(), "byte {position}");
        }
    }

    #[test]
    fn hostile_heads_are_refused_at_once() {
        let mut sealed = seal(b"keys", b"secret");
        sealed[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(open(&sealed, b"secret").map(|_| ()), Err(OpenError::Malformed));
        assert_eq!(open(b"", b"secret").map(|_| ()), Err(OpenError::Malformed));
    }
}
