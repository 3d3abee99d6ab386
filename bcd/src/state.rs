//! What the daemon keeps on disk, each file written whole.
//!
//! | file | what |
//! |---|---|
//! | `node.key` | the node key, PKCS#8, 0600; never leaves the machine |
//! | `node.csr` | the request that was sent; the same one is sent again until it is answered |
//! | `identity.json` | who this node is: the join's answer, the certificate chain, the control plane's addresses |
//! | `trust.json` | the trust bundle in force |
//! | `policies.json` | the trust policies of the fleet's people, the first one first, and whose keys they revoked; never forgotten |
//! | `time.json` | how late it was at least, as the control plane proved it |
//! | `desired.json` | the latest verified spec, its generation and signature |
//! | `progress.json` | journal id, report counter, applied and observed generation, how each section ended |
//! | `memory.json` | what was there before: all that undoing needs |
//! | `drift.json` | what was seen to be as desired, and what something else changed since |
//! | `journal.redb` | the journal of commands, see [`crate::command::journal`] |
//! | `gpu-resets.json` | when GPUs were reset in this boot |
//! | `bundles/` | the last log bundles that were not uploaded |
//! | `lock` | held by the one daemon that runs |

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use serde::{Serialize, de::DeserializeOwned};

mod docs;

pub use docs::{Contact, Desired, Identity, Memories, Progress, RenewalTried};

/// Why the state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("{}: {doing}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// A file holds something else than it should.
    #[error("{}: not in the form that this version writes", .0.display())]
    Malformed(PathBuf),
    /// Another daemon runs with this state.
    #[error("{}: another bcd runs with this state", .0.display())]
    Locked(PathBuf),
}

/// The state directory.
#[derive(Debug, Clone)]
pub struct StateDir {
    dir: PathBuf,
}

/// Whether a daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum Daemon {
    /// One does.
    Running {
        /// Its process, if it says so.
        pid: Option<u32>,
    },
    /// None does.
    Stopped,
    /// Its lock cannot be looked at.
    Unknown,
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running { pid: Some(pid) } => write!(f, "running, process {pid}"),
            Self::Running { pid: None } => f.write_str("running"),
            Self::Stopped => f.write_str("not running; nothing is kept as it should be until `bcd run`"),
            Self::Unknown => f.write_str("unknown: its lock cannot be read"),
        }
    }
}

const LOCK: &str = "lock";
const ASKED_TIMES: u32 = 5;
const ASKED_PAUSE: Duration = Duration::from_millis(40);

/// Held while a daemon runs.
#[derive(Debug)]
pub struct StateLock(#[expect(dead_code, reason = "held for its drop")] Flock<File>);

impl StateDir {
    /// Opens a state directory, making it (0700) when it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(dir: &Path) -> Result<Self, StateError> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|source| StateError::Io {
            path: dir.to_owned(),
            doing: "make the state directory",
            source,
        })?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// A state directory that is only looked into, if it is there at all.
    #[must_use]
    pub fn look(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes sure that one daemon runs with this state, and says in the lock which process it is.
    ///
    /// # Errors
    /// When another one does.
    pub fn lock(&self) -> Result<StateLock, StateError> {
        let path = self.dir.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|source| StateError::Io { path: path.clone(), doing: "open", source })?;
        let mut locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        // Whoever asks whether a daemon runs holds the lock for a moment.
        for _ in 0..ASKED_TIMES {
            let Err((file, Errno::EWOULDBLOCK)) = locked else { break };
            std::thread::sleep(ASKED_PAUSE);
            locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        }
        let Ok(lock) = locked else { return Err(StateError::Locked(path)) };
        // Who has it is for people: on a full disk it cannot be said, and the lock is held all the same.
        lock.set_len(0).and_then(|()| (&*lock).write_all(std::process::id().to_string().as_bytes())).ok();
        Ok(StateLock(lock))
    }

    /// Whether a daemon runs with this state.
    #[must_use]
    pub fn daemon(&self) -> Daemon {
        let file = match File::open(self.dir.join(LOCK)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Daemon::Stopped,
            Err(_) => return Daemon::Unknown,
        };
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => Daemon::Stopped,
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                Daemon::Running { pid }
            }
            Err(_) => Daemon::Unknown,
        }
    }

    /// The bytes of a file; `None` when it is not there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError::Io { path, doing: "read", source }),
        }
    }

    /// Writes a file whole: beside its place, synced, renamed.
    ///
    /// # Errors
    /// When the system refuses; the place then holds what it held before.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let path = self.dir.join(name);
        let temporary = self.dir.join(format!("{name}.new"));
        let wrap = |doing| {
            let path = path.clone();
            move |source| StateError::Io { path, doing, source }
        };
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(wrap("create beside it"))?;
        file.write_all(bytes).map_err(wrap("write"))?;
        file.sync_all().map_err(wrap("sync"))?;
        fs::rename(&temporary, &path).map_err(wrap("rename into place"))?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(wrap("sync its directory"))
    }

    /// Removes a file; fine when it is not there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn remove(&self, name: &str) -> Result<(), StateError> {
        let path = self.dir.join(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StateError::Io { path, doing: "remove", source }),
        }
    }

    fn load<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StateError> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|_| StateError::Malformed(self.dir.join(name)))
    }

    fn save(&self, name: &str, document: &impl Serialize) -> Result<(), StateError> {
        let mut bytes = serde_json::to_vec_pretty(document).expect("state documents serialise");
        bytes.push(b'\n');
        self.write(name, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_at_a_time() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::open(&dir.path().join("bcd")).expect("made");
        let lock = state.lock().expect("free");
        assert!(matches!(state.lock(), Err(StateError::Locked(_))));
        assert_eq!(state.daemon(), Daemon::Running { pid: Some(std::process::id()) });
        drop(lock);
        assert_eq!(state.daemon(), Daemon::Stopped);
        state.lock().expect("free again");
    }

    #[test]
    fn files_are_for_the_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::open(dir.path()).expect("there");
        state.write("node.key", b"secret").expect("written");
        let mode = fs::metadata(dir.path().join("node.key")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(state.bytes("node.key").expect("read").as_deref(), Some(&b"secret"[..]));
    }

    #[test]
    fn an_identity_is_given_up_last() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::open(dir.path()).expect("there");
        state.write("identity.json", b"{}").expect("written");
        state.write("node.csr", b"a request").expect("written");
        // As when it is killed in between: one file cannot be removed.
        fs::create_dir(dir.path().join("node.key")).expect("made");
        assert!(state.forget_identity().is_err());
        assert!(dir.path().join("identity.json").exists() && !dir.path().join("node.csr").exists());
    }

    #[test]
    fn another_boot_counts_on_from_higher_up_and_another_journal_from_the_beginning() {
        use schema::{
            generation::Generation,
            id::{BootId, JournalId},
        };
        let (first, next) = (BootId::generate(), BootId::generate());
        let kept = Progress { reserved_seq: 65, applied: Generation(3), ..Progress::begin(first) };
        assert_eq!(kept.clone().of(first, kept.journal_id), kept);
        let other = kept.clone().of(next, kept.journal_id);
        assert_eq!((other.journal_id, other.applied), (kept.journal_id, Generation(3)));
        assert!(other.reserved_seq > 100_000);
        assert!(other.clone().of(first, kept.journal_id).reserved_seq > other.reserved_seq);
        let lost = other.of(next, JournalId::generate());
        assert_eq!((lost.reserved_seq, lost.applied), (1, Generation(3)));
    }
}
