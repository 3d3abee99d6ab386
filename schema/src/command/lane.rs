//! Lanes: bounded work in flight per node.

use crate::node::words;

words! {
    /// What a command shares its workers with. A long command of one lane never keeps one of another waiting.
    Lane {
        /// Short and urgent.
        Control = "control",
        /// Touches hardware.
        Provision = "provision",
        /// Moves data.
        Bulk = "bulk",
    }
}

impl Lane {
    /// How many commands of this lane a session has in flight at most. The rest waits in the database.
    #[must_use]
    pub const fn credits(self) -> usize {
        match self {
            Self::Control => 8,
            Self::Provision => 4,
            Self::Bulk => 2,
        }
    }

    /// The place of this lane in [`Lane::ALL`], for arrays with one element per lane.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}
