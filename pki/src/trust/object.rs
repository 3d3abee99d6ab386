//! Names of git objects, computed again from their bytes.
//!
//! SHA-1 is computed with the detection of collision attacks that git and gix have; SHA-256 needs none. Whoever hands over
//! an object under a name hands over bytes that have that name, or nothing.

use std::{fmt, str::FromStr};

use schema::digest::Running;

/// How a repository names its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectFormat {
    /// Twenty bytes; the default of git.
    Sha1,
    /// Thirty-two bytes: `git init --object-format=sha256`.
    Sha256,
}

impl ObjectFormat {
    /// Hexadecimal digits of a name.
    #[must_use]
    pub const fn digits(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        }
    }

    /// How the repository that a raw commit is of names its objects: by the length of its tree's name.
    #[must_use]
    pub fn of_commit(raw: &[u8]) -> Option<Self> {
        let line = raw.strip_prefix(b"tree ")?;
        let digits = line.iter().take(65).position(|byte| *byte == b'\n')?;
        [Self::Sha1, Self::Sha256].into_iter().find(|format| format.digits() == digits)
    }

    /// The name of the tree without files.
    #[must_use]
    pub const fn empty_tree(self) -> ObjectId {
        match self {
            Self::Sha1 => ObjectId::Sha1([
                0x4b, 0x82, 0x5d, 0xc6, 0x42, 0xcb, 0x6e, 0xb9, 0xa0, 0x60, 0xe5, 0x4b, 0xf8, 0xd6, 0x92, 0x88, 0xfb,
                0xee, 0x49, 0x04,
            ]),
            Self::Sha256 => ObjectId::Sha256([
                0x6e, 0xf1, 0x9b, 0x41, 0x22, 0x5c, 0x53, 0x69, 0xf1, 0xc1, 0x04, 0xd4, 0x5d, 0x8d, 0x85, 0xef, 0xa9,
                0xb0, 0x57, 0xb5, 0x3b, 0x14, 0xb4, 0xb9, 0xb9, 0x39, 0xdd, 0x74, 0xde, 0xcc, 0x53, 0x21,
            ]),
        }
    }

    /// The header that holds a commit's signature in such a repository.
    #[must_use]
    pub const fn signature_header(self) -> &'static str {
        match self {
            Self::Sha1 => "gpgsig",
            Self::Sha256 => "gpgsig-sha256",
        }
    }
}

/// The name of a git object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectId {
    /// In a SHA-1 repository.
    Sha1([u8; 20]),
    /// In a SHA-256 repository.
    Sha256([u8; 32]),
}

/// Why bytes have no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes were made by a collision attack on SHA-1")]
pub struct Collision;

/// Why a text is not the name of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not 40 or 64 lower-case hexadecimal digits")]
pub struct ParseObjectIdError(pub String);

impl ObjectId {
    /// The name that a commit with these bytes has.
    ///
    /// # Errors
    /// When they look like one half of a manufactured SHA-1 collision.
    pub fn of_commit(format: ObjectFormat, bytes: &[u8]) -> Result<Self, Collision> {
        let head = format!("commit {}\0", bytes.len());
        match format {
            ObjectFormat::Sha1 => sha1(head.as_bytes(), bytes).map(Self::Sha1),
            ObjectFormat::Sha256 => {
                let mut running = Running::default();
                running.add(head.as_bytes());
                running.add(bytes);
                Ok(Self::Sha256(*running.finish().as_bytes()))
            }
        }
    }

    /// How the repository names its objects.
    #[must_use]
    pub const fn format(&self) -> ObjectFormat {
        match self {
            Self::Sha1(_) => ObjectFormat::Sha1,
            Self::Sha256(_) => ObjectFormat::Sha256,
        }
    }

