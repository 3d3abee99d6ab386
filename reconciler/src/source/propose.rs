//! Writing beside the branch: a commit that adds one file to another one, at a place of its own. Nothing else of this program writes
//! into a repository, and nothing moves what lies there.
//!
//! A local repository is written where it is. Into a remote one the program `git` pushes out of our own repository, with the same
//! isolated configuration and the same credentials as fetches: gix does not push.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use gix::{
    ObjectId,
    bstr::ByteSlice as _,
    objs::{
        Tree,
        tree::{Entry, EntryKind},
    },
    refs::transaction::{PreviousValue, RefEdit},
};
use tokio::process::Command;

use super::{
    config::GitAccess,
    git::{GitError, Repo, SSH, TreeEntry, chain, clean},
};
use crate::batch::proposal::{Hindered, Hindrance};

/// How long a push may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Answers a question of git for credentials with what the environment of that one process holds.
const HELPER: &str = r#"!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$BETTER_COMPUTE_PUSH_USER" "$BETTER_COMPUTE_PUSH_TOKEN"; }; f"#;

impl Repo {
    /// Where it is.
    pub(super) fn dir(&self) -> PathBuf {
        self.inner.git_dir().to_owned()
    }

    /// The commit at a place.
    pub(super) fn at_place(&self, name: &str) -> Option<String> {
        let id = self.reference(name).ok().flatten()?;
        self.commit_at(id).ok().map(|commit| commit.to_string())
    }

    /// A tree with one file more, written here. What is there already is not replaced.
    pub(super) fn tree_with(&self, tree: ObjectId, path: &str, text: &str) -> Result<ObjectId, Hindered> {
        let blob = self.inner.write_blob(text).map_err(|error| self.unwritable(&error))?.detach();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        self.with_file(Some(tree), &parts, path, blob)
    }

    fn with_file(
        &self,
        tree: Option<ObjectId>,
        parts: &[&str],
        path: &str,
        blob: ObjectId,
    ) -> Result<ObjectId, Hindered> {
        let unreadable = |error: GitError| Hindered::new(Hindrance::Unreachable, error.to_string());
        let taken = || {
            let why = format!(
                "the fleet has something at {path} already: take the batch back, and ask for it under another name"
            );
            Hindered::new(Hindrance::Taken, why)
        };
        let Some((first, rest)) = parts.split_first() else { return Err(taken()) };
        let mut entries = tree.map_or_else(|| Ok(Vec::new()), |tree| self.tree(tree)).map_err(unreadable)?;
        let there = entries.iter().position(|entry| entry.name == first.as_bytes());
        let there = there.map(|at| entries.remove(at));
        let entry = match (there, rest.is_empty()) {
            (None, true) => (EntryKind::Blob, blob),
            (None, false) => (EntryKind::Tree, self.with_file(None, rest, path, blob)?),
            (Some(folder), false) if folder.mode.is_tree() => {
                (EntryKind::Tree, self.with_file(Some(folder.id), rest, path, blob)?)
            }
            (Some(_), _) => return Err(taken()),
        };
        entries.push(TreeEntry { name: first.as_bytes().to_vec(), mode: entry.0.into(), id: entry.1 });
        let entry = |entry: TreeEntry| Entry { mode: entry.mode, filename: entry.name.into(), oid: entry.id };
        let mut entries: Vec<Entry> = entries.into_iter().map(entry).collect();
        entries.sort();
        Ok(self.inner.write_object(&Tree { entries }).map_err(|error| self.unwritable(&error))?.detach())
    }

    /// Writes a commit.
    pub(super) fn keep(&self, raw: &[u8]) -> Result<ObjectId, Hindered> {
        use gix::objs::Write as _;

        self.inner.objects.write_buf(gix::objs::Kind::Commit, raw).map_err(|error| self.unwritable(&error))
    }

    /// Puts a commit at a place where nothing lies.
    pub(super) fn place(&self, name: &str, commit: ObjectId, by: &str) -> Result<(), Hindered> {
        let reference = gix::refs::FullName::try_from(name)
            .map_err(|error| Hindered::new(Hindrance::Refused, format!("{name} is no place: {error}")))?;
        let edit = RefEdit::update(reference, commit, PreviousValue::MustNotExist, "proposed");
        let (who, mail) = by.split_once(" <").unwrap_or((by, ""));
        let committer = gix::actor::SignatureRef {
            name: who.as_bytes().as_bstr(),
            email: mail.trim_end_matches('>').as_bytes().as_bstr(),
            time: "0 +0000",
        };
        match self.inner.edit_references_as(Some(edit), Some(committer)) {
            Ok(_) => Ok(()),
            Err(_) if self.at_place(name).is_some() => Err(taken(name)),
            Err(error) => Err(self.unwritable(&error)),
        }
    }

    fn unwritable(&self, error: &dyn std::error::Error) -> Hindered {
        let place = self.inner.common_dir().display();
        let why = format!(
            "the repository {place} cannot be written: {}. Let the user that follows the fleet write there",
            chain(error)
        );
        Hindered::new(Hindrance::Denied, why)
    }
}

fn taken(place: &str) -> Hindered {
    let why = format!(
        "another commit lies at {place}: delete that branch, or take the batch back and ask for it under another name"
    );
    Hindered::new(Hindrance::Taken, why)
}

