//! The data directory of `up`: where it is, that only one process uses it, and `client.json`, by which every other command
//! finds the control plane without being told.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{Read as _, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};
use pki::keys::Keys;
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

/// The same, where the environment may name one.
#[must_use]
pub fn usual() -> PathBuf {
    let named = std::env::var_os("BETTER_COMPUTE_DATA").filter(|value| !value.is_empty());
    locate(named.as_deref().map(Path::new))
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

    /// Whether the file can be written there, so that a mistake is told before anything begins. A directory that is missing is
    /// made, for its owner only.
    ///
    /// # Errors
    /// When it cannot.
    pub fn make_room(path: &Path) -> Result<(), Failure> {
        let what = || format!("cannot write {}", path.display());
        if path.is_dir() {
            return Err(Failure::usage(format!("{} is a directory; name a file in it", path.display())));
        }
        let directory = parent(path);
        DirBuilder::new().recursive(true).mode(0o700).create(directory).during(what())?;
        tempfile::NamedTempFile::new_in(directory).map(drop).during(what())
    }

    /// Brings the file to what these keys say; one that is not there, or says it already, is left alone.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn follow(path: &Path, keys: &Keys, fleet_id: &str) -> Result<(), Failure> {
        let Some(file) = Self::read(path)? else { return Ok(()) };
        let next = Self {
            ca: pki::issue::to_pem(&[keys.root_certificate()]),
            pin: keys.anchor(fleet_id).pin().to_string(),
            ..file.clone()
        };
        if next == file { Ok(()) } else { next.write(path) }
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

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Writes a file that only its owner can read, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let what = || format!("cannot write {}", path.display());
    let directory = parent(path);
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
    fn room_for_a_client_file_is_made_before_anything_begins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/client.json");
        ClientFile::make_room(&path).unwrap();
        assert_eq!(fs::metadata(dir.path().join("a/b")).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(dir.path().join("a/b")).unwrap().count(), 0, "nothing is left there");
        let inside = ClientFile::make_room(&dir.path().join("a")).unwrap_err();
        assert!(inside.message.contains("is a directory"), "{inside}");
        fs::write(dir.path().join("file"), "").unwrap();
        ClientFile::make_room(&dir.path().join("file/client.json")).unwrap_err();
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

    #[test]
    fn a_client_file_follows_the_keys_and_keeps_its_token() {
        pki::install_provider();
        let dir = tempfile::tempdir().unwrap();
        let path = client_file(dir.path());
        let now = "2026-11-29T12:00:00Z".parse().unwrap();
        let mut keys = Keys::generate("bc.local", now).unwrap();
        ClientFile::follow(&path, &keys, "fleet").unwrap();
        assert!(!path.exists(), "nobody asked for one");
        let file = ClientFile {
            url: "https://127.0.0.1:1".into(),
            ca: pki::issue::to_pem(&[keys.root_certificate()]),
            token: "bcat_x".into(),
            gateway: "https://127.0.0.1:2".into(),
            pin: keys.anchor("fleet").pin().to_string(),
        };
        file.write(&path).unwrap();
        for _ in 0..3 {
            keys.advance(pki::keys::RotationKind::NodeCa, "fleet", now);
        }
        ClientFile::follow(&path, &keys, "fleet").unwrap();
        let followed = ClientFile::read(&path).unwrap().unwrap();
        assert_eq!(followed.pin, keys.anchor("fleet").pin().to_string());
        assert!(followed.pin != file.pin && followed.ca != file.ca && followed.token == file.token);
    }
}
