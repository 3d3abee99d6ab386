//! As whom the server runs. PostgreSQL refuses root, so a root parent switches to another user, or hides its own id in a
//! user namespace when that user cannot reach the directory.

use std::{
    ffi::CStr,
    io,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

use nix::{
    fcntl::{OFlag, open},
    sched::{CloneFlags, unshare},
    sys::{prctl, signal::Signal, stat::Mode},
    unistd::{Pid, User, geteuid, getppid, write},
};

use super::EmbeddedError;

/// As whom the server and its tools run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    /// As this process.
    Same,
    /// As another user, who owns the directory.
    Other { uid: u32, gid: u32 },
    /// As root outside and nobody inside of a user namespace; the directory stays root's.
    Namespace,
}

impl Identity {
    /// Decides for a directory that exists. What was decided when the data was made stays, because the data has its owner.
    pub(super) fn choose(dir: &Path, data_dir: &Path, bindir: &Path) -> Result<Self, EmbeddedError> {
        if !geteuid().is_root() {
            return Ok(Self::Same);
        }
        if let Ok(data) = data_dir.metadata() {
            return Ok(if data.uid() == 0 {
                Self::Namespace
            } else {
                Self::Other { uid: data.uid(), gid: data.gid() }
            });
        }
        let user = ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten());
        let name = user.as_ref().map_or_else(|| "postgres".to_owned(), |user| user.name.clone());
        if let Some(user) = user {
            let other = Self::Other { uid: user.uid.as_raw(), gid: user.gid.as_raw() };
            other.own(dir)?;
            if other.works(dir, bindir) {
                return Ok(other);
            }
            chown(dir, Some(0), Some(0)).map_err(EmbeddedError::io(dir))?;
        }
        if Self::Namespace.works(dir, bindir) {
            return Ok(Self::Namespace);
        }
        Err(EmbeddedError::Root { user: name, dir: dir.display().to_string() })
    }

    /// Makes a path the server's.
    pub(super) fn own(&self, path: &Path) -> Result<(), EmbeddedError> {
        match self {
            Self::Other { uid, gid } => chown(path, Some(*uid), Some(*gid)).map_err(EmbeddedError::io(path)),
            Self::Same | Self::Namespace => Ok(()),
        }
    }

    /// A program of the server, as this identity, with nothing of this process's environment.
    pub(super) fn command(&self, program: &Path, cwd: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .current_dir(cwd)
            .stdin(Stdio::null());
        match self {
            Self::Same => {}
            Self::Other { uid, gid } => {
                command.uid(*uid).gid(*gid);
            }
            Self::Namespace => enter_namespace(&mut command),
        }
        command
    }

    fn works(&self, dir: &Path, bindir: &Path) -> bool {
        let mut probe = self.command(&bindir.join("postgres"), dir);
        probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

#[expect(unsafe_code, reason = "only the child, between fork and exec, can give itself a user namespace")]
fn enter_namespace(command: &mut Command) {
    fn put(path: &CStr, text: &[u8]) -> nix::Result<()> {
        let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        write(&file, text).map(|_| ())
    }
    // SAFETY: the closure makes system calls on constants only; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(|| {
            unshare(CloneFlags::CLONE_NEWUSER)?;
            put(c"/proc/self/setgroups", b"deny")?;
            put(c"/proc/self/uid_map", b"65534 0 1")?;
            put(c"/proc/self/gid_map", b"65534 0 1")?;
            Ok(())
        });
    }
}

/// Lets the kernel stop the child when the thread that spawned it ends, as it does when the process is killed.
#[expect(unsafe_code, reason = "only the child, between fork and exec, can ask for a signal at its parent's death")]
pub(super) fn die_with_parent(command: &mut Command) {
    let parent = Pid::this();
    // SAFETY: the closure makes two system calls on constants and copies; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            prctl::set_pdeathsig(Signal::SIGINT)?;
            // The parent may have died before the line above.
            if getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(nix::libc::ESRCH)) }
        });
    }
}
