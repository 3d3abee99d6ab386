//! Fetching, over a stand-in for ssh that runs what a server would run.

use std::{os::unix::fs::PermissionsExt as _, path::Path, sync::atomic::AtomicBool};

use super::{Git, GitAccess, GitError, SourceConfig, SourceState, Trouble, look, read_tree};
use crate::source::fetch::Look;

struct Remote {
    git: Git,
    data: tempfile::TempDir,
    access: GitAccess,
}

impl Remote {
    fn of(git: Git, script: &str) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let ssh = data.path().join("ssh");
        std::fs::write(&ssh, format!("#!/bin/sh\n{script}\n")).expect("a file");
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        let access = GitAccess { ssh_command: Some(ssh.display().to_string()), ..GitAccess::default() };
        Self { git, data, access }
    }

    fn serving(git: Git) -> Self {
        // What follows the host is what the client wants to run on the server.
        Self::of(
            git,
            "while [ \"$1\" != git@host.example ]; do shift; done; shift\nGIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null exec sh -c \"$*\"",
        )
    }

    fn look(&self, branch: Option<&str>) -> Result<Look, GitError> {
        let url = format!("ssh://git@host.example{}", self.git.path().display());
        let (mut config, _) = SourceConfig::parse(&url).expect("a url");
        config.branch = branch.map(str::to_owned);
        look(&config, &self.access, self.data.path(), None, &AtomicBool::new(false))
    }

    fn state(&self, branch: Option<&str>) -> SourceState {
        Trouble::from(self.look(branch).expect_err("trouble")).state
    }
}

#[test]
fn a_remote_branch_is_fetched_bare_and_followed() {
    let remote = Remote::serving(Git::fleet());
    let first = remote.git.head();
    let seen = remote.look(None).expect("fetched");
    assert_eq!((seen.branch.as_str(), seen.tip.as_str()), ("main", first.as_str()));
    assert_eq!(read_tree(&seen.repo, &first, "").expect("reads").len(), 4);

    remote.git.git(&["checkout", "-q", "-b", "other"]);
    let other = remote.git.commit("not followed");
    remote.git.git(&["checkout", "-q", "main"]);
    let second = remote.git.commit("second");
    let seen = remote.look(Some("main")).expect("fetched");
    assert_eq!(seen.tip, second);
    assert!(read_tree(&seen.repo, &other, "").is_err());
    assert!(work_trees(remote.data.path()).is_empty());

    remote.git.git(&["reset", "-q", "--hard", &first]);
    let rewritten = remote.git.commit("rewritten");
    assert_eq!(remote.look(Some("main")).map(|seen| seen.tip), Ok(rewritten));
}

#[test]
fn a_repository_of_many_packs_is_fetched_anew() {
    let remote = Remote::serving(Git::fleet());
    remote.look(Some("main")).expect("fetched");
    let packs = own(remote.data.path()).remove(0).join("objects/pack");
    let count = || std::fs::read_dir(&packs).expect("packs").count();
    let whole = count();
    for n in 0..60 {
        std::fs::write(packs.join(format!("pack-{n:040x}.pack")), "").expect("a file");
    }
    let tip = remote.git.commit("second");
    let seen = remote.look(Some("main")).expect("fetched");
    assert_eq!((seen.tip.as_str(), count()), (tip.as_str(), whole));
    assert_eq!(read_tree(&seen.repo, &tip, "").expect("reads").len(), 4);
}

/// Our own repositories: the script beside them is no folder.
fn own(data: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(data)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

fn work_trees(data: &Path) -> Vec<String> {
    let files = own(data).into_iter().flat_map(|repo| std::fs::read_dir(repo).expect("a repository").flatten());
    files.map(|file| file.file_name().to_string_lossy().into_owned()).filter(|name| name.ends_with(".kdl")).collect()
}

#[test]
fn a_half_made_repository_of_our_own_is_made_again() {
    let remote = Remote::serving(Git::fleet());
    remote.look(None).expect("fetched");
    let own = own(remote.data.path()).pop().expect("one");
    std::fs::remove_file(own.join("HEAD")).expect("it was there");
    assert!(remote.look(None).is_ok());
}

#[test]
fn every_trouble_of_a_remote_has_a_name() {
    let remote = Remote::serving(Git::fleet());
    assert_eq!(remote.state(Some("gone")), SourceState::BranchMissing);
    assert_eq!(Remote::serving(Git::empty()).state(None), SourceState::RepositoryEmpty);
    assert_eq!(Remote::serving(Git::empty()).state(Some("main")), SourceState::RepositoryEmpty);
    assert_eq!(Remote::of(Git::fleet(), "exit 1").state(None), SourceState::Unreachable);
    // What ssh says is read beside what it carries: it lives on a little, so that its words come first.
    assert_eq!(
        Remote::of(Git::fleet(), "echo 'Permission denied (publickey).' >&2; sleep 1; exit 255").state(None),
        SourceState::AuthFailed
    );
}
