//! A fleet repository made with the `git` program, without a look at anybody's configuration.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{World, process};

/// A repository with a work tree, as a person has one.
#[derive(Debug)]
pub struct Repo {
    dir: PathBuf,
}

/// The example fleet of this project.
#[must_use]
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples-fleet")
}

impl Repo {
    /// An empty repository with the branch `main`.
    #[must_use]
    pub fn empty(world: &World, name: &str) -> Self {
        let repo = Self { dir: world.path(name) };
        fs::create_dir_all(&repo.dir).expect("a directory");
        repo.git(&["init", "--quiet", "--initial-branch=main"]);
        repo
    }

    /// A repository whose first commit is the example fleet.
    #[must_use]
    pub fn of_examples(world: &World, name: &str) -> Self {
        let repo = Self::empty(world, name);
        copy(&examples(), &repo.dir);
        repo.commit("the example fleet");
        repo
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file of the work tree.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    /// Reads a file of the work tree.
    #[must_use]
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).unwrap_or_else(|error| unreachable!("{path}: {error}"))
    }

    /// Replaces a text that a file holds exactly once.
    pub fn replace(&self, path: &str, old: &str, new: &str) {
        let text = self.read(path);
        assert_eq!(text.matches(old).count(), 1, "{path} does not hold {old:?} exactly once:\n{text}");
        self.write(path, text.replace(old, new));
    }

    /// Removes a file of the work tree.
    pub fn remove(&self, path: &str) {
        fs::remove_file(self.dir.join(path)).expect("a file to remove");
    }

    /// Commits the work tree and answers the commit's id.
    pub fn commit(&self, subject: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", subject]);
        self.head()
    }

    /// The commit at HEAD.
    #[must_use]
    pub fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Runs git in it and answers what it printed.
    pub fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(&self.dir)
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "Fleet Author")
            .env("GIT_AUTHOR_EMAIL", "author@example.com")
            .env("GIT_COMMITTER_NAME", "Fleet Author")
            .env("GIT_COMMITTER_EMAIL", "author@example.com");
        let (code, out, err) = process::output(command);
        assert_eq!(code, 0, "git {arguments:?}: {out}{err}");
        out.trim().to_owned()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the example fleet") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("its type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
