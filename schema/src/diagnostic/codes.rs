//! The registry of diagnostic codes: one table, one page per code under `docs/errors/`, compiled in.
//!
//! A code never changes its meaning and is never used again for another. BC00 is the tree, BC01 syntax, BC02 the shape of
//! a document, BC03 the fleet as a whole, BC04 templates, BC05 what this version carries, BC06 the trust policy.

use std::{fmt, str::FromStr};

use super::Severity;

/// A stable code such as `BC0203`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(&'static str);

/// What the registry knows about a code.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// How much it weighs.
    pub severity: Severity,
    /// A few words.
    pub title: &'static str,
    /// The page, in Markdown: what it means, an example, how to mend it.
    pub page: &'static str,
}

macro_rules! codes {
    ($($name:ident = $text:literal, $severity:ident, $title:literal;)*) => {
        $(#[doc = $title] pub const $name: Code = Code($text);)*

        /// Every code, in order.
        pub const ALL: &[Entry] = &[$(Entry {
            code: $name,
            severity: Severity::$severity,
            title: $title,
            page: include_str!(concat!("../../../docs/errors/", $text, ".md")),
        },)*];
    };
}

codes! {
    NO_ROOT = "BC0001", Error, "no fleet file at the root";
    SECOND_ROOT = "BC0002", Error, "more than one fleet file";
    FILE_TOO_LARGE = "BC0003", Error, "a file is too large";
    NOT_UTF8 = "BC0004", Error, "a file is not UTF-8";
    CONTROL_CHARACTER = "BC0005", Error, "a file holds a character that nobody sees";
    SYMLINK = "BC0006", Error, "a symbolic link";
    SUBMODULE = "BC0007", Error, "a submodule";
    BAD_PATH = "BC0008", Error, "a path name that cannot be used";
    TOO_MANY = "BC0009", Error, "too many files or objects";
    BOM_OR_CRLF = "BC0010", Note, "a byte order mark or CRLF line ends";
    LEFT_ALONE = "BC0011", Note, "a file that this version leaves alone";
    UNREADABLE = "BC0012", Error, "a file that cannot be read";

    KDL_SYNTAX = "BC0101", Error, "not valid KDL";
    KDL_V1 = "BC0102", Error, "KDL version 1";
    TOO_DEEP = "BC0103", Error, "nested too deeply";
    YAML_SYNTAX = "BC0104", Error, "not valid YAML";
    YAML_ANCHOR = "BC0105", Error, "a YAML anchor or alias";
    YAML_MERGE = "BC0106", Error, "a YAML merge key";
    DUPLICATE_KEY = "BC0107", Error, "a key is written twice";
    KEY_NOT_TEXT = "BC0108", Error, "a key that is not text";
    TYPE_ANNOTATION = "BC0109", Error, "a type annotation or tag";
    NULL = "BC0110", Error, "null";

    UNKNOWN_KIND = "BC0201", Error, "no such kind of object";
    NO_IDENTITY = "BC0202", Error, "an object without a kind or name";
    UNKNOWN_KEY = "BC0203", Error, "no such key";
    WRONG_TYPE = "BC0204", Error, "a value of another type is expected";
    QUOTE_IT = "BC0205", Error, "a text must be quoted here";
    MISSING_KEY = "BC0206", Error, "a key is missing";
    BAD_NAME = "BC0207", Error, "not a name";
    BAD_VALUE = "BC0208", Error, "a value in the wrong form";
    OUT_OF_RANGE = "BC0209", Error, "a number out of range";
    UNKNOWN_WORD = "BC0210", Error, "none of the words that are possible here";
    CONFLICT = "BC0211", Error, "keys that exclude each other";
    BAD_SPAN = "BC0212", Error, "a time span that never is";
    BAD_WAVES = "BC0213", Error, "waves that do not lead to everybody";

    DUPLICATE_OBJECT = "BC0301", Error, "an object is defined twice";
    UNKNOWN_REFERENCE = "BC0302", Error, "a reference to nothing";
    PROFILE_CYCLE = "BC0303", Error, "profiles extend each other in a circle";
    DECLARED_AND_REMOVED = "BC0304", Error, "an object is both declared and removed";
    DUPLICATE_MACHINE = "BC0305", Error, "two nodes claim the same machine";
    BAD_HOST = "BC0306", Error, "a host that cannot be made";
    BAD_MOVE = "BC0307", Error, "an object that cannot have moved so";
    BAD_QUOTA = "BC0308", Error, "a quota that cannot be used";
    BAD_MIG = "BC0309", Error, "a MIG layout that no GPU has";
    NOT_INHERITED = "BC0310", Error, "nothing is inherited that could be left out";
    POLICY_MISSING = "BC0311", Error, "no such policy file";

    TEMPLATE_MISSING = "BC0401", Error, "no such template";
    TEMPLATE_SYNTAX = "BC0402", Error, "not a valid template";
    TEMPLATE_UNDEFINED = "BC0403", Error, "a template uses a value that does not exist";
    TEMPLATE_LIMIT = "BC0404", Error, "a template does too much";
    TEMPLATE_FAILED = "BC0405", Error, "a template cannot be rendered";

    LATER_KEY = "BC0502", Error, "a key that this version does not carry";
    IMMEDIATE_BY_DEFAULT = "BC0504", Note, "a pool without a rollout";
    RECORDED_ONLY = "BC0505", Note, "recorded, not acted on";
    WAVES_HELD = "BC0506", Note, "a pool that waits for its waves";

    STRAY_TRUST_FILE = "BC0601", Error, "another file beside the trust policy";
    KEY_REFUSED = "BC0602", Error, "a key that is not admitted";
    KEY_TWICE = "BC0603", Error, "a key that is listed twice";
    UNKNOWN_ROLE = "BC0604", Error, "a role or group that nobody has";
    TOO_FEW_PEOPLE = "BC0605", Error, "a threshold that nobody can meet";
    TIER_ORDER = "BC0606", Error, "a tier that is weaker than a lower one";
    TIER_TOO_MUCH = "BC0607", Error, "a tier that allows too much";
    LOCKED_OUT = "BC0608", Error, "a trust policy that nobody can change";
    REVOKED_NOBODYS = "BC0609", Error, "a revoked key that is nobody's";
    POLICY_CHAIN = "BC0610", Error, "a trust policy without its place in the chain";
    CHANGED_BY_FEWER = "BC0611", Warning, "a trust policy that too few people change";
    OUT_OF_REACH = "BC0612", Warning, "a rule that nobody can satisfy";
    POLICY_GONE = "BC0613", Error, "a trust policy that is gone";
}

impl Code {
    /// The text, `BC` and four digits.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// What the registry knows.
    #[must_use]
    pub fn entry(self) -> &'static Entry {
        ALL.iter().find(|entry| entry.code == self).expect("only the registry makes codes")
    }

    /// How much the code weighs.
    #[must_use]
    pub fn severity(self) -> Severity {
        self.entry().severity
    }
}

