//! Reading git objects: open with an isolated configuration, check the size before loading, hash again after.
//!
//! Hooks, filters, replace refs, grafts, alternates, the user's and the system's configuration and the environment have
//! no effect or are refused here.

use std::path::{Path, PathBuf};

use gix::{
    ObjectId,
    bstr::ByteSlice as _,
    objs::{CommitRef, Kind, TreeRef, compute_hash},
};

use super::{SourceState, Trouble, config::GitAccess};

/// The largest commit that is read.
pub(super) const MAX_COMMIT_BYTES: u64 = 1 << 20;
/// How a remote is reached over ssh when nothing else is said: nobody is there to answer a question.
pub(super) const SSH: &str = "ssh -oBatchMode=yes -oConnectTimeout=15 -oServerAliveInterval=15 -oServerAliveCountMax=4";
/// What one object may take in memory, and what each one does that it is packed as a difference from.
const ALLOC_LIMIT: &str = "gitoxide.objects.allocLimit=64m";
/// The largest configuration of a repository that is read.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// The largest tree object that is read.
pub(super) const MAX_TREE_BYTES: u64 = 16 << 20;

/// What can go wrong while git is read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    /// There is no repository, or it cannot be opened.
    #[error("{place} is not a git repository that can be read: {reason}")]
    Open {
        /// Where.
        place: String,
        /// What the open said.
        reason: String,
    },
    /// The repository uses something that is never followed.
    #[error("{0}")]
    Refused(String),
    /// A commit's files are not of a form that everybody reads alike, or too many.
    #[error("{0}")]
    Unfit(String),
    /// The repository has no commit.
    #[error("the repository has no commit yet")]
    Empty,
    /// The branch is not there.
    #[error("{0}")]
    BranchMissing(String),
    /// An object is missing or damaged.
    #[error("the object {id} {what}")]
    Broken {
        /// The object.
        id: String,
        /// What is wrong with it.
        what: String,
    },
    /// The remote cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The remote refuses the credentials.
    #[error("{0}")]
    AuthFailed(String),
    /// Somebody asked to stop, or the deadline passed.
    #[error("reading was interrupted")]
    Interrupted,
}

impl From<GitError> for Trouble {
    fn from(error: GitError) -> Self {
        let state = match &error {
            GitError::Open { .. } | GitError::Unreachable(_) | GitError::Interrupted => SourceState::Unreachable,
            GitError::Refused(_) | GitError::Unfit(_) => SourceState::Refused,
            GitError::Empty => SourceState::RepositoryEmpty,
            GitError::BranchMissing(_) => SourceState::BranchMissing,
            GitError::Broken { .. } => SourceState::ObjectBroken,
            GitError::AuthFailed(_) => SourceState::AuthFailed,
        };
        Self::new(state, error.to_string())
    }
}

/// A repository that is open for reading.
pub struct Repo {
    pub(super) inner: gix::Repository,
}

impl std::fmt::Debug for Repo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Repo").field(&self.inner.git_dir()).finish()
    }
}

/// Options under which neither the machine nor the repository can change what is read.
pub(super) fn options(access: &GitAccess) -> gix::open::Options {
    options_with(access, &[])
}

/// The same with more of git's settings.
pub(super) fn options_with(access: &GitAccess, more: &[&str]) -> gix::open::Options {
    let ssh = format!("core.sshCommand={}", access.ssh_command.as_deref().unwrap_or(SSH));
    let overrides = [
        "core.useReplaceRefs=false",
        "core.commitGraph=false",
        "core.deltaBaseCacheLimit=16m",
        ALLOC_LIMIT,
        "gc.auto=0",
        ssh.as_str(),
    ];
    gix::open::Options::isolated().config_overrides(overrides.iter().chain(more).copied())
}

/// The repository that holds `dir`, and the folder of it that `dir` is (empty for its root).
///
/// # Errors
/// When neither the directory nor one above it is a repository.
pub(super) fn locate(dir: &Path) -> Result<(PathBuf, String), GitError> {
    if !dir.exists() {
        return Err(GitError::Open {
            place: dir.display().to_string(),
            reason: "there is no such directory".to_owned(),
        });
    }
    for above in dir.ancestors() {
        let bare = above.join("HEAD").is_file() && above.join("objects").is_dir();
        if bare || above.join(".git").exists() {
            let folder = dir.strip_prefix(above).expect("an ancestor is a prefix");
            return Ok((above.to_owned(), folder.to_string_lossy().into_owned()));
        }
    }
    let reason = "no .git is there or above; commit the fleet first (git init && git add . && git commit)".to_owned();
    Err(GitError::Open { place: dir.display().to_string(), reason })
}

