//! Why a commit does not count.

use schema::{diagnostic::Diagnostic, digest::Digest, fleet::trust::FILE, name::Name};

use crate::trust::{
    commit::Malformed,
    object::ObjectId,
    policy::{MAX_BYTES, MAX_STATEMENTS},
    signature::SignatureRefusal,
    statement::Step,
};

/// Why a commit does not count. The history stops at the first that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its bytes are not of the one form.
    #[error("malformed: {0}")]
    Malformed(Malformed),
    /// It is called by a name that its bytes do not have.
    #[error("its bytes are those of {}", .0.short())]
    WrongObject(ObjectId),
    /// Its signature does not count.
    #[error("{0}")]
    Signature(SignatureRefusal),
    /// Its key was retired.
    #[error("the key {0} is retired, and signs no more")]
    KeyRetired(String),
    /// Its key was somebody else's by then.
    #[error("the key {key} is compromised: {}", .since.map_or_else(|| "nothing that it signed counts".to_owned(), |since| format!("what it signed after {} does not count", since.short())))]
    KeyCompromised {
        /// The key.
        key: String,
        /// The last commit that it signed for its owner.
        since: Option<ObjectId>,
    },
    /// Its key was revoked before.
    #[error("the key {key} was revoked by {by}")]
    KeyRevoked {
        /// The key.
        key: String,
        /// Who said so.
        by: Name,
    },
    /// Its files are not of a form that everybody reads alike.
    #[error("its files are not read: {0}")]
    Unfit(String),
    /// An object of its files is missing here, or damaged: whether it counts is not known before that is there.
    #[error("its files are not all here: {0}")]
    Lacking(String),
    /// Too many parents.
    #[error("it merges {} histories at once", .0 - 1)]
    Octopus(usize),
    /// Its signer may not change a file.
    #[error("its signer may not change {path}: {}", uncovered(.rules))]
    PathNotGranted {
        /// The file.
        path: String,
        /// The rules that cover it.
        rules: Vec<String>,
    },
    /// Others have to vouch for it.
    #[error("{}: it takes {}, and {} there", if *.forge { "a forge signed it, which is nobody".to_owned() } else { format!("{path} is not changed by one person alone") }, statements(*.needed), are(.by))]
    NotVouched {
        /// How many.
        needed: u32,
        /// Who vouches.
        by: Box<[Name]>,
        /// Who else may.
        may: Box<[Name]>,
        /// The file that asks for it.
        path: Box<str>,
        /// Whether a forge signed it.
        forge: bool,
        /// What a statement has to name.
        base: ObjectId,
        /// And this.
        tree: ObjectId,
    },
    /// A forge cannot propose destructive work.
    #[error("a forge signed it, and it changes the batch in {0}")]
    ForgeCannotPropose(String),
    /// There is no policy to go on with.
    #[error("{FILE} is gone or cannot be read: nothing moves until it is back")]
    TrustRemoved,
    /// A change of trust with something else in it.
    #[error("it changes the trust policy and {0}: a change of trust stands alone")]
    TrustMixed(String),
    /// Another file beside the policy.
    #[error("{0} lies beside the trust policy")]
    StrayTrustFile(String),
    /// The policy that it brings is refused.
    #[error("the trust policy that it brings is refused: {}", first(.0))]
    PolicyInvalid(Vec<Diagnostic>),
    /// The policy that it brings is of a later format.
    #[error("the trust policy that it brings is of format {format}, which a later version reads")]
    TooNew {
        /// The format.
        format: u64,
    },
    /// The policy that it brings is larger than any machine keeps.
    #[error(
        "the trust policy that it brings is larger than machines take: {} KiB, and {MAX_STATEMENTS} statements about it",
        MAX_BYTES >> 10
    )]
    TooLarge,
    /// The policy that it brings does not follow.
    #[error("the trust policy that it brings has epoch {found}, and {expected} is next")]
    Epoch {
        /// What comes next.
        expected: u64,
        /// What it brings.
        found: u64,
    },
    /// Machines have another policy of its number.
    #[error(
        "machines have another trust policy of epoch {epoch} ({handed_out}), and never go back: bring that one first, as it was, and change it by the next"
    )]
    EpochTaken {
        /// The number.
        epoch: u64,
        /// The policy that they have.
        handed_out: Digest,
    },
    /// The policy that it brings follows another one.
    #[error("the trust policy that it brings does not name the one in force: prev {}", .expected.map_or_else(|| "is left out in the first".to_owned(), |digest| format!("{:?}", digest.to_string())))]
    Prev {
        /// The one in force.
        expected: Option<Digest>,
    },
    /// The policy that it brings forgets a key, or that it was revoked.
    #[error(
        "the trust policy that it brings forgets something: {0}; a key stays listed under its principal, and revoked"
    )]
    Forgets(String),
    /// The first policy is another one than people confirmed.
    #[error("its trust policy has the digest {found}, and {pinned} was confirmed")]
    NotPinned {
        /// What was confirmed.
        pinned: Digest,
        /// What is there.
        found: Digest,
    },
    /// A rewritten history does not change the policy.
    #[error("the history that it begins holds the trust policy {found}, and {in_force} is in force")]
    ResealsTrust {
        /// The one in force.
        in_force: Digest,
        /// What is there.
        found: Digest,
    },
    /// Its fleet is another one.
    #[error("its fleet file names {}, and the trust-domain is {expected:?}", .found.as_ref().map_or_else(|| "no trust-domain".to_owned(), |found| format!("the trust-domain {found:?}")))]
    OtherTrustDomain {
        /// What it has to name.
        expected: String,
        /// What it names.
        found: Option<String>,
    },
    /// Too few agree to a policy.
    #[error("{whose} trust policy takes {} to agree, and {} so", people(*.needed), say(.by))]
    TrustThreshold {
        /// Whose threshold it is.
        whose: &'static str,
        /// How many.
        needed: u32,
        /// Who agrees.
        by: Vec<Name>,
        /// What a statement has to name.
        step: Step,
    },
    /// Keys of which nobody has shown to hold them.
    #[error("no possession statement shows that somebody holds {}", .keys.join(", "))]
    NotProven {
        /// The holders and their keys.
        keys: Vec<String>,
        /// What a statement has to name.
        step: Step,
    },
    /// The history began without a policy.
    #[error("the history before it has no policy in force")]
    NoPolicyInForce,
}

