//! Facts about asking the driver. What its tool says is in the tests of `smi`, what a diagnosis makes of it in `kind`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use super::*;
use crate::hardware::Programs;

fn reader(root: &Path) -> HostReader {
    HostReader::of(root, None, Programs { smi: "/nowhere/nvidia-smi".into(), ..Programs::default() })
}

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
}

#[test]
fn without_a_driver_nobody_is_asked() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let silence = reader(dir.path()).health_of_driver().expect_err("nobody");
    assert_eq!((silence.hung, silence.why.as_str()), (false, "no NVIDIA driver is loaded"));
    file(dir.path(), "proc/driver/nvidia/version", "");
    let silence = reader(dir.path()).health_of_driver().expect_err("no tool");
    assert!(silence.why.contains("nvidia-smi"), "{silence}");
}

#[test]
fn the_number_of_a_device_node_is_found_in_the_drivers_own_place() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    file(dir.path(), "proc/driver/nvidia/gpus/0000:18:00.0/information", "Model: \t H100\nDevice Minor: \t 5\n");
    file(dir.path(), "proc/77/comm", "python3\n");
    fs::create_dir_all(dir.path().join("proc/77/fd")).expect("made");
    symlink("/dev/nvidia5", dir.path().join("proc/77/fd/9")).expect("linked");
    symlink("/dev/nvidia50", dir.path().join("proc/77/fd/10")).expect("linked");
    let gpu = |pci: &str| GpuHealth { pci: Some(pci.into()), ..GpuHealth::default() };
    let holders = reader(dir.path()).holders_of(&[&gpu("0000:18:00.0")]).expect("known");
    assert_eq!(holders[0], [User { pid: 77, name: "python3".to_owned() }]);
    assert!(reader(dir.path()).holders_of(&[&gpu("0000:19:00.0")]).is_err());
}

#[test]
fn a_process_that_may_not_be_looked_at_leaves_the_answer_open() {
    if nix::unistd::geteuid().is_root() {
        eprintln!("skipped: root may look at everything");
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let fd = dir.path().join("proc/77/fd");
    fs::create_dir_all(&fd).expect("made");
    fs::set_permissions(&fd, fs::Permissions::from_mode(0o000)).expect("closed");
    let gpu = GpuHealth { minor: Some(0), ..GpuHealth::default() };
    assert!(reader(dir.path()).holders_of(&[&gpu]).is_err());
}