/// Refuses what would be waited for without an end, or read without a bound, when a repository is opened.
fn plain_files(dir: &Path) -> Result<(), GitError> {
    let named = ["HEAD", "config", "packed-refs", "shallow", "objects/info/alternates", "info/grafts"];
    for path in [dir.to_owned(), dir.join(".git")].iter().flat_map(|root| named.map(|name| root.join(name))) {
        let Ok(found) = std::fs::metadata(&path) else { continue };
        // A folder of a work tree may have such a name, and is never opened.
        if !found.is_file() && !found.is_dir() {
            return Err(GitError::Refused(format!("{} is not a plain file", path.display())));
        }
        if path.ends_with("config") && found.len() > MAX_CONFIG_BYTES {
            let refused = format!("{} is larger than {MAX_CONFIG_BYTES} bytes", path.display());
            return Err(GitError::Refused(refused));
        }
    }
    Ok(())
}

impl Repo {
    /// Opens the repository that holds a directory, and says which folder of it that is (empty for its root).
    ///
    /// # Errors
    /// When neither the directory nor one above it is a repository.
    pub fn discover(dir: &Path) -> Result<(Self, String), GitError> {
        let absolute = std::path::absolute(dir)
            .map_err(|error| GitError::Open { place: dir.display().to_string(), reason: chain(&error) })?;
        let (root, folder) = locate(&absolute)?;
        Ok((Self::open(&root)?, folder))
    }

    /// The same repository once more, for another thread.
    pub(super) fn again(&self) -> Self {
        Self { inner: self.inner.clone() }
    }

