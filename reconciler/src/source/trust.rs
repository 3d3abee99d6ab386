//! What the history walk of [`pki::trust`] reads, out of a repository: raw commits, which files differ, the folder of trust,
//! and the statements that people pushed. Conclusions are not made here.

use std::collections::BTreeMap;

use gix::{
    ObjectId,
    objs::{Kind, tree::EntryKind},
};
use pki::trust::{
    object::{self, ObjectFormat},
    spoken::Heard,
    statement::MAX_STATEMENT_BYTES,
    walk::{FileChange, History, MOST_STATEMENTS, TrustFolder},
};
use schema::fleet::{self, Sources, trust};

use super::{
    git::{GitError, MAX_COMMIT_BYTES, Object, Repo, TreeEntry, chain},
    history::parse,
};

/// Folders within each other that are compared.
const MAX_DEPTH: usize = 32;
/// Files that one commit changes.
const MAX_CHANGES: usize = 200_000;
/// Where statements are pushed to.
const STATEMENTS: &str = "bc/statements/";

/// A repository as the walk reads it: the fleet in one of its folders.
#[derive(Debug)]
pub struct TrustHistory<'r> {
    repo: &'r Repo,
    folder: Vec<&'r str>,
}

impl Repo {
    /// The repository as the history walk reads it; `folder` is empty when the fleet is at the root.
    #[must_use]
    pub fn trust_history<'r>(&'r self, folder: &'r str) -> TrustHistory<'r> {
        TrustHistory { repo: self, folder: folder.split('/').filter(|part| !part.is_empty()).collect() }
    }

    /// The branch that `HEAD` names.
    #[must_use]
    pub fn branch(&self) -> Option<String> {
        let name = self.inner.head_name().ok().flatten()?;
        Some(name.shorten().to_string())
    }
}

impl TrustHistory<'_> {
    /// Commits that may be statements: the tips of `refs/heads/bc/statements/…`, and of what was fetched of them. Names of
    /// references mean nothing; what cannot be read is no statement.
    ///
    /// # Errors
    /// When the references cannot be listed.
    pub fn statements(&self) -> Result<Vec<Heard>, GitError> {
        let broken =
            |error: &dyn std::error::Error| GitError::Refused(format!("references cannot be read: {}", chain(error)));
        let references = self.repo.inner.references().map_err(|error| broken(&error))?;
        let mut found = Vec::new();
        for prefix in ["refs/heads/", "refs/remotes/"] {
            let references = references.prefixed(prefix).map_err(|error| broken(&error))?;
            for reference in references.flatten() {
                let name = reference.name().as_bstr().to_string();
                let own = name.strip_prefix("refs/heads/").is_some_and(|rest| rest.starts_with(STATEMENTS));
                let fetched = name
                    .strip_prefix("refs/remotes/")
                    .and_then(|rest| rest.split_once('/'))
                    .is_some_and(|(_, rest)| rest.starts_with(STATEMENTS));
                let Some(id) = reference.target().try_id().map(ToOwned::to_owned).filter(|_| own || fetched) else {
                    continue;
                };
                if found.len() >= MOST_STATEMENTS {
                    return Err(GitError::Refused(format!("there are more than {MOST_STATEMENTS} statements")));
                }
                if let Ok(Object::Data(raw)) = self.repo.object(id, Kind::Commit, MAX_STATEMENT_BYTES as u64) {
                    found.push(raw.into());
                }
            }
        }
        Ok(found)
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
        if depth > MAX_DEPTH || found.len() > MAX_CHANGES {
            return Err(GitError::Refused("a commit changes too many files, or too deep ones".to_owned()));
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
            let name = String::from_utf8(name).unwrap_or_else(|error| error.as_bytes().escape_ascii().to_string());
            let path = if above.is_empty() { name } else { format!("{above}/{name}") };
            let tree =
                |entry: &Option<TreeEntry>| entry.as_ref().filter(|entry| entry.mode.is_tree()).map(|entry| entry.id);
            let other = |entry: &Option<TreeEntry>| entry.as_ref().is_some_and(|entry| !entry.mode.is_tree());
            let folders = (tree(&old), tree(&new));
            if folders != (None, None) {
                self.differ(folders, &path, depth + 1, found)?;
            }
            if other(&old) || other(&new) {
                found.push(FileChange { path, before: file(old.as_ref()), after: file(new.as_ref()) });
            }
        }
        Ok(())
    }
}

/// The content of an entry that is a file.
fn file(entry: Option<&TreeEntry>) -> Option<object::ObjectId> {
    let entry = entry.filter(|entry| matches!(entry.mode.kind(), EntryKind::Blob | EntryKind::BlobExecutable))?;
    object::ObjectId::parse_as(ObjectFormat::Sha1, entry.id.to_string().as_bytes())
}

fn theirs(id: object::ObjectId) -> Result<ObjectId, GitError> {
    parse(&id.to_string())
}

impl History for TrustHistory<'_> {
    type Error = GitError;

    fn format(&self) -> ObjectFormat {
        ObjectFormat::Sha1
    }

    fn commit(&self, id: object::ObjectId) -> Result<Option<Vec<u8>>, GitError> {
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
