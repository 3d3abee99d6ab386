//! The chain of first parents, from where a walk begins to the tip.

use super::{History, MOST_BYTES, MOST_COMMITS, Stuck};
use crate::trust::object::{ObjectFormat, ObjectId};

/// Commits with their raw bytes, oldest first.
pub(super) type Chain = Vec<(ObjectId, Vec<u8>)>;

/// Collects the commits from the tip back to the first that ends it, which is the first of the answer. Without such a commit the
/// answer has the root first, and `false`.
pub(super) fn back<H: History>(
    history: &H,
    tip: ObjectId,
    ends: impl Fn(ObjectId) -> bool,
) -> Result<Result<(Chain, bool), Stuck>, H::Error> {
    let mut chain = Vec::new();
    let (mut at, mut bytes) = (tip, 0);
    let ended = loop {
        let Some(raw) = history.commit(at)? else { return Ok(Err(Stuck::HistoryIncomplete(at))) };
        let parent = first_parent(history.format(), &raw);
        bytes += raw.len();
        chain.push((at, raw));
        match parent {
            _ if ends(at) => break true,
            _ if chain.len() > MOST_COMMITS || bytes > MOST_BYTES => return Ok(Err(Stuck::TooLong)),
            Some(parent) => at = parent,
            None => break false,
        }
    };
    chain.reverse();
    Ok(Ok((chain, ended)))
}

/// Drops what came before the first commit that holds a policy.
pub(super) fn from_first_policy<H: History>(history: &H, mut chain: Chain) -> Result<Chain, H::Error> {
    let mut begin = chain.len();
    for (index, (_, raw)) in chain.iter().enumerate() {
        let Some(tree) = tree_of(history.format(), raw) else { continue };
        match history.trust(tree) {
            Ok(folder) if folder.policy.is_some() => {
                begin = index;
                break;
            }
            Err(error) if H::unfit(&error).is_none() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    chain.drain(..begin);
    Ok(chain)
}

/// The head of a commit that may be malformed: enough to find the way to the anchor, and never to conclude anything.
fn head(raw: &[u8]) -> Vec<&[u8]> {
    raw.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty()).take(2).collect()
}

pub(super) fn first_parent(format: ObjectFormat, raw: &[u8]) -> Option<ObjectId> {
    head(raw).get(1)?.strip_prefix(b"parent ").and_then(|digits| ObjectId::parse_as(format, digits))
}

pub(super) fn tree_of(format: ObjectFormat, raw: &[u8]) -> Option<ObjectId> {
    head(raw).first()?.strip_prefix(b"tree ").and_then(|digits| ObjectId::parse_as(format, digits))
}