/// Pushes a commit of our own repository to a place of the remote where nothing lies.
pub(super) async fn push(own: &Path, url: &str, access: &GitAccess, commit: &str, place: &str) -> Result<(), Hindered> {
    let mut git = isolated(own, url, access).map_err(|error| Hindered::new(Hindrance::Denied, chain(&error)))?;
    git.args(["push", "--porcelain", "--no-verify"]).arg(format!("--force-with-lease={place}:"));
    git.arg(url).arg(format!("{commit}:{place}"));
    let done = match tokio::time::timeout(DEADLINE, git.output()).await {
        Err(_) => {
            let why = format!("the remote did not take it within {} seconds", DEADLINE.as_secs());
            return Err(Hindered::new(Hindrance::Unreachable, why));
        }
        Ok(Err(error)) => {
            let why = format!("the program git, which pushes, does not start where the fleet is followed: {error}");
            return Err(Hindered::new(Hindrance::Denied, why));
        }
        Ok(Ok(done)) => done,
    };
    if done.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    Err(refused(place, &out, &access.redact(&err)))
}

/// What a push that failed says.
fn refused(place: &str, out: &str, err: &str) -> Hindered {
    let told = clean(err, 400);
    // `!`, what was pushed, and `[remote rejected] (why)`.
    let said = out.lines().find_map(|line| line.strip_prefix('!')?.rsplit('\t').next()).map(|said| clean(said, 200));
    match said {
        Some(said) if said.starts_with("[rejected]") => taken(place),
        Some(said) => {
            let why = format!(
                "the remote does not take {place}: {said}; {told}. Let whoever follows the fleet push below refs/heads/bc/, or push it by hand"
            );
            Hindered::new(Hindrance::Refused, why)
        }
        None if denies(err) => {
            let why = format!(
                "the remote lets us read and not push: {told}. Give the token or the key that follows the fleet the right to push below refs/heads/bc/"
            );
            Hindered::new(Hindrance::Denied, why)
        }
        None => Hindered::new(Hindrance::Unreachable, format!("the remote cannot be reached: {told}")),
    }
}

fn denies(err: &str) -> bool {
    let lower = err.to_ascii_lowercase();
    [
        "permission denied",
        "permission to",
        "authentication failed",
        "could not read username",
        "host key verification failed",
        "not allowed to push",
        "error: 401",
        "error: 403",
    ]
    .iter()
    .any(|sign| lower.contains(sign))
}

/// The program under a configuration that neither the machine nor anybody's home changes. Secrets are in its environment, and in no
/// argument.
fn isolated(own: &Path, url: &str, access: &GitAccess) -> std::io::Result<Command> {
    let mut git = Command::new("git");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_")) {
        git.env_remove(name);
    }
    let mut config: Vec<(String, String)> = [
        ("core.hooksPath", "/dev/null"),
        ("core.useReplaceRefs", "false"),
        ("gc.auto", "0"),
        ("credential.helper", ""),
        ("protocol.allow", "never"),
        ("protocol.https.allow", "always"),
        ("protocol.ssh.allow", "always"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    if let Some(token) = &access.token {
        let host = url.split('/').take(3).collect::<Vec<_>>().join("/");
        config.push((format!("credential.{host}.helper"), HELPER.to_owned()));
        git.env("BETTER_COMPUTE_PUSH_USER", access.user.as_deref().unwrap_or("x-access-token"));
        git.env("BETTER_COMPUTE_PUSH_TOKEN", token);
    }
    if let Some(pem) = &access.ca_pem {
        let file = own.join("authorities.pem");
        std::fs::write(&file, pem)?;
        config.push(("http.sslCAInfo".to_owned(), file.display().to_string()));
    }
    git.env("GIT_CONFIG_COUNT", config.len().to_string());
    for (number, (name, value)) in config.into_iter().enumerate() {
        git.env(format!("GIT_CONFIG_KEY_{number}"), name).env(format!("GIT_CONFIG_VALUE_{number}"), value);
    }
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
    git.env("GIT_SSH_COMMAND", access.ssh_command.as_deref().unwrap_or(SSH)).env("LC_ALL", "C");
    git.arg("--git-dir").arg(own).stdin(Stdio::null()).kill_on_drop(true);
    Ok(git)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_remote_says_no_with_is_told_apart() {
        let line = |said: &str| format!("To ssh://x\n!\tabc:refs/heads/bc/proposals/k\t{said}\nDone\n");
        for (out, err, by) in [
            (line("[rejected] (stale info)"), "", Hindrance::Taken),
            (line("[remote rejected] (pre-receive hook declined)"), "remote: nobody pushes here", Hindrance::Refused),
            (String::new(), "remote: Permission to acme/fleet.git denied to bot.", Hindrance::Denied),
            (String::new(), "git@host: Permission denied (publickey).", Hindrance::Denied),
            (
                String::new(),
                "fatal: could not read Username for 'https://host': terminal prompts disabled",
                Hindrance::Denied,
            ),
            (String::new(), "ssh: connect to host x port 22: Connection refused", Hindrance::Unreachable),
        ] {
            let told = refused("refs/heads/bc/proposals/k", &out, err);
            assert_eq!(told.by, by, "{out}{err}");
            assert!(err.is_empty() || told.why.contains(err), "{told}");
        }
    }
}
