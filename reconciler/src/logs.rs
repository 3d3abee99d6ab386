//! Where bundles of logs go: an S3-compatible store, to which a node gets one presigned PUT for one object.
//!
//! The keys of the store stay in the process that signs commands. What travels is a URL that is good for one object until
//! the command can no longer be under way; it is made when the command is signed and stands in the signed body alone.
//! Without a store, or when its keys cannot be read, a bundle stays on its machine.

use std::{fmt, path::PathBuf, time::Duration};

use rusty_s3::{Bucket, Credentials, S3Action as _, UrlStyle};
use schema::{
    command::{CommandBody, CommandKind, payload::Upload},
    time::Timestamp,
};
use store::commands::Unsigned;

mod credentials;

pub use credentials::CredentialsError;

/// What a signature of a URL is good for at most.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Where the keys of the store are.
#[derive(Clone)]
pub enum Keys {
    /// In a file, in the format that the tools of S3 read. It is read again for each URL, so that it may be replaced.
    File(PathBuf),
    /// In `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, when there is one, `AWS_SESSION_TOKEN`.
    Env,
}

/// What a store is called.
#[derive(Debug, Clone)]
pub struct Place {
    /// The bucket.
    pub bucket: String,
    /// The service: `https://…`.
    pub endpoint: String,
    /// Its region.
    pub region: String,
    /// What the names of all objects begin with.
    pub prefix: String,
}

/// Why there is no such store.
#[derive(Debug, thiserror::Error)]
pub enum LogStoreError {
    /// Bundles hold what nobody else should read.
    #[error("the store of logs is not at an https:// address: {0}")]
    Insecure(String),
    /// The bucket or the address is none.
    #[error("the store of logs makes no sense: {0}")]
    Place(String),
    /// Its keys cannot be read.
    #[error("the keys of the store of logs cannot be read")]
    Keys(#[from] CredentialsError),
}

/// A store of bundles.
pub struct LogStore {
    bucket: Bucket,
    prefix: String,
    keys: Keys,
}

impl fmt::Debug for LogStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore").field("bucket", &self.bucket.name()).finish_non_exhaustive()
    }
}

impl LogStore {
    /// A store. Its keys are read once, so that a mistake is told at the start.
    ///
    /// # Errors
    /// [`LogStoreError`] says what is wrong.
    pub fn new(place: Place, keys: Keys) -> Result<Self, LogStoreError> {
        let endpoint =
            place.endpoint.parse().map_err(|error| LogStoreError::Place(format!("{}: {error}", place.endpoint)))?;
        let Some(address) = place.endpoint.strip_prefix("https://") else {
            return Err(LogStoreError::Insecure(place.endpoint));
        };
        // Machines are given URLs of this address, and take none with a user in it.
        if address.split('/').next().is_some_and(|host| host.contains('@')) {
            let why = "its address names a user; its keys are given by a file or by the environment";
            return Err(LogStoreError::Place(why.to_owned()));
        }
        if place.endpoint.contains(['?', '#']) {
            return Err(LogStoreError::Place(format!("{} is more than an address", place.endpoint)));
        }
        let clean = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte));
        if place.bucket.is_empty() || !clean(&place.bucket) || !clean(&place.prefix) || place.prefix.contains("..") {
            return Err(LogStoreError::Place(format!("{}/{}", place.bucket, place.prefix)));
        }
        // A path names the bucket everywhere; a host name of its own does only where the service has a wildcard for it.
        let bucket = Bucket::new(endpoint, UrlStyle::Path, place.bucket, place.region)
            .map_err(|error| LogStoreError::Place(error.to_string()))?;
        keys.read()?;
        let prefix = match place.prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Ok(Self { bucket, prefix, keys })
    }

    /// The body of a command that collects logs, with a URL for its bundle; `None` for every other body.
    pub(crate) fn complete(&self, command: &Unsigned, now: Timestamp) -> Option<Vec<u8>> {
        let mut body = CommandBody::read(&command.body).ok()?;
        if body.kind != CommandKind::LogsCollect || !body.payload["upload"].is_null() {
            return None;
        }
        let credentials = match self.keys.read() {
            Ok(credentials) => credentials,
            Err(error) => {
                tracing::warn!(command = %command.id, %error, "the bundle stays on its machine");
                return None;
            }
        };
        let upload = self.presign(&body, &credentials, now);
        body.payload["upload"] = serde_json::to_value(upload).expect("a place serialises");
        // Canonical again: the members of a body have their order.
        body.payload = match body.kind.check_payload(&body.payload) {
            Ok(payload) => payload,
            Err(error) => {
                tracing::warn!(command = %command.id, path = error.path, "the bundle stays on its machine");
                return None;
            }
        };
        Some(body.to_bytes())
    }

    /// One PUT for one object, until the command can no longer be under way.
    fn presign(&self, body: &CommandBody, credentials: &Credentials, now: Timestamp) -> Upload {
        let object = format!("{}{}/{}.tar", self.prefix, body.node_id, body.id);
        let until = body.kind.row().timeout.after(body.not_after);
        let good_for = until.duration_since(now).unsigned_abs().clamp(Duration::from_secs(60), LONGEST);
        let url = self.bucket.put_object(Some(credentials), &object).sign_with_time(good_for, &now);
        Upload {
            url: url.to_string(),
            max_bytes: body.payload["maxBytes"].as_u64(),
            object: Some(format!("s3://{}/{object}", self.bucket.name())),
        }
    }
}

#[cfg(test)]
mod tests;
