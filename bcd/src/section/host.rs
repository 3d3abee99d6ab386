//! The `host` section: kernel settings, files, units, package pins.
//!
//! Settings of one kind share one managed file, named `60-better-compute` in the directory where the host looks for its
//! kind; what the kernel takes at once is set at once, too, and the rest is staged for a boot.

use std::collections::BTreeSet;

use schema::{
    effect::places::{GRUB, MODPROBE, MODULES_LOAD, PINS, SSHD, SYSCTL},
    spec::{HostFile, HostSection, Hugepages, KernelModule, Unit},
};

use super::{Desired, Facts, Key, MAX_FILE_BYTES, Named, Shared, Style, Want, facts::hugepages_path, unit};
use crate::{
    path::HostPath,
    tree::FileState,
    vault::{UNAVAILABLE, Written},
};

const OWNED_BY_ACCESS: [&str; 2] = ["/etc/ssh/better-compute", SSHD];
const HEADER: &str = "# Managed by Better Compute. Change the fleet repository instead.\n";

pub(super) fn compile(host: &HostSection, facts: &Facts) -> Desired {
    let mut desired = Desired::default();
    sysctl(host, facts, &mut desired);
    modules(&host.modules, facts, &mut desired);
    kernel_args(host, facts, &mut desired);
    hugepages(&host.hugepages, facts, &mut desired);
    for file in &host.files {
        host_file(file, facts, &mut desired);
    }
    for unit in &host.units {
        host_unit(unit, facts, &mut desired);
    }
    packages(host, facts, &mut desired);
    desired
}

/// A file of ours: owned by root, readable by all.
pub(super) fn managed(content: String, facts: &Facts) -> Want {
    let uid = facts.accounts.user("root").expect("root always resolves");
    let gid = facts.accounts.group("root").expect("root always resolves");
    Want::File(FileState { content: content.into_bytes(), mode: 0o644, uid, gid })
}

fn shared(group: &str, style: Style) -> Shared {
    Shared { group: group.to_owned(), style, header: HEADER, blocks: Vec::new() }
}

fn want_shared(path: &str, shared: Shared, facts: &Facts, desired: &mut Desired) {
    if !shared.blocks.is_empty() {
        desired.want(Key::Path(HostPath::known(path)), managed(shared.content(), facts), Named::Shared(shared));
    }
}

fn is_line(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

fn sysctl(host: &HostSection, facts: &Facts, desired: &mut Desired) {
    let mut lines = shared("sysctl", Style::Sysctl);
    for (name, value) in &host.sysctl {
        let Some(path) = sysctl_path(name) else {
            desired.problems.push(format!("sysctl {name:?} is not a kernel parameter's name"));
            continue;
        };
        if !is_line(value) {
            desired.hold(Key::Value(path), format!("sysctl {name}: the value is not one line"));
            continue;
        }
        let at = format!("sysctl.{name}");
        lines.add(at.as_str(), format!("{name} = {}\n", value.trim()));
        desired.want(Key::Value(path), Want::Value(value.trim().to_owned()), Named::Field(at));
    }
    for pages in host.hugepages.iter().filter(|pages| pages.size_kib == 2048) {
        if !host.sysctl.contains_key("vm.nr_hugepages") {
            lines.add(hugepages_name(pages.size_kib), format!("vm.nr_hugepages = {}\n", pages.count));
        }
    }
    want_shared(SYSCTL, lines, facts, desired);
}

/// The file that shows a parameter. As sysctl has it: the separator that comes first separates, the other one stands
/// for a dot inside a component (`net.ipv4.conf.eth0/1.rp_filter`).
fn sysctl_path(name: &str) -> Option<HostPath> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    if name.len() > 300 || !name.bytes().all(allowed) || name.contains("..") || name.contains("//") {
        return None;
    }
    let first = name.find(['.', '/']).map(|at| name.as_bytes()[at])?;
    let relative = if first == b'.' {
        name.chars()
            .map(|c| {
                if c == '.' {
                    '/'
                } else if c == '/' {
                    '.'
                } else {
                    c
                }
            })
            .collect()
    } else {
        name.to_owned()
    };
    format!("/proc/sys/{relative}").parse().ok()
}

