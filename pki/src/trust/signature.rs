//! Whose signature a commit or another text has: the armour says how it was made, the bytes say by which key.

use super::{
    armor::ArmorRefusal,
    commit::Commit,
    key::{KeyRefusal, TrustKey},
    openpgp, ssh,
};

/// Why a signature does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureRefusal {
    /// There is none.
    #[error("it is not signed")]
    Unsigned,
    /// Neither of SSH nor of OpenPGP.
    #[error("its signature is neither of SSH nor of OpenPGP")]
    Kind,
    /// The armour is not of the one spelling.
    #[error("the armour of its signature is not read: {0}")]
    Armor(ArmorRefusal),
    /// The bytes are not of the one form.
    #[error("its signature is malformed: {0}")]
    Shape(&'static str),
    /// It was made for something else.
    #[error("its signature was made for {found:?}, not for {wanted:?}")]
    Namespace {
        /// What it says to be for.
        found: String,
        /// What is looked for.
        wanted: &'static str,
    },
    /// It is not over the bytes of a document.
    #[error("its OpenPGP signature is of type {0:#04x}, not over a document's bytes")]
    Type(u8),
    /// Its hash is too weak, or not known.
    #[error("its signature uses the hash {0}")]
    Hash(String),
    /// Its algorithm is not that of its key, or not one that is taken.
    #[error("its signature uses the algorithm {0}")]
    Algorithm(String),
    /// It names a key that is never admitted.
    #[error("its signature is by a key that is not admitted: {0}")]
    Key(KeyRefusal),
    /// Nobody knows the key.
    #[error("the key {0} is nobody's")]
    UnknownKey(String),
    /// A security key signed, and nobody touched it.
    #[error("its security key signed without being touched")]
    NoUserPresence,
    /// It says to be older than its key.
    #[error(
        "its signature says that it is older than its key: set the clock of the machine that signs, and sign again"
    )]
    BeforeKey,
    /// It was made when its key had expired.
    #[error(
        "its signature was made after its key had expired: extend the key (gpg --quick-set-expire), bring its block to the \
         policy, and sign again"
    )]
    KeyExpired,
    /// It was not made over these bytes with this key.
    #[error("its signature is bad: it was not made over these bytes")]
    Bad,
}

impl SignatureRefusal {
    /// The stable word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::UnknownKey(_) => "unknown-key",
            Self::NoUserPresence => "no-user-presence",
            Self::Key(_) => "weak-key",
            Self::Kind
            | Self::Armor(_)
            | Self::Shape(_)
            | Self::Namespace { .. }
            | Self::Type(_)
            | Self::Hash(_)
            | Self::Algorithm(_)
            | Self::BeforeKey
            | Self::KeyExpired
            | Self::Bad => "bad-signature",
        }
    }
}

/// What a commit is signed for, as its SSH signature says.
pub(super) const GIT: &str = "git";

/// The key among `keys` that signed a commit.
///
/// # Errors
/// With the first reason against the signature.
pub fn signer<'k>(
    commit: &Commit<'_>,
    keys: impl IntoIterator<Item = &'k TrustKey>,
) -> Result<&'k TrustKey, SignatureRefusal> {
    let armour = commit.signature().ok_or(SignatureRefusal::Unsigned)?;
    signer_of(&armour, &commit.payload(), GIT, keys)
}

/// The key among `keys` that signed bytes, for a namespace where its kind of signature has one. One of OpenPGP has none: the bytes
/// have to say themselves what they are.
pub(crate) fn signer_of<'k>(
    armour: &str,
    bytes: &[u8],
    namespace: &'static str,
    keys: impl IntoIterator<Item = &'k TrustKey>,
) -> Result<&'k TrustKey, SignatureRefusal> {
    if armour.starts_with("-----BEGIN SSH SIGNATURE-----") {
        ssh::signer(armour, bytes, namespace, keys)
    } else if armour.starts_with("-----BEGIN PGP SIGNATURE-----") {
        openpgp::signer(armour, bytes, keys)
    } else if armour.contains("-----BEGIN SSH SIGNATURE-----") || armour.contains("-----BEGIN PGP SIGNATURE-----") {
        Err(SignatureRefusal::Armor(ArmorRefusal::Begin))
    } else {
        Err(SignatureRefusal::Kind)
    }
}
