//! Git as it comes: states, hostile trees, rewritten history. Real repositories, no network.

mod brakes;
mod pass;
mod remote;
mod running;
mod verified;

use std::{io::Write as _, path::Path, sync::atomic::AtomicBool};

use schema::fleet::{SourceBlob, Sources};

use super::{
    GitAccess, GitError, Repo, SourceConfig, SourceState, Trouble, Verdict,
    fetch::{Look, look},
    fixture::{Git, run},
    read_tree, resolve,
};

fn config(place: &Path) -> SourceConfig {
    SourceConfig::parse(&place.display().to_string()).expect("a directory").0
}

fn look_at(text: &str) -> Result<Look, GitError> {
    let (config, access) = SourceConfig::parse(text).expect("a source");
    look(&config, &access, Path::new("/nonexistent"), None, &AtomicBool::new(false))
}

fn state(result: Result<Look, GitError>) -> SourceState {
    Trouble::from(result.expect_err("trouble")).state
}

fn files(sources: &Sources) -> Vec<String> {
    sources.iter().map(|(path, _)| path.to_string()).collect()
}

#[test]
fn a_work_tree_a_bare_repository_a_folder_and_a_linked_work_tree_are_the_same_place() {
    let git = Git::fleet();
    let head = git.head();
    let other = tempfile::tempdir().expect("a directory");
    run(other.path(), &["clone", "-q", "--bare", &git.path().display().to_string(), "bare.git"]);
    git.git(&["worktree", "add", "-q", "--detach", &other.path().join("linked").display().to_string()]);
    for place in
        [git.path().to_owned(), git.path().join(".git"), other.path().join("bare.git"), other.path().join("linked")]
    {
        let seen = look_at(&format!("{}#main", place.display())).expect("a repository");
        assert_eq!(
            (seen.tip.as_str(), seen.branch.as_str(), seen.path.as_str()),
            (head.as_str(), "main", ""),
            "{}",
            place.display()
        );
    }
    let seen = look_at(&git.path().join("pools").display().to_string()).expect("a folder of one");
    assert_eq!(seen.path, "pools");
}

#[test]
fn the_branch_is_the_one_that_head_names() {
    let git = Git::fleet();
    git.git(&["checkout", "-q", "-b", "next"]);
    let next = git.commit("second");
    assert_eq!(
        look_at(&git.path().display().to_string()).map(|seen| (seen.branch, seen.tip)),
        Ok(("next".to_owned(), next))
    );
}

#[test]
fn every_way_to_have_no_commit_has_a_name() {
    let empty = Git::empty();
    assert_eq!(state(look_at(&empty.path().display().to_string())), SourceState::RepositoryEmpty);

    let git = Git::fleet();
    assert_eq!(state(look_at(&format!("{}#gone", git.path().display()))), SourceState::BranchMissing);
    git.git(&["checkout", "-q", "--detach"]);
    assert_eq!(state(look_at(&git.path().display().to_string())), SourceState::BranchMissing);

    let nothing = tempfile::tempdir().expect("a directory");
    assert_eq!(state(look_at(&nothing.path().join("gone").display().to_string())), SourceState::Unreachable);
    assert_eq!(state(look_at(&nothing.path().display().to_string())), SourceState::Unreachable);
}

#[test]
fn alternates_and_grafts_are_refused() {
    let git = Git::fleet();
    let head = git.head();
    for (file, text) in
        [("objects/info/alternates", "/elsewhere/objects\n".to_owned()), ("info/grafts", format!("{head}\n"))]
    {
        let path = git.path().join(".git").join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(&path, text).expect("a file");
        assert_eq!(state(look_at(&git.path().display().to_string())), SourceState::Refused, "{file}");
        std::fs::remove_file(path).expect("it was there");
    }
    assert!(look_at(&git.path().display().to_string()).is_ok());
}

#[test]
fn a_repository_that_is_kept_otherwise_than_in_plain_files_is_refused() {
    let git = Git::fleet();
    let at = |name: &str| git.path().join(".git").join(name);
    let place = git.path().display().to_string();
    for name in ["packed-refs", "config", "HEAD"] {
        let aside = std::fs::read(at(name)).ok();
        let _ = std::fs::remove_file(at(name));
        assert!(std::process::Command::new("mkfifo").arg(at(name)).status().expect("mkfifo runs").success());
        assert!(Repo::open(git.path()).is_err(), "{name}");
        std::fs::remove_file(at(name)).expect("the pipe");
        aside.into_iter().for_each(|bytes| std::fs::write(at(name), bytes).expect("a file"));
    }
    assert!(look_at(&place).is_ok());
    let config = std::fs::read_to_string(at("config")).expect("a configuration");
    for more in ["[extensions]\n\trefStorage = reftable\n".to_owned(), format!("# {}\n", "x".repeat(1 << 20))] {
        let version = config.replace("repositoryformatversion = 0", "repositoryformatversion = 1");
        std::fs::write(at("config"), format!("{version}{more}")).expect("a file");
        assert!(Repo::open(git.path()).is_err(), "{}", &more[..20]);
    }
    std::fs::write(at("config"), config).expect("a file");
    assert!(look_at(&place).is_ok());
}

