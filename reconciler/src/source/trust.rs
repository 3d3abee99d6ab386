//! What the history walk of [`pki::trust`] reads, out of a repository: raw commits, which files differ, the folder of trust.
//! Conclusions are not made here. What people said is found by [`words`].

mod ahead;
mod coming;
mod names;
mod overlooked;
mod packed;
pub(super) mod words;

pub use overlooked::{Deaf, Overlooked};
pub use words::Said;

use std::{
    cell::RefCell,
    cmp::Ordering,
    collections::HashMap,
    rc::Rc,
    sync::atomic::{self, AtomicBool},
    time::Instant,
};

use gix::{
    ObjectId,
    objs::{Kind, tree::EntryKind},
};
use pki::trust::{
    commit::MAX_COMMIT_BYTES,
    object::{self, ObjectFormat},
    walk::{FileChange, History, TrustFolder},
};
use schema::fleet::{self, Sources, trust};

use self::ahead::Ahead;
use super::{
    Verdict,
    git::{GitError, Object, Repo, TreeEntry},
};

/// Folders within each other that are compared.
const MAX_DEPTH: usize = 32;
/// Files that one commit changes.
const MAX_CHANGES: usize = 200_000;
/// The largest commit that is loaded, one at a time, to find the way to its parent.
const LARGEST_COMMIT: u64 = 64 << 20;
/// Entries of folders that are remembered.
const MOST_ENTRIES: usize = 200_000;

/// A repository as the walk reads it: the fleet in one of its folders.
#[derive(Debug)]
pub struct TrustHistory<'r> {
    repo: &'r Repo,
    folder: Vec<&'r str>,
    stop: Option<(&'r AtomicBool, Instant)>,
    seen: RefCell<Seen>,
}

/// What was read a moment ago: a commit has most of its folders from its parent.
#[derive(Debug, Default)]
struct Seen {
    trees: HashMap<ObjectId, Rc<Tree>>,
    /// How many entries these have.
    entries: usize,
    trust: Option<(ObjectId, TrustFolder)>,
    ahead: Ahead,
}

/// A folder.
#[derive(Debug)]
struct Tree {
    entries: Vec<TreeEntry>,
    /// What is wrong with the order of its entries.
    disorder: Option<String>,
}

impl Repo {
    /// The repository as the history walk reads it; `folder` is empty when the fleet is at the root.
    #[must_use]
    pub fn trust_history<'r>(&'r self, folder: &'r str) -> TrustHistory<'r> {
        TrustHistory {
            repo: self,
            folder: folder.split('/').filter(|part| !part.is_empty()).collect(),
            stop: None,
            seen: RefCell::default(),
        }
    }

    /// Whether a commit is among the first parents of another one.
    pub(super) fn follows(&self, tip: &str, base: &str) -> bool {
        matches!(self.judge(tip, Some(base)), Ok(Verdict::Forward(_)))
    }

    /// How the repository names its objects.
    #[must_use]
    pub fn object_format(&self) -> ObjectFormat {
        match self.inner.object_hash() {
            gix::hash::Kind::Sha256 => ObjectFormat::Sha256,
            _ => ObjectFormat::Sha1,
        }
    }

    /// The branch that `HEAD` names.
    #[must_use]
    pub fn branch(&self) -> Option<String> {
        let name = self.inner.head_name().ok().flatten()?;
        Some(name.shorten().to_string())
    }
}

impl<'r> TrustHistory<'r> {
    /// Reads no further once it is told to stop, or when its time is over.
    #[must_use]
    pub(super) fn until(mut self, stop: &'r AtomicBool, deadline: Instant) -> Self {
        self.stop = Some((stop, deadline));
        self
    }

    /// Whether an object is there, and is something else than a commit.
    pub(super) fn is_other_than_commit(&self, id: object::ObjectId) -> bool {
        let header = theirs(id).ok().and_then(|id| self.repo.inner.find_header(id).ok());
        header.is_some_and(|header| header.kind() != Kind::Commit)
    }

    fn going(&self) -> Result<(), GitError> {
        let over = |(stop, deadline): (&AtomicBool, Instant)| {
            stop.load(atomic::Ordering::Relaxed) || Instant::now() >= deadline
        };
        if self.stop.is_some_and(over) { Err(GitError::Interrupted) } else { Ok(()) }
    }

    fn tree(&self, id: ObjectId) -> Result<Rc<Tree>, GitError> {
        if let Some(tree) = self.seen.borrow().trees.get(&id) {
            return Ok(tree.clone());
        }
        let entries = self.repo.tree(id)?;
        let disorder = disorder(&entries);
        let tree = Rc::new(Tree { entries, disorder });
        let mut seen = self.seen.borrow_mut();
        if seen.entries > MOST_ENTRIES {
            (seen.entries, seen.trees) = (0, HashMap::new());
        }
        seen.entries += tree.entries.len();
        seen.trees.insert(id, tree.clone());
        Ok(tree)
    }