fn modules(modules: &[KernelModule], facts: &Facts, desired: &mut Desired) {
    let (mut load, mut probe) = (shared("modules", Style::Load), shared("modules", Style::Probe));
    for module in modules {
        let name = &module.name;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || name.len() > 64 || name.starts_with('-') || !name.bytes().all(is_name) {
            desired.problems.push(format!("module {name:?} is not a kernel module's name"));
            continue;
        }
        if !is_line(&module.options) || module.options.ends_with('\\') {
            desired.problems.push(format!("module {name}: the options are not one line"));
            continue;
        }
        let loaded = facts.modules.get(name).copied();
        if module.blacklist {
            probe.add(format!("modules.{name}"), format!("blacklist {name}\n"));
            if loaded == Some(true) {
                desired.staged.push(format!("module {name} is still loaded"));
            }
            continue;
        }
        let at = format!("modules.{name}");
        load.add(at.as_str(), format!("{name}\n"));
        if !module.options.is_empty() {
            probe.add(format!("{at}.options"), format!("options {name} {}\n", module.options));
        }
        if facts.live && loaded.is_some() {
            desired.want(Key::Module(name.clone()), Want::Loaded, Named::Field(at));
        }
    }
    want_shared(MODULES_LOAD, load, facts, desired);
    want_shared(MODPROBE, probe, facts, desired);
}

fn kernel_args(host: &HostSection, facts: &Facts, desired: &mut Desired) {
    let mut args: Vec<String> = Vec::new();
    for arg in &host.kernel_args {
        // The file is read by a shell: nothing that one would expand.
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'`$\\!".contains(&byte);
        if arg.is_empty() || arg.len() > 500 || !arg.bytes().all(plain) {
            desired.problems.push(format!("kernel argument {arg:?} is not one plain word"));
        } else {
            args.push(arg.clone());
        }
    }
    for pages in host.hugepages.iter().filter(|pages| pages.size_kib == 1_048_576) {
        args.push("hugepagesz=1G".to_owned());
        args.push(format!("hugepages={}", pages.count));
    }
    let running = facts.kernel_args.as_deref().unwrap_or_default();
    let missing: Vec<&str> = args.iter().filter(|arg| !running.contains(arg)).map(String::as_str).collect();
    if !missing.is_empty() {
        desired.staged.push(format!("kernel arguments {}", missing.join(" ")));
    }
    if !args.is_empty() {
        let mut lines = shared("kernelArgs", Style::Boot);
        lines.add("kernelArgs", format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"\n", args.join(" ")));
        want_shared(GRUB, lines, facts, desired);
    }
}

fn hugepages_name(size_kib: u32) -> String {
    match size_kib {
        1_048_576 => "hugepages.1GiB".to_owned(),
        _ => "hugepages.2MiB".to_owned(),
    }
}

fn hugepages(all: &[Hugepages], facts: &Facts, desired: &mut Desired) {
    for pages in all {
        let (size, count) = (pages.size_kib, pages.count);
        if !matches!(size, 2048 | 1_048_576) {
            desired.problems.push(format!("huge pages of {size} KiB: only 2048 and 1048576 are known"));
            continue;
        }
        match facts.hugepages.get(&size) {
            Some(have) => {
                if *have < u64::from(count) {
                    desired.staged.push(format!("{count} huge pages of {size} KiB, {have} so far"));
                }
                let name = Named::Field(hugepages_name(size));
                desired.want(Key::Value(hugepages_path(size)), Want::Value(count.to_string()), name);
            }
            None => desired.staged.push(format!("{count} huge pages of {size} KiB")),
        }
    }
}

fn host_file(file: &HostFile, facts: &Facts, desired: &mut Desired) {
    let path = match file.path.parse::<HostPath>().and_then(HostPath::manageable) {
        Ok(path) => path,
        Err(error) => return desired.problems.push(format!("file: {error}")),
    };
    let state = facts.state_dir.as_ref().map(HostPath::as_str);
    if let Some(tree) = OWNED_BY_ACCESS.into_iter().chain(state).find(|tree| path.is_under(tree)) {
        return desired.problems.push(format!("file {path}: {tree} is managed by the daemon itself"));
    }
    if schema::unit::is_daemon_file(path.as_str()) {
        return desired.hold(Key::Path(path.clone()), format!("file {path}: the node daemon runs as this unit"));
    }
    let name = match &file.secret {
        Some(secret) => Named::Secret(format!("files.{path}"), secret.to_string()),
        None => Named::File(format!("files.{path}")),
    };
    let mut units = BTreeSet::new();
    for unit in &file.restart {
        if let Some(why) = schema::unit::refused(unit) {
            desired.problems.push(format!("file {path}: {unit} is not restarted: {why}"));
        } else if unit::is_unit_name(unit) {
            units.insert(unit.clone());
        } else {
            desired.problems.push(format!("file {path}: {unit:?} is not a unit's name"));
        }
    }
    if !units.is_empty() {
        desired.restarts.insert(path.clone(), units);
    }
    if let (Some(secret), Some((_, mark))) = (&file.secret, facts.secrets.get(path.as_str())) {
        let written = Written { name: secret.name.clone(), version: secret.version, mark };
        desired.secrets.insert(path.clone(), written);
    }
    match file_state(file, facts) {
        Ok(state) => desired.want(Key::Path(path), Want::File(state), name),
        Err(problem) => {
            desired.names.insert(Key::Path(path.clone()), name);
            desired.hold(Key::Path(path.clone()), format!("file {path}: {problem}"));
        }
    }
}

