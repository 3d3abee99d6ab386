//! What the daemon does with a spec's words: the files that they become, and the programs that run after a file changed.

use std::{collections::BTreeMap, fmt::Write as _};

use super::places::{GRUB, KEYS, MODPROBE, MODULES_LOAD, PINS, SSHD, SYSCTL, UNITS};
use crate::spec::{NodeSpec, Unit};

/// Something that is done once after a file under a certain directory changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AfterWrite {
    /// systemd reads its unit files again.
    ReloadSystemd,
    /// The boot loader's configuration is made again.
    UpdateGrub,
    /// The SSH server reads its configuration again.
    ReloadSshd,
    /// A unit starts again, if it runs.
    Restart(String),
}

/// What is owed after this path changed. A unit starts again only when its file was written, not when it went.
#[must_use]
pub fn after_write(path: &str) -> Vec<AfterWrite> {
    if let Some(rest) = below(path, UNITS) {
        let is_unit_file = !rest.is_empty() && !rest.contains('/');
        let restart = is_unit_file.then(|| AfterWrite::Restart(rest.to_owned()));
        return std::iter::once(AfterWrite::ReloadSystemd).chain(restart).collect();
    }
    if below(path, "/etc/default/grub.d").is_some() {
        return vec![AfterWrite::UpdateGrub];
    }
    if below(path, "/etc/ssh/sshd_config.d").is_some() {
        return vec![AfterWrite::ReloadSshd];
    }
    Vec::new()
}

fn below<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(directory)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// A file that a spec brings about.
pub(super) struct FileState {
    /// Content, mode, owner, group: equal texts are equal files.
    pub(super) state: String,
    /// The spec's words that it is made of; empty when the spec names the file itself.
    pub(super) causes: Vec<String>,
    /// Units that restart after it was written.
    pub(super) restart: Vec<String>,
    /// It is a unit that the spec brings.
    pub(super) of_unit: bool,
}

pub(super) type Files = BTreeMap<String, FileState>;

/// Every file that the daemon makes of a spec.
pub(super) fn files(spec: &NodeSpec) -> Files {
    let mut files = Files::new();
    let host = &spec.host;
    let mut add = |path: &str, lines: String, causes: Vec<String>| {
        if !lines.is_empty() {
            let state = FileState { state: lines, causes, restart: Vec::new(), of_unit: false };
            files.insert(path.to_owned(), state);
        }
    };
    let pages = |size: u32| host.hugepages.iter().filter(move |pages| pages.size_kib == size);

    let mut lines: String = host.sysctl.iter().fold(String::new(), |mut lines, (name, value)| {
        let _ = writeln!(lines, "{name} = {}", value.trim());
        lines
    });
    let mut causes = named("sysctl", host.sysctl.keys());
    if !host.sysctl.contains_key("vm.nr_hugepages") {
        for pages in pages(2048) {
            let _ = writeln!(lines, "vm.nr_hugepages = {}", pages.count);
            causes.push("huge pages 2MiB".to_owned());
        }
    }
    add(SYSCTL, lines, causes);

    let (mut load, mut probe) = (String::new(), String::new());
    for module in &host.modules {
        if module.blacklist {
            let _ = writeln!(probe, "blacklist {}", module.name);
            continue;
        }
        let _ = writeln!(load, "{}", module.name);
        if !module.options.is_empty() {
            let _ = writeln!(probe, "options {} {}", module.name, module.options);
        }
    }
    let causes = named("module", host.modules.iter().map(|module| &module.name));
    add(MODULES_LOAD, load, causes.clone());
    add(MODPROBE, probe, causes);

    let mut words = host.kernel_args.join(" ");
    let mut causes = if host.kernel_args.is_empty() { Vec::new() } else { vec!["kernel arguments".to_owned()] };
    for pages in pages(1_048_576) {
        let _ = write!(words, " hugepagesz=1G hugepages={}", pages.count);
        causes.push("huge pages 1GiB".to_owned());
    }
    add(GRUB, words, causes);

    let pins = host.packages.iter().fold(String::new(), |mut pins, pin| {
        let _ = writeln!(pins, "{} {}", pin.name, pin.version);
        pins
    });
    add(PINS, pins, named("package", host.packages.iter().map(|pin| &pin.name)));

    for file in &host.files {
        // The two words for the same user.
        let root = |text: &str| if text == "0" { "root".to_owned() } else { text.to_owned() };
        let secret = file.secret.as_ref().map(ToString::to_string).unwrap_or_default();
        let state = format!("{} {} {} {secret}\n{}", file.mode, root(&file.owner), root(&file.group), file.content);
        let state = FileState { state, causes: Vec::new(), restart: file.restart.clone(), of_unit: false };
        files.insert(file.path.clone(), state);
    }
    for unit in host.units.iter().filter(|unit| !unit.content.is_empty()) {
        let state = format!("0644 root root\n{}", unit.content);
        let causes = vec![format!("unit {}", unit.name)];
        files.insert(format!("{UNITS}/{}", unit.name), FileState { state, causes, restart: Vec::new(), of_unit: true });
    }
    access(spec, &mut files);
    files
}

fn access(spec: &NodeSpec, files: &mut Files) {
    for key in &spec.access.keys {
        let cause = format!("key {} for {}", key.principal, key.account);
        let file = files.entry(format!("{KEYS}/{}", key.account)).or_insert_with(|| FileState {
            state: String::new(),
            causes: Vec::new(),
            restart: Vec::new(),
            of_unit: false,
        });
        let until = key.until.map(|until| until.to_string()).unwrap_or_default();
        let _ = writeln!(file.state, "{until} {} {}", key.key, key.principal);
        if !file.causes.contains(&cause) {
            file.causes.push(cause);
        }
    }
    if !spec.access.keys.is_empty() {
        let causes = vec!["access".to_owned()];
        let state = FileState { state: "access".to_owned(), causes, restart: Vec::new(), of_unit: false };
        files.insert(SSHD.to_owned(), state);
    }
}

fn named<'n>(what: &str, names: impl Iterator<Item = &'n String>) -> Vec<String> {
    names.map(|name| format!("{what} {name}")).collect()
}

/// Where a unit that the spec brings is linked from when it is enabled: the directories of its `[Install]` section.
pub(super) fn enable_links(unit: &Unit) -> Vec<String> {
    let mut in_install = false;
    let mut links = Vec::new();
    for line in unit.content.lines().map(str::trim) {
        if line.starts_with('[') {
            in_install = line == "[Install]";
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_install)
            && matches!(key.trim(), "WantedBy" | "RequiredBy" | "Alias")
        {
            links.extend(value.split_whitespace().map(|word| format!("{} {word}", key.trim())));
        }
    }
    links.sort();
    links
}
