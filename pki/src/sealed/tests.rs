//! Facts about sealed join tokens.

use super::*;
use crate::testing::keys;

#[test]
fn a_sealed_token_opens_for_its_request_in_its_fleet_only() {
    let keys = keys();
    let (csr, token) = (Digest::of("request"), Token::mint(TokenKind::Join, "01abc"));
    let sealed = seal(&keys.anchor("fleet-one"), csr, &token).expect("sealed");
    let opened = keys.join_keys()[0].open(&sealed, csr, "fleet-one").expect("opens");
    assert!(opened.matches(&token.hash()));
    let refusal = |sealed: &SealedToken, csr, fleet| {
        keys.join_keys()[0].open(sealed, csr, fleet).map(|_| ()).expect_err("refused")
    };
    assert_eq!(refusal(&sealed, Digest::of("another"), "fleet-one"), SealedTokenRefusal::DoesNotOpen);
    assert_eq!(refusal(&sealed, csr, "fleet-two"), SealedTokenRefusal::DoesNotOpen);
    let mut changed = sealed.clone();
    changed.ciphertext[0] ^= 1;
    assert_eq!(refusal(&changed, csr, "fleet-one"), SealedTokenRefusal::DoesNotOpen);
    changed = sealed;
    changed.encapsulated_key.clear();
    assert_eq!(refusal(&changed, csr, "fleet-one"), SealedTokenRefusal::DoesNotOpen);
}

#[test]
fn a_token_for_another_control_plane_is_not_opened() {
    let (ours, theirs) = (keys(), keys());
    let csr = Digest::of("request");
    let sealed = seal(&theirs.anchor("fleet-one"), csr, &Token::mint(TokenKind::Join, "x")).expect("sealed");
    assert_eq!(ours.join_keys()[0].open(&sealed, csr, "fleet-one").map(|_| ()), Err(SealedTokenRefusal::UnknownKey));
}

#[test]
fn an_unusable_join_key_seals_nothing() {
    let mut anchor = keys().anchor("fleet-one");
    anchor.join_key.hpke = vec![1, 2, 3];
    assert_eq!(seal(&anchor, Digest::of("x"), &Token::mint(TokenKind::Join, "x")), Err(BadJoinKey));
}
