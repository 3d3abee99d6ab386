//! What makes a renewal or a join fresh: a challenge that only this control plane can have made, for one certificate or one
//! request, a moment ago.
//!
//! A challenge carries its own time and a tag, so nothing is stored when it is given out. A renewal's is used once, which is
//! the database's business when it is used; a join's is good for one request only, which is answered once.

use aws_lc_rs::hmac;
use schema::time::{Duration, Timestamp};

use crate::provider::{derive, random};

/// What a key is for: a challenge of one use is none of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// For the serial of a certificate.
    Renew,
    /// For the digest of a certificate request.
    Join,
}

/// How long a challenge is good.
pub const CHALLENGE_LIFE: Duration = Duration::from_secs(5 * 60);

const NONCE: usize = 16;
const TIME: usize = 8;
const TAG: usize = 32;

/// Why a challenge does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChallengeRefusal {
    /// Nobody here made it for this certificate or request.
    #[error("the challenge is not one of this control plane for this certificate or request")]
    NotOurs,
    /// It is too old.
    #[error("the challenge is too old")]
    Late,
}

/// Makes and checks challenges. Every process of a control plane derives the same one from its keys.
#[derive(Clone)]
pub struct ChallengeKey(hmac::Key, Vec<hmac::Key>);

impl std::fmt::Debug for ChallengeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChallengeKey(..)")
    }
}

impl ChallengeKey {
    /// A key that follows from a secret and says nothing about it.
    pub(crate) fn derive(secret: &[u8], usage: Use) -> Self {
        let label: &[u8] = match usage {
            Use::Renew => b"bc/renew-challenge/v1\0",
            Use::Join => b"bc/join-challenge/v1\0",
        };
        Self(hmac::Key::new(hmac::HMAC_SHA256, derive(secret, label).as_ref()), Vec::new())
    }

    /// Takes challenges that another key made, too.
    #[must_use]
    pub(crate) fn or(mut self, other: Self) -> Self {
        self.1.push(other.0);
        self
    }

    /// A fresh challenge for one subject: whoever renews the certificate with this serial, or joins with this request.
    #[must_use]
    pub fn give(&self, subject: impl AsRef<[u8]>, now: Timestamp) -> Vec<u8> {
        let mut bytes = random::<NONCE>().to_vec();
        bytes.extend_from_slice(&now.as_second().to_be_bytes());
        let tag = hmac::sign(&self.0, &tagged(&bytes, subject.as_ref()));
        bytes.extend_from_slice(tag.as_ref());
        bytes
    }

    /// Checks a challenge that came back.
    ///
    /// # Errors
    /// When it is none of ours, for another subject, or too old.
    pub fn check(&self, challenge: &[u8], subject: impl AsRef<[u8]>, now: Timestamp) -> Result<(), ChallengeRefusal> {
        self.maker(challenge, subject.as_ref()).ok_or(ChallengeRefusal::NotOurs)?;
        let made: [u8; TIME] = challenge[NONCE..NONCE + TIME].try_into().expect("a challenge has that many bytes");
        let age = now.as_second().saturating_sub(i64::from_be_bytes(made));
        let limit = i64::try_from(CHALLENGE_LIFE.as_secs()).unwrap_or(i64::MAX);
        // Another process of this control plane may be a little ahead.
        if (-limit..=limit).contains(&age) { Ok(()) } else { Err(ChallengeRefusal::Late) }
    }

    /// The key that made a challenge for a subject.
    fn maker(&self, challenge: &[u8], subject: &[u8]) -> Option<&hmac::Key> {
        let (head, tag) = challenge.split_at_checked(NONCE + TIME).filter(|(_, tag)| tag.len() == TAG)?;
        let made = |key: &&hmac::Key| hmac::verify(key, &tagged(head, subject), tag).is_ok();
        std::iter::once(&self.0).chain(&self.1).find(made)
    }

    /// A secret that goes with a challenge for a subject and whatever it is told: the same whenever it is asked for, whichever
    /// key is the present one by then, and nobody else's.
    #[must_use]
    pub fn secret(&self, challenge: &[u8], subject: impl AsRef<[u8]>, label: &[u8]) -> [u8; TAG] {
        let maker = self.maker(challenge, subject.as_ref()).unwrap_or(&self.0);
        let key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(maker, b"secret\0").as_ref());
        hmac::sign(&key, &[challenge, label].concat()).as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
    }
}

fn tagged(head: &[u8], subject: &[u8]) -> Vec<u8> {
    [head, subject].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        issue::Serial,
        testing::{after, now},
    };

    #[test]
    fn a_challenge_is_good_for_its_certificate_and_for_five_minutes() {
        let key = ChallengeKey::derive(b"secret", Use::Renew);
        let (mine, other) = (Serial::from_bytes(&[1, 2]), Serial::from_bytes(&[1, 3]));
        let challenge = key.give(&mine, now());
        assert_ne!(challenge, key.give(&mine, now()));
        assert_eq!(key.check(&challenge, &mine, after(300)), Ok(()));
        assert_eq!(key.check(&challenge, &mine, after(301)), Err(ChallengeRefusal::Late));
        assert_eq!(key.check(&challenge, &mine, after(-301)), Err(ChallengeRefusal::Late));
        assert_eq!(key.check(&challenge, &other, now()), Err(ChallengeRefusal::NotOurs));
        let join = ChallengeKey::derive(b"secret", Use::Join);
        assert_eq!(join.check(&challenge, &mine, now()), Err(ChallengeRefusal::NotOurs));
        let elsewhere = ChallengeKey::derive(b"other", Use::Renew);
        let both = elsewhere.clone().or(key);
        assert_eq!(both.check(&challenge, &mine, now()), Ok(()));
        assert_eq!(elsewhere.check(&challenge, &mine, now()), Err(ChallengeRefusal::NotOurs));
    }

    #[test]
    fn a_secret_follows_from_challenge_and_label() {
        let key = ChallengeKey::derive(b"secret", Use::Join);
        let (one, two) = (key.give(b"request", now()), key.give(b"request", now()));
        let of = |challenge: &[u8], label: &[u8]| key.secret(challenge, b"request", label);
        assert_eq!(of(&one, b"tpm"), of(&one, b"tpm"));
        assert_ne!(of(&one, b"tpm"), of(&one, b"other"));
        assert_ne!(of(&one, b"tpm"), of(&two, b"tpm"));
        let next = ChallengeKey::derive(b"next", Use::Join).or(key.clone());
        assert_eq!(next.secret(&one, b"request", b"tpm"), of(&one, b"tpm"), "the key was replaced meanwhile");
    }

    #[test]
    fn no_bit_of_a_challenge_can_change() {
        let key = ChallengeKey::derive(b"secret", Use::Renew);
        let serial = Serial::from_bytes(&[7]);
        let challenge = key.give(&serial, now());
        for bit in 0..challenge.len() * 8 {
            let mut changed = challenge.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.check(&changed, &serial, now()), Err(ChallengeRefusal::NotOurs));
        }
        assert_eq!(key.check(&[], &serial, now()), Err(ChallengeRefusal::NotOurs));
    }
}
