//! A tree of files under a root, changed one whole file at a time.
//!
//! Every path is walked component by component from an open root directory, without ever following a link that leaves
//! the root: an absolute link is read as if the root were `/`, and `..` above the root is refused. Everything after the
//! walk is done relative to the directory that was reached, so nothing can be swapped in between.
//!
//! A file is written beside its place, synced, given its owner and mode, and renamed. A reader sees the old file or the
//! new one, and so does whoever comes after a power cut.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, open, openat, readlinkat, renameat},
    sys::stat::{Mode, SFlag, fchmod, fstat, fstatat, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchown, symlinkat, unlinkat},
};

use crate::path::HostPath;

#[cfg(test)]
pub(crate) mod fault;

/// The largest file that is read to be remembered or compared.
pub const MAX_READ: u64 = 16 * 1024 * 1024;
const MAX_LINKS: usize = 40;

/// What a regular file is: content, permission bits, numeric owner and group.
#[derive(Clone, PartialEq, Eq)]
pub struct FileState {
    /// The whole content.
    pub content: Vec<u8>,
    /// Permission bits, set-id and sticky included.
    pub mode: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
}

impl std::fmt::Debug for FileState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileState({} bytes, {:04o}, {}:{})", self.content.len(), self.mode, self.uid, self.gid)
    }
}

/// What is at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    Absent,
    /// A regular file.
    File(FileState),
    /// A symbolic link and where it points.
    Link(String),
    /// Something that is never replaced, for people: `a directory`, `a device`, `a file of 40 MiB`.
    Other(String),
}

/// Why a place could not be reached, read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A link on the way leaves the root.
    #[error("{0}: a link on the way leaves the root")]
    Escapes(HostPath),
    /// Links on the way go in circles.
    #[error("{0}: too many links on the way")]
    Loop(HostPath),
    /// Something on the way is no directory.
    #[error("{0}: something on the way is not a directory")]
    NotADirectory(HostPath),
    /// The written file does not read back as it was written.
    #[error("{0}: what was written does not read back")]
    ReadBack(HostPath),
    /// The system refused.
    #[error("{path}: {doing}: {source}")]
    Io {
        /// Where.
        path: HostPath,
        /// What was tried.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// A root directory that stands for `/`.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    path: PathBuf,
    #[cfg(test)]
    pub(crate) fault: fault::Fault,
}

enum Walk {
    Reached(OwnedFd),
    Missing,
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC).union(OFlag::O_NOFOLLOW);

