//! What the daemon does by itself: the programs that run after a file changed.

/// The directory of the host's own unit files.
const UNITS: &str = "/etc/systemd/system";

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
