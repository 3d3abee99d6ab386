//! What stands at a place of a file that is being written: for editors, so no text is too broken for it.

mod kdl;
mod yaml;

use std::ops::Range;

use super::{
    doc::Scalar,
    edit::read,
    parse::Syntax,
    reference::{self, Key, KindDoc, Takes},
};
use crate::{diagnostic::Span, object::Kind};

/// Where a cursor stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The keys of the blocks around it, from the kind down: `pool`, `hardware`, `gpus`.
    pub path: Vec<String>,
    /// What belongs there.
    pub place: Place,
    /// The word at the cursor, without quotes.
    pub word: Range<usize>,
    /// Whether the word is in quotes.
    pub quoted: bool,
}

/// What belongs at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A key; at the top of a KDL file the kind of an object.
    Key,
    /// A value of this key.
    Value(String),
    /// A value of this key, or a key of its block: behind the name of a KDL node.
    Either(String),
    /// Nothing that is known: a comment, the inside of a long text.
    Nothing,
}

/// Looks at a byte of a file. `None` for what is neither KDL nor YAML.
#[must_use]
pub fn cursor(path: &str, text: &str, at: usize) -> Option<Cursor> {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    match Syntax::of(path)? {
        Syntax::Kdl => Some(kdl::cursor(text, at)),
        Syntax::Yaml => Some(yaml::cursor(text, at)),
        Syntax::Template => None,
    }
}

impl Cursor {
    /// The kind of the object around the cursor.
    #[must_use]
    pub fn kind(&self) -> Option<&'static KindDoc> {
        self.path.first()?.parse().ok().map(reference::kind)
    }

    /// The keys that belong into the block around the cursor.
    #[must_use]
    pub fn keys(&self) -> &'static [Key] {
        let Some(kind) = self.kind() else { return &[] };
        let mut keys: &'static [Key] = &kind.keys;
        let mut named = false;
        for word in &self.path[1..] {
            match keys.iter().find(|key| key.key == word) {
                Some(key) => {
                    keys = key.keys();
                    named = matches!(key.takes, Takes::Named { .. });
                }
                // A mapping by name: the word is the name of one of them.
                None if named => named = false,
                None => return &[],
            }
        }
        keys
    }

    /// The key whose value or name is at the cursor.
    #[must_use]
    pub fn key(&self, text: &str) -> Option<&'static Key> {
        let word = match &self.place {
            Place::Value(key) | Place::Either(key) => key.as_str(),
            Place::Key => text.get(self.word.clone())?,
            Place::Nothing => return None,
        };
        self.keys().iter().find(|key| key.key == word)
    }
}

impl Key {
    /// What a lone value of this key is: that of a list, or of the key that it stands for.
    #[must_use]
    pub fn lone(&self) -> (&'static str, &Takes) {
        let inner = match &self.takes {
            Takes::List(one) => return (self.key, one),
            Takes::Block { positional, keys } => positional.and_then(|word| keys.iter().find(|key| key.key == word)),
            Takes::Named { short, keys, .. } => short.and_then(|word| keys.iter().find(|key| key.key == word)),
            _ => None,
        };
        inner.map_or((self.key, &self.takes), |inner| (inner.key, &inner.takes))
    }
}

/// An object of a file, as far as it can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlined {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Where its name is written.
    pub at: Span,
}

/// The objects of a file that can be parsed, whatever is wrong in them.
#[must_use]
pub fn outline(path: &str, file: &[u8]) -> Vec<Outlined> {
    let syntax = Syntax::of(path).filter(|syntax| *syntax != Syntax::Template);
    let parsed = syntax.and_then(|syntax| read(file, syntax).ok()).unwrap_or_default();
    let object = |object: super::doc::Object| {
        let name = object.name?;
        let Scalar::Text(text) = name.value else { return None };
        Some(Outlined { kind: object.kind.0.parse().ok()?, name: text, at: name.span })
    };
    parsed.objects.into_iter().filter_map(object).collect()
}

#[cfg(test)]
mod tests;
