//! From one commit to the language's [`Sources`]: blobs by path, and nothing else. What the commit before had as well is
//! not read again.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use gix::{
    ObjectId,
    objs::{Kind, tree::EntryKind},
};
use schema::fleet::{SourceBlob, Sources};

use super::{
    git::{GitError, Object, Repo},
    history::parse,
};

const MAX_DEPTH: usize = 32;
const MAX_ENTRIES: usize = 200_000;
const MAX_BYTES: u64 = 256 << 20;

/// What was read of the last commit: its folders by path, each whole. A folder that is the same in the next commit is not
/// opened, and of one that changed only what changed is read. Objects were proved when they were read.
#[derive(Debug, Clone, Default)]
pub struct Blobs {
    folders: HashMap<Vec<u8>, Arc<Folder>>,
}

/// One folder of a commit.
#[derive(Debug)]
struct Folder {
    id: ObjectId,
    items: Vec<Item>,
    /// How many files and folders it has, hidden ones left out.
    entries: usize,
}

#[derive(Debug)]
enum Item {
    Folder { path: Vec<u8>, id: ObjectId },
    File { path: Arc<str>, id: ObjectId, blob: SourceBlob },
}

/// What stops a long read.
pub(super) struct Brake<'a> {
    pub(super) stop: &'a AtomicBool,
    pub(super) deadline: Option<Instant>,
}

impl Brake<'_> {
    /// Whether nobody waits any more.
    pub(super) fn is_on(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn check(&self) -> Result<(), GitError> {
        if self.is_on() { Err(GitError::Interrupted) } else { Ok(()) }
    }
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
    let mut reader = Reader {
        repo,
        brake,
        known: &blobs.folders,
        read: HashMap::with_capacity(blobs.folders.len()),
        files: Vec::new(),
        entries: 0,
        bytes: 0,
    };
    reader.folder(root, &[], 0)?;
    let Reader { files, read, .. } = reader;
    blobs.folders = read;
    Ok(Sources::of(files))
}

struct Reader<'a> {
    repo: &'a Repo,
    brake: &'a Brake<'a>,
    known: &'a HashMap<Vec<u8>, Arc<Folder>>,
    /// What is read of this commit.
    read: HashMap<Vec<u8>, Arc<Folder>>,
    files: Vec<(Arc<str>, SourceBlob)>,
    entries: usize,
    bytes: u64,
}

impl Reader<'_> {
    fn folder(&mut self, id: ObjectId, path: &[u8], depth: usize) -> Result<(), GitError> {
        if depth > MAX_DEPTH {
            return Err(GitError::Refused(format!("the folders of the fleet are more than {MAX_DEPTH} levels deep")));
        }
        self.brake.check()?;
        let known = self.known.get(path);
        let folder = match known.filter(|known| known.id == id) {
            Some(same) => Arc::clone(same),
            None => Arc::new(self.open(id, path, known.map(|known| &**known))?),
        };
        self.entries += folder.entries;
        if self.entries > MAX_ENTRIES {
            return Err(GitError::Refused(format!("the fleet has more than {MAX_ENTRIES} files and folders")));
        }
        for item in &folder.items {
            match item {
                Item::Folder { path, id } => self.folder(*id, path, depth + 1)?,
                Item::File { path, blob, .. } => self.file(path, blob)?,
            }
        }
        self.read.insert(path.to_vec(), folder);
        Ok(())
    }

    fn file(&mut self, path: &Arc<str>, blob: &SourceBlob) -> Result<(), GitError> {
        if let SourceBlob::Bytes(bytes) = blob {
            self.bytes += bytes.len() as u64;
            if self.bytes > MAX_BYTES {
                return Err(GitError::Refused(format!(
                    "the files of the fleet are larger than {MAX_BYTES} bytes together"
                )));
            }
        }
        self.files.push((Arc::clone(path), blob.clone()));
        Ok(())
    }

    /// Reads a folder and its files, but for those that it had `before`.
    fn open(&self, id: ObjectId, above: &[u8], before: Option<&Folder>) -> Result<Folder, GitError> {
        let before = before.iter().flat_map(|folder| &folder.items).filter_map(|item| match item {
            Item::File { id, blob, .. } => Some((*id, blob)),
            Item::Folder { .. } => None,
        });
        let before: HashMap<ObjectId, &SourceBlob> = before.collect();
        let mut folder = Folder { id, items: Vec::new(), entries: 0 };
        let mut bytes = self.bytes;
        for entry in self.repo.tree(id)? {
            // Hidden paths are no part of a fleet.
            if entry.name.starts_with(b".") {
                continue;
            }
            folder.entries += 1;
            let mut path = above.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            let (path, blob) = match (entry.mode.kind(), String::from_utf8(path)) {
                (EntryKind::Tree, path) => {
                    let path = path.map_or_else(|error| error.into_bytes(), String::into_bytes);
                    folder.items.push(Item::Folder { path, id: entry.id });
                    continue;
                }
                (_, Err(error)) => (error.into_bytes().escape_ascii().to_string(), SourceBlob::BadPath),
                (EntryKind::Link, Ok(path)) => (path, SourceBlob::Symlink),
                (EntryKind::Commit, Ok(path)) => (path, SourceBlob::Submodule),
                (EntryKind::Blob | EntryKind::BlobExecutable, Ok(path)) => {
                    if !Sources::wants(&path) {
                        continue;
                    }
                    let known = before.get(&entry.id).filter(|blob| matches!(blob, SourceBlob::Bytes(_)));
                    (path, known.map_or_else(|| self.blob(entry.id), |blob| Ok((*blob).clone()))?)
                }
            };
            if let SourceBlob::Bytes(read) = &blob {
                bytes += read.len() as u64;
            }
            folder.items.push(Item::File { path: path.into(), id: entry.id, blob });
            // Counted for good when the folder is taken in.
            if bytes > MAX_BYTES || self.entries + folder.entries > MAX_ENTRIES {
                break;
            }
        }
        Ok(folder)
    }

    fn blob(&self, id: ObjectId) -> Result<SourceBlob, GitError> {
        self.brake.check()?;
        Ok(match self.repo.object(id, Kind::Blob, Sources::MAX_FILE_BYTES)? {
            Object::TooLarge(bytes) => SourceBlob::TooLarge { bytes },
            Object::Data(data) => SourceBlob::Bytes(data.into()),
        })
    }
}