#[test]
fn replace_refs_change_nothing() {
    let git = Git::fleet();
    let blob = git.blob("fleet.kdl");
    let other = git.blob("sites/fra1.kdl");
    git.git(&["replace", "-f", &blob, &other]);
    let repo = Repo::open(git.path()).expect("opens");
    let sources = read_tree(&repo, &git.head(), "").expect("reads");
    assert_eq!(sources.get("fleet.kdl"), Some(&SourceBlob::Bytes(super::fixture::FLEET.as_bytes().into())));
}

#[test]
fn only_what_the_language_wants_is_read_and_nothing_is_followed() {
    let git = Git::fleet();
    git.write("README.md", "hello");
    git.write(".github/workflow.yaml", "x: 1");
    git.write("big.yaml", &"#".repeat(2 << 20));
    std::os::unix::fs::symlink("/etc/passwd", git.path().join("nodes.kdl")).expect("a link");
    git.git(&["add", "-A"]);
    git.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},vendored", git.head())]);
    git.git(&["commit", "-q", "-m", "hostile"]);
    let head = git.head();
    let repo = Repo::open(git.path()).expect("opens");
    let sources = read_tree(&repo, &head, "").expect("reads");
    assert_eq!(
        files(&sources),
        ["big.yaml", "fleet.kdl", "nodes.kdl", "pools/h100.kdl", "profiles/base.kdl", "sites/fra1.kdl", "vendored"]
    );
    assert_eq!(sources.get("nodes.kdl"), Some(&SourceBlob::Symlink));
    assert_eq!(sources.get("vendored"), Some(&SourceBlob::Submodule));
    assert_eq!(sources.get("big.yaml"), Some(&SourceBlob::TooLarge { bytes: 2 << 20 }));
}

#[test]
fn a_folder_is_a_fleet_of_its_own_and_a_missing_one_is_empty() {
    let git = Git::fleet();
    git.write("eu/prod/fleet.kdl", "x");
    let head = git.commit("nested");
    let repo = Repo::open(git.path()).expect("opens");
    assert_eq!(files(&read_tree(&repo, &head, "eu/prod").expect("reads")), ["fleet.kdl"]);
    assert!(read_tree(&repo, &head, "eu/gone").expect("reads").is_empty());
    assert!(read_tree(&repo, &head, "fleet.kdl").expect("reads").is_empty());
}

#[test]
fn a_missing_or_swapped_object_is_broken() {
    let git = Git::fleet();
    let head = git.head();
    let (blob, other) = (git.blob("pools/h100.kdl"), git.blob("sites/fra1.kdl"));
    git.swap(&blob, &other);
    let repo = Repo::open(git.path()).expect("opens");
    let error = read_tree(&repo, &head, "").expect_err("the content is another one's");
    assert!(matches!(&error, GitError::Broken { id, what } if *id == blob && what.contains(&other)), "{error}");
    std::fs::remove_file(git.loose(&blob)).expect("it was there");
    let repo = Repo::open(git.path()).expect("opens");
    assert!(matches!(read_tree(&repo, &head, ""), Err(GitError::Broken { id, .. }) if id == blob));
}

#[test]
fn what_names_objects_sees_an_attack_on_sha1() {
    // How the documents of shattered.io begin; nobody has such a pair that is an object of git.
    for half in ["shattered-1.bin", "shattered-2.bin"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pki/src/trust/fixtures").join(half);
        let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
        hasher.update(&std::fs::read(file).expect("the fixture"));
        assert!(hasher.try_finalize().is_err(), "{half}");
    }
}