/// There is no such code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no diagnostic {0:?}")]
pub struct UnknownCode(pub String);

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        ALL.iter()
            .map(|entry| entry.code)
            .find(|code| code.0.eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownCode(text.chars().take(80).collect()))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl serde::Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_and_pages_match_both_ways() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/errors");
        let pages: BTreeSet<String> = std::fs::read_dir(folder)
            .expect("the folder of error pages")
            .filter_map(|entry| entry.expect("an entry").file_name().to_str()?.strip_suffix(".md").map(str::to_owned))
            .collect();
        let codes: BTreeSet<String> = ALL.iter().map(|entry| entry.code.to_string()).collect();
        assert_eq!(pages, codes);
        assert_eq!(codes.len(), ALL.len(), "a code is listed twice");
    }

    #[test]
    fn every_page_says_what_and_how() {
        for entry in ALL {
            assert!(entry.page.starts_with(&format!("# {}: {}\n", entry.code, entry.title)), "{}", entry.code);
            for part in ["\n## Example\n", "\n## How to mend it\n"] {
                assert!(entry.page.contains(part), "{} has no {part:?}", entry.code);
            }
        }
    }

    #[test]
    fn codes_are_found_in_any_case() {
        assert_eq!("bc0203".parse(), Ok(UNKNOWN_KEY));
        assert!("BC9999".parse::<Code>().is_err());
    }
}
