//! Saying something as a person: a statement as a commit that git signs with the person's own key, on a branch of its own.
//!
//! Nothing is pushed that a control plane would not hear: the commit is read back, and its signature checked against the policy.

use std::{
    fmt,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use pki::trust::{key::TrustKey, object::ObjectId, policy::Policy, spoken::Spoken, statement::Statement};
use reconciler::why::{Area, catalogue};
use schema::{fleet::trust::PrincipalKind, name::Name};

use crate::{
    exit::{During as _, Failure},
    output::{Output, note},
    signer::{SigningKey, signing_key},
};

/// Whoever sits here, by the key that git signs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// What the policy calls them.
    pub principal: Name,
    /// Their key.
    pub key: TrustKey,
}

/// A statement that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The commit that carries it.
    pub commit: ObjectId,
    /// The branch that it lies on, here and where it was pushed to.
    pub reference: String,
    /// The remote that statements are pushed to; `None` when there is none.
    pub remote: Option<String>,
    /// Whether it was pushed there.
    pub pushed: bool,
}

impl Written {
    /// The remote that it was pushed to; `None` when it only lies here.
    #[must_use]
    pub fn pushed_to(&self) -> Option<&str> {
        self.remote.as_deref().filter(|_| self.pushed)
    }

    /// The line that pushes it.
    #[must_use]
    pub fn push_line(&self) -> String {
        format!("git push {} {}:{}", self.remote.as_deref().unwrap_or("origin"), self.commit, self.reference)
    }

    /// Says where it is. `read_here` says that the control plane reads this very repository.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn tell(&self, read_here: bool, output: &Output) -> Result<(), Failure> {
        output.line(match self.pushed_to() {
            Some(remote) => output.hanging(&format!("pushed to {remote} as {}", self.reference), "  "),
            None => output.hanging(&format!("it lies in this repository as {}", self.reference), "  "),
        })?;
        match (self.pushed, read_here) {
            (true, _) => {}
            (false, true) => output.line("  the control plane reads it here")?,
            (false, false) => {
                note(format!("where the control plane follows a remote, push it:\n  {}", self.push_line()));
            }
        }
        Ok(())
    }
}

/// Whether an address names this very repository.
#[must_use]
pub fn is_here(repo: &Path, url: &str) -> bool {
    let path = Path::new(url.strip_prefix("file://").unwrap_or(url));
    let own = git(repo, &["rev-parse", "--path-format=absolute", "--git-common-dir"]).ok();
    let own = own.and_then(|own| Path::new(&own).canonicalize().ok());
    own.is_some_and(|own| {
        [path.join(".git"), path.to_owned()].iter().any(|at| at.canonicalize().is_ok_and(|at| at == own))
    })
}

/// Who signs here: the person in a policy whose key git is configured to sign with.
///
/// # Errors
/// When git signs with no key, or with one that is not a person's in the policy.
pub fn speaker(repo: &Path, policy: &Policy) -> Result<Speaker, Failure> {
    let speaker = keyholder(repo, policy)?;
    let kind = policy.principals()[&speaker.principal].kind;
    if kind != PrincipalKind::Human {
        let (who, kind) = (&speaker.principal, kind.as_str());
        return Err(refused(
            "no-person",
            format!("git signs here with the key of {who}, which is a {kind} and no person"),
        ));
    }
    Ok(speaker)
}

/// The same, whoever it is: a service signs some things as well.
///
/// # Errors
/// When git signs with no key, or with one that the policy does not list.
pub fn keyholder(repo: &Path, policy: &Policy) -> Result<Speaker, Failure> {
    let found = match signing_key(repo)? {
        SigningKey::Ssh { key, .. } => {
            policy.keys().find(|held| held.name() == key.name()).cloned().ok_or_else(|| key.name())
        }
        SigningKey::OpenPgp { prints, .. } => {
            let held = policy.keys().find(|held| prints.contains(&held.name())).cloned();
            held.ok_or_else(|| prints.join(", "))
        }
    };
    let key = found.map_err(|name| {
        let known: Vec<&str> = policy.principals().keys().map(Name::as_str).collect();
        Failure::refused(
            "unknown-key",
            format!("the key {name}, with which git signs here, is nobody's in the trust policy"),
        )
        .hint(format!("the policy lists {}; choose the key with `git config user.signingKey`", known.join(", ")))
    })?;
    let (principal, _) = policy.holder(&key).expect("a key of a policy has a holder");
    Ok(Speaker { principal: principal.clone(), key })
}

/// A word that would not count, with what the catalogue of codes says to do about it.
#[must_use]
pub fn refused(code: &str, why: impl fmt::Display) -> Failure {
    let entry = catalogue::find(Area::Statement, code);
    Failure::refused(code, why).or_hint(|| entry.map(|entry| entry.remedy.to_owned()))
}

/// Makes a statement: a commit with this parent and tree, signed with the person's own configuration of git. It is read back as a
/// control plane reads it, then lies on its branch here; `push` takes it to the remote, when there is one.
///
/// # Errors
/// When git does not sign, when what it made would not be heard, or when it cannot be pushed.
pub fn write_and_push(
    repo: &Path,
    (parent, tree): (ObjectId, ObjectId),
    line: &str,
    statement: &Statement,
    policy: &Policy,
    push: bool,
) -> Result<Written, Failure> {
    let (made, raw) = make(repo, (parent, tree), line, statement)?;
    keep_and_push(repo, (parent, tree), (&made, &raw), statement, policy, push)
}

