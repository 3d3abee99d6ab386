//! The last policy of a history, for whoever finds a tree without one.

use super::{
    History,
    chain::{first_parent, tree_of},
};
use crate::trust::object::ObjectId;

/// The nearest commit, from one back along first parents, whose tree holds a policy. So many commits are looked at.
///
/// # Errors
/// When an object is missing or damaged.
pub fn last_policy<H: History>(history: &H, from: ObjectId, most: usize) -> Result<Option<ObjectId>, H::Error> {
    let mut at = Some(from);
    for _ in 0..most {
        let Some(id) = at else { break };
        let Some(raw) = history.commit(id)? else { break };
        if let Some(tree) = tree_of(history.format(), &raw) {
            match history.trust(tree) {
                Ok(folder) if folder.policy.is_some() => return Ok(Some(id)),
                Err(error) if H::unfit(&error).is_none() => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        at = first_parent(history.format(), &raw);
    }
    Ok(None)
}
