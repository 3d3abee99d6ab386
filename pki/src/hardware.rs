//! Which machine this is, from identifiers that are often lies.
//!
//! The hardware key is a SHA-256 over the first two independent identifiers that survive normalisation and the
//! placeholder table, in order of how well they stay with a machine: system serial, system UUID, board serial, chassis
//! serial, device-tree serial. It is *trusted* when there are two. So a new board with the old service tag is the same
//! machine, and a blade is not its enclosure.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    digest::Digest,
    inventory::{Dmi, Gpu, Nic},
};
use serde::{Deserialize, Serialize};

mod placeholder;

const MAX_BYTES: usize = 256 * 1024;
/// More than a machine has, virtual functions included.
const MAX_NICS: usize = 1_024;

/// What an identifier identifies. The order is the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdentifierKind {
    /// SMBIOS system serial number; on many machines the service tag.
    SystemSerial,
    /// SMBIOS system UUID.
    SystemUuid,
    /// SMBIOS base board serial number.
    BoardSerial,
    /// SMBIOS chassis serial number. Of a blade it is the enclosure's.
    ChassisSerial,
    /// Serial number in the device tree.
    DeviceTreeSerial,
}

impl IdentifierKind {
    /// The word in the hashed bytes and in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SystemSerial => "system-serial",
            Self::SystemUuid => "system-uuid",
            Self::BoardSerial => "board-serial",
            Self::ChassisSerial => "chassis-serial",
            Self::DeviceTreeSerial => "devicetree-serial",
        }
    }
}

/// What a machine says about itself, as read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Identifiers, in any order, in any spelling.
    pub identifiers: Vec<(IdentifierKind, String)>,
    /// The product name, which tells a blade.
    pub product: Option<String>,
}

impl Claims {
    /// The claims in an inventory's firmware tables.
    #[must_use]
    pub fn of_dmi(dmi: &Dmi) -> Self {
        let identifiers = [
            (IdentifierKind::SystemSerial, &dmi.serial),
            (IdentifierKind::SystemUuid, &dmi.uuid),
            (IdentifierKind::BoardSerial, &dmi.board_serial),
            (IdentifierKind::ChassisSerial, &dmi.chassis_serial),
        ];
        Self {
            identifiers: identifiers.into_iter().filter_map(|(kind, text)| Some((kind, text.clone()?))).collect(),
            product: dmi.product.clone(),
        }
    }
}

/// What a machine says about itself when it joins, as far as it could be read: the claims in a join request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JoinClaims {
    /// Firmware tables.
    pub dmi: Dmi,
    /// Network interfaces.
    pub nics: Vec<Nic>,
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// Identifiers that exist and that this process may not read, for example for want of root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<IdentifierKind>,
}

impl JoinClaims {
    /// The claims as the bytes of a join request.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        schema::canonical::to_vec(self).expect("claims serialise")
    }

    /// The claims in a join request.
    ///
    /// # Errors
    /// When the bytes are no claims.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadClaims> {
        // A NUL is in no identifier, and the database stores none.
        if bytes.len() > MAX_BYTES || schema::canonical::has_nul(bytes) {
            return Err(BadClaims);
        }
        let claims: Self = serde_json::from_slice(bytes).map_err(|_| BadClaims)?;
        if claims.nics.len() > MAX_NICS { Err(BadClaims) } else { Ok(claims) }
    }

    /// Whether both are told of one machine, as far as people compare machines: its firmware tables and its network
    /// addresses. A GPU that fell off the bus, or a link that is slower, makes no other one.
    #[must_use]
    pub fn is_same_machine(&self, other: &Self) -> bool {
        let addresses =
            |claims: &Self| -> BTreeSet<String> { claims.nics.iter().filter_map(|nic| nic.mac.clone()).collect() };
        self.dmi == other.dmi && addresses(self) == addresses(other)
    }

    /// The key of the machine that claims this.
    #[must_use]
    pub fn hardware_key(&self) -> HardwareKey {
        HardwareKey::derive(&Claims::of_dmi(&self.dmi))
    }
}

/// Bytes that are no claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the hardware claims are malformed")]
pub struct BadClaims;

/// What a machine is recognised by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareKey {
    /// SHA-256 over the identifiers that were used; none when all are placeholders.
    pub digest: Option<Digest>,
    /// Whether two independent identifiers stand behind it.
    pub trusted: bool,
    /// The identifiers that survived, normalised, one of a kind.
    pub survivors: BTreeMap<IdentifierKind, String>,
}

impl HardwareKey {
    /// Derives the key of a machine.
    #[must_use]
    pub fn derive(claims: &Claims) -> Self {
        let blade = claims.product.as_deref().is_some_and(is_blade);
        let mut survivors = BTreeMap::<IdentifierKind, String>::new();
        for (kind, text) in &claims.identifiers {
            if blade && *kind == IdentifierKind::ChassisSerial {
                continue;
            }
            let Some(value) = normalise(*kind, text) else { continue };
            let kept = survivors.entry(*kind).or_insert_with(|| value.clone());
            if value < *kept {
                *kept = value;
            }
        }
        let mut used: Vec<(IdentifierKind, &str)> = Vec::new();
        for (kind, value) in &survivors {
            if used.len() < 2 && used.iter().all(|(_, other)| are_independent(value, other)) {
                used.push((*kind, value));
            }
        }
        let trusted = used.len() == 2;
        let digest = (!used.is_empty()).then(|| digest(&used));
        Self { digest, trusted, survivors }
    }

    /// The first eight hexadecimal digits, for the name of a machine without a document.
    #[must_use]
    pub fn short(&self) -> Option<String> {
        self.digest.map(|digest| hex::encode(&digest.as_bytes()[..4]))
    }
}

/// A serial number without case and padding, or nothing when it is a placeholder: how two are compared.
#[must_use]
pub fn plain_serial(text: &str) -> Option<String> {
    placeholder::serial(text)
}

fn digest(used: &[(IdentifierKind, &str)]) -> Digest {
    let mut bytes = b"bc/hardware/v1\0".to_vec();
    for (kind, value) in used {
        bytes.extend_from_slice(kind.as_str().as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    Digest::of(bytes)
}

fn normalise(kind: IdentifierKind, text: &str) -> Option<String> {
    match kind {
        IdentifierKind::SystemUuid => placeholder::uuid(text),
        _ => plain_serial(text),
    }
}

/// A serial that repeats the UUID, or a board serial that holds the service tag, is no second witness.
fn are_independent(a: &str, b: &str) -> bool {
    let repeats = |text: &str, other: &str| {
        text.contains(other) || placeholder::other_byte_order(other).is_some_and(|other| text.contains(&other))
    };
    !repeats(a, b) && !repeats(b, a)
}

fn is_blade(product: &str) -> bool {
    let product = product.to_ascii_uppercase();
    let is_model = |word: &str, prefix: &str| {
        word.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    product.contains("BLADE")
        || product.split([' ', '-', '/']).any(|word| is_model(word, "BL") || is_model(word, "UCSB"))
        || product.contains("UCSB-")
}

#[cfg(test)]
mod tests;
