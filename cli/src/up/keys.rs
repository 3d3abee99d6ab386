//! The key directory: one sealed document and the deployment secret that opens it, both for their owner only.
//!
//! `up` makes them in its data directory; `better-compute keys` makes and hands them out for `serve`.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};
use pki::keys::{GatewayKeys, Keys, SigningKeys, SourceKeys, generate_secret};
use schema::id::FleetId;

use crate::{
    data_dir::write_private,
    exit::{During as _, Exit, Failure},
};

const SECRET: &str = "secret";
const CONTROL_PLANE: &str = "control-plane.sealed";
const SIGNING: &str = "signing.sealed";
const SOURCE: &str = "source.sealed";
const GATEWAY: &str = "gateway.sealed";
const PROVISIONAL: &str = "provisional";
const LOCK: &str = "lock";

/// What changes with every store of the keys.
pub type Stamp = [Option<(i64, i64, u64)>; 3];

/// A directory of keys.
#[derive(Debug, Clone)]
pub struct KeyDir(PathBuf);

impl KeyDir {
    /// The directory at a path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The control plane's keys; `None` when there are none yet.
    ///
    /// # Errors
    /// When they cannot be read, are readable by others, or do not open under the secret.
    pub fn control_plane(&self) -> Result<Option<Keys>, Failure> {
        let Some(sealed) = self.read(CONTROL_PLANE)? else { return Ok(None) };
        Keys::open(&sealed, &self.secret()?).map(Some).during(self.what(CONTROL_PLANE))
    }

    /// What signs: the keys of a process that only runs controllers, else of the control plane's keys just those.
    ///
    /// # Errors
    /// When there are none, they cannot be read, are readable by others, or do not open under the secret.
    pub fn signing(&self) -> Result<Option<SigningKeys>, Failure> {
        let Some(sealed) = self.read(SIGNING)? else {
            return Ok(self.control_plane()?.map(|keys| keys.signing()));
        };
        SigningKeys::open(&sealed, &self.secret()?).map(Some).during(self.what(SIGNING))
    }

    /// What signs revisions: the keys of a process that only follows the fleet, else of the control plane's keys just those.
    ///
    /// # Errors
    /// When there are none, they cannot be read, are readable by others, or do not open under the secret.
    pub fn source(&self) -> Result<Option<SourceKeys>, Failure> {
        let Some(sealed) = self.read(SOURCE)? else {
            return Ok(self.control_plane()?.map(|keys| keys.source()));
        };
        SourceKeys::open(&sealed, &self.secret()?).map(Some).during(self.what(SOURCE))
    }

    /// A gateway's keys.
    ///
    /// # Errors
    /// When they are not there, cannot be read, are readable by others, or do not open under the secret.
    pub fn gateway(&self) -> Result<GatewayKeys, Failure> {
        let sealed = self.read(GATEWAY)?.ok_or_else(|| {
            Failure::failed(format!("{} holds no keys of a gateway", self.0.display()))
                .hint("make them where the control plane's keys are: better-compute keys gateway --keys DIR --out DIR --name HOST")
        })?;
        GatewayKeys::open(&sealed, &self.secret()?).during(self.what(GATEWAY))
    }

    /// The fleet that the keys here are of, whichever they are, where they open and say so.
    #[must_use]
    pub fn fleet_id(&self) -> Option<FleetId> {
        let signing = || self.signing().ok()??.fleet_id();
        let source = || self.source().ok()??.fleet_id();
        let gateway = || self.gateway().ok()?.fleet_id();
        signing().or_else(source).or_else(gateway)
    }

