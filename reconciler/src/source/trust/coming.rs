//! Policies that are on the branch and not in force: whoever one of them lists agrees to it, and proves a key of it, before anybody
//! else knows them.

use std::collections::VecDeque;

use pki::trust::{
    object::{ObjectFormat, ObjectId},
    policy::{self, Policy},
    walk::History as _,
};

use super::TrustHistory;

/// Policies that are asked who said something.
const MOST_POLICIES: usize = 64;

impl TrustHistory<'_> {
    /// The policies in the trees of a tip and of its first parents, up to a commit that was verified; the oldest of them when there are
    /// too many, which are those that come into force first. Nothing is concluded here: what cannot be read has none, and the walk
    /// says why.
    pub(in crate::source) fn coming(&self, tip: ObjectId, verified: Option<ObjectId>) -> Vec<Policy> {
        let mut found: VecDeque<Vec<u8>> = VecDeque::new();
        let mut at = Some(tip).filter(|tip| Some(*tip) != verified);
        while let Some(id) = at {
            let Ok(Some(raw)) = self.commit(id) else { break };
            let (tree, parent) = head(self.format(), &raw);
            let held = tree.and_then(|tree| self.trust(tree).ok()).and_then(|folder| folder.policy);
            if let Some(held) = held.filter(|held| found.back() != Some(held)) {
                found.push_back(held);
                if found.len() > MOST_POLICIES {
                    found.pop_front();
                }
            }
            at = parent.filter(|parent| Some(*parent) != verified);
        }
        found.iter().filter_map(|held| policy::check(held).policy).collect()
    }
}

/// The tree and the first parent of a commit that may be malformed.
fn head(format: ObjectFormat, raw: &[u8]) -> (Option<ObjectId>, Option<ObjectId>) {
    let mut lines = raw.split(|byte| *byte == b'\n');
    let mut id = |name: &[u8]| {
        let digits = lines.next()?.strip_prefix(name)?;
        ObjectId::parse_as(format, digits)
    };
    (id(b"tree "), id(b"parent "))
}
