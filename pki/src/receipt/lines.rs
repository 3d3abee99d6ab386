//! What the audit log says of a batch, as a receipt shows it.

use std::collections::BTreeSet;

use schema::digest::Digest;

use super::{Receipt, Void};
use crate::{anchor::Anchor, audit::Row, checkpoint::CheckpointKey};

/// What the log says of the batch. Each line is proven by a checkpoint of a key that a worker vouches for.
pub(super) fn proven(receipt: &Receipt, anchor: &Anchor) -> Result<Vec<Row>, Void> {
    let realm = anchor.realm();
    let mut keys: BTreeSet<CheckpointKey> = BTreeSet::from([receipt.vouch.key]);
    for vouch in &receipt.vouches {
        vouch.verify(&anchor.verifier()).map_err(|_| Void::Vouch)?;
        keys.insert(vouch.key);
    }
    let subjects: BTreeSet<String> = receipt
        .deeds
        .iter()
        .filter_map(|deed| Some(deed.command.as_ref()?.read()?.id.to_string()))
        .chain([format!("batch/{}", receipt.batch)])
        .collect();
    let mut lines = Vec::with_capacity(receipt.audit.len());
    for (number, proof) in (1..).zip(&receipt.audit) {
        let (row, checkpoint) = proof.verify(&realm).map_err(|refusal| Void::Audit(number, refusal))?;
        if !keys.contains(&checkpoint.key) {
            return Err(Void::OtherKey(number));
        }
        if !subjects.contains(&row.subject) {
            return Err(Void::OtherSubject(number));
        }
        lines.push(row);
    }
    let document = Digest::of(&receipt.document).to_string();
    let mut named = lines.iter().filter_map(|row| row.detail["document"].as_str()).peekable();
    if named.peek().is_some() && !named.any(|digest| digest == document) {
        return Err(Void::Document);
    }
    lines.sort_by_key(|row| row.pos);
    Ok(lines)
}

/// Refuses a batch that went after it had ended: nothing that people approved holds any more then, whoever set it back.
pub(super) fn stays_ended(batch: &str, lines: &[Row]) -> Result<(), Void> {
    let subject = format!("batch/{batch}");
    let of_it = lines.iter().filter(|row| row.subject == subject);
    let mut ended: Option<(&Row, &str)> = None;
    for (row, state) in of_it.filter_map(|row| Some((row, row.action.strip_prefix("batches.")?))) {
        if let (Some((end, how)), "dispatching" | "done") = (ended, state) {
            return Err(Void::AfterEnd { ended: how.to_owned(), at: end.at, went: state.to_owned() });
        }
        if matches!(state, "done" | "expired" | "void" | "rejected" | "cancelled") {
            ended = ended.or(Some((row, state)));
        }
    }
    Ok(())
}
