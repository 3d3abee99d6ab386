//! The blobs of one tree, by path: what [`load`](super::load) reads. Reading directories and git is the caller's job.

use std::{collections::BTreeMap, sync::Arc};

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceBlob {
    /// A regular file.
    Bytes(Arc<[u8]>),
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    blobs: BTreeMap<Arc<str>, SourceBlob>,
}

impl Sources {
    /// The largest file that is worth loading; larger ones are given as [`SourceBlob::TooLarge`].
    pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

    /// Whether the language looks at a path at all, so that a caller need not load the bytes of other files.
    #[must_use]
    pub fn wants(path: &str) -> bool {
        let hidden = path.split('/').any(|part| part.starts_with('.') && part != "." && part != "..");
        !hidden && [".kdl", ".yaml", ".yml", ".j2", ".cedar"].iter().any(|end| path.ends_with(end))
    }

    /// Adds what is at a path.
    pub fn insert(&mut self, path: impl Into<Arc<str>>, blob: SourceBlob) {
        self.blobs.insert(path.into(), blob);
    }

    /// Adds a regular file.
    pub fn insert_file(&mut self, path: impl Into<Arc<str>>, bytes: impl Into<Arc<[u8]>>) {
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

impl<P: Into<Arc<str>>, B: Into<Arc<[u8]>>> FromIterator<(P, B)> for Sources {
    fn from_iter<I: IntoIterator<Item = (P, B)>>(files: I) -> Self {
        let mut sources = Self::default();
        for (path, bytes) in files {
            sources.insert_file(path, bytes);
        }
        sources
    }
}
