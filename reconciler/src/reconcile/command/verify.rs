//! Which last words count, and what is against the others.

use pki::{Realm, command::command_copy, node_key::NodePublicKey};
use schema::{
    command::{CommandState, CommandUpdate, UpdateError, UpdateState},
    digest::Digest,
};
use store::{
    Db,
    commands::{self, Evidence, RawUpdate},
};

use super::super::{Failure, nodespec::decode_signature};

/// Why a last word does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UpdateRefusal {
    #[error("no certificate of the node's current identity has the key that signed it")]
    Signature,
    #[error("{0}")]
    Unreadable(#[from] UpdateError),
    #[error("it speaks for another node")]
    OtherNode,
    #[error("it was stored for another command than the one that was signed")]
    OtherCommand,
    #[error("{0} is not a last word")]
    NotTerminal(UpdateState),
    #[error("this node has no such command")]
    UnknownCommand,
    #[error("the command is {state}, and cannot be {said} from there")]
    Illegal { state: CommandState, said: UpdateState },
    #[error("it refuses a copy of the command that this control plane did not sign; something between them spoilt it")]
    SpoiltCopy,
    #[error(
        "it refuses approvals that were not sent with the command; something between them spoilt those, and it is sent again"
    )]
    SpoiltApprovals,
}

/// Checks everything that needs no database: the key first.
pub(super) fn verify(
    realm: &Realm,
    keys: &[NodePublicKey],
    raw: &RawUpdate,
) -> Result<(CommandUpdate, Evidence), UpdateRefusal> {
    let signed =
        |key: &&NodePublicKey| key.verify_command_update(realm, raw.node, &raw.payload, &raw.signature).is_ok();
    let key = keys.iter().find(signed).ok_or(UpdateRefusal::Signature)?;
    let update = CommandUpdate::read(&raw.payload)?;
    if update.node_id != raw.node {
        return Err(UpdateRefusal::OtherNode);
    }
    if update.command != raw.id {
        return Err(UpdateRefusal::OtherCommand);
    }
    if !update.state.is_terminal() {
        return Err(UpdateRefusal::NotTerminal(update.state));
    }
    let evidence =
        Evidence { payload: raw.payload.clone(), signature: raw.signature.clone(), key: key.as_bytes().to_vec() };
    Ok((update, evidence))
}

/// A refusal of one copy, or of the approvals that came with it, counts only when it is what was sent. The genuine one may still
/// run.
pub(super) async fn check_copy(db: &Db, update: &CommandUpdate) -> Result<Result<(), UpdateRefusal>, Failure> {
    if let Some(refused) = update.approvals
        && commands::sent_approval(db, update.command).await?.is_some_and(|sent| Digest::of(sent) != refused)
    {
        return Ok(Err(UpdateRefusal::SpoiltApprovals));
    }
    let Some(copy) = update.copy else { return Ok(Ok(())) };
    let Some((body, signature)) = commands::sent(db, update.command).await? else {
        return Ok(Err(UpdateRefusal::UnknownCommand));
    };
    let ours = decode_signature(&signature).is_some_and(|signature| command_copy(&body, &signature) == copy);
    Ok(if ours { Ok(()) } else { Err(UpdateRefusal::SpoiltCopy) })
}
