//! The one splitter of commits: raw bytes in, parts out, and nothing in between that could read them in another way.
//!
//! Stricter than git, on purpose. git verifies commits with two trees, two signatures, text behind the signature or hidden
//! behind a NUL; forges and tools then show another commit than the one that was signed. Here a commit is either exactly
//!
//! ```text
//! tree <id> ⏎ [parent <id> ⏎]* author <person> ⏎ committer <person> ⏎ [<signature header> …] ⏎ message
//! ```
//!
//! in UTF-8 with LF, or [`Malformed`]. What was signed is the raw bytes without the signature header, byte for byte: nothing
//! is ever written again from its parts.

mod malformed;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use malformed::Malformed;
pub use schema::letter::hidden;

use super::object::{ObjectFormat, ObjectId};

/// The largest commit that is looked at.
pub const MAX_COMMIT_BYTES: usize = 1 << 20;

/// Parents that a commit may have. Two make a merge; more are an octopus, which the walk refuses by name.
const MAX_PARENTS: usize = 64;

/// A commit whose every byte is accounted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit<'a> {
    raw: &'a [u8],
    id: ObjectId,
    tree: ObjectId,
    parents: Vec<ObjectId>,
    author: &'a str,
    committer: &'a str,
    message: &'a str,
    /// The signature header with its line ends, in the raw bytes.
    header: Option<Range<usize>>,
}

impl<'a> Commit<'a> {
    /// Takes a commit apart, and computes its name.
    ///
    /// # Errors
    /// With the first way in which it is not of the one form.
    pub fn split(format: ObjectFormat, raw: &'a [u8]) -> Result<Self, Malformed> {
        if raw.len() > MAX_COMMIT_BYTES {
            return Err(Malformed::TooLarge);
        }
        let text = std::str::from_utf8(raw).map_err(|_| Malformed::NotUtf8)?;
        if let Some(letter) = text.chars().find(|letter| hidden(*letter)) {
            return Err(match letter {
                '\0' => Malformed::Nul,
                '\r' => Malformed::CarriageReturn,
                other => Malformed::HiddenCharacter(other),
            });
        }
        let mut lines = Lines { text, at: 0 };
        let tree = lines.id("tree", format)?.ok_or(Malformed::Missing("tree"))?;
        let mut parents = Vec::new();
        while let Some(parent) = lines.id("parent", format)? {
            if parents.len() == MAX_PARENTS {
                return Err(Malformed::TooManyParents);
            }
            parents.push(parent);
        }
        let author = lines.person("author")?;
        let committer = lines.person("committer")?;
        let header = lines.signature(format)?;
        if let Some(line) = lines.peek().filter(|line| !line.is_empty()) {
            return Err(unexpected(line, header.is_some(), format));
        }
        lines.next().ok_or(Malformed::Unfinished)?;
        let message = &text[lines.at..];
        let id = ObjectId::of_commit(format, raw).map_err(|_| Malformed::Collision)?;
        Ok(Self { raw, id, tree, parents, author, committer, message, header })
    }

    /// Its name, computed from its bytes.
    #[must_use]
    pub const fn id(&self) -> ObjectId {
        self.id
    }

    /// Its tree.
    #[must_use]
    pub const fn tree(&self) -> ObjectId {
        self.tree
    }

    /// Its parents, first one first.
    #[must_use]
    pub fn parents(&self) -> &[ObjectId] {
        &self.parents
    }

    /// Who says to have written it: for show, never for a decision.
    #[must_use]
    pub const fn author(&self) -> &'a str {
        self.author
    }

    /// Who says to have committed it, and when: for show, never for a decision.
    #[must_use]
    pub const fn committer(&self) -> &'a str {
        self.committer
    }

    /// The whole message.
    #[must_use]
    pub const fn message(&self) -> &'a str {
        self.message
    }

    /// The first line of the message.
    #[must_use]
    pub fn subject(&self) -> &'a str {
        self.message.lines().next().unwrap_or_default()
    }

    /// The signature as its armour, without the indentation of the header; `None` when the commit is not signed.
    #[must_use]
    pub fn signature(&self) -> Option<String> {
        let header = std::str::from_utf8(&self.raw[self.header.clone()?]).ok()?;
        let (_, first) = header.split_once(' ')?;
        Some(first.replace("\n ", "\n"))
    }

    /// The bytes that were signed: the raw ones without the signature header.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        match &self.header {
            Some(header) => [&self.raw[..header.start], &self.raw[header.end..]].concat(),
            None => self.raw.to_vec(),
        }
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.raw.len()
    }
}

