//! The blobs of one tree, by path: what [`load`](super::load) reads. Reading directories and git is the caller's job.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use crate::digest::{Digest, Digester};

/// A file's bytes, shared, and their digest, which is made when somebody first asks for it.
#[derive(Clone)]
pub struct Blob(Arc<Content>);

struct Content {
    bytes: Box<[u8]>,
    digest: OnceLock<Digest>,
}

impl Blob {
    /// The digest of the bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        *self.0.digest.get_or_init(|| Digest::of(&self.0.bytes))
    }

    /// Whether two are one and the same memory.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl<B: Into<Box<[u8]>>> From<B> for Blob {
    fn from(bytes: B) -> Self {
        Self(Arc::new(Content { bytes: bytes.into(), digest: OnceLock::new() }))
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.same(other) || self[..] == other[..]
    }
}

impl Eq for Blob {}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({:?})", String::from_utf8_lossy(self))
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceBlob {
    /// A regular file.
    Bytes(Blob),
    /// A symbolic link; it is never followed.
    Symlink,
    /// A git submodule; it is never read.
    Submodule,
    /// A file that the caller did not load because of its size.
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// A file that the caller could not read.
    Unreadable {
        /// Why, in a few words.
        reason: String,
    },
    /// A path that is not UTF-8; the key is its escaped form.
    BadPath,
}

/// A tree: paths below the fleet's root, with `/` between components, and what is there.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    blobs: BTreeMap<Arc<str>, SourceBlob>,
    /// Made when somebody first asks for it.
    digest: OnceLock<Digest>,
}

impl PartialEq for Sources {
    fn eq(&self, other: &Self) -> bool {
        self.blobs == other.blobs
    }
}

impl Eq for Sources {}

impl Sources {
    /// The largest file that is worth loading; larger ones are given as [`SourceBlob::TooLarge`].
    pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

    /// Whether the language looks at a path at all, so that a caller need not load the bytes of other files.
    #[must_use]
    pub fn wants(path: &str) -> bool {
        let hidden = path.split('/').any(|part| part.starts_with('.') && part != "." && part != "..");
        !hidden && [".kdl", ".yaml", ".yml", ".j2", ".cedar"].iter().any(|end| path.ends_with(end))
    }

    /// A tree of what is at each path: the last word counts where a path is named twice.
    #[must_use]
    pub fn of(blobs: Vec<(Arc<str>, SourceBlob)>) -> Self {
        Self { blobs: blobs.into_iter().collect(), digest: OnceLock::new() }
    }

    /// Adds what is at a path.
    pub fn insert(&mut self, path: impl Into<Arc<str>>, blob: SourceBlob) {
        self.digest = OnceLock::new();
        self.blobs.insert(path.into(), blob);
    }

    /// Adds a regular file.
    pub fn insert_file(&mut self, path: impl Into<Arc<str>>, bytes: impl Into<Blob>) {
        let bytes = bytes.into();
        let size = bytes.len() as u64;
        let blob =
            if size > Self::MAX_FILE_BYTES { SourceBlob::TooLarge { bytes: size } } else { SourceBlob::Bytes(bytes) };
        self.insert(path, blob);
    }

    /// Adds what is at a path given in bytes, as git has it.
    pub fn insert_raw(&mut self, path: &[u8], blob: SourceBlob) {
        match std::str::from_utf8(path) {
            Ok(path) => self.insert(path, blob),
            Err(_) => self.insert(path.escape_ascii().to_string(), SourceBlob::BadPath),
        }
    }

    /// Every path and what is there, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &SourceBlob)> {
        self.blobs.iter()
    }

    /// What is at a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&SourceBlob> {
        self.blobs.get(path)
    }

    /// The digest of the whole tree: of every path and what is there. Two trees that have the same one are the same fleet,
    /// whoever read them and from where.
    #[must_use]
    pub fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| self.digest_of_all())
    }

    fn digest_of_all(&self) -> Digest {
        let mut digester = Digester::new("bc/tree/v1");
        for (path, blob) in &self.blobs {
            digester.part(path.as_bytes());
            match blob {
                SourceBlob::Bytes(bytes) => digester.part(bytes.digest().as_bytes()),
                SourceBlob::Symlink => digester.part(b"link"),
                SourceBlob::Submodule => digester.part(b"submodule"),
                SourceBlob::TooLarge { bytes } => digester.part(format!("large {bytes}").as_bytes()),
                SourceBlob::Unreadable { reason } => digester.part(format!("unreadable {reason}").as_bytes()),
                SourceBlob::BadPath => digester.part(b"path"),
            }
        }
        digester.finish()
    }

    /// How many paths there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blobs.len()
    }

    /// Whether the tree is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }
}

impl<P: Into<Arc<str>>, B: Into<Blob>> FromIterator<(P, B)> for Sources {
    fn from_iter<I: IntoIterator<Item = (P, B)>>(files: I) -> Self {
        let mut sources = Self::default();
        for (path, bytes) in files {
            sources.insert_file(path, bytes);
        }
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_one_digest_however_it_was_put_together() {
        let one: Sources = [("a.kdl", "x"), ("b/c.kdl", "y")].into_iter().map(bytes).collect();
        let other: Sources = [("b/c.kdl", "y"), ("a.kdl", "x")].into_iter().map(bytes).collect();
        assert_eq!(one.digest(), other.digest());
    }

    #[test]
    fn paths_texts_and_kinds_of_files_all_change_the_digest() {
        let base: Sources = [("a.kdl", "x"), ("b.kdl", "y")].into_iter().map(bytes).collect();
        let mut seen = vec![base.digest(), Sources::default().digest()];
        for files in [
            vec![("a.kdl", "y"), ("b.kdl", "x")],
            vec![("a.kdl", "x"), ("c.kdl", "y")],
            vec![("a.kdl", "x")],
            vec![("a.kdl", "x"), ("b.kdl", "y"), ("c.kdl", "")],
        ] {
            seen.push(files.into_iter().map(bytes).collect::<Sources>().digest());
        }
        let mut linked = base;
        linked.insert("b.kdl", SourceBlob::Symlink);
        seen.push(linked.digest());
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]));
    }

    fn bytes((path, text): (&'static str, &str)) -> (&'static str, Vec<u8>) {
        (path, text.as_bytes().to_vec())
    }
}
