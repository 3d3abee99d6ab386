//! The data directory of `up`: where it is, that only one process uses it, and `client.json`, by which every other command
//! finds the control plane without being told.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{Read as _, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::exit::{During as _, Failure};

/// The data directory that was named, or the usual one of this user.
#[must_use]
pub fn locate(named: Option<&Path>) -> PathBuf {
    let from_environment = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = named {
        return path.to_owned();
    }
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/var/lib/better-compute");
    }
    let state = from_environment("XDG_STATE_HOME")
        .or_else(|| from_environment("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(std::env::temp_dir);
    state.join("better-compute")
}

/// A data directory that this process has to itself.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl DataDir {
    /// Creates the directory when it is not there, and takes its lock.
    ///
    /// # Errors
    /// When it cannot be created, or when another process has it.
    pub fn take(path: &Path) -> Result<Self, Failure> {
        let what = || format!("cannot use the data directory {}", path.display());
        DirBuilder::new().recursive(true).mode(0o755).create(path).during(what())?;
        let path = path.canonicalize().during(what())?;
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(path.join("lock"));
        let mut lock = match Flock::lock(file.during(what())?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut file, _)) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).ok();
                let holder = if holder.trim().is_empty() {
                    "another process".to_owned()
                } else {
                    format!("process {}", holder.trim())
                };
                let message = format!("the data directory {} is in use by {holder}", path.display());
                return Err(Failure::failed(message)
                    .hint("stop it first, or give this one a directory of its own with --data DIR"));
            }
        };
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| write!(lock, "{}", std::process::id()))
            .during(what())?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file by which other commands find this control plane.
    #[must_use]
    pub fn client_file(&self) -> PathBuf {
        client_file(&self.path)
    }
}

/// Where `client.json` of a data directory is.
#[must_use]
pub fn client_file(data: &Path) -> PathBuf {
    data.join("client.json")
}

/// How a control plane is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFile {
    /// Where the API is.
    pub url: String,
    /// The certificates that vouch for it, in PEM.
    pub ca: String,
    /// The API token.
    pub token: String,
    /// Where nodes join.
    pub gateway: String,
    /// What a joining node pins.
    pub pin: String,
}

impl ClientFile {
    /// Reads the file; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read or is not what `up` writes.
    pub fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::because(format!("cannot read {}", path.display()), &error)),
        };
        serde_json::from_str(&text).map(Some).during(format!("{} is not a client file", path.display()))
    }

    /// Writes the file for its owner only, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).expect("strings serialise");
        write_private(path, text.as_bytes())
    }
}

/// Writes a file that only its owner can read, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let what = || format!("cannot write {}", path.display());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory).during(what())?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o600)).during(what())?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).during(what())?;
    file.persist(path).map_err(|error| error.error).during(what())?;
    // Until the directory is written, too, a crash brings the file of before back.
    File::open(directory).and_then(|directory| directory.sync_all()).during(what())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_has_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::take(dir.path()).unwrap();
        let second = DataDir::take(dir.path()).unwrap_err();
        assert!(second.message.contains(&format!("in use by process {}", std::process::id())), "{second}");
        drop(first);
        DataDir::take(dir.path()).unwrap();
    }

    #[test]
    fn a_client_file_is_private_and_survives() {
        let dir = tempfile::tempdir().unwrap();
        let path = client_file(dir.path());
        assert_eq!(ClientFile::read(&path).unwrap(), None);
        let file = ClientFile {
            url: "https://127.0.0.1:1".into(),
            ca: "pem".into(),
            token: "bcat_x".into(),
            gateway: "https://127.0.0.1:2".into(),
            pin: "sha256:00".into(),
        };
        file.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ClientFile::read(&path).unwrap(), Some(file));
    }
}
