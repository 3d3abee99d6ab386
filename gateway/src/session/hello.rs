//! Hello, checked: the first frame of a session, from a peer that so far only proved that it holds a node's key.

use std::collections::{BTreeMap, HashMap};

use proto::agent::v1 as pb;
use schema::{
    command::{APPROVALS_CAPABILITY, COMMANDS_CAPABILITY, Lane, RENAMES_CAPABILITY},
    digest::Digest,
    generation::Generation,
    inventory::InventorySection,
};

use super::{OpenRequest, Rules};
use crate::refusal::{Refusal, shortened};

const NONCE_BYTES: usize = 32;
const MAX_VERSION_BYTES: usize = 64;
const MAX_CAPABILITIES: usize = 64;
const MAX_SECTIONS: usize = 64;
const MAX_WORDS: usize = 300;

/// A Hello that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckedHello {
    pub(super) open: OpenRequest,
    pub(super) applied: Generation,
    /// It takes another name with a renewal, and renews when it is asked to.
    pub(super) renames: bool,
    pub(super) inventory: BTreeMap<InventorySection, Digest>,
    /// Why the node cannot keep anything, when it cannot.
    pub(super) cannot_keep: Option<String>,
}

/// Checks a Hello: first who speaks, then what, then how.
pub(super) fn check(hello: pb::Hello, rules: &Rules) -> Result<CheckedHello, Refusal> {
    if hello.node_id != rules.node_id.to_string() {
        return Err(Refusal::WrongNode { certified: rules.node_id, claimed: shortened(&hello.node_id) });
    }
    if hello.described && !rules.dev {
        return Err(Refusal::DescribedHardware);
    }
    let boot_id = hello.boot_id.parse().map_err(|_| Refusal::HelloMalformed("boot_id is no boot id"))?;
    let journal_id = hello.journal_id.parse().map_err(|_| Refusal::HelloMalformed("journal_id is no journal id"))?;
    if hello.nonce.len() != NONCE_BYTES {
        return Err(Refusal::HelloMalformed("nonce has not 32 bytes"));
    }
    if hello.agent_version.len() > MAX_VERSION_BYTES || hello.agent_version.chars().any(char::is_control) {
        return Err(Refusal::HelloMalformed("agent_version is too long or not printable"));
    }
    if hello.capabilities.len() > MAX_CAPABILITIES || hello.inventory.len() > MAX_SECTIONS {
        return Err(Refusal::HelloMalformed("too many capabilities or inventory sections"));
    }
    if i64::try_from(hello.applied_generation).is_err() || i64::try_from(hello.observed_generation).is_err() {
        return Err(Refusal::HelloMalformed("a generation is out of range"));
    }
    let mut inventory = BTreeMap::new();
    for (section, digest) in hello.inventory {
        let digest = digest.parse().map_err(|_| Refusal::HelloMalformed("an inventory digest is no digest"))?;
        // A newer daemon may have sections that this gateway does not know.
        if let Ok(section) = section.parse() {
            inventory.insert(section, digest);
        }
    }
    let says = |capability: &str| hello.capabilities.iter().any(|word| word == capability);
    Ok(CheckedHello {
        open: OpenRequest {
            node_id: rules.node_id,
            boot_id,
            journal_id,
            nonce: hello.nonce,
            agent_version: hello.agent_version,
            described: hello.described,
            trust_version: hello.trust_version,
            marks: marks(&hello.journal_marks)?,
            commands: says(COMMANDS_CAPABILITY),
            policy_epoch: says(APPROVALS_CAPABILITY).then_some(hello.policy_epoch),
        },
        applied: Generation(hello.applied_generation),
        renames: says(RENAMES_CAPABILITY),
        inventory,
        cannot_keep: words(&hello.cannot_keep),
    })
}

/// A node's own words, for people: short and printable; `None` when there are none.
fn words(said: &str) -> Option<String> {
    let text: String = said.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect();
    (!text.trim().is_empty()).then_some(text)
}

/// What the journal took, by lane; `None` when nothing is said.
fn marks(said: &HashMap<String, u64>) -> Result<Option<[u64; Lane::ALL.len()]>, Refusal> {
    if said.is_empty() {
        return Ok(None);
    }
    // A newer daemon may have lanes that this gateway does not know.
    let mut marks = [0; Lane::ALL.len()];
    for lane in Lane::ALL {
        let unsaid = Refusal::HelloMalformed("journal_marks leaves a lane out");
        marks[lane.index()] = *said.get(lane.as_str()).ok_or(unsaid)?;
    }
    Ok(Some(marks))
}

/// The sections to ask for after Welcome: `None` for nothing, an empty list for all of them.
pub(super) fn wanted(
    hello: &BTreeMap<InventorySection, Digest>,
    stored: &BTreeMap<InventorySection, Digest>,
) -> Option<Vec<String>> {
    if hello.is_empty() {
        return stored.is_empty().then(Vec::new);
    }
    let differing: Vec<String> = hello
        .iter()
        .filter(|(section, digest)| stored.get(section) != Some(digest))
        .map(|(section, _)| section.to_string())
        .collect();
    (!differing.is_empty()).then_some(differing)
}
