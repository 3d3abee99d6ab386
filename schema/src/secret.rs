//! Secrets by their names. A value is in no document, plan, row or log: what is written down is `secret://NAME`.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

/// How a reference begins.
pub const SCHEME: &str = "secret://";

/// The longest value, in bytes.
pub const MAX_SECRET_BYTES: usize = 64 * 1024;

const MAX_NAME: usize = 128;

/// Why a text names no secret. It does not repeat the text: somebody may have written the value in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretNameError {
    /// Nothing, or too much.
    #[error("the name of a secret has 1 to {MAX_NAME} characters")]
    Length,
    /// A character that no name has.
    #[error("the name of a secret has only a-z, 0-9, '-', '_' and '.', in parts between '/'")]
    Character,
    /// A part that does not begin with a letter or a digit.
    #[error("each part of a secret's name begins with a letter or a digit")]
    Part,
    /// Not a reference.
    #[error("a secret is referred to as {SCHEME}NAME")]
    Scheme,
}

/// The name of a secret: parts such as `registry/pull-token`. A copy shares the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Arc<str>);

impl SecretName {
    /// Checks a name.
    ///
    /// # Errors
    /// Says which rule the text breaks.
    pub fn new(text: impl AsRef<str>) -> Result<Self, SecretNameError> {
        let text = text.as_ref();
        if !(1..=MAX_NAME).contains(&text.len()) {
            return Err(SecretNameError::Length);
        }
        if !text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/')) {
            return Err(SecretNameError::Character);
        }
        if text.split('/').any(|part| !part.starts_with(|first: char| first.is_ascii_alphanumeric())) {
            return Err(SecretNameError::Part);
        }
        Ok(Self(text.into()))
    }

    /// The name in a reference such as `secret://registry/pull-token`.
    ///
    /// # Errors
    /// When it is not a reference, or names nothing that can be a secret.
    pub fn from_reference(text: &str) -> Result<Self, SecretNameError> {
        Self::new(text.strip_prefix(SCHEME).ok_or(SecretNameError::Scheme)?)
    }

    /// How documents refer to it.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{SCHEME}{self}")
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for SecretName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl serde::Serialize for SecretName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for SecretName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_between_slashes() {
        for text in ["a", "registry/pull-token", "ntp.key_1", &"x".repeat(128)] {
            assert_eq!(SecretName::new(text).expect("a name").reference(), format!("secret://{text}"));
        }
        for text in ["", "A", "a//b", "/a", "a/", "../x", "-a", "a b", "ü", &"x".repeat(129)] {
            assert!(SecretName::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_refused_is_not_repeated() {
        for text in ["hunter2", "secret://Hunter2", "https://hunter2"] {
            let error = SecretName::from_reference(text).expect_err("no reference").to_string();
            assert!(!error.to_lowercase().contains("hunter"), "{error}");
        }
        assert_eq!(SecretName::from_reference("secret://a/b").expect("a reference").as_str(), "a/b");
    }
}
