//! Which boot this is. A described machine boots by writing down another one.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use schema::id::BootId;

/// One boot id a line, the last one in force.
fn file(root: &Path) -> PathBuf {
    root.join("var/lib/described/boots")
}

/// This boot's id. A real machine has it from its kernel, a described one from a file under its root; where neither can be
/// read, each start of the daemon counts as a boot.
#[must_use]
pub fn boot_id(root: &Path, described: bool) -> BootId {
    let own = || match last(root) {
        Some(id) => Some(id),
        None => next(root).ok(),
    };
    described.then(own).flatten().unwrap_or_else(of_kernel)
}

/// A described machine that nobody has booted before runs a kernel from now on, which has what is staged until now: its first
/// start is its first boot. `false`, and nothing is done, when a kernel runs there.
///
/// # Errors
/// When its files cannot be written.
pub fn first_kernel(root: &Path) -> io::Result<bool> {
    super::described::first_kernel(root)
}

fn of_kernel() -> BootId {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .map_or_else(BootId::generate, BootId::from_uuid)
}

fn last(root: &Path) -> Option<BootId> {
    fs::read_to_string(file(root)).ok()?.lines().rev().find_map(|line| line.trim().parse().ok())
}

/// Boots a described machine: from now on it has another boot id, which outlives this process.
///
/// # Errors
/// When the file cannot be written.
pub fn next(root: &Path) -> io::Result<BootId> {
    let (path, id) = (file(root), BootId::generate());
    let dir = path.parent().expect("the file lies in a directory");
    fs::create_dir_all(dir)?;
    let mut boots = OpenOptions::new().create(true).append(true).open(&path)?;
    // A line that was torn off stays a line of its own.
    let torn = fs::read(&path)?.last().is_some_and(|byte| *byte != b'\n');
    boots.write_all(format!("{}{id}\n", if torn { "\n" } else { "" }).as_bytes())?;
    boots.sync_all()?;
    File::open(dir)?.sync_all()?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_described_machine_keeps_its_boot_until_it_boots() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let first = boot_id(root.path(), true);
        assert_eq!(boot_id(root.path(), true), first);
        let second = next(root.path()).expect("boots");
        assert_ne!(second, first);
        assert_eq!(boot_id(root.path(), true), second);
        assert_eq!(fs::read_to_string(file(root.path())).expect("read").lines().count(), 2);
    }

    #[test]
    fn a_machine_has_one_first_kernel_and_the_real_one_is_not_its() {
        let root = tempfile::tempdir().expect("a temporary directory");
        assert!(first_kernel(root.path()).expect("boots"));
        let cmdline = root.path().join("proc/cmdline");
        assert_eq!(fs::read_to_string(&cmdline).expect("a kernel runs"), "BOOT_IMAGE=described \n");
        fs::write(&cmdline, "as it was").expect("written");
        assert!(!first_kernel(root.path()).expect("nothing to do"));
        assert_eq!(fs::read_to_string(&cmdline).expect("there"), "as it was");
        assert!(!first_kernel(Path::new("/")).expect("nothing to do"));
    }

    #[test]
    fn a_torn_line_is_no_boot() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let first = boot_id(root.path(), true);
        fs::write(file(root.path()), format!("{first}\nboot_0")).expect("written");
        assert_eq!(boot_id(root.path(), true), first);
        let second = next(root.path()).expect("boots");
        assert_eq!(boot_id(root.path(), true), second);
    }

    #[test]
    fn a_real_machine_has_the_kernels() {
        let root = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(boot_id(root.path(), false), boot_id(Path::new("/"), false));
        assert!(!file(root.path()).exists());
    }
}
