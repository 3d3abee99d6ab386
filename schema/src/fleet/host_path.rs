//! How the values of a host are named: one spelling for `explain`, for rules of `drift`, for what a plan changes and for
//! what a machine reports. What else people write for it is turned into that.
//!
//! A path is the part of the spec, the thing and its word: `sysctl.vm.swappiness`, `hugepages.2MiB`,
//! `files./etc/motd.mode`, `units.chrony.service.state`, `modules.nvidia.options`, `packages.cuda`, `access.ada.until`.
//! An item of a plain list is named by its text: `kernelArgs.quiet`.

use super::suggest;

/// Where a path begins that the host section of a spec has.
pub(super) const ROOTS: [&str; 7] = ["sysctl", "modules", "kernelArgs", "hugepages", "files", "units", "packages"];

/// Other words for a beginning: those of a fleet file.
const ALIASES: [(&str, &str); 6] = [
    ("kernel.module", "modules"),
    ("kernel.args", "kernelArgs"),
    ("module", "modules"),
    ("file", "files"),
    ("unit", "units"),
    ("package", "packages"),
];

/// Words at an end that say nothing, or that have another name, by the beginning.
const ENDS: [(&str, &str, &str); 6] = [
    ("hugepages", ".count", ""),
    ("packages", ".version", ""),
    ("drift", ".mode", ""),
    ("units", ".active", ".state"),
    ("units", ".enable", ".enabled"),
    ("files", ".content.text", ".content"),
];

/// A path as it is written everywhere: without `host.`, with the thing after a dot instead of in brackets, and with the
/// words of a spec. What is no path of a host stays as it is.
#[must_use]
pub fn canonical(path: &str) -> String {
    let path = path.trim();
    let path = if path == "host" { "" } else { path.strip_prefix("host.").unwrap_or(path) };
    let mut path = unbracketed(path);
    if let Some(rest) = path.strip_prefix("access.keys.") {
        path = format!("access.{rest}");
    }
    for (alias, root) in ALIASES {
        if let Some(rest) = path.strip_prefix(alias)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            path = format!("{root}{rest}");
            break;
        }
    }
    for (root, end, instead) in ENDS {
        let below = path.strip_prefix(root).is_some_and(|rest| rest.starts_with('.'));
        if let Some(start) = path.strip_suffix(end).filter(|start| below && start.len() > root.len()) {
            path = format!("{start}{instead}");
            break;
        }
    }
    path
}

/// `files[/etc/motd].mode` as `files./etc/motd.mode`; brackets that stand elsewhere are a part of a name.
fn unbracketed(path: &str) -> String {
    let root = path.find(['.', '[']).unwrap_or(path.len());
    let Some(inner) = path[root..].strip_prefix('[') else { return path.to_owned() };
    match (inner.split_once("]."), inner.strip_suffix(']')) {
        (Some((name, rest)), _) => format!("{}.{name}.{rest}", &path[..root]),
        (None, Some(name)) => format!("{}.{name}", &path[..root]),
        (None, None) => path.to_owned(),
    }
}

/// Whether a path is another one or something below it.
pub(super) fn below(path: &str, above: &str) -> bool {
    above.is_empty()
        || path
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('/'))
}

/// The paths that were probably meant by one that does not exist, likeliest first.
#[must_use]
pub fn nearest<'p>(path: &str, paths: impl IntoIterator<Item = &'p str>) -> Vec<&'p str> {
    suggest::nearest(&canonical(path), paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_one_name() {
        for (written, path) in [
            ("host.sysctl.vm.swappiness", "sysctl.vm.swappiness"),
            ("hugepages[2MiB].count", "hugepages.2MiB"),
            ("host.hugepages.2MiB", "hugepages.2MiB"),
            ("files[/etc/motd].mode", "files./etc/motd.mode"),
            ("file./etc/motd", "files./etc/motd"),
            ("files./etc/x[1].conf.mode", "files./etc/x[1].conf.mode"),
            ("units[chrony.service].active", "units.chrony.service.state"),
            ("unit.chrony.service.enable", "units.chrony.service.enabled"),
            ("kernel.args", "kernelArgs"),
            ("kernel.module.nvidia.options", "modules.nvidia.options"),
            ("packages[cuda].version", "packages.cuda"),
            ("drift[sysctl.vm.*].mode", "drift.sysctl.vm.*"),
            ("access.keys.ada.key", "access.ada.key"),
            ("access./etc/x", "access./etc/x"),
            ("host", ""),
            ("labels.rack", "labels.rack"),
            ("sysctl.kernel.count", "sysctl.kernel.count"),
        ] {
            assert_eq!(canonical(written), path);
            assert_eq!(canonical(path), path);
        }
    }

    #[test]
    fn what_was_meant_is_near() {
        let paths =
            ["pool", "sysctl.vm.swappiness", "sysctl.vm.overcommit", "files./etc/motd.mode", "units.a.service.state"];
        assert_eq!(nearest("sysctl.vm.swapiness", paths), ["sysctl.vm.swappiness"]);
        assert_eq!(nearest("swappiness", paths), ["sysctl.vm.swappiness"]);
        assert_eq!(nearest("file./etc/motd.mod", paths), ["files./etc/motd.mode"]);
        assert_eq!(nearest("/etc/motd", paths), ["files./etc/motd.mode"]);
        assert!(nearest("zebra", paths).is_empty());
    }
}
