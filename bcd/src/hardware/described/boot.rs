//! What a described machine's boot takes up: the kernel arguments and huge pages that are staged under its root.

use std::{fs, io, path::Path};

use schema::effect::places::{GRUB, SYSCTL};

/// Boots the kernel of the machine under `root`: its command line has the staged arguments from now on, and its pages are
/// those that they ask for. What nothing is staged for stays as it is.
pub(super) fn take_up(root: &Path) -> io::Result<()> {
    let read = |path: &str| match fs::read_to_string(root.join(path.trim_start_matches('/'))) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    };
    let args = arguments(&read(GRUB)?);
    write(&root.join("proc/cmdline"), &format!("BOOT_IMAGE=described {}\n", args.join(" ")))?;
    let mut size = None;
    for arg in &args {
        match arg.split_once('=') {
            Some(("hugepagesz", "1G")) => size = Some(1_048_576),
            Some(("hugepagesz", _)) => size = None,
            Some(("hugepages", count)) if size.is_some() => pages(root, 1_048_576, count)?,
            _ => {}
        }
    }
    let small = read(SYSCTL)?;
    let small =
        small.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| name.trim() == "vm.nr_hugepages");
    small.map_or(Ok(()), |(_, count)| pages(root, 2048, count.trim()))
}

/// The arguments that the staged file adds to the kernel's.
fn arguments(grub: &str) -> Vec<String> {
    let line = grub.lines().rev().find_map(|line| line.strip_prefix("GRUB_CMDLINE_LINUX=\""));
    let added = line.and_then(|line| line.strip_suffix('"')).unwrap_or_default();
    added.split_whitespace().filter(|word| !word.starts_with('$')).map(str::to_owned).collect()
}

fn pages(root: &Path, size_kib: u32, count: &str) -> io::Result<()> {
    write(&root.join(format!("sys/kernel/mm/hugepages/hugepages-{size_kib}kB/nr_hugepages")), &format!("{count}\n"))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().expect("the place lies under a root"))?;
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_takes_up_what_is_staged() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let grub = root.path().join(GRUB.trim_start_matches('/'));
        write(&grub, "# managed\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX iommu=pt hugepagesz=1G hugepages=16\"\n")
            .expect("written");
        let sysctl = root.path().join(SYSCTL.trim_start_matches('/'));
        write(&sysctl, "vm.swappiness = 1\nvm.nr_hugepages = 512\n").expect("written");
        take_up(root.path()).expect("boots");
        let read = |path: &str| fs::read_to_string(root.path().join(path)).expect("there");
        assert_eq!(read("proc/cmdline"), "BOOT_IMAGE=described iommu=pt hugepagesz=1G hugepages=16\n");
        assert_eq!(read("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"), "16\n");
        assert_eq!(read("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), "512\n");
    }

    #[test]
    fn a_boot_with_nothing_staged_has_a_kernel_and_no_more() {
        let root = tempfile::tempdir().expect("a temporary directory");
        take_up(root.path()).expect("boots");
        assert!(root.path().join("proc/cmdline").exists() && !root.path().join("sys").exists());
    }
}