fn file_state(file: &HostFile, facts: &Facts) -> Result<FileState, String> {
    if file.content.len() > MAX_FILE_BYTES {
        return Err(format!("{} bytes; a file may have {MAX_FILE_BYTES}", file.content.len()));
    }
    let octal = file.mode.len() == 4 && file.mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = u32::from_str_radix(&file.mode, 8)
        .ok()
        .filter(|_| octal)
        .ok_or_else(|| format!("mode {:?} is not four octal digits", file.mode))?;
    if file.secret.is_some() && mode & 0o007 != 0 {
        return Err(format!("mode {} gives others a right to a secret", file.mode));
    }
    let content = match &file.secret {
        None => file.content.clone().into_bytes(),
        Some(secret) => match facts.secrets.get(&file.path) {
            Some((value, _)) => value.to_vec(),
            None => return Err(format!("{UNAVAILABLE}: {secret}: {}", facts.no_secrets)),
        },
    };
    let uid = facts.accounts.user(&file.owner).ok_or_else(|| format!("there is no user {:?} here", file.owner))?;
    let gid = facts.accounts.group(&file.group).ok_or_else(|| format!("there is no group {:?} here", file.group))?;
    Ok(FileState { content, mode, uid, gid })
}

fn host_unit(wanted: &Unit, facts: &Facts, desired: &mut Desired) {
    let name = &wanted.name;
    if !unit::is_unit_name(name) {
        return desired.problems.push(format!("unit {name:?} is not a unit's name"));
    }
    let own = format!("/etc/systemd/system/{name}");
    if let Some(why) = schema::unit::refused(name) {
        return leave_unit(wanted, why, &own, facts, desired);
    }
    let (at, text) = if wanted.content.is_empty() {
        match facts.units.get(name) {
            Some((at, text)) => (at.clone(), text.clone()),
            None if facts.live => return desired.problems.push(format!("unit {name} is not installed")),
            // A directory that stands for a root may get the package later.
            None => (format!("/usr/lib/systemd/system/{name}"), "[Install]\nWantedBy=multi-user.target\n".to_owned()),
        }
    } else {
        let at = Named::File(format!("units.{name}"));
        desired.want(Key::Path(HostPath::known(&own)), managed(wanted.content.clone(), facts), at);
        (own, wanted.content.clone())
    };
    if let Some(enabled) = wanted.enabled {
        let links = unit::enable_links(name, &text, &at);
        if links.is_empty() && enabled {
            desired.problems.push(format!("unit {name} cannot be enabled: it has no [Install] section"));
        }
        for (place, target) in links {
            let alias = place.as_str().strip_prefix("/etc/systemd/system/").and_then(schema::unit::refused);
            if let Some(why) = alias.filter(|_| enabled) {
                desired.hold(Key::Path(place.clone()), format!("unit {name} cannot be {place}: {why}"));
                continue;
            }
            let want = if enabled { Want::Link(target) } else { Want::Absent };
            desired.want(Key::Path(place), want, Named::Field(format!("units.{name}.enabled")));
        }
    }
    if let Some(active) = wanted.active.filter(|_| facts.systemd) {
        let at = Named::Field(format!("units.{name}.state"));
        desired.want(Key::Active(name.clone()), Want::Active(active), at);
    }
}

