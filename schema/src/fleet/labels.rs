//! A machine's labels: shared, and told apart by a digest, so that comparing those of every machine of a fleet reads none
//! of them.

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Located;
use crate::digest::{Digest, Digester};

/// Free words by their keys. They do not change; a copy shares them.
#[derive(Debug, Clone)]
pub struct Labels {
    words: Arc<BTreeMap<String, String>>,
    digest: Digest,
}

impl Labels {
    /// The labels of a document.
    pub(super) fn of(words: &BTreeMap<String, Located<String>>, digest: Option<Digest>) -> Self {
        let digest = digest.unwrap_or_else(|| digest_of(words));
        let words = words.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect();
        Self { words: Arc::new(words), digest }
    }

    /// Whether a machine's document says the same.
    #[must_use]
    pub fn are_of(&self, node: &super::Node) -> bool {
        self.digest == node.labels_digest.unwrap_or_else(|| digest_of(&node.labels))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

/// The digest of a document's labels.
pub(super) fn digest_of(words: &BTreeMap<String, Located<String>>) -> Digest {
    digest(words.iter().map(|(key, value)| (key.as_str(), value.value.as_str())))
}

fn digest<'w>(words: impl Iterator<Item = (&'w str, &'w str)>) -> Digest {
    let mut digester = Digester::new("labels");
    for (key, value) in words {
        digester.part(key.as_bytes());
        digester.part(value.as_bytes());
    }
    digester.finish()
}

impl Default for Labels {
    fn default() -> Self {
        Self::from(BTreeMap::new())
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(words: BTreeMap<String, String>) -> Self {
        let digest = digest(words.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        Self { words: Arc::new(words), digest }
    }
}

impl Deref for Labels {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &BTreeMap<String, String> {
        &self.words
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Labels {}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.words.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(words: &[(&str, &str)]) -> Labels {
        Labels::from(
            words.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>(),
        )
    }

    #[test]
    fn labels_are_the_same_when_every_word_is() {
        assert_eq!(labels(&[("a", "b"), ("c", "d")]), labels(&[("c", "d"), ("a", "b")]));
        for other in [labels(&[]), labels(&[("a", "bc")]), labels(&[("ab", "c")]), labels(&[("a", "b"), ("c", "")])] {
            assert_ne!(labels(&[("a", "b")]), other);
        }
        assert_eq!(labels(&[]), Labels::default());
    }

    #[test]
    fn labels_are_written_as_a_map() {
        let one = labels(&[("rack", "r1")]);
        let text = serde_json::to_string(&one).expect("a map");
        assert_eq!(text, r#"{"rack":"r1"}"#);
        assert_eq!(serde_json::from_str::<Labels>(&text).expect("labels"), one);
    }
}
