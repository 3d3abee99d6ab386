//! Facts about writing under a root.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn tree() -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let tree = Tree::open(dir.path()).expect("a directory opens");
    (dir, tree)
}

fn file(text: &str) -> FileState {
    FileState {
        content: text.into(),
        mode: 0o640,
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
    }
}

#[test]
fn a_written_file_reads_back() {
    let (dir, tree) = tree();
    let path = HostPath::known("/motd");
    tree.write_file(&path, &file("hi\n")).expect("written");
    assert_eq!(tree.read(&path).expect("read"), Entry::File(file("hi\n")));
    let mode = std::fs::metadata(dir.path().join("motd")).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert!(!tree.has_stray(&path).expect("reached"));
}

#[test]
fn a_link_out_of_the_root_is_refused() {
    let (dir, tree) = tree();
    let outside = tempfile::tempdir().expect("a temporary directory");
    symlink("../../../../../../tmp", dir.path().join("out")).expect("link");
    let path = HostPath::known("/out/x");
    assert!(matches!(tree.write_file(&path, &file("x")), Err(TreeError::Escapes(_))));
    assert!(matches!(tree.read(&path), Err(TreeError::Escapes(_))));
    drop(outside);
}

#[test]
fn an_absolute_link_means_a_place_under_the_root() {
    let (dir, tree) = tree();
    let outside = tempfile::tempdir().expect("a temporary directory");
    symlink(outside.path(), dir.path().join("var")).expect("link");
    let path = HostPath::known("/var/x");
    assert!(tree.write_file(&path, &file("x")).is_err(), "the target does not exist under the root");
    assert!(std::fs::read_dir(outside.path()).expect("readable").next().is_none());
    std::fs::create_dir(dir.path().join("run")).expect("made");
    symlink("/run", dir.path().join("varrun")).expect("link");
    tree.write_file(&HostPath::known("/varrun/x"), &file("x")).expect("written");
    assert!(dir.path().join("run/x").is_file());
}

#[test]
fn the_last_component_is_never_followed() {
    let (dir, tree) = tree();
    std::fs::write(dir.path().join("secret"), "keep").expect("written");
    symlink("secret", dir.path().join("motd")).expect("link");
    let path = HostPath::known("/motd");
    assert_eq!(tree.read(&path).expect("read"), Entry::Link("secret".into()));
    tree.write_file(&path, &file("new")).expect("written");
    assert_eq!(std::fs::read_to_string(dir.path().join("secret")).expect("there"), "keep");
    assert!(dir.path().join("motd").symlink_metadata().expect("there").is_file());
}

#[test]
fn links_in_circles_end() {
    let (dir, tree) = tree();
    symlink("b", dir.path().join("a")).expect("link");
    symlink("a", dir.path().join("b")).expect("link");
    assert!(matches!(tree.read(&HostPath::known("/a/x")), Err(TreeError::Loop(_))));
}

#[test]
fn a_file_on_the_way_is_said() {
    let (dir, tree) = tree();
    std::fs::write(dir.path().join("f"), "").expect("written");
    assert!(matches!(tree.read(&HostPath::known("/f/x")), Err(TreeError::NotADirectory(_))));
}

#[test]
fn only_empty_directories_are_removed() {
    let (dir, tree) = tree();
    tree.make_dir(&HostPath::known("/a")).expect("made");
    std::fs::write(dir.path().join("a/f"), "").expect("written");
    assert!(!tree.remove_dir(&HostPath::known("/a")).expect("tried"));
    std::fs::remove_file(dir.path().join("a/f")).expect("removed");
    assert!(tree.remove_dir(&HostPath::known("/a")).expect("tried"));
    assert!(tree.remove_dir(&HostPath::known("/a")).expect("tried again"));
}

#[test]
fn missing_parents_are_listed_from_the_outside() {
    let (dir, tree) = tree();
    std::fs::create_dir(dir.path().join("etc")).expect("made");
    let missing = tree.missing_parents(&HostPath::known("/etc/a/b/c")).expect("walked");
    assert_eq!(missing, [HostPath::known("/etc/a"), HostPath::known("/etc/a/b")]);
}
