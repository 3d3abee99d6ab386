//! A release of the node daemon: what its manifest binds, and whether a node may take it. Pure.
//!
//! A manifest names one version and the bytes of it for each architecture, from when until when it may be taken, and from
//! which versions on. Its canonical bytes are signed; by whom is not said here.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use semver::Version;
use serde::{Deserialize, Serialize};

use crate::{digest::Digest, node::words, time::Timestamp};

/// The longest manifest with its signatures, in bytes.
pub const MAX_MANIFEST: usize = 64 * 1024;

words! {
    /// An architecture that the daemon is made for.
    Arch {
        /// x86-64.
        Amd64 = "amd64",
        /// 64-bit ARM.
        Arm64 = "arm64",
    }
}

impl Arch {
    /// The one that this program was made for; `None` for one that has no releases.
    #[must_use]
    pub const fn own() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::Amd64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Arm64)
        } else {
            None
        }
    }
}

/// The daemon for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Binary {
    /// What the bytes are.
    pub digest: Digest,
    /// How many there are.
    pub size: u64,
}

/// What is signed: the canonical JSON of this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The version that the daemon says of itself.
    pub version: Version,
    /// Its bytes, by architecture.
    pub binaries: BTreeMap<Arch, Binary>,
    /// Not taken before.
    pub not_before: Timestamp,
    /// Not taken from then on.
    pub expires: Timestamp,
    /// The oldest version that it may follow; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    /// It may take the place of a later version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub downgrade: bool,
}

/// A node that is asked to take a release.
#[derive(Debug, Clone)]
pub struct Taker<'a> {
    /// The version that is asked for.
    pub wanted: &'a str,
    /// The version that runs.
    pub running: &'a Version,
    /// What it is made for.
    pub arch: Option<Arch>,
    /// The proven time.
    pub now: Timestamp,
}

/// Why a node does not take a release whose manifest it believes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseRefusal {
    /// It was asked for something else.
    #[error("the manifest is of version {of}, and {wanted} was asked for")]
    OtherVersion {
        /// What the manifest names.
        of: Version,
        /// What was asked for.
        wanted: String,
    },
    /// Its time has not come.
    #[error("the release is not to be taken before {0}")]
    NotYet(Timestamp),
    /// Its time is over.
    #[error("the release was to be taken until {0}")]
    Expired(Timestamp),
    /// It has no bytes for this machine.
    #[error("the release has nothing for this machine's architecture")]
    NoBinary,
    /// It is older than what runs, and does not say that it may be.
    #[error("{to} is older than {running}, which runs, and its manifest does not allow a downgrade")]
    Downgrade {
        /// The release.
        to: Version,
        /// What runs.
        running: Version,
    },
    /// What runs is too old to go there in one step.
    #[error("{running} runs, and the release follows {from} or later only")]
    TooFar {
        /// What runs.
        running: Version,
        /// The oldest that it follows.
        from: Version,
    },
}

impl Manifest {
    /// The bytes to sign.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        crate::canonical::to_vec(self).expect("a manifest has no fraction")
    }

    /// The bytes that a node would run.
    ///
    /// # Errors
    /// With the first reason against taking it.
    pub fn take(&self, taker: &Taker<'_>) -> Result<Binary, ReleaseRefusal> {
        if self.version.to_string() != taker.wanted {
            return Err(ReleaseRefusal::OtherVersion { of: self.version.clone(), wanted: taker.wanted.to_owned() });
        }
        if taker.now < self.not_before {
            return Err(ReleaseRefusal::NotYet(self.not_before));
        }
        if taker.now >= self.expires {
            return Err(ReleaseRefusal::Expired(self.expires));
        }
        let running = taker.running;
        if self.version < *running && !self.downgrade {
            return Err(ReleaseRefusal::Downgrade { to: self.version.clone(), running: running.clone() });
        }
        if let Some(from) = self.from.as_ref().filter(|from| running < from) {
            return Err(ReleaseRefusal::TooFar { running: running.clone(), from: from.clone() });
        }
        taker.arch.and_then(|arch| self.binaries.get(&arch).copied()).ok_or(ReleaseRefusal::NoBinary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn version(text: &str) -> Version {
        text.parse().expect("a version")
    }

    fn manifest() -> Manifest {
        Manifest {
            version: version("1.4.0"),
            binaries: BTreeMap::from([(Arch::Amd64, Binary { digest: Digest::of("bytes"), size: 5 })]),
            not_before: at("2026-03-01T00:00:00Z"),
            expires: at("2026-06-01T00:00:00Z"),
            from: Some(version("1.2.0")),
            downgrade: false,
        }
    }

    #[test]
    fn the_signed_bytes_are_canonical_and_read_back() {
        let bytes = manifest().to_bytes();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            format!(
                r#"{{"binaries":{{"amd64":{{"digest":"{}","size":5}}}},"expires":"2026-06-01T00:00:00Z","from":"1.2.0","notBefore":"2026-03-01T00:00:00Z","version":"1.4.0"}}"#,
                Digest::of("bytes")
            )
        );
        assert_eq!(serde_json::from_slice::<Manifest>(&bytes).expect("a manifest"), manifest());
        let more = String::from_utf8_lossy(&bytes).replacen('{', r#"{"extra":1,"#, 1);
        assert!(serde_json::from_str::<Manifest>(&more).is_err(), "what is not understood is not signed for");
    }

    #[test]
    fn each_reason_against_a_release_has_its_case() {
        use ReleaseRefusal as R;
        let (one, pre, old, late) = (version("1.3.7"), version("1.4.0-rc.1"), version("1.1.9"), version("1.10.0"));
        let march = at("2026-03-10T00:00:00Z");
        let good = Taker { wanted: "1.4.0", running: &one, arch: Some(Arch::Amd64), now: march };
        let take = |taker: &Taker<'_>| manifest().take(taker);
        assert_eq!(take(&good).expect("taken").size, 5);
        assert!(take(&Taker { running: &pre, ..good.clone() }).is_ok(), "a candidate comes before its release");
        assert!(matches!(take(&Taker { wanted: "1.4.1", ..good.clone() }), Err(R::OtherVersion { .. })));
        assert!(matches!(take(&Taker { now: at("2026-02-28T23:59:59Z"), ..good.clone() }), Err(R::NotYet(_))));
        assert!(matches!(take(&Taker { now: at("2026-06-01T00:00:00Z"), ..good.clone() }), Err(R::Expired(_))));
        assert!(matches!(take(&Taker { arch: Some(Arch::Arm64), ..good.clone() }), Err(R::NoBinary)));
        assert!(matches!(take(&Taker { arch: None, ..good.clone() }), Err(R::NoBinary)));
        assert!(
            matches!(take(&Taker { running: &late, ..good.clone() }), Err(R::Downgrade { .. })),
            "10 comes after 4"
        );
        assert!(matches!(take(&Taker { running: &old, ..good.clone() }), Err(R::TooFar { .. })));
        let back = Manifest { downgrade: true, ..manifest() };
        assert!(back.take(&Taker { running: &late, ..good }).is_ok());
    }
}
