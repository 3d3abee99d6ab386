//! [`load`]: from blobs to a fleet or to everything that is wrong with them.

use super::{Fleet, Sources};
use crate::diagnostic::{Diagnostic, SourceMap};

/// What a tree turned out to be.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The fleet; `None` when any diagnostic is an error.
    pub fleet: Option<Fleet>,
    /// Everything that was found, sorted by file and line.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts, for quoting.
    pub sources: SourceMap,
}

/// Bounds on a tree, looked at before anything is parsed.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Fleet files and templates at most.
    pub files: usize,
    /// Bytes of them together at most.
    pub bytes: u64,
    /// Objects at most.
    pub objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: 50_000, bytes: 256 << 20, objects: 50_000 }
    }
}

/// Reads a tree.
#[must_use]
pub fn load(sources: &Sources) -> Loaded {
    load_with(sources, Limits::default())
}

/// Reads a tree within bounds.
#[must_use]
pub fn load_with(_sources: &Sources, _limits: Limits) -> Loaded {
    Loaded { fleet: None, diagnostics: Vec::new(), sources: SourceMap::default() }
}
