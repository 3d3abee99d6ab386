//! Where the words of a spec stand on a host: the daemon writes there, and the classifier speaks of these files.

/// The directory of the host's own unit files.
pub const UNITS: &str = "/etc/systemd/system";
/// Kernel parameters.
pub const SYSCTL: &str = "/etc/sysctl.d/60-better-compute.conf";
/// Modules that are loaded at boot.
pub const MODULES_LOAD: &str = "/etc/modules-load.d/60-better-compute.conf";
/// Options of modules, and modules that are kept away.
pub const MODPROBE: &str = "/etc/modprobe.d/60-better-compute.conf";
/// Kernel command line arguments.
pub const GRUB: &str = "/etc/default/grub.d/60-better-compute.cfg";
/// Versions that the package manager keeps to.
pub const PINS: &str = "/etc/apt/preferences.d/60-better-compute";
/// Break-glass keys, a file for each account.
pub const KEYS: &str = "/etc/ssh/better-compute/authorized_keys.d";
/// The SSH server's drop-in. The server keeps the first value that it reads, so this one comes first.
pub const SSHD: &str = "/etc/ssh/sshd_config.d/00-better-compute.conf";
