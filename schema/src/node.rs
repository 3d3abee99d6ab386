//! What is known about one machine: independent axes, each with its own states and one writer.
//!
//! | axis | type | written by |
//! |---|---|---|
//! | provision state | [`ProvisionState`] | join service, `node` controller, bare-metal workflows |
//! | connectivity | [`Connectivity`] | gateway (session opens, closes), `liveness` controller |
//! | power | [`Power`] | bare-metal power control |
//! | cordoned | any [`Hold`] exists | git, API, health: each its own holds |
//! | conditions | [`Condition`] | the reader of the fact |
//!
//! No axis implies another. [`schedulable`] is the one place that reads them together.

pub mod condition;
pub mod connectivity;
pub mod hold;
pub mod provision;
pub mod schedulable;

pub use condition::{Condition, ConditionStatus, NoScheduleReason};
pub use connectivity::Connectivity;
pub use hold::{Hold, HoldSource};
pub use provision::{ProvisionEvent, ProvisionState};
pub use schedulable::{Bucket, Facts};

/// Declares an enum of plain words: its text form never changes, because it is stored and sent.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name { $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)* }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stored text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::node::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err($crate::node::UnknownWord { of: stringify!($name), text: text.chars().take(80).collect() }),
                }
            }
        }
    };
}
pub(crate) use words;

/// A text that is none of the words of an axis.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {of}")]
pub struct UnknownWord {
    /// The axis.
    pub of: &'static str,
    /// The text.
    pub text: String,
}

words! {
    /// Whether the machine has power, as its BMC says.
    Power {
        /// On.
        On = "on",
        /// Off.
        Off = "off",
        /// Nobody asked, or the BMC did not say.
        Unknown = "unknown",
    }
}

words! {
    /// What the machine is to the platform.
    Role {
        /// Runs tenants' work side by side.
        Host = "host",
        /// Given whole to one tenant at a time.
        Dedicated = "dedicated",
        /// A site agent; runs no tenant's work.
        Site = "site",
        /// Has no pool yet.
        Unassigned = "unassigned",
    }
}

words! {
    /// Who controls the machine.
    Trust {
        /// The platform.
        Platform = "platform",
        /// A tenant owns it; the platform runs it.
        TenantOwned = "tenant-owned",
        /// A tenant's operating system runs on it.
        TenantControlled = "tenant-controlled",
    }
}

words! {
    /// What a pool's machines are booked as; decides the role of a machine that joins.
    PoolClass {
        /// Hosts whose GPUs are booked.
        MetalHost = "metal-host",
        /// Machines that are booked whole.
        MetalDedicated = "metal-dedicated",
        /// Hosts of virtual machines.
        VpsHost = "vps-host",
        /// Machines of another provider.
        Provider = "provider",
    }
}

impl PoolClass {
    /// The role of a machine that joins a pool of this class.
    #[must_use]
    pub const fn role(self) -> Role {
        match self {
            Self::MetalHost | Self::VpsHost | Self::Provider => Role::Host,
            Self::MetalDedicated => Role::Dedicated,
        }
    }
}