    /// Keeps others from changing the control plane's keys, for as long as the answer lives: of two who read, step and store at
    /// once, the later one would forget what the earlier one made.
    ///
    /// # Errors
    /// When somebody else is at it, or the directory cannot be written.
    pub fn hold(&self) -> Result<Flock<File>, Failure> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.0.join(LOCK));
        let file = file.during(format!("cannot change the keys in {}", self.0.display()))?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            Failure::new(
                Exit::Refused,
                format!("somebody else changes the keys in {} at this moment", self.0.display()),
            )
            .hint("wait until they are through; `keys status` shows which step they took")
        })
    }

    /// Changes whenever the control plane's keys, or a process's part of them, are stored.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        [CONTROL_PLANE, SIGNING, SOURCE].map(|name| {
            let meta = fs::metadata(self.0.join(name)).ok()?;
            Some((meta.mtime(), meta.mtime_nsec(), meta.ino()))
        })
    }

    /// Whether there is anything in it already.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        fs::read_dir(&self.0).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Stores the control plane's keys, sealed.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn store_control_plane(&self, keys: &Keys) -> Result<(), Failure> {
        let secret = self.make_secret()?;
        write_private(&self.0.join(CONTROL_PLANE), &keys.seal(&secret))
    }

    /// Stores what signs, sealed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store_signing(&self, keys: &SigningKeys) -> Result<(), Failure> {
        let secret = self.make_secret()?;
        write_private(&self.0.join(SIGNING), &keys.seal(&secret))
    }

    /// Stores what signs revisions, sealed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store_source(&self, keys: &SourceKeys) -> Result<(), Failure> {
        let secret = self.make_secret()?;
        write_private(&self.0.join(SOURCE), &keys.seal(&secret))
    }

    /// Stores a gateway's keys, sealed.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn store_gateway(&self, keys: &GatewayKeys) -> Result<(), Failure> {
        let secret = self.make_secret()?;
        write_private(&self.0.join(GATEWAY), &keys.seal(&secret))
    }

    /// Whether the trust domain of these keys is only a guess, because the fleet could not be read when they were made.
    #[must_use]
    pub fn is_provisional(&self) -> bool {
        self.0.join(PROVISIONAL).exists()
    }

    /// Notes that the trust domain is a guess.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn mark_provisional(&self) -> Result<(), Failure> {
        self.make_secret()?;
        write_private(&self.0.join(PROVISIONAL), b"")
    }

    /// Notes that the trust domain is for good.
    ///
    /// # Errors
    /// When the note cannot be removed.
    pub fn settle(&self) -> Result<(), Failure> {
        match fs::remove_file(self.0.join(PROVISIONAL)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::because(self.what(PROVISIONAL), &error))
            }
            _ => Ok(()),
        }
    }

    fn what(&self, name: &str) -> String {
        format!("cannot open the keys in {}", self.0.join(name).display())
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let path = self.0.join(name);
        match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::because(self.what(name), &error)),
            Ok(meta) if meta.mode() & 0o077 != 0 => {
                return Err(Failure::failed(format!("{} can be read by others", path.display()))
                    .hint(format!("chmod 600 {}", path.display())));
            }
            Ok(_) => {}
        }
        fs::read(&path).map(Some).during(self.what(name))
    }

    fn secret(&self) -> Result<Vec<u8>, Failure> {
        self.read(SECRET)?.ok_or_else(|| {
            Failure::failed(format!("the deployment secret {} is not there", self.0.join(SECRET).display()))
        })
    }

    fn make_secret(&self) -> Result<Vec<u8>, Failure> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)
            .during(format!("cannot make the directory {}", self.0.display()))?;
        if let Some(secret) = self.read(SECRET)? {
            return Ok(secret);
        }
        write_private(&self.0.join(SECRET), generate_secret().as_bytes())?;
        self.secret()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn keys() -> Keys {
        pki::install_provider();
        Keys::generate("bc.local", "2026-11-29T12:00:00Z".parse().unwrap()).unwrap()
    }

    #[test]
    fn keys_survive_sealed_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let place = KeyDir::at(dir.path().join("keys"));
        assert!(place.control_plane().unwrap().is_none());
        place.store_control_plane(&keys()).unwrap();
        assert_eq!(place.control_plane().unwrap().unwrap().trust_domain(), "bc.local");
        for name in [SECRET, CONTROL_PLANE] {
            assert_eq!(fs::metadata(place.path().join(name)).unwrap().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(place.path()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn one_changes_the_keys_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (KeyDir::at(dir.path()), KeyDir::at(dir.path()));
        let held = one.hold().unwrap();
        assert_eq!(two.hold().unwrap_err().exit, Exit::Refused);
        drop(held);
        two.hold().unwrap();
    }

    #[test]
    fn keys_that_others_can_read_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = KeyDir::at(dir.path());
        place.store_control_plane(&keys()).unwrap();
        fs::set_permissions(dir.path().join(SECRET), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(place.control_plane().unwrap_err().message.contains("can be read by others"));
    }
}