/// A unit that no spec has a word about stays as it is: neither made so, nor undone.
fn leave_unit(wanted: &Unit, why: &str, own: &str, facts: &Facts, desired: &mut Desired) {
    let name = &wanted.name;
    desired.hold(Key::Active(name.clone()), format!("unit {name} cannot be managed: {why}"));
    desired.held.insert(Key::Path(HostPath::known(own)));
    let installed = facts.units.get(name).map(|(at, text)| (at.as_str(), text.as_str()));
    for (at, text) in installed.into_iter().chain([(own, wanted.content.as_str())]) {
        desired.held.extend(unit::enable_links(name, text, at).into_iter().map(|(place, _)| Key::Path(place)));
    }
}

fn packages(host: &HostSection, facts: &Facts, desired: &mut Desired) {
    let mut pins = shared("packages", Style::Pins);
    for pin in &host.packages {
        let word = |text: &str, more: &[u8]| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
        };
        if !word(&pin.name, b"+-._*?") || !word(&pin.version, b"+-.:~*") {
            desired.problems.push(format!("package pin {:?} {:?} is not a name and a version", pin.name, pin.version));
            continue;
        }
        let text = format!("\nPackage: {}\nPin: version {}\nPin-Priority: 1001\n", pin.name, pin.version);
        pins.add(format!("packages.{}", pin.name), text);
    }
    want_shared(PINS, pins, facts, desired);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctl_names_become_places_as_sysctl_has_it() {
        let place = |name| sysctl_path(name).map(|path| path.as_str().to_owned());
        assert_eq!(place("vm.swappiness").as_deref(), Some("/proc/sys/vm/swappiness"));
        assert_eq!(
            place("net.ipv4.conf.eth0/1.rp_filter").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.1/rp_filter")
        );
        assert_eq!(
            place("net/ipv4/conf/eth0.1/rp_filter").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.1/rp_filter")
        );
        for bad in ["", "x", "..", "vm..x", "../../etc/passwd", "vm/../../x", ".vm.x", "vm.", "a b.c", "vm.x\n"] {
            assert_eq!(place(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn kernel_arguments_are_staged_until_the_kernel_has_them() {
        let host = HostSection { kernel_args: vec!["iommu=pt".into()], ..HostSection::default() };
        let facts = Facts::default();
        assert_eq!(compile(&host, &facts).staged, ["kernel arguments iommu=pt"]);
        let facts = Facts { kernel_args: Some(vec!["quiet".into(), "iommu=pt".into()]), ..facts };
        assert_eq!(compile(&host, &facts).staged, Vec::<String>::new());
    }

    #[test]
    fn units_that_end_the_daemon_or_the_run_are_left_alone() {
        for name in ["bcd.service", "reboot.target", "systemd-poweroff.service", "rescue.target", "system.slice"] {
            let content = "[Service]\nExecStart=/bin/x\n[Install]\nWantedBy=multi-user.target\n".to_owned();
            let unit = Unit { name: name.into(), content, enabled: Some(true), active: Some(true), ..Unit::default() };
            let host = HostSection { units: vec![unit], ..HostSection::default() };
            let desired = compile(&host, &Facts { systemd: true, ..Facts::default() });
            assert_eq!((desired.wants.len(), desired.problems.len()), (0, 1), "{name}");
            let place = |text: &str| Key::Path(HostPath::known(text));
            assert!(desired.held.contains(&Key::Active(name.into())), "{name}");
            assert!(desired.held.contains(&place(&format!("/etc/systemd/system/{name}"))), "{name}");
            let link = format!("/etc/systemd/system/multi-user.target.wants/{name}");
            assert!(desired.held.contains(&place(&link)), "{name}");
        }
    }

    #[test]
    fn no_unit_takes_the_place_of_the_daemon() {
        let content = "[Service]\nExecStart=/bin/x\n[Install]\nAlias=bcd.service b.service\n".to_owned();
        let unit = Unit { name: "a.service".into(), content, enabled: Some(true), ..Unit::default() };
        let host = HostSection { units: vec![unit], ..HostSection::default() };
        let desired = compile(&host, &Facts::default());
        let link = |name: &str| Key::Path(HostPath::known(&format!("/etc/systemd/system/{name}")));
        assert!(desired.held.contains(&link("bcd.service")) && desired.wants.contains_key(&link("b.service")));
    }

    #[test]
    fn a_kernel_argument_never_reaches_the_shell() {
        for bad in ["$(reboot)", "a b", "a\"", "`x`", "a\\", ""] {
            let host = HostSection { kernel_args: vec![bad.into()], ..HostSection::default() };
            let desired = compile(&host, &Facts::default());
            assert_eq!((desired.wants.len(), desired.problems.len()), (0, 1), "{bad:?}");
        }
    }
}