impl Refusal {
    /// The stable word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::WrongObject(_) => "wrong-object",
            Self::Signature(refusal) => refusal.code(),
            Self::KeyRetired(_) => "key-retired",
            Self::KeyCompromised { .. } => "key-compromised",
            Self::KeyRevoked { .. } => "key-revoked",
            Self::Unfit(_) => "unfit-tree",
            Self::Lacking(_) => "object-broken",
            Self::Octopus(_) => "octopus",
            Self::PathNotGranted { .. } => "path-not-granted",
            Self::NotVouched { .. } => "not-vouched",
            Self::ForgeCannotPropose(_) => "forge-cannot-propose",
            Self::TrustRemoved => "trust-removed",
            Self::TrustMixed(_) => "trust-mixed",
            Self::StrayTrustFile(_) => "stray-trust-file",
            Self::PolicyInvalid(_) => "policy-invalid",
            Self::TooNew { .. } => "trust-too-new",
            Self::TooLarge => "policy-too-large",
            Self::Epoch { .. } => "epoch-out-of-order",
            Self::EpochTaken { .. } => "epoch-taken",
            Self::Prev { .. } => "prev-unknown",
            Self::Forgets(_) => "key-forgotten",
            Self::NotPinned { .. } => "not-pinned",
            Self::ResealsTrust { .. } => "reseals-trust",
            Self::OtherTrustDomain { .. } => "other-trust-domain",
            Self::TrustThreshold { .. } => "trust-threshold",
            Self::NotProven { .. } => "key-not-proven",
            Self::NoPolicyInForce => "no-policy-in-force",
        }
    }
}

fn list(names: &[Name]) -> String {
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
}

fn uncovered(rules: &[String]) -> String {
    match rules {
        [] => "no path rule covers it".to_owned(),
        [one] => format!("path {one} does not name a role of theirs"),
        more => format!("each of path {} has to name a role of theirs", more.join(", ")),
    }
}

fn people(number: u32) -> String {
    if number == 1 { "one person".to_owned() } else { format!("{number} people") }
}

fn statements(number: u32) -> String {
    if number == 1 {
        "a change statement of another person".to_owned()
    } else {
        format!("change statements of {number} other people")
    }
}

fn are(by: &[Name]) -> String {
    if by.is_empty() { "none is".to_owned() } else { format!("that of {} is", list(by)) }
}

fn say(by: &[Name]) -> String {
    match by {
        [] => "nobody says".to_owned(),
        [one] => format!("{} says", one.as_str()),
        more => format!("{} say", list(more)),
    }
}

fn first(diagnostics: &[Diagnostic]) -> String {
    let error = diagnostics.iter().find(|found| found.is_error());
    error.map_or_else(
        || "it is no policy".to_owned(),
        |found| format!("{}: {} {}", found.at(), found.code, found.message),
    )
}
