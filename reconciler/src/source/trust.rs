//! What the history walk of [`pki::trust`] reads, out of a repository: raw commits, which files differ, the folder of trust.
//! Conclusions are not made here. What people said is found by [`words`].

pub(super) mod words;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use gix::{
    ObjectId,
    objs::{Kind, tree::EntryKind},
};
use pki::trust::{
    object::{self, ObjectFormat},
    policy::{self, Policy},
    walk::{FileChange, History, TrustFolder},
};
use schema::fleet::{self, Sources, trust};

use super::{
    Verdict,
    git::{GitError, MAX_COMMIT_BYTES, Object, Repo, TreeEntry},
    history::parse,
};

/// Folders within each other that are compared.
const MAX_DEPTH: usize = 32;
/// Files that one commit changes.
const MAX_CHANGES: usize = 200_000;

/// A repository as the walk reads it: the fleet in one of its folders.
#[derive(Debug)]
pub struct TrustHistory<'r> {
    repo: &'r Repo,
    folder: Vec<&'r str>,
    stop: Option<(&'r AtomicBool, Instant)>,
}

impl Repo {
    /// The repository as the history walk reads it; `folder` is empty when the fleet is at the root.
    #[must_use]
    pub fn trust_history<'r>(&'r self, folder: &'r str) -> TrustHistory<'r> {
        TrustHistory { repo: self, folder: folder.split('/').filter(|part| !part.is_empty()).collect(), stop: None }
    }

