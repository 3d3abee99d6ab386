//! The keys of a store: from a file or from the environment, never from anywhere else.

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::PathBuf};

use rusty_s3::Credentials;

use super::Keys;

/// Why the keys of a store cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others may read it.
    #[error("others may read {}; `chmod 600` keeps it to its owner", .0.display())]
    Open(PathBuf),
    /// It holds no keys.
    #[error("{} has no aws_access_key_id and aws_secret_access_key in its first section", .0.display())]
    Empty(PathBuf),
    /// The environment holds none.
    #[error("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set")]
    Env,
}

impl Keys {
    pub(super) fn read(&self) -> Result<Credentials, CredentialsError> {
        let Self::File(path) = self else { return Credentials::from_env().ok_or(CredentialsError::Env) };
        let failed = |source| CredentialsError::File { path: path.clone(), source };
        if fs::metadata(path).map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(CredentialsError::Open(path.clone()));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        of(&text).ok_or_else(|| CredentialsError::Empty(path.clone()))
    }
}

/// The keys of the first section of a file of credentials.
fn of(text: &str) -> Option<Credentials> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let mut lines = lines.skip_while(|line| line.starts_with('[')).take_while(|line| !line.starts_with('['));
    let (mut key, mut secret, mut token) = (None, None, None);
    lines.try_for_each(|line| {
        let (name, value) = line.split_once('=')?;
        let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        match name.trim() {
            "aws_access_key_id" => key = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => token = value,
            _ => {}
        }
        Some(())
    })?;
    Some(match token {
        Some(token) => Credentials::new_with_token(key?, secret?, token),
        None => Credentials::new(key?, secret?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_section_of_a_file_counts() {
        let text = "# keys\n[default]\naws_access_key_id = AKIA1\naws_secret_access_key=s/+=\nregion = x\n\n[other]\naws_access_key_id = AKIA2\n";
        let keys = of(text).expect("keys");
        assert_eq!((keys.key(), keys.secret(), keys.token()), ("AKIA1", "s/+=", None));
        let keys = of("aws_access_key_id=a\naws_secret_access_key=b\naws_session_token=c").expect("keys");
        assert_eq!(keys.token(), Some("c"));
        for text in
            ["", "[default]", "aws_access_key_id = a", "aws_access_key_id=\naws_secret_access_key=b", "nonsense"]
        {
            assert!(of(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_not_used() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("keys");
        fs::write(&path, "aws_access_key_id=a\naws_secret_access_key=b\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        assert!(matches!(Keys::File(path.clone()).read(), Err(CredentialsError::Open(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        assert_eq!(Keys::File(path).read().expect("keys").key(), "a");
        assert!(matches!(Keys::File(dir.path().join("none")).read(), Err(CredentialsError::File { .. })));
    }
}
