//! What lies where people say things and is heard by nobody, whoever signed it: whoever put it there is told.

use std::{collections::BTreeMap, fmt};

use pki::trust::statement::MAX_STATEMENT_BYTES;

use crate::source::git::clean;

/// The longest name that is told.
const LONGEST: usize = 200;

/// Why nobody looks at something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deaf {
    /// Its place has another shape than those of statements.
    Place,
    /// It is larger than any statement.
    Size,
    /// It is no commit.
    Kind,
}

impl fmt::Display for Deaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place => f.write_str(
                "a statement lies at bc/statements/KIND/SUBJECT/NAME/NONCE, where KIND is what it is (docs/guides/trust.md)",
            ),
            Self::Size => write!(f, "a statement has at most {} KiB", MAX_STATEMENT_BYTES >> 10),
            Self::Kind => f.write_str("a statement is a commit"),
        }
    }
}

/// What nobody looks at for one reason: the first by name, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlooked {
    /// Why.
    pub why: Deaf,
    /// How many.
    pub count: usize,
    /// One of them.
    pub example: String,
}

impl Overlooked {
    /// Those of some names, by reason.
    pub(in crate::source) fn of<'n>(names: impl IntoIterator<Item = (&'n str, Deaf)>) -> Vec<Self> {
        let mut found: BTreeMap<Deaf, (usize, &str)> = BTreeMap::new();
        for (name, why) in names {
            let (count, first) = found.entry(why).or_insert((0, name));
            (*count, *first) = (*count + 1, name.min(first));
        }
        let one = |(why, (count, first)): (Deaf, (usize, &str))| Self { why, count, example: clean(first, LONGEST) };
        found.into_iter().map(one).collect()
    }
}

impl fmt::Display for Overlooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, count, example } = self;
        match count.saturating_sub(1) {
            0 => write!(f, "{example} is not heard: {why}"),
            1 => write!(f, "{example} and 1 other are not heard: {why}"),
            others => write!(f, "{example} and {others} others are not heard: {why}"),
        }
    }
}
