//! A directory in which one test happens. It is removed when the test ends.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// The place of one test.
#[derive(Debug)]
pub struct World {
    dir: tempfile::TempDir,
}

impl World {
    /// A fresh, empty place that the user of PostgreSQL can enter.
    ///
    /// # Panics
    /// When there is no room for it.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "making a directory is nothing a default does")]
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("it-").tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        Self { dir }
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file in it, with the directories above.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a path in the world has a parent")).expect("directories");
        fs::write(&path, text).expect("a file");
        path
    }
}
