//! From one commit to the language's [`Sources`]: blobs by path, and nothing else. What the commit before had as well is
//! not read again.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use gix::{
    ObjectId,
    objs::{Kind, tree::EntryKind},
};
use schema::fleet::{Blob, SourceBlob, Sources};

use super::{
    git::{GitError, Object, Repo, TreeEntry},
    history::parse,
};

const MAX_DEPTH: usize = 32;
const MAX_ENTRIES: usize = 200_000;
const MAX_BYTES: u64 = 256 << 20;

/// The files of the last commit by their object id, which was proved when they were read.
#[derive(Debug, Clone, Default)]
pub struct Blobs {
    known: HashMap<ObjectId, Blob>,
}

/// What stops a long read.
pub(super) struct Brake<'a> {
    pub(super) stop: &'a AtomicBool,
    pub(super) deadline: Option<Instant>,
}

impl Brake<'_> {
    fn check(&self) -> Result<(), GitError> {
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if late || self.stop.load(Ordering::Relaxed) { Err(GitError::Interrupted) } else { Ok(()) }
    }
}

/// The commit that a branch, a tag, `HEAD~3` or an abbreviated id names.
///
/// # Errors
/// When nothing, or something else than a commit, is named so.
pub fn resolve(repo: &Repo, name: &str) -> Result<String, GitError> {
    let missing = || GitError::BranchMissing(format!("{name:?} names no commit in the repository"));
    let id = repo.inner.rev_parse_single(name).map_err(|_| missing())?;
    let commit = id.object().map_err(|_| missing())?.peel_to_kind(Kind::Commit).map_err(|_| missing())?;
    Ok(commit.id.to_string())
}

/// Every file of the fleet in the folder `path` of a commit. Symbolic links and submodules are reported, never followed.
/// A folder that is not there gives an empty tree.
///
/// # Errors
/// When an object is missing or damaged, or the tree exceeds a bound.
pub fn read_tree(repo: &Repo, commit: &str, path: &str) -> Result<Sources, GitError> {
    read_tree_after(repo, commit, path, &mut Blobs::default())
}

/// The same, where `blobs` are what was read of another commit before, and are what was read of this one after it.
///
/// # Errors
/// As [`read_tree`].
pub fn read_tree_after(repo: &Repo, commit: &str, path: &str, blobs: &mut Blobs) -> Result<Sources, GitError> {
    read_tree_until(repo, commit, path, blobs, &Brake { stop: &AtomicBool::new(false), deadline: None })
}

pub(super) fn read_tree_until(
    repo: &Repo,
    commit: &str,
    path: &str,
    blobs: &mut Blobs,
    brake: &Brake<'_>,
) -> Result<Sources, GitError> {
    let commit = repo.commit(parse(commit)?)?;
    let mut root = parse(&commit.tree)?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match repo.tree(root)?.into_iter().find(|entry| entry.name == part.as_bytes() && entry.mode.is_tree()) {
            Some(entry) => root = entry.id,
            None => return Ok(Sources::default()),
        }
    }
    let read = HashMap::with_capacity(blobs.known.len());
    let mut reader =
        Reader { repo, brake, known: &blobs.known, read, sources: Sources::default(), entries: 0, bytes: 0 };
    reader.folder(root, &mut Vec::new(), 0)?;
    let Reader { sources, read, .. } = reader;
    blobs.known = read;
    Ok(sources)
}

struct Reader<'a> {
    repo: &'a Repo,
    brake: &'a Brake<'a>,
    known: &'a HashMap<ObjectId, Blob>,
    /// What is read of this commit.
    read: HashMap<ObjectId, Blob>,
    sources: Sources,
    entries: usize,
    bytes: u64,
}

impl Reader<'_> {
    fn folder(&mut self, id: ObjectId, path: &mut Vec<u8>, depth: usize) -> Result<(), GitError> {
        if depth > MAX_DEPTH {
            return Err(GitError::Refused(format!("the folders of the fleet are more than {MAX_DEPTH} levels deep")));
        }
        self.brake.check()?;
        for entry in self.repo.tree(id)? {
            // Hidden paths are no part of a fleet.
            if entry.name.starts_with(b".") {
                continue;
            }
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(GitError::Refused(format!("the fleet has more than {MAX_ENTRIES} files and folders")));
            }
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            self.entry(&entry, path, depth)?;
            path.truncate(length);
        }
        Ok(())
    }

    fn entry(&mut self, entry: &TreeEntry, path: &mut Vec<u8>, depth: usize) -> Result<(), GitError> {
        let blob = match entry.mode.kind() {
            EntryKind::Tree => return self.folder(entry.id, path, depth + 1),
            EntryKind::Link => SourceBlob::Symlink,
            EntryKind::Commit => SourceBlob::Submodule,
            EntryKind::Blob | EntryKind::BlobExecutable => {
                match std::str::from_utf8(path) {
                    Ok(text) if !Sources::wants(text) => return Ok(()),
                    Ok(_) => {}
                    Err(_) => {
                        self.sources.insert_raw(path, SourceBlob::BadPath);
                        return Ok(());
                    }
                }
                self.blob(entry.id)?
            }
        };
        self.sources.insert_raw(path, blob);
        Ok(())
    }

    fn blob(&mut self, id: ObjectId) -> Result<SourceBlob, GitError> {
        self.brake.check()?;
        let blob = match self.read.get(&id).or_else(|| self.known.get(&id)) {
            Some(blob) => blob.clone(),
            None => match self.repo.object(id, Kind::Blob, Sources::MAX_FILE_BYTES)? {
                Object::TooLarge(bytes) => return Ok(SourceBlob::TooLarge { bytes }),
                Object::Data(data) => data.into(),
            },
        };
        self.bytes += blob.len() as u64;
        if self.bytes > MAX_BYTES {
            return Err(GitError::Refused(format!(
                "the files of the fleet are larger than {MAX_BYTES} bytes together"
            )));
        }
        self.read.insert(id, blob.clone());
        Ok(SourceBlob::Bytes(blob))
    }
}