#[test]
fn hostile_trees_are_refused_as_such() {
    let git = Git::fleet();
    let blob = hex::decode(git.blob("fleet.kdl")).expect("hex");
    let broken = |names: &[&str]| {
        let entry = |name: &&str| [format!("100644 {name}\0").as_bytes(), &blob].concat();
        std::fs::write(git.path().join("raw"), names.iter().map(entry).collect::<Vec<_>>().concat()).expect("a file");
        let tree = git.git(&["hash-object", "-t", "tree", "-w", "--literally", "raw"]);
        let commit = git.git(&["commit-tree", &tree, "-m", "hostile"]);
        let repo = Repo::open(git.path()).expect("opens");
        matches!(read_tree(&repo, &commit, ""), Err(GitError::Unfit(what)) if what.contains(&tree))
    };
    for name in ["..", ".git", ".GIT", ".", "", "sites/fra1.kdl", "/fleet.kdl"] {
        assert!(broken(&[name]), "{name:?}");
    }
    assert!(broken(&["fleet.kdl", "fleet.kdl"]), "an entry twice");
    assert!(broken(&["fleet.kdl", "other.kdl", "fleet.kdl"]), "and not beside itself");
    assert!(!broken(&["fleet.kdl", "other.kdl"]));
}

#[test]
fn ten_thousand_files_are_read() {
    let git = Git::fleet();
    for number in 0..10_000 {
        git.write(&format!("nodes/{}/n{number}.kdl", number % 100), &format!("node \"n{number}\"\n"));
    }
    let head = git.commit("many");
    let repo = Repo::open(git.path()).expect("opens");
    assert_eq!(read_tree(&repo, &head, "").expect("reads").len(), 10_004);
}

#[test]
fn names_of_commits_resolve() {
    let git = Git::fleet();
    let first = git.head();
    let second = git.commit("second");
    git.git(&["tag", "-a", "v1", "-m", "one", &first]);
    let repo = Repo::open(git.path()).expect("opens");
    for (name, id) in [("main", &second), ("HEAD~1", &first), ("v1", &first), (&second[..12], &second)] {
        assert_eq!(resolve(&repo, name).as_ref(), Ok(id), "{name}");
    }
    assert!(resolve(&repo, "gone").is_err());
    assert!(resolve(&repo, "HEAD:fleet.kdl").is_err());
}

#[test]
fn a_name_that_leads_to_no_commit_is_said_to_be_one_whatever_lies_there() {
    let git = Git::fleet();
    let head = git.head();
    let place = || format!("{}#main", git.path().display());
    for (what, tag) in [
        ("no tag", "object zzz\n".to_owned()),
        ("nothing", String::new()),
        ("a tag of a file", format!("object {}\ntype blob\ntag x\n\n", git.blob("fleet.kdl"))),
        ("a tag of nothing", format!("object {}\ntype commit\ntag x\n\n", "1".repeat(40))),
    ] {
        git.write(".git/tag", &tag);
        let id = git.git(&["hash-object", "-t", "tag", "-w", "--literally", ".git/tag"]);
        std::fs::write(git.path().join(".git/refs/heads/main"), format!("{id}\n")).expect("a branch");
        assert!(look_at(&place()).is_err(), "{what}");
        let repo = Repo::open(git.path()).expect("opens");
        for name in ["main", "main~1", "HEAD", &id, &id[..12]] {
            assert!(resolve(&repo, name).is_err(), "{what}: {name}");
        }
    }
    std::fs::write(git.path().join(".git/refs/heads/main"), format!("{head}\n")).expect("a branch");
    assert!(look_at(&place()).is_ok());
    let repo = Repo::open(git.path()).expect("opens");
    for name in ["", "~", "main~999999999999", "main^2", "main^{tree}", "main@{1}", ":fleet.kdl", "main~x"] {
        assert!(resolve(&repo, name).is_err(), "{name}");
    }
    assert_eq!(resolve(&repo, "main~0"), Ok(head));
}

/// A pack of two objects: many zeros, and a text as what it differs in from them.
fn bomb(text: &str) -> Vec<u8> {
    const ZEROS: usize = 160 << 20;
    let entry = |kind: u8, size: usize, base: &[u8], data: &[u8]| {
        let mut entry = numbered(size >> 4);
        let first = (kind << 4) | (size & 15) as u8;
        if size < 16 {
            entry = vec![first];
        } else {
            entry.insert(0, 0x80 | first);
        }
        let mut packed = gix::zlib::stream::deflate::Write::new(Vec::new(), gix::zlib::Compression::default());
        packed.write_all(data).and_then(|()| packed.flush()).expect("memory");
        [entry, base.to_vec(), packed.into_inner()].concat()
    };
    let base = entry(3, ZEROS, &[], &vec![0; ZEROS]);
    let insert = [&[text.len() as u8], text.as_bytes()].concat();
    let delta = [numbered(ZEROS), numbered(text.len()), insert].concat();
    let back = base.len();
    assert!((16_512..2_113_664).contains(&back), "{back} is a distance of three bytes");
    let far = back - 16_512;
    let back = [0x80 | (far >> 14) as u8, 0x80 | ((far >> 7) & 127) as u8, (far & 127) as u8];
    let mut pack = [b"PACK\0\0\0\x02\0\0\0\x02".to_vec(), base, entry(6, delta.len(), &back, &delta)].concat();
    let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
    hasher.update(&pack);
    pack.extend_from_slice(hasher.try_finalize().expect("no collision").as_slice());
    pack
}

