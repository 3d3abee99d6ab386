//! Why a key is not admitted.

use crate::trust::armor::ArmorRefusal;

/// Why a key is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// Not a key, or not all of one, or more than one.
    #[error("it is not one whole public key")]
    Malformed,
    /// A certificate says that somebody else decides.
    #[error("it is an SSH certificate: keys are listed themselves, and no authority vouches for them")]
    Certificate,
    /// A kind of key that is not used.
    #[error("{0} is not among the kinds of keys: ed25519, sk-ed25519, ecdsa-p256, rsa of 3072 bits or more")]
    Kind(String),
    /// Anybody can sign under it.
    #[error("its point is of small order: anybody could sign under it")]
    SmallOrder,
    /// A second spelling of a point.
    #[error("its point is written in a second, non-canonical way")]
    NonCanonical,
    /// No point at all.
    #[error("its point is not on the curve")]
    NotOnCurve,
    /// An RSA key of another size.
    #[error("its modulus has {0} bits; 3072 to 8192 are taken")]
    ModulusSize(usize),
    /// An even number is no RSA modulus.
    #[error("its modulus is even")]
    ModulusEven,
    /// With small exponents signatures can be forged.
    #[error("its exponent is not 65537")]
    Exponent,
    /// A security key for another use.
    #[error("its application is {0:?}, and keys for SSH have one that begins with \"ssh:\"")]
    Application(String),
    /// The armour of an OpenPGP key.
    #[error("its armour is not read: {0}")]
    Armor(ArmorRefusal),
    /// An OpenPGP key of another version.
    #[error("it is an OpenPGP key of version {0}; 4 and 6 are taken")]
    Version(u8),
    /// Nothing in the block has that fingerprint.
    #[error("no key in the block has this fingerprint; those that are there: {}", .0.join(", "))]
    Fingerprint(Vec<String>),
    /// The block does not hold one primary key and what belongs to it.
    #[error("its block is not one primary key and what belongs to it")]
    NotOneCertificate,
    /// The block holds something else.
    #[error("its block holds a packet of type {0}, which is no part of a public key")]
    Packet(u8),
    /// More than is looked at.
    #[error("its block holds more than 64 keys or user ids, or more than 256 signatures of its own")]
    TooMuch,
    /// Its owner, or somebody for them, took it back.
    #[error("its block holds a revocation of it")]
    Revoked,
    /// Its owner made it for something else.
    #[error("it is not for signing: its key flags say so")]
    NotForSigning,
    /// The owner's own signature is not there, or does not count.
    #[error("{0}: {1}")]
    Unvouched(Part, Flaw),
    /// Nothing that the primary key says of a subkey can be checked.
    #[error("its primary key is not admitted: {0}")]
    Primary(Box<Self>),
}

/// What a signature in the block of an OpenPGP key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Part {
    /// The primary key vouches for itself and a name.
    #[error("no signature of its own vouches for it and a user id")]
    Primary,
    /// The primary key vouches for a subkey.
    #[error("it is a subkey that its primary key does not bind")]
    Subkey,
    /// The subkey agrees to that.
    #[error("it is a subkey that does not sign back for its primary key")]
    Back,
}

/// Why a signature in the block of an OpenPGP key does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// There is none.
    #[error("there is none")]
    Missing,
    /// Its hash is too weak, or not known.
    #[error("it uses the hash {0}")]
    Hash(String),
    /// It is of another version than its key.
    #[error("it is of another version than its key")]
    Version,
    /// It was not made by the key.
    #[error("it was not made by its key over these bytes")]
    Bad,
    /// Its owner took back what it vouches for.
    #[error("its user id is revoked")]
    Revoked,
    /// It does not say whose it is.
    #[error("it does not name its key, or another one as well")]
    Issuer,
    /// It says to be older than its key.
    #[error("it was made before its key")]
    Early,
    /// It ends by a date of its own.
    #[error("it expires by itself")]
    Expires,
    /// It asks for something that is not understood.
    #[error("a critical part of it is not understood")]
    Critical,
}
