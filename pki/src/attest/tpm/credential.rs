//! `TPM2_MakeCredential`, outside a TPM (TPM 2.0 Library, part 1, section 24).

use aws_lc_rs::{
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey},
    hmac,
    rand::SystemRandom,
    rsa::{OAEP_SHA256_MGF1SHA256, OaepPublicEncryptingKey, PublicEncryptingKey},
};
use schema::digest::Digest;

use super::public::{Encryption, EndorsementKey};
use crate::provider::random;

/// What only one TPM can read, as it takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// `TPM2B_ID_OBJECT`.
    pub blob: Vec<u8>,
    /// `TPM2B_ENCRYPTED_SECRET`.
    pub secret: Vec<u8>,
}

/// `None` when the key cannot be used: it is no point on the curve, or no number to encrypt with.
pub(super) fn make(key: &EndorsementKey, name: &[u8], secret: &[u8]) -> Option<Credential> {
    let (seed, encrypted) = match &key.encryption {
        Encryption::Rsa => by_rsa(key)?,
        Encryption::P256 { x, y } => by_ecdh(x, y)?,
    };
    let blob = protect(&seed, key.symmetric, name, secret)?;
    Some(Credential { blob: sized(&blob), secret: sized(&encrypted) })
}

fn by_rsa(key: &EndorsementKey) -> Option<([u8; 32], Vec<u8>)> {
    let seed = random::<32>();
    let key = OaepPublicEncryptingKey::new(PublicEncryptingKey::from_der(&key.spki).ok()?).ok()?;
    let mut encrypted = vec![0; key.ciphertext_size()];
    let length = key.encrypt(&OAEP_SHA256_MGF1SHA256, &seed, &mut encrypted, Some(b"IDENTITY\0")).ok()?.len();
    encrypted.truncate(length);
    Some((seed, encrypted))
}

fn by_ecdh(x: &[u8; 32], y: &[u8; 32]) -> Option<([u8; 32], Vec<u8>)> {
    let own = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).ok()?;
    let public = own.compute_public_key().ok()?;
    let (own_x, own_y) = public.as_ref().get(1..)?.split_at_checked(32)?;
    let theirs = [&[4], x.as_slice(), y].concat();
    let theirs = UnparsedPublicKey::new(&ECDH_P256, theirs);
    let seed = agree_ephemeral(own, theirs, (), |shared| Ok(kdfe(shared, b"IDENTITY", own_x, x))).ok()?;
    Some((seed, [sized(own_x), sized(own_y)].concat()))
}

/// The secret encrypted and authenticated under a seed: what stands in the `TPM2B_ID_OBJECT`.
fn protect(seed: &[u8], bits: u16, name: &[u8], secret: &[u8]) -> Option<Vec<u8>> {
    let algorithm = if bits == 128 { &AES_128 } else { &AES_256 };
    let key = kdfa(seed, b"STORAGE", name, bits);
    let mut encrypted = sized(secret);
    let key = EncryptingKey::cfb128(UnboundCipherKey::new(algorithm, &key).ok()?).ok()?;
    // Every seed is used once, so the vector is zero.
    key.less_safe_encrypt(&mut encrypted, EncryptionContext::Iv128((&[0; 16]).into())).ok()?;
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &kdfa(seed, b"INTEGRITY", b"", 256)));
    context.update(&encrypted);
    context.update(name);
    Some([sized(context.sign().as_ref()), encrypted].concat())
}

/// SP 800-108 in counter mode with HMAC-SHA256, for at most one block.
fn kdfa(key: &[u8], label: &[u8], context: &[u8], bits: u16) -> Vec<u8> {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in [&1_u32.to_be_bytes()[..], label, &[0], context, &u32::from(bits).to_be_bytes()] {
        mac.update(part);
    }
    mac.sign().as_ref()[..usize::from(bits / 8)].to_vec()
}

/// SP 800-56A with SHA-256, for one block.
fn kdfe(shared: &[u8], label: &[u8], party_u: &[u8], party_v: &[u8]) -> [u8; 32] {
    *Digest::of([&1_u32.to_be_bytes()[..], shared, label, &[0], party_u, party_v].concat()).as_bytes()
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a structure of a TPM is below 64 KiB");
    [&length.to_be_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests;
