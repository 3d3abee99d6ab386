//! Counters that fence: generations of a node's desired state and epochs of whoever may write.

use std::fmt;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Before the first.
            pub const NONE: Self = Self(0);

            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// The value for a bigint column.
            #[must_use]
            pub fn to_i64(self) -> i64 {
                i64::try_from(self.0).expect("a counter stays below 2^63")
            }

            /// The value of a bigint column, which is never negative.
            #[must_use]
            pub fn from_i64(value: i64) -> Self {
                Self(u64::try_from(value).unwrap_or(0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

counters! {
    /// Counts the distinct desired states of one node. It moves if and only if the canonical NodeSpec differs; a node
    /// that is handed an older one refuses it. Zero: nothing was desired yet.
    Generation;
    /// Counts the holders of a lease or the sessions of a node. A write that names an older epoch changes nothing, so a
    /// process that lost its place without noticing does no harm.
    Epoch;
    /// Counts the replacements of a node's identity. A certificate of an earlier one never works again.
    IdentityGeneration;
    /// Optimistic concurrency of one row: a writer names the version that it read.
    Version;
}
