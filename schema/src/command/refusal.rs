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
        /// Destructive, and not part of a batch that people approved.
        BatchUnapproved = "BATCH_UNAPPROVED",
        /// Destructive, outside a batch, and more of those than the trust policy allows in an hour.
        UnbatchedLimit = "UNBATCHED_LIMIT",
        /// The lane is full. Not final: the command goes back to wait.
        Busy = "BUSY",
    }
}

impl Refusal {
    /// Whether the command is over with it. Only [`Refusal::Busy`] is tried again.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Busy)
    }

    /// What it means and what to do, for people.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Self::Unsupported => {
                "the node does not run this kind of command, or not in its role; `better-compute kinds --commands` lists who runs what"
            }
            Self::StaleGeneration => {
                "the node did not apply the wanted generation before the deadline; see `better-compute explain node` for what keeps it from converging"
            }
            Self::Expired => {
                "the command reached the node after its deadline; run it again, or give it a longer --not-after"
            }
            Self::BadSignature => {
                "the node does not know the key that signed the command; its trust bundle is behind, or something else than this control plane sent it"
            }
            Self::BatchUnapproved => {
                "destructive commands need a batch that enough people approved; name it with --batch"
            }
            Self::UnbatchedLimit => {
                "the trust policy allows no more destructive commands outside a batch in this hour; use a batch, or wait"
            }
            Self::Busy => "the node has as many commands of this lane as it takes; this one is tried again by itself",
        }
    }
}

/// Why a command ended as it did: a stable word in kebab case, or the word of a [`Refusal`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(Cow<'static, str>);

impl Reason {
    /// It waited past its deadline and never ran.
    pub const NOT_AFTER: Self = Self::of("not-after");
    /// It took longer than its kind may.
    pub const TIMEOUT: Self = Self::of("timeout");
    /// The daemon or the machine stopped while it ran, and it is not safe to run twice.
    pub const INTERRUPTED: Self = Self::of("interrupted");
    /// The node came back without the journal that knew what became of it.
    pub const JOURNAL_LOST: Self = Self::of("journal-lost");
    /// Its node was deleted.
    pub const NODE_DELETED: Self = Self::of("node-deleted");
    /// Somebody cancelled it.
    pub const CANCELLED: Self = Self::of("cancelled");
    /// The work itself failed; the message says how.
    pub const FAILED: Self = Self::of("failed");
    /// A GPU is in use.
    pub const GPU_BUSY: Self = Self::of("gpu-busy");
    /// A GPU that the command names is not there.
    pub const GPU_UNKNOWN: Self = Self::of("gpu-unknown");
    /// Whether the GPUs are in use could not be told.
    pub const GPU_USE_UNKNOWN: Self = Self::of("gpu-use-unknown");
    /// At least one GPU did not reset, or is not healthy after it.
    pub const RESET_FAILED: Self = Self::of("reset-failed");
    /// At least one check failed.
    pub const CHECKS_FAILED: Self = Self::of("checks-failed");
    /// No check failed, and at least one could not be made.
    pub const CHECKS_UNKNOWN: Self = Self::of("checks-unknown");
    /// A program that the command needs is not on the machine.
    pub const PROGRAM_MISSING: Self = Self::of("program-missing");
    /// A program did not answer in time and was killed.
    pub const PROGRAM_HUNG: Self = Self::of("program-hung");
    /// A program said no.
    pub const PROGRAM_FAILED: Self = Self::of("program-failed");
    /// The destination did not take the upload.
    pub const UPLOAD_FAILED: Self = Self::of("upload-failed");
    /// The machine can do only a part of what the kind offers, and not this one.
    pub const UNSUPPORTED_HERE: Self = Self::of("unsupported-here");

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
