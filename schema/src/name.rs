//! Names: a DNS label of at most 63 characters.

use std::{borrow::Borrow, fmt, ops::Deref, str::FromStr, sync::Arc};

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("a name cannot be empty")]
    Empty,
    /// More than 63 characters.
    #[error("a name has at most 63 characters, this one has {0}")]
    TooLong(usize),
    /// A character that a DNS label does not have.
    #[error("a name has only a-z, 0-9 and '-', not {0:?}")]
    Character(char),
    /// A hyphen at an end.
    #[error("a name does not begin or end with '-'")]
    Hyphen,
}

/// The name of an object or a node: lower-case letters, digits and inner hyphens. A copy shares the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a text.
    ///
    /// # Errors
    /// Says which rule of a DNS label the text breaks.
    pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if let Some(bad) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
            return Err(NameError::Character(bad));
        }
        if text.len() > 63 {
            return Err(NameError::TooLong(text.len()));
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(NameError::Hyphen);
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl serde::Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Name {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_labels_are_names() {
        for text in ["a", "h100", "fra1-r12", &"x".repeat(63)] {
            assert!(Name::new(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn everything_else_says_why() {
        assert_eq!(Name::new(""), Err(NameError::Empty));
        assert_eq!(Name::new("x".repeat(64)), Err(NameError::TooLong(64)));
        assert_eq!(Name::new("H100"), Err(NameError::Character('H')));
        assert_eq!(Name::new("-a"), Err(NameError::Hyphen));
    }
}
