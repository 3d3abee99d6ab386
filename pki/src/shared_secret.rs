//! Proofs by a secret that both sides were given, as git hosts use for their webhooks. Compared in constant time.

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq as _;

/// Whether `tag` is the HMAC-SHA256 of `body` under `secret`.
#[must_use]
pub fn is_tag(secret: &[u8], body: &[u8], tag: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), body, tag).is_ok()
}

/// Whether `given` is the secret itself.
#[must_use]
pub fn is_secret(secret: &[u8], given: &[u8]) -> bool {
    secret.ct_eq(given).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2.
    #[test]
    fn the_published_tag_is_good_and_any_other_is_not() {
        let tag = hex::decode("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843").expect("hexadecimal");
        let body = b"what do ya want for nothing?";
        assert!(is_tag(b"Jefe", body, &tag));
        for bit in 0..256 {
            let mut other = tag.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_tag(b"Jefe", body, &other), "bit {bit}");
        }
        assert!(!is_tag(b"Jefe", body, &tag[..31]));
    }

    #[test]
    fn a_secret_is_compared_whole() {
        assert!(is_secret(b"s3cret", b"s3cret"));
        assert!(!is_secret(b"s3cret", b"s3cre"));
        assert!(!is_secret(b"s3cret", b""));
    }
}
