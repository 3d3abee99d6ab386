//! Facts: what a host says that decides how a section is compiled, read once per pass.

use std::collections::BTreeMap;

use schema::spec::NodeSpec;

use super::{accounts::Accounts, unit};
use crate::{path::HostPath, tree::Tree, vault::Known};

/// The host's own SSH server configuration, as far as it matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sshd {
    /// `AuthorizedKeysFile`, where it is said.
    pub authorized_keys_file: Option<String>,
    /// There is a configuration, and it does not read the directory of drop-ins.
    pub ignores_drop_ins: bool,
}

/// What the compilation knows of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Users and groups.
    pub accounts: Accounts,
    /// Where systemd runs and can be asked.
    pub systemd: bool,
    /// The root is the machine's own, so that programs and kernel modules are its own too.
    pub live: bool,
    /// The running kernel's command line.
    pub kernel_args: Option<Vec<String>>,
    /// Unit files that come with packages, by unit: where, and their text.
    pub units: BTreeMap<String, (String, String)>,
    /// Modules of the spec and whether they are loaded; absent when that cannot be seen.
    pub modules: BTreeMap<String, bool>,
    /// Huge pages that the kernel has, by size in KiB.
    pub hugepages: BTreeMap<u32, u64>,
    /// What the host's own SSH server configuration says.
    pub sshd: Sshd,
    /// What the daemon keeps for itself, when it lies under the root.
    pub state_dir: Option<HostPath>,
    /// What files with secrets hold, as far as it is known.
    pub secrets: Known,
    /// Why the rest is not, for people.
    pub no_secrets: String,
    /// The time is only what the machine's clock says.
    pub time_unknown: bool,
}

impl Facts {
    /// Reads the facts that a spec needs.
    #[must_use]
    pub fn gather(tree: &Tree, spec: &NodeSpec, state_dir: Option<HostPath>) -> Self {
        let text = |path: &str| tree.text(&HostPath::known(path));
        let live = tree.is_live();
        let me = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let root_ids = if live || me.0 == 0 { (0, 0) } else { me };
        let accounts =
            Accounts::new(&text("/etc/passwd").unwrap_or_default(), &text("/etc/group").unwrap_or_default(), root_ids);
        Self {
            accounts,
            live,
            systemd: live && tree.exists(&HostPath::known("/run/systemd/system")),
            kernel_args: text("/proc/cmdline").map(|line| line.split_whitespace().map(str::to_owned).collect()),
            units: packaged_units(tree, spec),
            modules: modules(tree, spec),
            hugepages: hugepages(tree, spec),
            sshd: sshd(tree),
            state_dir,
            secrets: Known::default(),
            no_secrets: String::new(),
            time_unknown: false,
        }
    }
}

fn packaged_units(tree: &Tree, spec: &NodeSpec) -> BTreeMap<String, (String, String)> {
    let wanted = spec.host.units.iter().filter(|unit| unit.content.is_empty() && unit::is_unit_name(&unit.name));
    wanted
        .filter_map(|unit| {
            ["/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"]
                .into_iter()
                .find_map(|dir| {
                    let path = format!("{dir}/{}", unit.name);
                    let text = tree.text(&path.parse().ok()?)?;
                    Some((unit.name.clone(), (path, text)))
                })
        })
        .collect()
}

fn modules(tree: &Tree, spec: &NodeSpec) -> BTreeMap<String, bool> {
    if !tree.exists(&HostPath::known("/sys/module")) {
        return BTreeMap::new();
    }
    let loaded = |name: &str| {
        let path: Option<HostPath> = format!("/sys/module/{}", name.replace('-', "_")).parse().ok();
        path.is_some_and(|path| tree.exists(&path))
    };
    spec.host.modules.iter().map(|module| (module.name.clone(), loaded(&module.name))).collect()
}

fn hugepages(tree: &Tree, spec: &NodeSpec) -> BTreeMap<u32, u64> {
    spec.host
        .hugepages
        .iter()
        .filter_map(|pages| {
            let text = tree.text(&hugepages_path(pages.size_kib))?;
            Some((pages.size_kib, text.trim().parse().ok()?))
        })
        .collect()
}

/// The kernel's own place for the number of huge pages of a size.
pub(super) fn hugepages_path(size_kib: u32) -> HostPath {
    HostPath::known(&format!("/sys/kernel/mm/hugepages/hugepages-{size_kib}kB/nr_hugepages"))
}

fn sshd(tree: &Tree) -> Sshd {
    let main = tree.text(&HostPath::known("/etc/ssh/sshd_config"));
    let others = tree.names(&HostPath::known("/etc/ssh/sshd_config.d")).into_iter().filter_map(|name| {
        let path: HostPath = format!("/etc/ssh/sshd_config.d/{name}").parse().ok()?;
        (name.ends_with(".conf") && path.as_str() != schema::effect::places::SSHD).then(|| tree.text(&path)).flatten()
    });
    let includes = |text: &String| {
        let include =
            |line: &str| line.trim().to_ascii_lowercase().starts_with("include") && line.contains("sshd_config.d");
        text.lines().any(include)
    };
    Sshd {
        ignores_drop_ins: main.as_ref().is_some_and(|text| !includes(text)),
        // The SSH server keeps the first value that it reads, and reads the drop-ins first.
        authorized_keys_file: others.chain(main).find_map(|text| authorized_keys_file(&text)),
    }
}

fn authorized_keys_file(config: &str) -> Option<String> {
    config.lines().map(str::trim).take_while(|line| !line.to_ascii_lowercase().starts_with("match ")).find_map(|line| {
        let (key, value) = line.split_once(char::is_whitespace)?;
        key.eq_ignore_ascii_case("AuthorizedKeysFile").then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_key_files_are_found_outside_match_blocks() {
        assert_eq!(authorized_keys_file("# x\nauthorizedkeysfile  .ssh/a /etc/b\n").as_deref(), Some(".ssh/a /etc/b"));
        assert_eq!(authorized_keys_file("Match user x\nAuthorizedKeysFile none\n"), None);
    }
}
