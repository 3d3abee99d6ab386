//! What makes a renewal fresh: a challenge that only this control plane can have made, for one certificate, a moment ago.
//!
//! A challenge carries its own time and a tag, so nothing is stored when it is given out; that it is used once is the
//! database's business, when it is used.

use aws_lc_rs::hmac;
use schema::time::{Duration, Timestamp};

use crate::{
    issue::Serial,
    provider::{derive, random},
};

/// How long a challenge is good.
pub const CHALLENGE_LIFE: Duration = Duration::from_secs(5 * 60);

const NONCE: usize = 16;
const TIME: usize = 8;
const TAG: usize = 32;

/// Why a challenge does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChallengeRefusal {
    /// Nobody here made it for this certificate.
    #[error("the challenge is not one of this control plane for this certificate")]
    NotOurs,
    /// It is too old.
    #[error("the challenge is too old")]
    Late,
}

/// Makes and checks challenges. Every process of a control plane derives the same one from its keys.
#[derive(Clone)]
pub struct ChallengeKey(hmac::Key);

impl std::fmt::Debug for ChallengeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChallengeKey(..)")
    }
}

impl ChallengeKey {
    /// A key that follows from a secret and says nothing about it.
    pub(crate) fn derive(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, derive(secret, b"bc/renew-challenge/v1\0").as_ref()))
    }

    /// A fresh challenge for whoever renews the certificate with this serial.
    #[must_use]
    pub fn give(&self, serial: &Serial, now: Timestamp) -> Vec<u8> {
        let mut bytes = random::<NONCE>().to_vec();
        bytes.extend_from_slice(&now.as_second().to_be_bytes());
        let tag = hmac::sign(&self.0, &tagged(&bytes, serial));
        bytes.extend_from_slice(tag.as_ref());
        bytes
    }

    /// Checks a challenge that came back.
    ///
    /// # Errors
    /// When it is none of ours, for another certificate, or too old.
    pub fn check(&self, challenge: &[u8], serial: &Serial, now: Timestamp) -> Result<(), ChallengeRefusal> {
        let (head, tag) = challenge
            .split_at_checked(NONCE + TIME)
            .filter(|(_, tag)| tag.len() == TAG)
            .ok_or(ChallengeRefusal::NotOurs)?;
        hmac::verify(&self.0, &tagged(head, serial), tag).map_err(|_| ChallengeRefusal::NotOurs)?;
        let made: [u8; TIME] = head[NONCE..].try_into().expect("the head has that many bytes");
        let age = now.as_second().saturating_sub(i64::from_be_bytes(made));
        let limit = i64::try_from(CHALLENGE_LIFE.as_secs()).unwrap_or(i64::MAX);
        // Another process of this control plane may be a little ahead.
        if (-limit..=limit).contains(&age) { Ok(()) } else { Err(ChallengeRefusal::Late) }
    }
}

fn tagged(head: &[u8], serial: &Serial) -> Vec<u8> {
    [head, serial.as_str().as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, now};

    #[test]
    fn a_challenge_is_good_for_its_certificate_and_for_five_minutes() {
        let key = ChallengeKey::derive(b"secret");
        let (mine, other) = (Serial::from_bytes(&[1, 2]), Serial::from_bytes(&[1, 3]));
        let challenge = key.give(&mine, now());
        assert_ne!(challenge, key.give(&mine, now()));
        assert_eq!(key.check(&challenge, &mine, after(300)), Ok(()));
        assert_eq!(key.check(&challenge, &mine, after(301)), Err(ChallengeRefusal::Late));
        assert_eq!(key.check(&challenge, &mine, after(-301)), Err(ChallengeRefusal::Late));
        assert_eq!(key.check(&challenge, &other, now()), Err(ChallengeRefusal::NotOurs));
        let elsewhere = ChallengeKey::derive(b"other");
        assert_eq!(elsewhere.check(&challenge, &mine, now()), Err(ChallengeRefusal::NotOurs));
    }

    #[test]
    fn no_bit_of_a_challenge_can_change() {
        let key = ChallengeKey::derive(b"secret");
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
