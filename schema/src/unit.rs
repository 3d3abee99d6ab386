//! systemd units that a spec has no word about: the daemon's own, and those that end a machine's run.
//!
//! The language refuses them, and the daemon refuses them again, for a spec may come from elsewhere.

/// The unit that the node daemon runs as.
pub const DAEMON: &str = "bcd.service";

/// Whether a file is the daemon's unit.
#[must_use]
pub fn is_daemon_file(path: &str) -> bool {
    const PLACES: [&str; 4] =
        ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
    path.rsplit_once('/').is_some_and(|(place, name)| name == DAEMON && PLACES.contains(&place))
}

/// Why a spec cannot manage a unit, or restart it when a file changes.
#[must_use]
pub fn refused(name: &str) -> Option<&'static str> {
    if name == DAEMON {
        return Some("the node daemon runs as it, and would end itself");
    }
    if holds_daemon(name) {
        return Some("the node daemon runs in it or needs it, and would end with it");
    }
    ends_run(name).then_some("it ends what the machine runs: after the boot it would be started again")
}

/// Units whose stop stops all services, or the daemon's.
fn holds_daemon(name: &str) -> bool {
    matches!(name, "system.slice" | "sysinit.target" | "system-bcd.slice" | "bcd.socket" | "bcd.slice")
}

/// Units that shut down, boot, suspend or take a machine to another system or another state.
fn ends_run(name: &str) -> bool {
    const STEMS: [&str; 17] = [
        "reboot",
        "soft-reboot",
        "poweroff",
        "halt",
        "kexec",
        "shutdown",
        "exit",
        "rescue",
        "emergency",
        "suspend",
        "hibernate",
        "hybrid-sleep",
        "suspend-then-hibernate",
        "sleep",
        "factory-reset",
        "system-update",
        "switch-root",
    ];
    const TARGETS: [&str; 8] = [
        "ctrl-alt-del.target",
        "final.target",
        "umount.target",
        "kbrequest.target",
        "sigpwr.target",
        "runlevel0.target",
        "runlevel1.target",
        "runlevel6.target",
    ];
    let Some((stem, "target" | "service")) = name.rsplit_once('.') else { return false };
    let stem = stem.strip_prefix("systemd-").or_else(|| stem.strip_prefix("initrd-")).unwrap_or(stem);
    STEMS.contains(&stem) || TARGETS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_the_daemon_or_the_run_is_refused() {
        for name in [
            "bcd.service",
            "system.slice",
            "reboot.target",
            "poweroff.target",
            "halt.target",
            "kexec.target",
            "rescue.target",
            "emergency.target",
            "emergency.service",
            "shutdown.target",
            "exit.target",
            "ctrl-alt-del.target",
            "runlevel6.target",
            "systemd-reboot.service",
            "systemd-poweroff.service",
            "systemd-suspend.service",
            "initrd-switch-root.target",
        ] {
            assert!(refused(name).is_some(), "{name}");
        }
    }

    #[test]
    fn all_other_units_are_not() {
        for name in [
            "chrony.service",
            "multi-user.target",
            "default.target",
            "sleep.timer",
            "reboot-notify.service",
            "systemd-timesyncd.service",
            "bcd-exporter.service",
            "unattended-upgrades.service",
        ] {
            assert_eq!(refused(name), None, "{name}");
        }
    }
}