/// Makes a statement as [`write_and_push`] does, and neither keeps nor pushes it: the name of the commit, and its bytes.
///
/// # Errors
/// When git does not sign.
pub fn make(
    repo: &Path,
    (parent, tree): (ObjectId, ObjectId),
    line: &str,
    statement: &Statement,
) -> Result<(String, Vec<u8>), Failure> {
    let made = sign(repo, parent, tree, &statement.write(line))?;
    let raw = raw(repo, &made)?;
    Ok((made, raw))
}

/// Takes a commit that somebody signed, as [`write_and_push`] does with what git made.
///
/// # Errors
/// When it would not be heard, or when it cannot be kept or pushed.
pub fn keep_and_push(
    repo: &Path,
    (parent, tree): (ObjectId, ObjectId),
    (made, raw): (&str, &[u8]),
    statement: &Statement,
    policy: &Policy,
    push: bool,
) -> Result<Written, Failure> {
    let commit: ObjectId = made.parse().during("git made a commit without a name")?;
    let spoken = Spoken::hear(raw, &statement.trust_domain, statement.fleet, [policy]);
    let spoken = spoken.during("what git signed would not be heard")?;
    if spoken.statement != *statement
        || spoken.commit != commit
        || (spoken.tree, &spoken.parents[..]) != (tree, &[parent])
    {
        return Err(Failure::failed("git made another commit than it was told to")
            .hint("is there a wrapper around git, or a hook?"));
    }
    let reference = statement.reference();
    git(repo, &["update-ref", &reference, made])
        .map_err(|why| Failure::failed(format!("the statement cannot be kept: {why}")))?;
    let remote = remote(repo);
    let written = Written { commit, reference, pushed: push && remote.is_some(), remote };
    if let Some(remote) = written.pushed_to() {
        let refspec = format!("{commit}:{}", written.reference);
        git(repo, &["push", "--quiet", remote, &refspec]).map_err(|why| {
            Failure::failed(format!("the statement is signed, and cannot be pushed: {why}")).hint(written.push_line())
        })?;
    }
    Ok(written)
}

/// The remote that is pushed to: where the branch goes, else `origin`, else the only one.
#[must_use]
pub fn remote(repo: &Path) -> Option<String> {
    let branch = git(repo, &["symbolic-ref", "--quiet", "--short", "HEAD"]).unwrap_or_default();
    let told = config(repo, &format!("branch.{branch}.pushRemote"))
        .or_else(|| config(repo, "remote.pushDefault"))
        .or_else(|| config(repo, &format!("branch.{branch}.remote")));
    let all = git(repo, &["remote"]).unwrap_or_default();
    let all: Vec<&str> = all.lines().collect();
    let known = told.filter(|told| all.contains(&told.as_str()));
    known.or_else(|| {
        let usual = all.iter().find(|name| **name == "origin").or(if all.len() == 1 { all.first() } else { None });
        usual.map(|name| (*name).to_owned())
    })
}

/// The tree without files: a statement about the history has it, so that nobody makes one by accident.
///
/// # Errors
/// When git cannot write it.
pub fn empty_tree(repo: &Path) -> Result<ObjectId, Failure> {
    let made = git(repo, &["mktree"]).map_err(Failure::failed)?;
    made.parse().during("git made a tree without a name")
}

fn sign(repo: &Path, parent: ObjectId, tree: ObjectId, message: &str) -> Result<String, Failure> {
    let what = "git does not sign";
    let (parent, tree) = (parent.to_string(), tree.to_string());
    let mut git = base(repo);
    git.args(["commit-tree", "-S", "-p", &parent, &tree]);
    // A security key asks to be touched, and an agent for a word, on the terminal.
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().during("cannot start git")?;
    child.stdin.take().expect("a pipe").write_all(message.as_bytes()).during(what)?;
    let done = child.wait_with_output().during(what)?;
    if !done.status.success() {
        return Err(
            Failure::failed(what).hint("what git said stands above; `git config user.signingKey` names the key")
        );
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// Writes a commit that was made elsewhere, and answers its name.
///
/// # Errors
/// When git does not take it.
pub fn put(repo: &Path, raw: &[u8]) -> Result<String, Failure> {
    let what = "git does not take the commit";
    let mut git = base(repo);
    git.args(["hash-object", "-t", "commit", "-w", "--stdin"]);
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().during("cannot start git")?;
    child.stdin.take().expect("a pipe").write_all(raw).during(what)?;
    let done = child.wait_with_output().during(what)?;
    if !done.status.success() {
        return Err(Failure::failed(what));
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// The bytes of a commit.
fn raw(repo: &Path, id: &str) -> Result<Vec<u8>, Failure> {
    let mut git = base(repo);
    let done = git.args(["cat-file", "commit", id]).output().during("cannot read what git made")?;
    if done.status.success() { Ok(done.stdout) } else { Err(Failure::failed("cannot read what git made")) }
}

fn base(repo: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(repo);
    git
}

/// A value of git's configuration.
#[must_use]
pub fn config(repo: &Path, key: &str) -> Option<String> {
    git(repo, &["config", "--get", key]).ok().filter(|text| !text.is_empty())
}

/// What git answers, or what it complains of.
pub(crate) fn git(repo: &Path, args: &[&str]) -> Result<String, String> {
    let done =
        base(repo).args(args).stdin(Stdio::null()).output().map_err(|error| format!("cannot start git: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}