    /// The trust policy in the tree of a commit, when it is one.
    pub(super) fn policy_at(&self, commit: &str, folder: &str) -> Result<Option<Policy>, GitError> {
        let tree = self.commit(parse(commit)?)?.tree;
        let tree = tree.parse().map_err(|_| GitError::Broken { id: tree, what: "is no name".to_owned() })?;
        let held = match self.trust_history(folder).trust(tree) {
            Err(GitError::Unfit(_)) => return Ok(None),
            held => held?.policy,
        };
        Ok(held.and_then(|bytes| policy::check(&bytes).policy))
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

    fn going(&self) -> Result<(), GitError> {
        let over =
            |(stop, deadline): (&AtomicBool, Instant)| stop.load(Ordering::Relaxed) || Instant::now() >= deadline;
        if self.stop.is_some_and(over) { Err(GitError::Interrupted) } else { Ok(()) }
    }

    /// A tree below a tree.
    fn below(&self, tree: ObjectId, path: &[&str]) -> Result<Option<ObjectId>, GitError> {
        let mut at = tree;
        for part in path {
            let entries = self.repo.tree(at)?;
            match entries.into_iter().find(|entry| entry.name == part.as_bytes() && entry.mode.is_tree()) {
                Some(entry) => at = entry.id,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn entries(&self, tree: Option<ObjectId>) -> Result<BTreeMap<Vec<u8>, TreeEntry>, GitError> {
        let entries = tree.map_or_else(|| Ok(Vec::new()), |tree| self.repo.tree(tree))?;
        in_order(&entries)?;
        Ok(entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect())
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
        let (mut olds, news) = (self.entries(before)?, self.entries(after)?);
        let mut pairs: Vec<(Vec<u8>, Option<TreeEntry>, Option<TreeEntry>)> = Vec::new();
        for (name, new) in news {
            pairs.push((name.clone(), olds.remove(&name), Some(new)));
        }
        pairs.extend(olds.into_iter().map(|(name, old)| (name, Some(old), None)));
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, old, new) in pairs {
            if old.as_ref().map(|entry| (entry.mode, entry.id)) == new.as_ref().map(|entry| (entry.mode, entry.id)) {
                continue;
            }
            if let Some(new) = &new {
                plain(new, above)?;
            }
            let name = String::from_utf8(name).unwrap_or_else(|error| error.as_bytes().escape_ascii().to_string());
            let path = if above.is_empty() { name } else { format!("{above}/{name}") };
            let tree =
                |entry: &Option<TreeEntry>| entry.as_ref().filter(|entry| entry.mode.is_tree()).map(|entry| entry.id);
            let other = |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(|entry| !entry.mode.is_tree());
            let folders = (tree(&old), tree(&new));
            if folders != (None, None) {
                let before = found.len();
                self.differ(folders, &path, depth + 1, found)?;
                // git shows no folder without files, and everybody has to answer for one all the same.
                if found.len() == before && !(other(&old) || other(&new)) {
                    found.push(FileChange { path: path.clone(), before: None, after: None });
                }
            }
            if other(&old) || other(&new) {
                found.push(FileChange { path, before: file(old.as_ref()), after: file(new.as_ref()) });
            }
        }
        Ok(())
    }
}

/// Entries in git's own order: others read a tree by halves, and would find something else in it.
fn in_order(entries: &[TreeEntry]) -> Result<(), GitError> {
    let key = |entry: &TreeEntry| {
        let end = if entry.mode.is_tree() { b"/".as_slice() } else { b"\0" };
        [&entry.name, end].concat()
    };
    match entries.windows(2).find(|pair| key(&pair[0]) >= key(&pair[1])) {
        Some(pair) => Err(GitError::Unfit(format!(
            "a folder has {:?} behind {:?}, which is not git's order",
            pair[1].name.escape_ascii().to_string(),
            pair[0].name.escape_ascii().to_string()
        ))),
        None => Ok(()),
    }
}

/// A file or a folder under a name that is the same one on everybody's machine. Only what is new has to be.
fn plain(entry: &TreeEntry, above: &str) -> Result<(), GitError> {
    let shown = entry.name.escape_ascii().to_string();
    let unfit = |what: &str| Err(GitError::Unfit(format!("{shown:?} {what}")));
    match entry.mode.kind() {
        EntryKind::Blob | EntryKind::BlobExecutable | EntryKind::Tree => {}
        EntryKind::Link => return unfit("is a symbolic link"),
        EntryKind::Commit => return unfit("is a submodule"),
    }
    let Ok(name) = std::str::from_utf8(&entry.name) else { return unfit("is not UTF-8") };
    if name.chars().any(|letter| {
        letter == '\\'
            || letter == ':'
            || matches!(letter, '\u{200c}' | '\u{200d}')
            || pki::trust::commit::hidden(letter)
            || letter.is_control()
    }) {
        return unfit("has a character that is not seen, or means something elsewhere");
    }
    let folded = name.trim_end_matches(['.', ' ']).to_ascii_lowercase();
    let device = folded.split('.').next().unwrap_or_default();
    if folded.starts_with(".git") && folded.len() == 4
        || folded.starts_with("git~")
        || ["con", "prn", "aux", "nul"].contains(&device)
    {
        return unfit("is another name on some machines");
    }
    if above.is_empty() && folded == trust::FOLDER && name != trust::FOLDER {
        return unfit("is the folder of trust on some machines");
    }
    Ok(())
}

/// The content of an entry that is a file.
fn file(entry: Option<&TreeEntry>) -> Option<object::ObjectId> {
    let entry = entry.filter(|entry| matches!(entry.mode.kind(), EntryKind::Blob | EntryKind::BlobExecutable))?;
    entry.id.to_string().parse().ok()
}

fn theirs(id: object::ObjectId) -> Result<ObjectId, GitError> {
    parse(&id.to_string())
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

    fn commit(&self, id: object::ObjectId) -> Result<Option<Vec<u8>>, GitError> {
        self.going()?;
        let id = theirs(id)?;
        if self.repo.inner.is_shallow().unwrap_or(true) && !self.repo.inner.has_object(id) {
            return Ok(None);
        }
        match self.repo.object(id, Kind::Commit, MAX_COMMIT_BYTES)? {
            Object::Data(raw) => Ok(Some(raw)),
            Object::TooLarge(bytes) => Err(GitError::Refused(format!("the commit {id} has {bytes} bytes"))),
        }
    }

    fn trust_domain(&self, tree: object::ObjectId) -> Result<Option<String>, GitError> {
        let Some(root) = self.below(theirs(tree)?, &self.folder)? else { return Ok(None) };
        let mut sources = Sources::default();
        for entry in self.repo.tree(root)? {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if ["fleet.kdl", "fleet.yaml", "fleet.yml"].contains(&name.as_str())
                && file(Some(&entry)).is_some()
                && let Object::Data(bytes) = self.repo.object(entry.id, Kind::Blob, Sources::MAX_FILE_BYTES)?
            {
                sources.insert_file(name, bytes);
            }
        }
        Ok(fleet::load(&sources).trust_domain)
    }

    fn changes(&self, before: object::ObjectId, after: object::ObjectId) -> Result<Vec<FileChange>, GitError> {
        let root = |tree| theirs(tree).and_then(|tree| self.below(tree, &self.folder));
        let mut found = Vec::new();
        self.differ((root(before)?, root(after)?), "", 0, &mut found)?;
        Ok(found)
    }

    fn trust(&self, tree: object::ObjectId) -> Result<TrustFolder, GitError> {
        let path: Vec<&str> = self.folder.iter().copied().chain([trust::FOLDER]).collect();
        let Some(root) = self.below(theirs(tree)?, &path)? else { return Ok(TrustFolder::default()) };
        let mut folder = TrustFolder::default();
        for entry in self.repo.tree(root)? {
            let path = format!("{}/{}", trust::FOLDER, String::from_utf8_lossy(&entry.name));
            match file(Some(&entry)) {
                Some(id) if path == trust::FILE => folder.policy = self.file(id)?,
                _ if path == trust::FILE => {}
                _ => folder.others.push(path),
            }
        }
        Ok(folder)
    }

    fn file(&self, id: object::ObjectId) -> Result<Option<Vec<u8>>, GitError> {
        match self.repo.object(theirs(id)?, Kind::Blob, Sources::MAX_FILE_BYTES)? {
            Object::Data(bytes) => Ok(Some(bytes)),
            Object::TooLarge(_) => Ok(None),
        }
    }
}
