//! Why a node does not accept a command, and why a command ended as it did.

use std::{borrow::Cow, fmt, str::FromStr};

use crate::node::{UnknownWord, words};

words! {
    /// Why a node does not accept a command. In the order in which they are looked for.
    Refusal {
        /// The body names another node, or the kind is unknown or not for this node.
        Unsupported = "UNSUPPORTED",
        /// The node has not applied the generation that the command presupposes.
        StaleGeneration = "STALE_GENERATION",
        /// Past its deadline, in server time.
        Expired = "EXPIRED",
        /// No worker of this control plane signed these bytes.
        BadSignature = "BAD_SIGNATURE",
        /// Signed for another journal than the node has. It may have run in that one.
        JournalOther = "JOURNAL_OTHER",
        /// Destructive, and not part of a batch that people approved.
        BatchUnapproved = "BATCH_UNAPPROVED",
        /// Destructive, outside a batch, and more of those than the trust policy allows in an hour.
        UnbatchedLimit = "UNBATCHED_LIMIT",
        /// The lane is full. Not final: the command goes back to wait.
        Busy = "BUSY",
    }
}

/// Why a command ended as it did: a stable word in kebab case, or the word of a [`Refusal`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(Cow<'static, str>);

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
        impl Reason {
            $($(#[$doc])* pub const $name: Self = Self::of($word);)*

            /// Every reason that has a name here, but those that are refusals.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

reasons! {
    /// It waited past its deadline and never ran.
    NOT_AFTER = "not-after";
    /// It took longer than its kind may.
    TIMEOUT = "timeout";
    /// The daemon or the machine stopped while it ran, and it is not safe to run twice.
    INTERRUPTED = "interrupted";
    /// The node came back without the journal that knew what became of it.
    JOURNAL_LOST = "journal-lost";
    /// The node's journal takes no more for now. Not final, as BUSY is not.
    JOURNAL_FULL = "journal-full";
    /// The node's journal cannot be written, as on a full disk. Not final, as BUSY is not.
    JOURNAL_UNUSABLE = "journal-unusable";
    /// The approvals that reached the node are not those that were sent with it. Not final, as BUSY is not.
    APPROVALS_SPOILT = "approvals-spoilt";
    /// Its node was deleted.
    NODE_DELETED = "node-deleted";
    /// Its node's identity was revoked, or another machine came in for it.
    IDENTITY_REPLACED = "identity-replaced";
    /// No process of the control plane queued it: somebody wrote it into the database.
    NOT_OURS = "not-ours";
    /// The batch that it is part of ended before it was signed.
    BATCH_ENDED = "batch-ended";
    /// Somebody cancelled it.
    CANCELLED = "cancelled";
    /// The work itself failed; the message says how.
    FAILED = "failed";
    /// A GPU is in use.
    GPU_BUSY = "gpu-busy";
    /// A GPU that the command names is not there.
    GPU_UNKNOWN = "gpu-unknown";
    /// Whether the GPUs are in use could not be told.
    GPU_USE_UNKNOWN = "gpu-use-unknown";
    /// At least one GPU did not reset, or is not healthy after it.
    RESET_FAILED = "reset-failed";
    /// At least one check failed.
    CHECKS_FAILED = "checks-failed";
    /// No check failed, and at least one could not be made.
    CHECKS_UNKNOWN = "checks-unknown";
    /// A program that the command needs is not on the machine.
    PROGRAM_MISSING = "program-missing";
    /// A program did not answer in time and was killed.
    PROGRAM_HUNG = "program-hung";
    /// A program said no.
    PROGRAM_FAILED = "program-failed";
    /// The destination did not take the upload.
    UPLOAD_FAILED = "upload-failed";
    /// The manifest of a release is none.
    RELEASE_MALFORMED = "release-malformed";
    /// Nobody whose word counts on this machine vouches for the release.
    RELEASE_UNTRUSTED = "release-untrusted";
    /// The manifest is of another version than the one that was asked for.
    RELEASE_OTHER = "release-other";
    /// The release is not to be taken yet.
    RELEASE_NOT_YET = "release-not-yet";
    /// The release is not to be taken any more.
    RELEASE_EXPIRED = "release-expired";
    /// The release has nothing for the machine's architecture.
    RELEASE_NO_BINARY = "release-no-binary";
    /// The release is older than what runs.
    RELEASE_DOWNGRADE = "release-downgrade";
    /// What runs is too old to follow the release.
    RELEASE_TOO_FAR = "release-too-far";
    /// The machine can do only a part of what the kind offers, and not this one.
    UNSUPPORTED_HERE = "unsupported-here";
}

impl Reason {
    const MAX: usize = 64;

    const fn of(word: &'static str) -> Self {
        Self(Cow::Borrowed(word))
    }

    /// Checks a word.
    ///
    /// # Errors
    /// When it is neither kebab case of at most 64 characters nor the word of a refusal.
    pub fn new(word: impl Into<String>) -> Result<Self, UnknownWord> {
        let word = word.into();
        let kebab = word.len() <= Self::MAX
            && word.split('-').all(|part| {
                !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            });
        if kebab || Refusal::from_str(&word).is_ok() {
            return Ok(Self(Cow::Owned(word)));
        }
        Err(UnknownWord { of: "Reason", text: word.chars().take(80).collect() })
    }

    /// The word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The refusal that this is, when it is one.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.0.parse().ok()
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        Self::of(refusal.as_str())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Reason {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl serde::Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Reason {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Reason {
    fn schema_name() -> Cow<'static, str> {
        "Reason".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$|^[A-Z]+(_[A-Z]+)*$", "maxLength": 64})
    }
}