    /// The references below a prefix, each by the rest of its name, and the commits that they name; what cannot be read is left out.
    pub(super) fn tips(&self, prefix: &str) -> Vec<(String, String)> {
        let Ok(references) = self.inner.references() else { return Vec::new() };
        let Ok(references) = references.prefixed(prefix) else { return Vec::new() };
        let tip = |reference: gix::Reference<'_>| {
            let id = reference.target().try_id()?.to_owned().to_string();
            let name = reference.name().as_bstr().to_string();
            Some((name.strip_prefix(prefix)?.to_owned(), id))
        };
        references.flatten().filter_map(tip).collect()
    }

    /// Opens a repository where it is.
    ///
    /// # Errors
    /// When it is none, or relies on alternates or grafts.
    pub fn open(dir: &Path) -> Result<Self, GitError> {
        Self::open_with(dir, &GitAccess::default())
    }

    pub(super) fn open_with(dir: &Path, access: &GitAccess) -> Result<Self, GitError> {
        plain_files(dir)?;
        let inner = gix::open_opts(dir, options(access))
            .map_err(|error| GitError::Open { place: dir.display().to_string(), reason: chain(&error) })?;
        if let Some(storage) = inner.config_snapshot().string("extensions.refStorage").filter(|kind| *kind != "files") {
            let refused = format!("{} keeps its references as {storage:?}, and only files are read", dir.display());
            return Err(GitError::Refused(refused));
        }
        let common = inner.common_dir();
        for (file, what) in [
            ("objects/info/alternates", "borrows objects from another repository (alternates)"),
            ("info/grafts", "rewrites history by grafts"),
        ] {
            if std::fs::metadata(common.join(file)).is_ok_and(|meta| meta.len() > 0) {
                return Err(GitError::Refused(format!("{} {what}, which is refused", dir.display())));
            }
        }
        Ok(Self { inner })
    }

    /// Reads an object of a known kind, at most `max` bytes of it, and proves that it is what its name says.
    pub(super) fn object(&self, id: ObjectId, kind: Kind, max: u64) -> Result<Object, GitError> {
        let broken = |what: String| GitError::Broken { id: id.to_string(), what };
        let header = self.header(id)?;
        if header.kind() != kind {
            return Err(GitError::Unfit(format!("the object {id} is a {}, not a {kind}", header.kind())));
        }
        if header.size() > max {
            return Ok(Object::TooLarge(header.size()));
        }
        let object =
            self.inner.find_object(id).map_err(|error| broken(format!("cannot be read: {}", chain(&error))))?.detach();
        let hash = compute_hash(id.kind(), kind, &object.data)
            .map_err(|error| broken(format!("cannot be hashed: {}", chain(&error))))?;
        if hash != id {
            return Err(broken(format!("has the content of {hash}")));
        }
        Ok(Object::Data(object.data))
    }

    /// What an object says of itself before it is read.
    fn header(&self, id: ObjectId) -> Result<gix::odb::find::Header, GitError> {
        self.inner.find_header(id).map_err(|error| GitError::Broken {
            id: id.to_string(),
            what: if error.is_not_found() {
                "is missing".to_owned()
            } else {
                format!("cannot be read: {}", chain(&error))
            },
        })
    }

    /// What kind of object it is.
    pub(super) fn kind(&self, id: ObjectId) -> Result<Kind, GitError> {
        Ok(self.header(id)?.kind())
    }

    /// Reads a commit: its tree, parents and the lines for people.
    pub(super) fn commit(&self, id: ObjectId) -> Result<super::CommitInfo, GitError> {
        let broken = |what: String| GitError::Broken { id: id.to_string(), what };
        let Object::Data(data) = self.object(id, Kind::Commit, MAX_COMMIT_BYTES)? else {
            return Err(GitError::Refused(format!("the commit {id} is larger than {MAX_COMMIT_BYTES} bytes")));
        };
        let commit = CommitRef::from_bytes(&data, id.kind())
            .map_err(|error| broken(format!("is no commit: {}", chain(&error))))?;
        let author = commit.author().map_err(|error| broken(format!("has no author: {}", chain(&error))))?;
        let committer = commit.committer().map_err(|error| broken(format!("has no committer: {}", chain(&error))))?;
        let person = |signature: gix::actor::SignatureRef<'_>| {
            let signature = signature.trim();
            clean(&format!("{} <{}>", signature.name.to_str_lossy(), signature.email.to_str_lossy()), 200)
        };
        Ok(super::CommitInfo {
            id: id.to_string(),
            tree: commit.tree().to_string(),
            parents: commit.parents().map(|parent| parent.to_string()).collect(),
            author: person(author),
            committer: person(committer),
            subject: clean(&commit.message.lines().next().unwrap_or_default().to_str_lossy(), 200),
            committed_at: jiff::Timestamp::from_second(committer.seconds()).unwrap_or_default(),
            plan: super::trailer::plan_of(&commit.message.to_str_lossy()),
        })
    }

    /// Reads a tree's entries.
    ///
    /// # Errors
    /// [`GitError::Unfit`] when it is there whole and everybody would read something else in it.
    pub(super) fn tree(&self, id: ObjectId) -> Result<Vec<TreeEntry>, GitError> {
        let unfit = |what: String| GitError::Unfit(format!("the object {id} {what}"));
        let Object::Data(data) = self.object(id, Kind::Tree, MAX_TREE_BYTES)? else {
            return Err(GitError::Refused(format!("the tree {id} is larger than {MAX_TREE_BYTES} bytes")));
        };
        let tree =
            TreeRef::from_bytes(&data, id.kind()).map_err(|error| unfit(format!("is no tree: {}", chain(&error))))?;
        let mut entries: Vec<TreeEntry> = Vec::with_capacity(tree.entries.len());
        for entry in &tree.entries {
            let name = entry.filename.to_vec();
            if name.is_empty()
                || name.contains(&b'/')
                || matches!(name.as_slice(), b"." | b"..")
                || name.eq_ignore_ascii_case(b".git")
            {
                return Err(unfit(format!("has an entry named {:?}", entry.filename)));
            }
            entries.push(TreeEntry { name, mode: entry.mode, id: entry.oid.to_owned() });
        }
        let mut names: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(unfit("names an entry twice".to_owned()));
        }
        Ok(entries)
    }

    /// Whether the history before a commit was left out on purpose.
    pub(super) fn is_shallow_at(&self, id: ObjectId) -> bool {
        self.inner.shallow_commits().ok().flatten().is_some_and(|commits| commits.iter().any(|commit| *commit == id))
    }
}

/// An object's bytes, or why they were not loaded.
pub(super) enum Object {
    Data(Vec<u8>),
    TooLarge(u64),
}

/// One entry of a tree.
#[derive(Debug)]
pub(super) struct TreeEntry {
    pub(super) name: Vec<u8>,
    pub(super) mode: gix::objs::tree::EntryMode,
    pub(super) id: ObjectId,
}

/// An error and its causes in one line, short enough for a status page.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    clean(&schema::cause::chain(error), 400)
}

/// A text for a terminal: one line, no control characters, nothing that is not seen, bounded.
pub(super) fn clean(text: &str, max: usize) -> String {
    let hidden = |c: char| schema::letter::hidden(c) && !c.is_control();
    let line: String =
        text.chars().filter(|c| !hidden(*c)).map(|c| if c.is_control() { ' ' } else { c }).take(max).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