    /// A name written in full, as one format has it.
    #[must_use]
    pub fn parse_as(format: ObjectFormat, digits: &[u8]) -> Option<Self> {
        let lower = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != format.digits() || !digits.iter().all(lower) {
            return None;
        }
        match format {
            ObjectFormat::Sha1 => {
                let mut bytes = [0; 20];
                hex::decode_to_slice(digits, &mut bytes).ok().map(|()| Self::Sha1(bytes))
            }
            ObjectFormat::Sha256 => {
                let mut bytes = [0; 32];
                hex::decode_to_slice(digits, &mut bytes).ok().map(|()| Self::Sha256(bytes))
            }
        }
    }

    /// Whether it is that of the tree without files.
    #[must_use]
    pub fn is_empty_tree(&self) -> bool {
        *self == self.format().empty_tree()
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Sha1(bytes) => bytes,
            Self::Sha256(bytes) => bytes,
        }
    }

    /// The first ten digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        hex::encode(&self.as_bytes()[..5])
    }
}

fn sha1(head: &[u8], bytes: &[u8]) -> Result<[u8; 20], Collision> {
    let mut hasher = sha1dc::Hasher::new();
    hasher.update(head);
    hasher.update(bytes);
    hasher.finalize().map(Into::into).map_err(|_| Collision)
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.as_bytes()))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ObjectId {
    type Err = ParseObjectIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [ObjectFormat::Sha1, ObjectFormat::Sha256]
            .into_iter()
            .find_map(|format| Self::parse_as(format, text.as_bytes()))
            .ok_or_else(|| ParseObjectIdError(text.chars().take(80).collect()))
    }
}

schema::as_text!(ObjectId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_commit_is_the_one_git_gives_it() {
        let bytes =
            b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@b> 0 +0000\ncommitter A <a@b> 0 +0000\n\nx\n";
        let sha1 = ObjectId::of_commit(ObjectFormat::Sha1, bytes).expect("no collision");
        assert_eq!(sha1.to_string(), "7b8051db3dcc0fcfd006919cfa7376ddbd7bdc1a");
    }

    #[test]
    fn the_tree_without_files_has_the_name_of_nothing() {
        assert_eq!(sha1(b"tree 0\0", b"").map(ObjectId::Sha1), Ok(ObjectFormat::Sha1.empty_tree()));
        let sha256 = *schema::digest::Digest::of(b"tree 0\0").as_bytes();
        assert_eq!(ObjectId::Sha256(sha256), ObjectFormat::Sha256.empty_tree());
        assert!(ObjectFormat::Sha256.empty_tree().is_empty_tree());
    }

    /// How the two documents of shattered.io begin, which have one SHA-1. Nobody has such a pair that begins as an object of git does.
    const SHATTERED: [&[u8; 320]; 2] =
        [include_bytes!("fixtures/shattered-1.bin"), include_bytes!("fixtures/shattered-2.bin")];

    #[test]
    fn half_of_a_collision_has_no_name() {
        for half in SHATTERED {
            for at in [0, 7, 64, 192, 320] {
                assert_eq!(sha1(&half[..at], &half[at..]), Err(Collision), "in two parts at {at}");
            }
            let mut other = *half;
            other[0] ^= 1;
            assert!(sha1(&other, b"").is_ok(), "it is the attack that is seen");
        }
    }

    #[test]
    fn a_commit_says_how_its_repository_names_objects() {
        for (digits, format) in
            [(40, Some(ObjectFormat::Sha1)), (64, Some(ObjectFormat::Sha256)), (41, None), (0, None)]
        {
            let raw = format!("tree {}\nauthor x\n", "a".repeat(digits));
            assert_eq!(ObjectFormat::of_commit(raw.as_bytes()), format);
        }
        assert_eq!(ObjectFormat::of_commit(b"parent 00"), None);
    }

    #[test]
    fn only_whole_lower_case_names_are_names() {
        for text in ["", "7b80", "7B8051DB3DCC0FCFD006919CFA7376DDBD7BDC1A", "zz", &"a".repeat(41), &"a".repeat(63)] {
            assert!(text.parse::<ObjectId>().is_err(), "{text}");
        }
        assert_eq!("a".repeat(64).parse::<ObjectId>().expect("a name").format(), ObjectFormat::Sha256);
    }
}
