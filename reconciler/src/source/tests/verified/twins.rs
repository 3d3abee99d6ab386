//! Names that are one on some machines: a commit brings no second one into a folder.

use pki::trust::walk::{FileChange, History as _};

use super::*;
use crate::source::{GitError, Repo, TrustHistory};

/// A repository of trees without commits.
struct Trees {
    git: Git,
    blob: String,
}

impl Trees {
    fn new() -> Self {
        let git = Git::fleet();
        let blob = git.blob("fleet.kdl");
        Self { git, blob }
    }

    fn of(&self, entries: &[(&str, &str)]) -> String {
        let line = |(name, tree): &(&str, &str)| match *tree {
            "" => format!("100644 blob {}\t{name}\0", self.blob),
            tree => format!("040000 tree {tree}\t{name}\0"),
        };
        let file = self.git.path().join(".git/entries");
        std::fs::write(&file, entries.iter().map(line).collect::<String>()).expect("a file");
        let shell = format!("git mktree -z < {}", file.display());
        let mut made = std::process::Command::new("sh");
        let out = made.current_dir(self.git.path()).args(["-c", &shell]).output().expect("a shell");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text").trim().to_owned()
    }

    fn files(&self, names: &[&str]) -> String {
        self.of(&names.iter().map(|name| (*name, "")).collect::<Vec<_>>())
    }

    fn changes(&self, before: &str, after: &str) -> Result<Vec<FileChange>, GitError> {
        let repo = Repo::open(self.git.path()).expect("a repository");
        repo.trust_history("").changes(id(before), id(after))
    }

    fn refused(&self, before: &str, after: &str) -> String {
        let error = self.changes(before, after).expect_err("two names that are one");
        <TrustHistory<'_> as pki::trust::walk::History>::unfit(&error).expect("it is refused for its files")
    }
}

#[test]
fn a_second_file_under_the_same_name_on_some_machines_is_refused() {
    let trees = Trees::new();
    for (there, comes) in [
        ("policy.kdl", "Policy.kdl"),
        ("policy.kdl", "POLICY.KDL"),
        ("caf\u{e9}.kdl", "cafe\u{301}.kdl"),
        ("cafe\u{301}.kdl", "CAF\u{c9}.kdl"),
        ("stra\u{df}e.kdl", "STRASSE.kdl"),
        ("k.kdl", "\u{212a}.kdl"),
        ("tru\u{17f}t.kdl", "trust.kdl"),
        ("o\u{323}\u{307}.kdl", "\u{22f}\u{323}.kdl"),
        ("\u{3a3}.kdl", "\u{3c2}.kdl"),
    ] {
        for (there, comes) in [(there, comes), (comes, there)] {
            let (before, after) = (trees.files(&[there, "z.kdl"]), trees.files(&[there, comes, "z.kdl"]));
            let why = trees.refused(&before, &after);
            assert!(why.contains("one name on some machines"), "{there} {comes}: {why}");
            // A folder is no other name, nor is one that lies deeper, nor one that comes with its folder.
            let inner = trees.files(&["a.kdl"]);
            trees.refused(&before, &trees.of(&[(there, ""), (comes, inner.as_str()), ("z.kdl", "")]));
            let deep = |tree: &str| trees.of(&[("nodes", tree)]);
            assert!(trees.refused(&deep(&before), &deep(&after)).starts_with("nodes has "));
            trees.refused(&deep(&inner), &trees.of(&[("nodes", inner.as_str()), ("pools", after.as_str())]));
        }
    }
}

#[test]
fn a_name_of_its_own_a_renamed_file_and_twins_that_were_there_are_nobodys_second() {
    let trees = Trees::new();
    let twins = trees.files(&["A.kdl", "a.kdl", "z.kdl"]);
    let (odd, other) = (trees.files(&["odd"]), trees.files(&["other"]));
    for (before, after) in [
        (trees.files(&["a.kdl"]), trees.files(&["A.kdl"])),
        (trees.files(&["caf\u{e9}.kdl"]), trees.files(&["cafe\u{301}.kdl"])),
        (trees.files(&["a.kdl"]), trees.files(&["a.kdl", "a.yaml", "b.kdl"])),
        (twins.clone(), trees.files(&["A.kdl", "a.kdl", "new.kdl", "z.kdl"])),
        (twins, trees.files(&["a.kdl", "z.kdl"])),
        (
            trees.of(&[("A", odd.as_str()), ("a", odd.as_str())]),
            trees.of(&[("A", odd.as_str()), ("a", other.as_str())]),
        ),
    ] {
        assert!(trees.changes(&before, &after).is_ok_and(|found| !found.is_empty()));
    }
    // One more beside those that were there is.
    trees.refused(&trees.files(&["A.kdl", "a.kdl"]), &trees.files(&["A.kdl", "\u{ff41}.kdl", "a.kdl", "a.KDL"]));
}
