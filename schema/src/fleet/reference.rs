//! What can be written: every kind with its keys, what each takes and says. The JSON Schema, the reference pages, `kinds`
//! and the language server are made from this.
//!
//! Which keys there are, and the forms, bounds and words that each takes, is what the decoders ask for when they run on
//! nothing; what a key says is its docstring. So neither can be another than what [`load`](super::load) reads.

mod page;
mod record;

use std::sync::OnceLock;

use super::doc::{Entry, Form, Scalar};
use crate::object::Kind;

pub use page::{codes_page, index_page, kind_page};

/// A kind and what can be written in an object of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindDoc {
    /// The kind.
    pub kind: Kind,
    /// What it is for.
    pub doc: String,
    /// A file that usually holds such objects.
    pub file: &'static str,
    /// An object in KDL.
    pub kdl: &'static str,
    /// How an object is named.
    pub naming: Naming,
    /// Its keys, in the order of the decoder.
    pub keys: Vec<Key>,
}

/// How an object of a kind is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// By a name of its own.
    Name,
    /// By a name that may be left out.
    Optional,
    /// By the address of another object.
    Address,
    /// Not at all.
    Nameless,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The word.
    pub key: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// Whether it must be there.
    pub required: bool,
    /// The keys of which one may be there in its place.
    pub or: Vec<String>,
    /// What it says.
    pub doc: String,
    /// The form of its texts, as a regular expression.
    pub pattern: Option<String>,
    /// The form of the names of its blocks.
    pub named: Option<&'static str>,
}

/// What a key takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// A text.
    Text,
    /// A name: a DNS label.
    Name,
    /// The name of an object of a kind.
    Reference(Kind),
    /// A text of a form, which these words tell.
    Form(String),
    /// One of a few words.
    Words(Vec<String>),
    /// A boolean.
    Boolean,
    /// A whole number between bounds.
    Integer(i128, i128),
    /// A share such as `5%`, or the number of percents.
    Share,
    /// A whole number or a share.
    CountOrShare,
    /// The address of an object of one of these kinds.
    Address(Vec<Kind>),
    /// One such value, or several.
    List(Box<Self>),
    /// Free keys, each with one of these.
    Table(Vec<Self>),
    /// Keys of its own. A lone value stands for the key `positional`.
    Block {
        /// The key that a lone value stands for.
        positional: Option<&'static str>,
        /// The keys.
        keys: Vec<Key>,
    },
    /// Blocks in order.
    Blocks {
        /// The keys of each.
        keys: Vec<Key>,
    },
    /// Blocks with a name each.
    Named {
        /// The key that holds the name where it does not stand in front.
        id: &'static str,
        /// The key that a lone value stands for.
        short: Option<&'static str>,
        /// The keys of each.
        keys: Vec<Key>,
    },
    /// Nothing yet: a later version reads it.
    Later,
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(other.key)
    }
}

impl Key {
    pub(super) const fn new(key: &'static str, takes: Takes) -> Self {
        Self { key, takes, required: false, or: Vec::new(), doc: String::new(), pattern: None, named: None }
    }

    /// The keys below this one.
    #[must_use]
    pub fn keys(&self) -> &[Self] {
        match &self.takes {
            Takes::Block { keys, .. } | Takes::Blocks { keys } | Takes::Named { keys, .. } => keys,
            _ => &[],
        }
    }
}

impl Takes {
    pub(super) fn words(words: &[&str]) -> Self {
        Self::Words(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// What an entry is an example of.
    pub(super) fn of(probe: &Entry) -> Option<Self> {
        match (probe.form, &probe.args.first()?.value) {
            (Form::List, _) => Some(Self::List(Box::new(Self::Text))),
            (_, Scalar::Bool(_)) => Some(Self::Boolean),
            (_, Scalar::Int(_)) => Some(Self::Integer(i128::from(i64::MIN), i128::from(i64::MAX))),
            (_, Scalar::Text(_)) => Some(Self::Text),
            (_, Scalar::Float) => None,
        }
    }

    /// A few words for people: `text`, `1 to 64`, `pack, spread`.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Name => "name".to_owned(),
            Self::Reference(kind) => format!("name of a {kind}"),
            Self::Form(form) => form.clone(),
            Self::Words(words) => words.join(", "),
            Self::Boolean => "true or false".to_owned(),
            Self::Integer(_, most) if *most >= i128::from(u32::MAX) => "whole number".to_owned(),
            Self::Integer(least, most) => format!("{least} to {most}"),
            Self::Share => "share such as 5%".to_owned(),
            Self::CountOrShare => "number, or share such as 5%".to_owned(),
            Self::Address(kinds) => kinds.iter().map(|kind| format!("{kind}/NAME")).collect::<Vec<_>>().join(", "),
            Self::List(one) => format!("one or more: {}", one.in_words()),
            Self::Table(values) => {
                let values: Vec<String> = values.iter().map(Self::in_words).collect();
                format!("free keys, each: {}", values.join(", or "))
            }
            Self::Block { positional: Some(key), .. } => format!("block; a lone value is `{key}`"),
            Self::Block { positional: None, .. } => "block".to_owned(),
            Self::Blocks { .. } => "blocks, in order".to_owned(),
            Self::Named { id, short: None, .. } => format!("blocks, each with a `{id}`"),
            Self::Named { id, short: Some(short), .. } => {
                format!("blocks, each with a `{id}`; a lone value is `{short}`")
            }
            Self::Later => "nothing yet: a later version reads it".to_owned(),
        }
    }
}

/// Every kind, in the order of the reference.
#[must_use]
pub fn kinds() -> &'static [KindDoc] {
    static KINDS: OnceLock<Vec<KindDoc>> = OnceLock::new();
    KINDS.get_or_init(|| Kind::ALL.iter().map(|kind| record::kind(*kind)).collect())
}

/// One kind.
#[must_use]
pub fn kind(kind: Kind) -> &'static KindDoc {
    let found = kinds().iter().find(|doc| doc.kind == kind);
    found.expect("every kind is recorded")
}

#[cfg(test)]
mod tests;