/// The lines of the head of a commit.
struct Lines<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lines<'a> {
    /// The line at the cursor, without its end; `None` when no line ends any more.
    fn peek(&self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        rest.find('\n').map(|end| &rest[..end])
    }

    fn next(&mut self) -> Option<&'a str> {
        let line = self.peek()?;
        self.at += line.len() + 1;
        Some(line)
    }

    /// The value of a header, if it is the one that comes.
    fn header(&mut self, name: &str) -> Option<&'a str> {
        let value = self.peek()?.strip_prefix(name)?.strip_prefix(' ')?;
        self.next();
        Some(value)
    }

    fn id(&mut self, name: &'static str, format: ObjectFormat) -> Result<Option<ObjectId>, Malformed> {
        let Some(value) = self.header(name) else { return Ok(None) };
        ObjectId::parse_as(format, value.as_bytes()).map(Some).ok_or(Malformed::BadId(name))
    }

    fn person(&mut self, name: &'static str) -> Result<&'a str, Malformed> {
        match self.header(name) {
            Some(value) if is_person(value) => Ok(value),
            Some(_) => Err(Malformed::BadPerson(name)),
            None => match self.peek() {
                Some(line) if !line.is_empty() => Err(misplaced(line, name)),
                _ => Err(Malformed::Missing(name)),
            },
        }
    }

    /// The signature header and what continues it.
    fn signature(&mut self, format: ObjectFormat) -> Result<Option<Range<usize>>, Malformed> {
        let start = self.at;
        if self.header(format.signature_header()).is_none() {
            return Ok(None);
        }
        while self.peek().is_some_and(|line| line.starts_with(' ')) {
            self.next();
        }
        Ok(Some(start..self.at))
    }
}

/// Why a line cannot stand where `wanted` is expected.
fn misplaced(line: &str, wanted: &'static str) -> Malformed {
    let name = name_of(line);
    match name.as_str() {
        "tree" => Malformed::Twice("tree"),
        "parent" | "author" | "committer" => Malformed::OutOfOrder(name),
        _ => Malformed::Missing(wanted),
    }
}

/// Why a line cannot stand behind the committer, or behind the signature.
fn unexpected(line: &str, signed: bool, format: ObjectFormat) -> Malformed {
    let name = name_of(line);
    match name.as_str() {
        "tree" => Malformed::Twice("tree"),
        "author" => Malformed::Twice("author"),
        "committer" => Malformed::Twice("committer"),
        "parent" => Malformed::OutOfOrder(name),
        own if signed && own == format.signature_header() => Malformed::Twice(format.signature_header()),
        "gpgsig" | "gpgsig-sha256" => Malformed::ForeignSignature(name),
        _ if signed => Malformed::AfterSignature(name),
        "encoding" => Malformed::Encoding,
        "mergetag" => Malformed::MergeTag,
        _ => Malformed::UnknownHeader(name),
    }
}

fn name_of(line: &str) -> String {
    line.split(' ').next().unwrap_or_default().chars().take(40).collect()
}

/// `Name <mail> 1767225600 +0100`.
fn is_person(value: &str) -> bool {
    let parts = || {
        let (name, rest) = value.split_once('<')?;
        let (mail, rest) = rest.split_once("> ")?;
        let (seconds, zone) = rest.split_once(' ')?;
        Some((name, mail, seconds, zone))
    };
    let Some((name, mail, seconds, zone)) = parts() else { return false };
    let angular = |text: &str| text.contains(['<', '>']);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (name.is_empty() || name.ends_with(' '))
        && !angular(name)
        && !angular(mail)
        && digits(seconds)
        && seconds.parse::<i64>().is_ok()
        && (seconds == "0" || !seconds.starts_with('0'))
        && zone.strip_prefix(['+', '-']).is_some_and(|zone| zone.len() == 4 && digits(zone))
}