/// A number in groups of seven bits, the lowest first.
fn numbered(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(0x80 | (number & 127) as u8);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[test]
fn what_an_object_is_packed_as_a_difference_from_is_no_way_to_use_memory_up() {
    let git = Git::fleet();
    let head = git.head();
    let small = git.blob("fleet.kdl");
    std::fs::write(git.path().join(".git/objects/pack/pack-1.pack"), bomb(super::fixture::FLEET)).expect("a pack");
    git.git(&["index-pack", ".git/objects/pack/pack-1.pack"]);
    std::fs::remove_file(git.loose(&small)).expect("the file is in the pack alone");
    let repo = Repo::open(git.path()).expect("opens");
    let error = read_tree(&repo, &head, "").expect_err("its base is larger than anything of a fleet");
    assert!(matches!(error, GitError::Broken { .. }), "{error}");
}

#[test]
fn a_branch_that_moves_on_is_forward_and_says_by_which_commits() {
    let git = Git::fleet();
    let base = git.head();
    let second = git.commit("second");
    git.git(&["checkout", "-q", "-b", "side", &base]);
    git.commit("beside");
    git.git(&["checkout", "-q", "main"]);
    git.git(&["merge", "-q", "--no-ff", "-m", "merge side", "side"]);
    let repo = Repo::open(git.path()).expect("opens");
    let Ok(Verdict::Forward(since)) = repo.judge(&git.head(), Some(&base)) else { panic!("forward") };
    assert_eq!(since.iter().map(|commit| commit.subject.as_str()).collect::<Vec<_>>(), ["second", "merge side"]);
    assert_eq!(
        (since[0].id.as_str(), since[0].author.as_str(), since[0].committer.as_str()),
        (second.as_str(), "Ada <ada@test.example>", "Grace <grace@test.example>")
    );
    assert_eq!(repo.judge(&base, Some(&base)), Ok(Verdict::Forward(Vec::new())));
}

#[test]
fn a_rewind_a_sibling_a_foxtrot_merge_and_an_orphan_diverge() {
    let git = Git::fleet();
    let first = git.head();
    let base = git.commit("in force");
    let sibling = {
        git.git(&["checkout", "-q", "-B", "sibling", &first]);
        git.commit("instead")
    };
    git.git(&["merge", "-q", "--no-ff", "-m", "foxtrot", &base]);
    let foxtrot = git.head();
    git.git(&["checkout", "-q", "--orphan", "orphan"]);
    let orphan = git.commit("orphan");
    let repo = Repo::open(git.path()).expect("opens");
    for tip in [&first, &sibling, &foxtrot, &orphan] {
        assert!(matches!(repo.judge(tip, Some(&base)), Ok(Verdict::Diverged { .. })), "{tip}");
    }
}

#[test]
fn a_shallow_clone_is_followed_and_says_when_it_does_not_reach_back() {
    let git = Git::fleet();
    let first = git.head();
    git.commit("second");
    let third = git.commit("third");
    let other = tempfile::tempdir().expect("a directory");
    run(other.path(), &["clone", "-q", "--depth", "2", &format!("file://{}", git.path().display()), "shallow"]);
    let seen = look_at(&other.path().join("shallow").display().to_string()).expect("a repository");
    assert_eq!(seen.tip, third);
    assert!(matches!(seen.repo.judge(&third, None), Ok(Verdict::Forward(since)) if since.len() == 1));
    let Ok(Verdict::Diverged { reason }) = seen.repo.judge(&third, Some(&first)) else { panic!("out of reach") };
    assert!(reason.contains("shallow"), "{reason}");
}

#[test]
fn words_of_a_commit_cannot_steer_a_terminal() {
    let git = Git::fleet();
    let head = git.commit("red \u{1b}[31m and \u{202e}back");
    let repo = Repo::open(git.path()).expect("opens");
    let Ok(Verdict::Forward(since)) = repo.judge(&head, None) else { panic!("forward") };
    assert_eq!(since[0].subject, "red [31m and back");
}
