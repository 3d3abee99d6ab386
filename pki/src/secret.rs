//! The secret store: values that only the control plane's key opens.
//!
//! An envelope is AES-256-GCM, `version (1) ‖ key id (8) ‖ nonce (12) ‖ ciphertext and tag`. Its associated data names the
//! fleet, the secret, its version and its tenant, so that an envelope that was moved to another row opens nowhere.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};
use schema::{digest::Digest, name::Name, secret::SecretName};
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

use crate::{
    provider::{derive, random},
    signed::push_field,
};

const VERSION: u8 = 1;
const ID: usize = 8;
const HEAD: usize = 1 + ID + NONCE_LEN;

/// Why an envelope was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeRefusal {
    /// Not an envelope.
    #[error("the bytes are not the envelope of a secret")]
    Malformed,
    /// Another key sealed it.
    #[error("the secret was sealed with a key that this control plane does not hold")]
    UnknownKey,
    /// It belongs elsewhere, or was changed.
    #[error("the envelope is another secret's, or was changed")]
    DoesNotOpen,
}

/// Which value an envelope holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address<'a> {
    /// The secret.
    pub name: &'a SecretName,
    /// Its version.
    pub version: u64,
    /// Whose it is; `None`: the fleet's own.
    pub tenant: Option<&'a Name>,
}

/// Seals and opens the values of one fleet. A copy follows the keys of the one that it was made from.
#[derive(Clone)]
pub struct SecretStore(Arc<RwLock<Arc<Inner>>>);

struct Inner {
    fleet_id: String,
    /// The first one seals, each of them opens.
    keys: Vec<Key>,
}

struct Key {
    id: [u8; ID],
    cipher: LessSafeKey,
    marks: hmac::Key,
}

impl Key {
    fn new(secret: &[u8]) -> Self {
        let mut id = [0; ID];
        id.copy_from_slice(&derive(secret, b"bc/secret-store-id/v1\0").as_ref()[..ID]);
        let cipher = UnboundKey::new(&AES_256_GCM, derive(secret, b"bc/secret-store/v1\0").as_ref());
        let cipher = LessSafeKey::new(cipher.expect("the key has 32 bytes"));
        let marks = hmac::Key::new(hmac::HMAC_SHA256, derive(secret, b"bc/secret-mark/v1\0").as_ref());
        Self { id, cipher, marks }
    }
}

impl std::fmt::Debug for SecretStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretStore(..)")
    }
}

impl SecretStore {
    /// Of these keys, of which the first one seals.
    pub(crate) fn new<'k>(secrets: impl IntoIterator<Item = &'k [u8]>, fleet_id: &str) -> Self {
        let keys = secrets.into_iter().map(Key::new).collect();
        Self(Arc::new(RwLock::new(Arc::new(Inner { fleet_id: fleet_id.to_owned(), keys }))))
    }

    fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Works with the keys of another store from now on, and so does every copy of this one.
    pub fn follow(&self, next: &Self) {
        let next = next.inner();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// What the key is called that seals. Says nothing about it.
    #[must_use]
    pub fn key_name(&self) -> String {
        hex::encode(self.inner().present().id)
    }

    /// How envelopes begin that the present key sealed.
    #[must_use]
    pub fn head(&self) -> [u8; 1 + ID] {
        self.inner().head()
    }

    /// How envelopes begin that open here, with the present key or one before it.
    #[must_use]
    pub fn heads(&self) -> Vec<Vec<u8>> {
        self.inner().keys.iter().map(|key| [&[VERSION][..], &key.id].concat()).collect()
    }

    /// The same value, sealed with the present key.
    ///
    /// # Errors
    /// When the envelope does not open.
    pub fn reseal(&self, address: Address<'_>, envelope: &[u8]) -> Result<Vec<u8>, EnvelopeRefusal> {
        Ok(self.seal(address, &self.open(address, envelope)?))
    }

    /// Seals a value for one place. Two envelopes of the same value differ.
    #[must_use]
    pub fn seal(&self, address: Address<'_>, value: &[u8]) -> Vec<u8> {
        let inner = self.inner();
        let nonce = random::<NONCE_LEN>();
        let mut envelope = inner.head().to_vec();
        envelope.extend_from_slice(&nonce);
        let mut body = value.to_vec();
        let associated = inner.associated(address, &envelope);
        let cipher = &inner.present().cipher;
        cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(associated), &mut body)
            .expect("a value is far smaller than the cipher's limit");
        envelope.extend_from_slice(&body);
        envelope
    }

    /// The value in an envelope.
    ///
    /// # Errors
    /// When it was sealed for another place or with another key, or was changed.
    pub fn open(&self, address: Address<'_>, envelope: &[u8]) -> Result<Zeroizing<Vec<u8>>, EnvelopeRefusal> {
        let inner = self.inner();
        let (head, body) = envelope.split_at_checked(HEAD).ok_or(EnvelopeRefusal::Malformed)?;
        if head[0] != VERSION {
            return Err(EnvelopeRefusal::Malformed);
        }
        let (id, nonce) = head[1..].split_at(ID);
        let key = inner.keys.iter().find(|key| key.id == id).ok_or(EnvelopeRefusal::UnknownKey)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| EnvelopeRefusal::Malformed)?;
        let mut body = Zeroizing::new(body.to_vec());
        let length = key
            .cipher
            .open_in_place(nonce, Aad::from(inner.associated(address, head)), &mut body)
            .map_err(|_| EnvelopeRefusal::DoesNotOpen)?
            .len();
        body.truncate(length);
        Ok(body)
    }

    /// A mark of some bytes: equal for equal bytes, and telling nothing about them to whoever lacks the key.
    #[must_use]
    pub fn mark(&self, bytes: &[u8]) -> Digest {
        let tag = hmac::sign(&self.inner().present().marks, bytes);
        Digest::from_bytes(tag.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes"))
    }
}

