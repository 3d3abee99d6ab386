//! Signatures of `ssh-keygen -Y sign`: version 1, the namespace that is asked for, nothing reserved, nothing left over.

#[cfg(test)]
mod tests;

use aws_lc_rs::{
    digest::{SHA256, SHA512, digest},
    signature::{Ed25519KeyPair, KeyPair as _},
};

use super::{
    armor::{self, Dress},
    key::{Material, RsaHash, TrustKey},
    signature::{GIT, SignatureRefusal},
    wire::{Reader, Short, padded},
};
use crate::signed::push_field;

const MAGIC: &[u8; 6] = b"SSHSIG";
const LABEL: &str = "SSH SIGNATURE";
/// The flag that a security key was touched.
const TOUCHED: u8 = 0x01;

impl From<Short> for SignatureRefusal {
    fn from(_: Short) -> Self {
        Self::Shape("a field is missing, or something is left over")
    }
}

pub(super) fn signer<'k>(
    armour: &str,
    payload: &[u8],
    wanted: &'static str,
    keys: impl IntoIterator<Item = &'k TrustKey>,
) -> Result<&'k TrustKey, SignatureRefusal> {
    let bytes = armor::open(armour, LABEL, Dress::Ssh).map_err(SignatureRefusal::Armor)?;
    let mut rest = Reader(&bytes);
    if rest.take(MAGIC.len())? != MAGIC {
        return Err(SignatureRefusal::Shape("it does not begin with SSHSIG"));
    }
    if rest.u32()? != 1 {
        return Err(SignatureRefusal::Shape("its version is not 1"));
    }
    let key = rest.string()?;
    let namespace = rest.string()?;
    let reserved = rest.string()?;
    let hash = rest.string()?;
    let signature = rest.string()?;
    rest.end()?;
    if namespace != wanted.as_bytes() {
        return Err(SignatureRefusal::Namespace { found: word(namespace), wanted });
    }
    if !reserved.is_empty() {
        return Err(SignatureRefusal::Shape("its reserved field is not empty"));
    }
    let hashed = match hash {
        b"sha256" => digest(&SHA256, payload),
        b"sha512" => digest(&SHA512, payload),
        other => return Err(SignatureRefusal::Hash(word(other))),
    };
    let named = TrustKey::from_blob(key).map_err(SignatureRefusal::Key)?;
    let key = keys.into_iter().find(|key| **key == named).ok_or_else(|| SignatureRefusal::UnknownKey(named.name()))?;
    let signed = [MAGIC.as_slice(), &fields([namespace, reserved, hash, hashed.as_ref()])].concat();
    if verify(key, &signed, signature)? { Ok(key) } else { Err(SignatureRefusal::Bad) }
}

/// An Ed25519 key as SSH writes it.
pub(super) fn blob(pair: &Ed25519KeyPair) -> Vec<u8> {
    fields([b"ssh-ed25519".as_slice(), pair.public_key().as_ref()])
}

/// The signature of an Ed25519 key over a commit, as [`signer`] reads it.
pub(super) fn sign(pair: &Ed25519KeyPair, payload: &[u8]) -> String {
    let head = [GIT.as_bytes(), b"".as_slice(), b"sha512".as_slice()];
    let hashed = digest(&SHA512, payload);
    let signed = [MAGIC.as_slice(), &fields(head.into_iter().chain([hashed.as_ref()]))].concat();
    let signature = fields([b"ssh-ed25519".as_slice(), pair.sign(&signed).as_ref()]);
    let key = blob(pair);
    let body = fields(std::iter::once(key.as_slice()).chain(head).chain([signature.as_slice()]));
    armor::close(&[MAGIC.as_slice(), &1_u32.to_be_bytes(), &body].concat(), LABEL)
}

fn fields<'f>(all: impl IntoIterator<Item = &'f [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    all.into_iter().for_each(|field| push_field(&mut bytes, field));
    bytes
}

fn verify(key: &TrustKey, signed: &[u8], signature: &[u8]) -> Result<bool, SignatureRefusal> {
    let mut rest = Reader(signature);
    let algorithm = rest.string()?;
    let wanted: &[u8] = match &key.material {
        Material::Ed25519(_) => b"ssh-ed25519",
        Material::SkEd25519 { .. } => b"sk-ssh-ed25519@openssh.com",
        Material::EcdsaP256(_) => b"ecdsa-sha2-nistp256",
        Material::Rsa(_) => b"rsa-sha2-512",
    };
    if algorithm != wanted {
        return Err(SignatureRefusal::Algorithm(word(algorithm)));
    }
    let body = rest.string()?;
    let good = match &key.material {
        Material::Ed25519(point) => TrustKey::verify_ed25519(point, signed, body),
        Material::SkEd25519 { point, application } => {
            let flags = rest.byte()?;
            let counter = rest.u32()?;
            if flags & TOUCHED == 0 {
                return Err(SignatureRefusal::NoUserPresence);
            }
            let mut text = digest(&SHA256, application.as_bytes()).as_ref().to_vec();
            text.push(flags);
            text.extend_from_slice(&counter.to_be_bytes());
            text.extend_from_slice(digest(&SHA256, signed).as_ref());
            TrustKey::verify_ed25519(point, &text, body)
        }
        Material::EcdsaP256(point) => {
            let mut numbers = Reader(body);
            let (r, s) = (numbers.mpint()?, numbers.mpint()?);
            numbers.end()?;
            let both = padded::<32>(r).zip(padded::<32>(s));
            let (r, s) = both.ok_or(SignatureRefusal::Shape("a number of it is too large"))?;
            let mut fixed = [0; 64];
            fixed[..32].copy_from_slice(&r);
            fixed[32..].copy_from_slice(&s);
            TrustKey::verify_p256(point, signed, &fixed)
        }
        Material::Rsa(modulus) => TrustKey::verify_rsa(modulus, RsaHash::Sha512, signed, body),
    };
    rest.end()?;
    Ok(good)
}

fn word(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().take(60).collect()
}
