//! Typed, prefixed, time-ordered ids.
//!
//! An id is a UUID version 7 written as a prefix and 26 characters of lower-case Crockford base32, for example
//! `node_01k9m2v7t3c4w8d5e6f7g8h9ja`. Text order is creation order. The prefix is part of the type: a command id never
//! parses as a node id.

use std::{fmt, str::FromStr};

use uuid::Uuid;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Why a text is not an id of the wanted type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an id of the form {prefix}<26 characters>")]
pub struct ParseIdError {
    /// The prefix that was expected, for example `node_`.
    pub prefix: &'static str,
    /// The text that was given.
    pub text: String,
}

fn encode(prefix: &str, uuid: Uuid) -> String {
    let bits = uuid.as_u128();
    let mut text = String::with_capacity(prefix.len() + 26);
    text.push_str(prefix);
    for position in (0..26).rev() {
        let index = usize::try_from((bits >> (position * 5)) & 31).expect("five bits fit");
        text.push(char::from(ALPHABET[index]));
    }
    text
}

fn decode(prefix: &'static str, text: &str) -> Result<Uuid, ParseIdError> {
    let refuse = || ParseIdError { prefix, text: text.to_owned() };
    let body = text.strip_prefix(prefix).ok_or_else(refuse)?;
    if body.len() != 26 {
        return Err(refuse());
    }
    let mut bits: u128 = 0;
    for (position, byte) in body.bytes().enumerate() {
        let value = ALPHABET.iter().position(|letter| *letter == byte).ok_or_else(refuse)?;
        if position == 0 && value > 7 {
            return Err(refuse());
        }
        bits = (bits << 5) | value as u128;
    }
    Ok(Uuid::from_u128(bits))
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// What every id of this type begins with.
            pub const PREFIX: &'static str = $prefix;

            /// A fresh id, ordered after those made before it in this process.
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            /// The id that a UUID column holds.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID to keep in a column.
            #[must_use]
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&encode($prefix, self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                decode($prefix, text).map(Self)
            }
        }

        $crate::as_text!($name = concat!("^", $prefix, "[0-9a-hjkmnp-tv-z]{26}$"));
    )*};
}

ids! {
    /// A machine. Assigned by the join service, kept for the machine's life.
    NodeId = "node_";
    /// One applied state of the fleet repository.
    RevisionId = "rev_";
    /// One computed plan.
    PlanId = "plan_";
    /// One attempt of a machine to join, kept for people to look at.
    JoinId = "join_";
    /// An API token's public part.
    ApiTokenId = "tok_";
    /// A join token's public part: `bcjt_<this without its prefix>.<secret>`.
    JoinTokenId = "jt_";
    /// A control-plane process in one role.
    WorkerId = "wrk_";
    /// A gateway process.
    GatewayId = "gw_";
    /// A queued command.
    CommandId = "cmd_";
    /// A batch of destructive commands.
    BatchId = "batch_";
    /// A stored hold.
    HoldId = "hold_";
    /// A way back that somebody asked for.
    RollbackId = "rb_";
    /// One line of the audit log.
    AuditId = "audit_";
    /// One start of a node's operating system, as the node reports it.
    BootId = "boot_";
    /// One life of a node's journal; a new one means that what the old one knew is lost.
    JournalId = "journal_";
    /// One API request, for logs and error bodies.
    RequestId = "req_";
    /// A fleet, until a trust anchor names it.
    FleetId = "fleet_";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_text() {
        let id = NodeId::generate();
        assert_eq!(id.to_string().parse::<NodeId>(), Ok(id));
        assert_eq!(id.to_string().len(), 31);
    }

    #[test]
    fn ids_of_another_type_are_refused() {
        let text = CommandId::generate().to_string();
        assert!(text.parse::<NodeId>().is_err());
    }

    #[test]
    fn text_order_is_creation_order() {
        let ids: Vec<String> = (0..50).map(|_| NodeId::generate().to_string()).collect();
        let mut sorted = ids.clone();
        sorted.sort();
        assert_eq!(ids, sorted);
    }

    #[test]
    fn hostile_texts_are_refused() {
        for text in ["", "node_", "node_zzzzzzzzzzzzzzzzzzzzzzzzzz", "node_0123456789abcdefghijklmnop", "node_é"] {
            assert!(text.parse::<NodeId>().is_err(), "{text}");
        }
    }
}
