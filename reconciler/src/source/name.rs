//! The commit that a name means: of a branch, of a tag, of a reference, or an id, with steps back (`HEAD~3`).
//!
//! A name is followed here and not by gix, whose ways to a commit take tags on trust and load objects of any size.

use gix::{
    ObjectId,
    objs::{Kind, TagRef},
};

use super::git::{GitError, MAX_COMMIT_BYTES, Object, Repo, chain};

/// Tags of tags that are followed.
const MAX_TAGS: usize = 4;
/// Steps back that are taken.
const MAX_STEPS: usize = 100_000;

/// The commit that a branch, a tag, `HEAD~3` or an abbreviated id names.
///
/// # Errors
/// When nothing, or something else than a commit, is named so.
pub fn resolve(repo: &Repo, name: &str) -> Result<String, GitError> {
    let missing = || GitError::BranchMissing(format!("{name:?} names no commit in the repository"));
    let (base, steps) = steps_back(name).ok_or_else(missing)?;
    let mut at = match repo.reference(base) {
        Ok(Some(id)) => repo.commit_at(id)?,
        _ if base.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            let id = repo.inner.rev_parse_single(base).map_err(|_| missing())?.detach();
            repo.commit_at(id).map_err(|_| missing())?
        }
        _ => return Err(missing()),
    };
    for _ in 0..steps {
        let parents = repo.commit(at)?.parents;
        at = super::history::parse(parents.first().ok_or_else(missing)?)?;
    }
    Ok(at.to_string())
}

/// A name without its steps along first parents (`~`, `~3`, `^`), and how many these are.
fn steps_back(name: &str) -> Option<(&str, usize)> {
    let base = name.split(['~', '^']).next().filter(|base| !base.is_empty())?;
    let mut rest = &name[base.len()..];
    let mut steps = 0_usize;
    while let Some(step) = rest.chars().next() {
        let after = &rest[1..];
        let digits = after.len() - after.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
        steps += match (step, &after[..digits]) {
            ('~' | '^', "") | ('^', "1") => 1,
            ('~', count) => count.parse().ok().filter(|count| *count <= MAX_STEPS)?,
            _ => return None,
        };
        rest = &after[digits..];
    }
    (steps <= MAX_STEPS).then_some((base, steps))
}

impl Repo {
    /// What a reference names, by its full name or a short one; symbolic ones are followed, tags are not.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub(super) fn reference(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        let broken = |error: gix::Error| GitError::Broken {
            id: name.to_owned(),
            what: format!("cannot be read: {}", chain(&error)),
        };
        let Some(mut found) = self.inner.try_find_reference(name).map_err(broken)? else { return Ok(None) };
        found.follow_to_object().map(|id| Some(id.detach())).map_err(broken)
    }

    /// The commit that an object is, or that a tag names.
    ///
    /// # Errors
    /// When it is missing, damaged or something else.
    pub(super) fn commit_at(&self, id: ObjectId) -> Result<ObjectId, GitError> {
        let mut at = id;
        for _ in 0..=MAX_TAGS {
            match self.kind(at)? {
                Kind::Commit => return Ok(at),
                Kind::Tag => at = self.tagged(at)?,
                other => {
                    return Err(GitError::Broken {
                        id: id.to_string(),
                        what: format!("names a {other}, not a commit"),
                    });
                }
            }
        }
        Err(GitError::Broken { id: id.to_string(), what: format!("is a tag of more than {MAX_TAGS} tags") })
    }

    /// What a tag names.
    fn tagged(&self, id: ObjectId) -> Result<ObjectId, GitError> {
        let broken = |what: String| GitError::Broken { id: id.to_string(), what };
        let Object::Data(data) = self.object(id, Kind::Tag, MAX_COMMIT_BYTES)? else {
            return Err(broken(format!("is a tag of more than {MAX_COMMIT_BYTES} bytes")));
        };
        let tag =
            TagRef::from_bytes(&data, id.kind()).map_err(|error| broken(format!("is no tag: {}", chain(&error))))?;
        Ok(tag.target())
    }
}
