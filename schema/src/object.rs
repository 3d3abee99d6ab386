//! How an object is addressed: `kind/name`, everywhere.

use std::{fmt, str::FromStr};

use crate::name::{Name, NameError};

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// The kinds of objects a fleet repository can hold.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $variant,)* }

        impl Kind {
            /// Every kind, in the order of the reference.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word people write.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl FromStr for Kind {
            type Err = UnknownKind;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text { $($text => Ok(Self::$variant),)* _ => Err(UnknownKind(text.chars().take(80).collect())) }
            }
        }
    };
}

kinds! {
    /// Identity and brakes of the whole fleet; one per repository.
    Fleet = "fleet",
    /// A place with machines and gateways.
    Site = "site",
    /// Machines that are alike and are booked together.
    Pool = "pool",
    /// What a host looks like.
    Profile = "profile",
    /// Bytes for a disk.
    Image = "image",
    /// A version of the node daemon.
    Release = "release",
    /// How a change travels.
    Rollout = "rollout",
    /// One machine that needs a word of its own.
    Node = "node",
    /// Who books.
    Tenant = "tenant",
    /// How much of a pool a tenant books.
    Quota = "quota",
    /// Who may call the API.
    Access = "access",
    /// Destructive commands that wait for their approvals.
    Batch = "batch",
    /// No change here until a time.
    Freeze = "freeze",
    /// An object that kept its identity under another name.
    Moved = "moved",
    /// An object that is to go.
    Removed = "removed",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// No kind has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind {0:?}")]
pub struct UnknownKind(pub String);

/// The address of an object: its kind and its name, written `pool/h100`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The kind.
    pub kind: Kind,
    /// The name, unique within the kind.
    pub name: Name,
}

impl ObjectRef {
    /// An address from its parts.
    #[must_use]
    pub const fn new(kind: Kind, name: Name) -> Self {
        Self { kind, name }
    }
}

/// Why a text is not an object's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseObjectRefError {
    /// No slash.
    #[error("an object is written kind/name, for example pool/h100, not {0:?}")]
    Shape(String),
    /// The part before the slash.
    #[error(transparent)]
    Kind(#[from] UnknownKind),
    /// The part after the slash.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for ObjectRef {
    type Err = ParseObjectRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) =
            text.split_once('/').ok_or_else(|| ParseObjectRefError::Shape(text.chars().take(80).collect()))?;
        Ok(Self { kind: kind.parse()?, name: name.parse()? })
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.kind, self.name))
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

crate::as_text!(ObjectRef = "^[a-z]+/[a-z0-9-]{1,63}$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_text() {
        for kind in Kind::ALL {
            let text = format!("{kind}/h100");
            assert_eq!(text.parse::<ObjectRef>().map(|address| address.to_string()), Ok(text));
        }
    }
}
