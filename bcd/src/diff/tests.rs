//! Facts about what people and programs are shown before anything changes.

use std::fs;

use insta::assert_snapshot;
use schema::spec::{HostFile, Unit};

use super::*;
use crate::{process::Staged, tree::Tree};

fn file(path: &str, content: &str, mode: &str) -> HostFile {
    HostFile {
        path: path.into(),
        content: content.into(),
        mode: mode.into(),
        owner: "root".into(),
        group: "root".into(),
        ..HostFile::default()
    }
}

fn spec() -> NodeSpec {
    let mut spec = NodeSpec::default();
    spec.host.files = vec![
        file("/etc/motd", "one\ntwo\nthree\n", "0644"),
        file("/etc/new", "fresh\n\u{1b}[31mred\n", "0600"),
        file("/etc/shadowy", "x", "64"),
    ];
    spec.host.sysctl.insert("vm.swappiness".into(), "1".into());
    spec.host.kernel_args = vec!["iommu=pt".into()];
    spec.host.units = vec![Unit {
        name: "x.service".into(),
        content: "[Install]\nWantedBy=multi-user.target\n".into(),
        enabled: Some(true),
        active: None,
        ..Unit::default()
    }];
    spec
}

fn world() -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (path, content) in [("etc/motd", "one\nzwei\nthree\n"), ("proc/sys/vm/swappiness", "60\n")] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, content).expect("written");
        std::os::unix::fs::chown(&path, None, None).expect("kept");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, mode).expect("set");
    }
    let tree = Tree::open(dir.path()).expect("opens");
    (dir, tree)
}

fn compute(tree: &Tree) -> Diff {
    let now = "2026-03-01T12:00:00Z".parse().expect("a time");
    let host = Host { tree, runner: &Staged, state_dir: None, vault: None, knows_time: true };
    diff(host, Generation(3), &spec(), &Memories::new(), &Ledger::default(), now)
}

#[test]
fn people_see_every_change_before_it_is_made() {
    let (dir, tree) = world();
    assert_snapshot!(compute(&tree).text(), @r#"
    --- /dev/null
    +++ /etc/default/grub.d/60-better-compute.cfg (0644 root:root)
    @@ -0,0 +1,2 @@
    +# Managed by Better Compute. Change the fleet repository instead.
    +GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt"
    --- /etc/motd (0600 root:root)
    +++ /etc/motd (0644 root:root)
    @@ -1,3 +1,3 @@
     one
    -zwei
    +two
     three
    --- /dev/null
    +++ /etc/new (0600 root:root)
    @@ -0,0 +1,2 @@
    +fresh
    +\u{1b}[31mred
    --- /dev/null
    +++ /etc/sysctl.d/60-better-compute.conf (0644 root:root)
    @@ -0,0 +1,2 @@
    +# Managed by Better Compute. Change the fleet repository instead.
    +vm.swappiness = 1
    --- /dev/null
    +++ /etc/systemd/system/multi-user.target.wants/x.service -> /etc/systemd/system/x.service
    --- /dev/null
    +++ /etc/systemd/system/x.service (0644 root:root)
    @@ -0,0 +1,2 @@
    +[Install]
    +WantedBy=multi-user.target
    = /proc/sys/vm/swappiness: 60 -> 1
    ! host: file /etc/shadowy: mode "64" is not four octal digits
    ~ waits for a boot: kernel arguments iommu=pt
    "#);
    assert_eq!(fs::read_dir(dir.path().join("etc")).expect("there").count(), 1, "nothing was written");
}

#[test]
fn programs_see_the_same() {
    let (_dir, tree) = world();
    let json = serde_json::to_value(compute(&tree)).expect("serialises");
    let host = &json["sections"][0];
    assert_eq!((json["generation"].as_u64(), host["section"].as_str()), (Some(3), Some("host")));
    let motd = host["changes"].as_array().expect("changes").iter().find(|change| change["path"] == "/etc/motd");
    assert_eq!(motd.expect("there")["after"]["mode"], "0644");
    assert!(host["problems"][0].as_str().expect("a text").contains("four octal digits"));
}

#[test]
fn an_empty_spec_changes_nothing() {
    let (_dir, tree) = world();
    let now = "2026-03-01T12:00:00Z".parse().expect("a time");
    let host = Host { tree: &tree, runner: &Staged, state_dir: None, vault: None, knows_time: true };
    let diff = diff(host, Generation(1), &NodeSpec::default(), &Memories::new(), &Ledger::default(), now);
    assert_eq!((diff.is_empty(), diff.text().as_str()), (true, "nothing to change\n"));
}
