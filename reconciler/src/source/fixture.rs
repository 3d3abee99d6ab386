//! Real repositories for tests, made with the `git` program under a configuration of their own.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) struct Git {
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) const FLEET: &str = r#"fleet "test" {
    format 1
    trust-domain "test.example"
}
"#;

impl Git {
    /// An empty repository with the branch `main`.
    pub(crate) fn empty() -> Self {
        let this = Self { dir: tempfile::tempdir().expect("a directory") };
        this.git(&["init", "-q", "-b", "main"]);
        this
    }

    /// A repository with one commit that is a small fleet.
    pub(crate) fn fleet() -> Self {
        let this = Self::empty();
        this.write("fleet.kdl", FLEET);
        this.write("sites/fra1.kdl", "site \"fra1\" {\n    region \"eu\"\n}\n");
        this.write("profiles/base.kdl", "profile \"base\" {\n    sysctl {\n        vm.swappiness \"10\"\n    }\n}\n");
        this.write("pools/h100.kdl", "pool \"h100\" {\n    site \"fra1\"\n    profile \"base\"\n}\n");
        this.commit("first");
        this
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        run(self.path(), args)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, text).expect("a file");
    }

    pub(crate) fn remove(&self, file: &str) {
        std::fs::remove_file(self.path().join(file)).expect("the file was there");
    }

    /// Commits everything and answers the commit's id.
    pub(crate) fn commit(&self, subject: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.head()
    }

    pub(crate) fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// The file of a loose object.
    pub(crate) fn loose(&self, id: &str) -> PathBuf {
        self.path().join(".git/objects").join(&id[..2]).join(&id[2..])
    }

    /// Overwrites a loose object with the bytes of another one.
    pub(crate) fn swap(&self, id: &str, with: &str) {
        let bytes = std::fs::read(self.loose(with)).expect("the other object");
        std::fs::remove_file(self.loose(id)).expect("the object");
        std::fs::write(self.loose(id), bytes).expect("a file");
    }

    /// The id of the blob at a path of HEAD.
    pub(crate) fn blob(&self, file: &str) -> String {
        self.git(&["rev-parse", &format!("HEAD:{file}")])
    }
}

/// Runs git under a configuration of its own and answers what it printed.
pub(crate) fn run(dir: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .current_dir(dir)
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs([
            ("GIT_AUTHOR_NAME", "Ada"),
            ("GIT_AUTHOR_EMAIL", "ada@test.example"),
            ("GIT_AUTHOR_DATE", "2026-01-01T00:00:00Z"),
        ])
        .envs([
            ("GIT_COMMITTER_NAME", "Grace"),
            ("GIT_COMMITTER_EMAIL", "grace@test.example"),
            ("GIT_COMMITTER_DATE", "2026-01-02T00:00:00Z"),
        ])
        .output()
        .expect("git runs");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}