    /// A tree below a tree.
    fn below(&self, tree: ObjectId, path: &[&str]) -> Result<Option<ObjectId>, GitError> {
        let mut at = tree;
        for part in path {
            let tree = self.tree(at)?;
            match tree.entries.iter().find(|entry| entry.name == part.as_bytes() && entry.mode.is_tree()) {
                Some(entry) => at = entry.id,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// The folder of trust in a tree.
    fn trust_folder(&self, tree: object::ObjectId) -> Result<Option<ObjectId>, GitError> {
        if let Some(folder) = self.seen.borrow().ahead.trust.get(&tree) {
            return Ok(*folder);
        }
        let path: Vec<&str> = self.folder.iter().copied().chain([trust::FOLDER]).collect();
        self.below(theirs(tree)?, &path)
    }

    fn differ(
        &self,
        (before, after): (Option<ObjectId>, Option<ObjectId>),
        above: &str,
        depth: usize,
        found: &mut Vec<FileChange>,
    ) -> Result<(), GitError> {
        if before == after {
            return Ok(());
        }
        self.going()?;
        if depth > MAX_DEPTH || found.len() > MAX_CHANGES {
            return Err(GitError::Unfit("it changes too many files, or too deep ones".to_owned()));
        }
        let [old, new] = [before, after].map(|tree| tree.map(|tree| self.tree(tree)).transpose());
        let (old, new) = (old?, new?);
        for tree in [&old, &new].into_iter().flatten() {
            if let Some(disorder) = &tree.disorder {
                return Err(GitError::Unfit(disorder.clone()));
            }
        }
        let [olds, news] = [&old, &new].map(|tree| tree.as_ref().map_or(&[][..], |tree| &tree.entries));
        let pairs = pairs(olds, news);
        if pairs.iter().any(|(old, _)| old.is_none()) {
            names::apart(olds, news, above)?;
        }
        for (old, new) in pairs {
            let entry = new.or(old);
            if let Some(new) = new {
                names::plain(new, above)?;
            }
            let name = entry.map_or_else(String::new, |entry| match std::str::from_utf8(&entry.name) {
                Ok(name) => name.to_owned(),
                Err(_) => entry.name.escape_ascii().to_string(),
            });
            let path = if above.is_empty() { name } else { format!("{above}/{name}") };
            let tree = |entry: Option<&TreeEntry>| entry.filter(|entry| entry.mode.is_tree()).map(|entry| entry.id);
            let folders = (tree(old), tree(new));
            if folders == (None, None) {
                found.push(FileChange { path, before: file(old), after: file(new) });
                continue;
            }
            let before = found.len();
            self.differ(folders, &path, depth + 1, found)?;
            // git shows no folder without files, and everybody has to answer for one all the same.
            if found.len() == before {
                found.push(FileChange { path, before: None, after: None });
            }
        }
        Ok(())
    }
}

/// git's own order: a folder stands where its name with a slash would.
fn order(a: &TreeEntry, b: &TreeEntry) -> Ordering {
    let key = |entry: &TreeEntry| if entry.mode.is_tree() { b'/' } else { 0 };
    a.name.iter().copied().chain([key(a)]).cmp(b.name.iter().copied().chain([key(b)]))
}

/// What is wrong with the order of a folder's entries: others read such a tree by halves, and would find something else in it.
fn disorder(entries: &[TreeEntry]) -> Option<String> {
    let pair = entries.windows(2).find(|pair| order(&pair[0], &pair[1]) != Ordering::Less)?;
    Some(format!(
        "a folder has {:?} behind {:?}, which is not git's order",
        pair[1].name.escape_ascii().to_string(),
        pair[0].name.escape_ascii().to_string()
    ))
}

/// The entries that differ between two folders in git's order. What became a folder, or was one, is two of them.
fn pairs<'e>(olds: &'e [TreeEntry], news: &'e [TreeEntry]) -> Vec<(Option<&'e TreeEntry>, Option<&'e TreeEntry>)> {
    let (mut olds, mut news) = (olds.iter().peekable(), news.iter().peekable());
    let mut pairs = Vec::new();
    loop {
        let side = match (olds.peek(), news.peek()) {
            (None, None) => return pairs,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => order(old, new),
        };
        let old = if side == Ordering::Greater { None } else { olds.next() };
        let new = if side == Ordering::Less { None } else { news.next() };
        if old.map(|entry| (entry.mode, entry.id)) != new.map(|entry| (entry.mode, entry.id)) {
            pairs.push((old, new));
        }
    }
}

/// The content of an entry that is a file.
fn file(entry: Option<&TreeEntry>) -> Option<object::ObjectId> {
    let entry = entry.filter(|entry| matches!(entry.mode.kind(), EntryKind::Blob | EntryKind::BlobExecutable))?;
    entry.id.to_string().parse().ok()
}

fn theirs(id: object::ObjectId) -> Result<ObjectId, GitError> {
    let broken = |_| GitError::Broken { id: id.to_string(), what: "is not an object id".to_owned() };
    ObjectId::try_from(id.as_bytes()).map_err(broken)
}

impl History for TrustHistory<'_> {
    type Error = GitError;

    fn format(&self) -> ObjectFormat {
        self.repo.object_format()
    }

    fn unfit(error: &GitError) -> Option<String> {
        match error {
            GitError::Unfit(what) => Some(what.clone()),
            _ => None,
        }
    }

    fn lacking(error: &GitError) -> Option<String> {
        matches!(error, GitError::Broken { .. }).then(|| error.to_string())
    }

    fn commit(&self, id: object::ObjectId) -> Result<Option<Vec<u8>>, GitError> {
        self.going()?;
        let id = theirs(id)?;
        if self.repo.inner.is_shallow().unwrap_or(true) && !self.repo.inner.has_object(id) {
            return Ok(None);
        }
        match self.repo.object(id, Kind::Commit, LARGEST_COMMIT)? {
            Object::Data(raw) if raw.len() > MAX_COMMIT_BYTES => Ok(Some(raw[..=MAX_COMMIT_BYTES].to_vec())),
            Object::Data(raw) => Ok(Some(raw)),
            Object::TooLarge(bytes) => {
                Err(GitError::Refused(format!("the commit {id} has {bytes} bytes, and nothing behind it is looked at")))
            }
        }
    }

    fn trust_domain(&self, tree: object::ObjectId) -> Result<Option<String>, GitError> {
        let Some(root) = self.below(theirs(tree)?, &self.folder)? else { return Ok(None) };
        let mut sources = Sources::default();
        for entry in &self.tree(root)?.entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if ["fleet.kdl", "fleet.yaml", "fleet.yml"].contains(&name.as_str())
                && file(Some(entry)).is_some()
                && let Object::Data(bytes) = self.repo.object(entry.id, Kind::Blob, Sources::MAX_FILE_BYTES)?
            {
                sources.insert_file(name, bytes);
            }
        }
        Ok(fleet::load(&sources).trust_domain)
    }

