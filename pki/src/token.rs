//! Join tokens `bcjt_<id>.<secret>` and API tokens `bcat_<id>.<secret>`.
//!
//! The text is shown once; only a hash is stored. The secret has 256 random bits, so one SHA-256 is enough.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use schema::digest::Digest;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::provider::random;

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Lets machines join.
    Join,
    /// Lets a person or a program call the API.
    Api,
}

impl TokenKind {
    /// What a token of this kind begins with.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Join => "bcjt_",
            Self::Api => "bcat_",
        }
    }
}

/// A text that is not a token of the wanted kind. It does not repeat the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is not of the form {}<id>.<secret>", .0.prefix())]
pub struct BadToken(pub TokenKind);

/// A token: its public id and its secret.
#[derive(Clone)]
pub struct Token {
    kind: TokenKind,
    id: String,
    secret: Zeroizing<String>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}.(secret)", self.kind.prefix(), self.id)
    }
}

impl Token {
    /// A fresh token with this public id (an id's text without its prefix).
    #[must_use]
    pub fn mint(kind: TokenKind, id: &str) -> Self {
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(random::<32>()));
        Self { kind, id: id.to_owned(), secret }
    }

    /// Reads a token.
    ///
    /// # Errors
    /// When the text has another form.
    pub fn parse(kind: TokenKind, text: &str) -> Result<Self, BadToken> {
        let refuse = || BadToken(kind);
        if text.len() > 200 {
            return Err(refuse());
        }
        let (id, secret) =
            text.trim().strip_prefix(kind.prefix()).and_then(|rest| rest.split_once('.')).ok_or_else(refuse)?;
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if !is_word(id) || !is_word(secret) {
            return Err(refuse());
        }
        Ok(Self { kind, id: id.to_owned(), secret: Zeroizing::new(secret.to_owned()) })
    }

    /// The public part, by which the token's row is found.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole token. To be shown once or sealed, never stored or logged.
    #[must_use]
    pub fn reveal(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}{}.{}", self.kind.prefix(), self.id, self.secret.as_str()))
    }

    /// What is stored.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let text = Zeroizing::new(format!("bc/token/v1\0{}", self.reveal().as_str()));
        Digest::of(text.as_bytes())
    }

    /// Whether this is the token whose hash was stored. Takes the same time for any answer.
    #[must_use]
    pub fn matches(&self, stored: &Digest) -> bool {
        self.hash().as_bytes().ct_eq(stored.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_text_and_matches_its_hash() {
        let token = Token::mint(TokenKind::Join, "01abc");
        let read = Token::parse(TokenKind::Join, &token.reveal()).expect("own text");
        assert_eq!(read.id(), "01abc");
        assert!(read.matches(&token.hash()));
        assert!(!Token::mint(TokenKind::Join, "01abc").matches(&token.hash()));
    }

    #[test]
    fn a_stored_hash_stays_good() {
        let token = Token::parse(TokenKind::Join, "bcjt_01abc.AAAA").expect("a token");
        assert_eq!(token.hash().to_string(), "sha256:1e21f3368544f57b97cb1a780874f1e04feb0a74f54818c1d88698147cbe50b6");
    }

    #[test]
    fn a_token_of_one_kind_is_not_one_of_the_other() {
        let text = Token::mint(TokenKind::Join, "x").reveal();
        assert_eq!(Token::parse(TokenKind::Api, &text).map(|_| ()), Err(BadToken(TokenKind::Api)));
    }

    #[test]
    fn other_texts_are_refused_and_not_repeated() {
        for text in ["", "bcjt_", "bcjt_a", "bcjt_.b", "bcjt_a.", "bcjt_a.b c", "bcjt_a.b\nc", "bcjt_a.b.c"] {
            let refusal = Token::parse(TokenKind::Join, text).map(|_| ()).expect_err(text);
            assert_eq!(refusal.to_string(), "the token is not of the form bcjt_<id>.<secret>");
        }
    }

    #[test]
    fn a_printed_token_hides_its_secret() {
        let token = Token::mint(TokenKind::Api, "x");
        let secret = token.reveal().rsplit_once('.').expect("two parts").1.to_owned();
        assert!(!format!("{token:?}").contains(&secret));
    }
}