impl Inner {
    fn present(&self) -> &Key {
        self.keys.first().expect("a store has a key")
    }

    fn head(&self) -> [u8; 1 + ID] {
        let mut head = [VERSION; 1 + ID];
        head[1..].copy_from_slice(&self.present().id);
        head
    }

    fn associated(&self, address: Address<'_>, head: &[u8]) -> Vec<u8> {
        let mut bytes = b"bc/secret/v1\0".to_vec();
        let mut field = |field: &[u8]| push_field(&mut bytes, field);
        field(self.fleet_id.as_bytes());
        field(address.name.as_str().as_bytes());
        field(&address.version.to_be_bytes());
        field(head);
        if let Some(tenant) = address.tenant {
            field(tenant.as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> SecretStore {
        SecretStore::new([&[7; 32][..]], "fleet-one")
    }

    fn name(text: &str) -> SecretName {
        SecretName::new(text).expect("a name")
    }

    #[test]
    fn an_envelope_opens_only_at_its_place() {
        let (a, b, tenant) = (name("a"), name("b"), Name::new("lab").expect("a name"));
        let at = Address { name: &a, version: 1, tenant: None };
        let envelope = store().seal(at, b"value");
        assert_eq!(store().open(at, &envelope).expect("opens").as_slice(), b"value");
        for other in [Address { name: &b, ..at }, Address { version: 2, ..at }, Address { tenant: Some(&tenant), ..at }]
        {
            assert_eq!(store().open(other, &envelope).map(drop), Err(EnvelopeRefusal::DoesNotOpen));
        }
        let elsewhere = SecretStore::new([&[7; 32][..]], "fleet-two");
        assert_eq!(elsewhere.open(at, &envelope).map(drop), Err(EnvelopeRefusal::DoesNotOpen));
        let stranger = SecretStore::new([&[8; 32][..]], "fleet-one");
        assert_eq!(stranger.open(at, &envelope).map(drop), Err(EnvelopeRefusal::UnknownKey));
    }

    #[test]
    fn no_byte_of_an_envelope_can_change() {
        let a = name("a");
        let at = Address { name: &a, version: 1, tenant: None };
        let envelope = store().seal(at, b"value");
        for position in 0..envelope.len() {
            let mut changed = envelope.clone();
            changed[position] ^= 1;
            assert!(store().open(at, &changed).is_err(), "byte {position}");
            assert!(store().open(at, &envelope[..position]).is_err(), "cut at {position}");
        }
    }

    #[test]
    fn what_the_key_before_sealed_opens_until_that_key_is_gone() {
        let a = name("a");
        let at = Address { name: &a, version: 1, tenant: None };
        let (before, after) = (store(), SecretStore::new([&[8; 32][..]], "fleet-one"));
        let old = before.seal(at, b"value");
        let copy = before.clone();
        before.follow(&SecretStore::new([&[8; 32][..], &[7; 32][..]], "fleet-one"));
        assert_eq!(copy.open(at, &old).expect("opens").as_slice(), b"value");
        assert_eq!(copy.key_name(), after.key_name());
        assert_ne!(copy.key_name(), store().key_name());
        assert!(!old.starts_with(&copy.head()));
        assert!(copy.heads().iter().any(|head| old.starts_with(head)));
        assert!(!after.heads().iter().any(|head| old.starts_with(head)));
        let new = copy.reseal(at, &old).expect("opens");
        assert!(new.starts_with(&copy.head()));
        assert_eq!(after.open(at, &new).expect("opens").as_slice(), b"value");
        assert_eq!(after.open(at, &old).map(drop), Err(EnvelopeRefusal::UnknownKey));
    }

    #[test]
    fn the_same_value_never_looks_the_same() {
        let a = name("a");
        let at = Address { name: &a, version: 1, tenant: None };
        let (one, two) = (store().seal(at, b"value"), store().seal(at, b"value"));
        assert_ne!(one, two);
        assert!(!one.windows(5).any(|window| window == b"value"));
        assert_eq!(format!("{:?}", store()), "SecretStore(..)");
    }

    #[test]
    fn a_mark_is_the_keys_own() {
        assert_eq!(store().mark(b"value"), store().mark(b"value"));
        assert_ne!(store().mark(b"value"), store().mark(b"valve"));
        assert_ne!(store().mark(b"value"), SecretStore::new([&[8; 32][..]], "fleet-one").mark(b"value"));
        assert_ne!(store().mark(b"value"), Digest::of(b"value"));
    }
}