    fn changes(&self, before: object::ObjectId, after: object::ObjectId) -> Result<Vec<FileChange>, GitError> {
        if let Some(found) = self.seen.borrow_mut().ahead.changes.remove(&(before, after)) {
            return Ok(found);
        }
        let root = |tree| theirs(tree).and_then(|tree| self.below(tree, &self.folder));
        let mut found = Vec::new();
        self.differ((root(before)?, root(after)?), "", 0, &mut found)?;
        Ok(found)
    }

    fn trust(&self, tree: object::ObjectId) -> Result<TrustFolder, GitError> {
        let Some(root) = self.trust_folder(tree)? else { return Ok(TrustFolder::default()) };
        if let Some((_, folder)) = self.seen.borrow().trust.as_ref().filter(|(of, _)| *of == root) {
            return Ok(folder.clone());
        }
        let mut folder = TrustFolder::default();
        for entry in &self.tree(root)?.entries {
            let path = format!("{}/{}", trust::FOLDER, String::from_utf8_lossy(&entry.name));
            match file(Some(entry)) {
                Some(id) if path == trust::FILE => folder.policy = self.file(id)?,
                _ if path == trust::FILE => {}
                _ => folder.others.push(path),
            }
        }
        self.seen.borrow_mut().trust = Some((root, folder.clone()));
        Ok(folder)
    }

    fn ahead(&self, trees: &[object::ObjectId]) {
        self.seen.borrow_mut().ahead = Ahead::default();
        let read = Ahead::of(self, trees);
        self.seen.borrow_mut().ahead = read;
    }

    fn file(&self, id: object::ObjectId) -> Result<Option<Vec<u8>>, GitError> {
        if let Some(file) = self.seen.borrow().ahead.files.get(&id) {
            return Ok(file.clone());
        }
        match self.repo.object(theirs(id)?, Kind::Blob, Sources::MAX_FILE_BYTES)? {
            Object::Data(bytes) => Ok(Some(bytes)),
            Object::TooLarge(_) => Ok(None),
        }
    }
}