impl Tree {
    /// Opens a root directory.
    ///
    /// # Errors
    /// When it is not a directory that can be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = open(path, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self {
            root,
            path: path.to_owned(),
            #[cfg(test)]
            fault: fault::Fault::default(),
        })
    }

    /// The root's own path, for messages and for programs that are run.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the root is the machine's own.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// What is at a place. The last component is never followed.
    ///
    /// # Errors
    /// When the place cannot be reached safely or not be read.
    pub fn read(&self, path: &HostPath) -> Result<Entry, TreeError> {
        let Walk::Reached(dir) = self.walk_to_parent(path)? else { return Ok(Entry::Absent) };
        let stat = match fstatat(&dir, path.name(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => return Ok(Entry::Absent),
            Err(error) => return Err(io(path, "look", error)),
        };
        let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        if kind == SFlag::S_IFLNK {
            let target = readlinkat(&dir, path.name()).map_err(|error| io(path, "read the link", error))?;
            return Ok(Entry::Link(target.to_string_lossy().into_owned()));
        }
        if kind != SFlag::S_IFREG {
            let what = if kind == SFlag::S_IFDIR { "a directory" } else { "a device, socket or pipe" };
            return Ok(Entry::Other(what.to_owned()));
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > MAX_READ {
            return Ok(Entry::Other(format!("a file of {} MiB", size / (1024 * 1024))));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let fd = openat(&dir, path.name(), flags, Mode::empty()).map_err(|error| io(path, "open", error))?;
        let mut content = Vec::new();
        File::from(fd).take(MAX_READ).read_to_end(&mut content).map_err(|source| TreeError::Io {
            path: path.clone(),
            doing: "read",
            source,
        })?;
        Ok(Entry::File(FileState { content, mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid }))
    }

    /// The text of a small file, following links inside the root; `None` when it is not there or not readable.
    #[must_use]
    pub fn text(&self, path: &HostPath) -> Option<String> {
        let mut at = path.clone();
        for _ in 0..8 {
            match self.read(&at).ok()? {
                Entry::File(file) => return String::from_utf8(file.content).ok(),
                Entry::Link(target) if target.starts_with('/') => at = target.parse().ok()?,
                Entry::Link(target) => {
                    let base = at.parent().map_or_else(String::new, |parent| parent.as_str().to_owned());
                    at = format!("{base}/{target}").parse().ok()?;
                }
                Entry::Absent | Entry::Other(_) => return None,
            }
        }
        None
    }

    /// Whether everybody on the host may read a file, or could if it were there: its own bits, and those of every directory
    /// on the way.
    #[must_use]
    pub fn is_public(&self, path: &HostPath) -> bool {
        let own = match self.walk_to_parent(path) {
            Ok(Walk::Reached(dir)) => fstatat(&dir, path.name(), AtFlags::AT_SYMLINK_NOFOLLOW),
            Ok(Walk::Missing) => Err(Errno::ENOENT),
            Err(_) => return false,
        };
        let readable = match own {
            Ok(stat) => stat.st_mode & 0o004 != 0,
            Err(error) => error == Errno::ENOENT,
        };
        readable && self.is_open(path.parent())
    }

    /// Whether everybody may pass a directory and all above it.
    fn is_open(&self, mut at: Option<HostPath>) -> bool {
        while let Some(dir) = at {
            let open = match self.walk(&dir, dir.components()) {
                Ok(Walk::Reached(fd)) => fstat(&fd).is_ok_and(|stat| stat.st_mode & 0o001 != 0),
                Ok(Walk::Missing) => true,
                Err(_) => false,
            };
            if !open {
                return false;
            }
            at = dir.parent();
        }
        true
    }

    /// The names in a directory, sorted; none when it is not there or not readable.
    #[must_use]
    pub fn names(&self, path: &HostPath) -> Vec<String> {
        let Ok(Walk::Reached(dir)) = self.walk(path, path.components()) else { return Vec::new() };
        let entries = std::fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        let mut names: Vec<String> =
            entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether something, links followed, is at a place.
    #[must_use]
    pub fn exists(&self, path: &HostPath) -> bool {
        !matches!(self.read(path), Ok(Entry::Absent) | Err(_))
    }

    /// The directories on the way to a place that are not there, the outermost first.
    ///
    /// # Errors
    /// When the way cannot be walked safely.
    pub fn missing_parents(&self, path: &HostPath) -> Result<Vec<HostPath>, TreeError> {
        let mut missing = Vec::new();
        let mut at = path.parent();
        while let Some(dir) = at {
            match self.walk(&dir, dir.components())? {
                Walk::Reached(_) => break,
                Walk::Missing => missing.push(dir.clone()),
            }
            at = dir.parent();
        }
        missing.reverse();
        Ok(missing)
    }

    /// Makes a directory with mode 0755; one that is there is left as it is.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn make_dir(&self, path: &HostPath) -> Result<(), TreeError> {
        self.point(path)?;
        let dir = self.reach_parent(path)?;
        match mkdirat(&dir, path.name(), Mode::from_bits_truncate(0o755)) {
            Ok(()) => {
                let made =
                    openat(&dir, path.name(), DIRECTORY, Mode::empty()).map_err(|error| io(path, "open", error))?;
                fchmod(&made, Mode::from_bits_truncate(0o755)).map_err(|error| io(path, "set the mode", error))?;
                sync(&dir, path)
            }
            Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(io(path, "make the directory", error)),
        }
    }

    /// Removes a directory if it is empty. Whether it is gone.
    ///
    /// # Errors
    /// When the system refuses for another reason.
    pub fn remove_dir(&self, path: &HostPath) -> Result<bool, TreeError> {
        self.point(path)?;
        let Walk::Reached(dir) = self.walk_to_parent(path)? else { return Ok(true) };
        match unlinkat(&dir, path.name(), UnlinkatFlags::RemoveDir) {
            Ok(()) => sync(&dir, path).map(|()| true),
            Err(Errno::ENOENT) => Ok(true),
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR | Errno::EBUSY) => Ok(false),
            Err(error) => Err(io(path, "remove the directory", error)),
        }
    }

    /// Puts a whole file in place and reads it back.
    ///
    /// # Errors
    /// When the system refuses at any step: the place then holds what it held before.
    pub fn write_file(&self, path: &HostPath, file: &FileState) -> Result<(), TreeError> {
        self.point(path)?;
        let dir = self.reach_parent(path)?;
        let temporary = temporary_name(path);
        remove_if_there(&dir, &temporary).map_err(|error| io(path, "clear the place beside it", error))?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&dir, temporary.as_str(), flags, Mode::from_bits_truncate(0o600))
            .map_err(|error| io(path, "create beside it", error))?;
        self.point(path)?;
        let filled = self.fill(path, fd, file);
        if let Err(error) = filled {
            #[cfg(test)]
            if self.fault.tripped() {
                return Err(error);
            }
            remove_if_there(&dir, &temporary).ok();
            return Err(error);
        }
        self.point(path)?;
        renameat(&dir, temporary.as_str(), &dir, path.name()).map_err(|error| {
            remove_if_there(&dir, &temporary).ok();
            io(path, "rename into place", error)
        })?;
        self.point(path)?;
        sync(&dir, path)?;
        match self.read(path)? {
            Entry::File(found) if found == *file => Ok(()),
            _ => Err(TreeError::ReadBack(path.clone())),
        }
    }

    fn fill(&self, path: &HostPath, fd: OwnedFd, file: &FileState) -> Result<(), TreeError> {
        let step = |doing| move |source: io::Error| TreeError::Io { path: path.clone(), doing, source };
        let mut out = File::from(fd);
        out.write_all(&file.content).map_err(step("write"))?;
        self.point(path)?;
        fchown(&out, Some(Uid::from_raw(file.uid)), Some(Gid::from_raw(file.gid)))
            .map_err(|error| io(path, "set the owner", error))?;
        // After the owner: chown clears the set-id bits.
        fchmod(&out, Mode::from_bits_truncate(file.mode)).map_err(|error| io(path, "set the mode", error))?;
        out.sync_all().map_err(step("sync"))
    }

    /// Puts a symbolic link in place.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write_link(&self, path: &HostPath, target: &str) -> Result<(), TreeError> {
        self.point(path)?;
        let dir = self.reach_parent(path)?;
        let temporary = temporary_name(path);
        remove_if_there(&dir, &temporary).map_err(|error| io(path, "clear the place beside it", error))?;
        symlinkat(target, &dir, temporary.as_str()).map_err(|error| io(path, "make the link beside it", error))?;
        self.point(path)?;
        renameat(&dir, temporary.as_str(), &dir, path.name()).map_err(|error| io(path, "rename into place", error))?;
        self.point(path)?;
        sync(&dir, path)
    }

    /// Removes a file or link; fine when it is not there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn remove(&self, path: &HostPath) -> Result<(), TreeError> {
        self.point(path)?;
        let Walk::Reached(dir) = self.walk_to_parent(path)? else { return Ok(()) };
        remove_if_there(&dir, path.name()).map_err(|error| io(path, "remove", error))?;
        sync(&dir, path)
    }

    /// Whether an interrupted write left something beside a place.
    ///
    /// # Errors
    /// When the place cannot be reached safely.
    pub fn has_stray(&self, path: &HostPath) -> Result<bool, TreeError> {
        let Walk::Reached(dir) = self.walk_to_parent(path)? else { return Ok(false) };
        Ok(fstatat(&dir, temporary_name(path).as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).is_ok())
    }

    /// Removes what an interrupted write left beside a place.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn remove_stray(&self, path: &HostPath) -> Result<(), TreeError> {
        self.point(path)?;
        let Walk::Reached(dir) = self.walk_to_parent(path)? else { return Ok(()) };
        remove_if_there(&dir, &temporary_name(path)).map_err(|error| io(path, "clear the place beside it", error))
    }

    /// Writes a value into a file of the kernel, which takes it at once and cannot be replaced.
    ///
    /// # Errors
    /// When the file is not there or the kernel refuses.
    pub fn write_value(&self, path: &HostPath, value: &str) -> Result<(), TreeError> {
        self.point(path)?;
        let dir = self.reach_parent(path)?;
        let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&dir, path.name(), flags, Mode::empty()).map_err(|error| io(path, "open", error))?;
        File::from(fd).write_all(format!("{value}\n").as_bytes()).map_err(|source| TreeError::Io {
            path: path.clone(),
            doing: "write the value",
            source,
        })
    }

    /// A chance for a test to stop here, as a power cut would.
    #[cfg_attr(not(test), expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "does something in tests"))]
    pub(crate) fn point(&self, path: &HostPath) -> Result<(), TreeError> {
        #[cfg(test)]
        self.fault.point().map_err(|source| TreeError::Io { path: path.clone(), doing: "go on", source })?;
        #[cfg(not(test))]
        let _ = path;
        Ok(())
    }

    fn walk_to_parent(&self, path: &HostPath) -> Result<Walk, TreeError> {
        match path.parent() {
            Some(parent) => self.walk(path, parent.components()),
            None => self.walk(path, std::iter::empty()),
        }
    }

    fn reach_parent(&self, path: &HostPath) -> Result<OwnedFd, TreeError> {
        match self.walk_to_parent(path)? {
            Walk::Reached(dir) => Ok(dir),
            Walk::Missing => Err(io(path, "reach its directory", Errno::ENOENT)),
        }
    }

    fn walk<'a>(&self, path: &HostPath, components: impl Iterator<Item = &'a str>) -> Result<Walk, TreeError> {
        let mut todo: Vec<OsString> = components.map(OsString::from).collect();
        todo.reverse();
        let root = || {
            self.root.as_fd().try_clone_to_owned().map_err(|source| TreeError::Io {
                path: path.clone(),
                doing: "open the root",
                source,
            })
        };
        let mut stack = vec![root()?];
        let mut links = 0;
        while let Some(component) = todo.pop() {
            let dir = stack.last().expect("the root stays on the stack");
            if component == ".." {
                if stack.len() == 1 {
                    return Err(TreeError::Escapes(path.clone()));
                }
                stack.pop();
                continue;
            }
            match openat(dir, component.as_os_str(), DIRECTORY, Mode::empty()) {
                Ok(fd) => stack.push(fd),
                Err(Errno::ENOENT) => return Ok(Walk::Missing),
                Err(Errno::ELOOP | Errno::ENOTDIR) => {
                    let Ok(target) = readlinkat(dir, component.as_os_str()) else {
                        return Err(TreeError::NotADirectory(path.clone()));
                    };
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(TreeError::Loop(path.clone()));
                    }
                    let target = PathBuf::from(target);
                    if target.is_absolute() {
                        stack.truncate(1);
                    }
                    let parts = target.components().rev().filter_map(|part| match part {
                        std::path::Component::Normal(name) => Some(name.to_owned()),
                        std::path::Component::ParentDir => Some("..".into()),
                        _ => None,
                    });
                    todo.extend(parts);
                }
                Err(error) => return Err(io(path, "walk", error)),
            }
        }
        Ok(Walk::Reached(stack.pop().expect("the root stays on the stack")))
    }
}

fn io(path: &HostPath, doing: &'static str, error: Errno) -> TreeError {
    TreeError::Io { path: path.clone(), doing, source: error.into() }
}

/// Where a file is written before it is renamed: one fixed name, so that an interrupted write is found again.
fn temporary_name(path: &HostPath) -> String {
    let name: String = path.name().chars().take(200).collect();
    format!(".{name}.bcd-new")
}

fn remove_if_there(dir: &OwnedFd, name: &str) -> Result<(), Errno> {
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync(dir: &OwnedFd, path: &HostPath) -> Result<(), TreeError> {
    nix::unistd::fsync(dir).map_err(|error| io(path, "sync its directory", error))
}

#[cfg(test)]
mod tests;
