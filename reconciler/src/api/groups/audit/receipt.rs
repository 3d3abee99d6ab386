//! Everything about one batch in one file.

use pki::{
    audit::{Proof, Vouch},
    receipt::{Deed, Parts, PolicyStep, SentCommand, SignedResult, seal},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    audit::{self, Chained},
    batches, commands, node_certs, trust,
};

use super::{read, unreadable};
use crate::{
    api::{ApiError, App, Code},
    audit::row,
    reconcile::nodespec::decode_signature,
};

/// So many lines of the audit log are put into a receipt for one subject at most.
const LINES: u32 = 1_000;
/// Statements about a batch.
const WORDS: [&str; 3] = ["approve/v1", "reject/v1", "withdraw/v1"];

/// Which batch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Of {
    /// The batch's name.
    batch: String,
}

/// A receipt.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Receipt {
    /// The file's text.
    text: String,
    /// Lines about the batch that no checkpoint stands by yet, and that are not in it.
    unsigned: usize,
}

pub(in crate::api) async fn receipt(app: &App, input: Of) -> Result<Receipt, ApiError> {
    let auditor = app.auditor()?;
    let name = input.batch.strip_prefix("batch/").unwrap_or(&input.batch);
    let batch = batches::find(&app.db, name).await?.ok_or_else(|| ApiError::not_found(format!("batch/{name}")))?;
    let mut txn = app.db.snapshot().await?;
    let leaves = batches::leaves(&mut txn, batch.id).await?;
    drop(txn);
    let mut lines = audit::chained_of(&app.db, &format!("batch/{name}"), LINES).await?;
    let mut deeds = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        let (mut command, mut result) = (None, None);
        if let Some(id) = leaf.command {
            if let Some((body, signature)) = commands::sent(&app.db, id).await?
                && let Some(signature) = decode_signature(&signature)
            {
                command = Some(SentCommand::new(body, signature));
            }
            if command.is_some()
                && let Some(word) = commands::evidence(&app.db, id).await?
            {
                let chain = node_certs::chain_of(&app.db, leaf.node_id, &word.key).await?;
                result = Some(SignedResult::new(word.payload, word.signature, chain));
            }
            if command.is_some() {
                lines.extend(audit::chained_of(&app.db, &id.to_string(), LINES).await?);
            }
        }
        deeds.push(Deed::new(leaf.node.to_string(), leaf.leaf, command, result, leaf.state.to_string()));
    }
    let (proofs, unsigned) = proofs(app, &lines).await?;
    let last = audit::last_checkpoint(&app.db).await?.ok_or_else(|| {
        ApiError::new(Code::InvalidState, "no line of the audit log is signed yet; that takes some seconds")
    })?;
    let key = read(&last)?.key;
    let vouch = audit::vouches(&app.db).await?.into_iter().find(|vouch| vouch.key == key.as_bytes());
    let vouch = vouch.and_then(|vouch| Vouch::read(std::str::from_utf8(&vouch.vouch).ok()?).ok());
    let (mut policies, mut statements) = (Vec::new(), Vec::new());
    if batch.new.signed.is_some() {
        policies.extend(
            trust::epochs(&app.db).await?.into_iter().map(|epoch| PolicyStep::new(epoch.policy, epoch.statements)),
        );
        statements.extend(
            trust::statements_of(&app.db, &WORDS, Some(name)).await?.into_iter().map(|statement| statement.raw),
        );
    }
    let parts = Parts {
        anchor: auditor.joins.anchor().to_bytes(),
        vouch: vouch.ok_or_else(|| unreadable(last.n))?,
        batch: name.to_owned(),
        document: batch.new.doc,
        header: batch.new.signed.map(|signed| signed.header),
        policies,
        statements,
        deeds,
        audit: proofs,
    };
    let file = seal(parts, &auditor.custody.audit()).ok_or_else(|| {
        ApiError::new(Code::InvalidState, "the key of the last checkpoint is not this process's; try again in a moment")
    })?;
    Ok(Receipt { text: String::from_utf8(file).map_err(ApiError::internal)?, unsigned })
}

/// The lines that one checkpoint stands by.
struct Span {
    places: std::ops::Range<u64>,
    checkpoint: pki::audit::Checkpoint,
    signature: Vec<u8>,
    rows: Vec<String>,
}

/// A proof for each line that a checkpoint stands by, and how many there are besides.
async fn proofs(app: &App, lines: &[Chained]) -> Result<(Vec<Proof>, usize), ApiError> {
    let (mut proofs, mut unsigned) = (Vec::new(), 0);
    let mut lines: Vec<&Chained> = lines.iter().collect();
    lines.sort_by_key(|line| line.pos);
    let mut over: Option<Span> = None;
    for line in lines {
        if over.as_ref().is_none_or(|span| !span.places.contains(&line.pos)) {
            let Some(stored) = audit::checkpoint_over(&app.db, line.pos).await? else {
                unsigned += 1;
                continue;
            };
            let from = match stored.n.checked_sub(1) {
                Some(before) => audit::checkpoints(&app.db, before, 1).await?.pop().map_or(0, |before| before.rows),
                None => 0,
            };
            let count = u32::try_from(stored.rows - from).unwrap_or(u32::MAX);
            let rows: Vec<String> = audit::chained(&app.db, from, count)
                .await?
                .iter()
                .map(|line| row(line.pos, &line.entry).text())
                .collect();
            let checkpoint = read(&stored)?;
            over = Some(Span { places: from..stored.rows, checkpoint, signature: stored.signature, rows });
        }
        let Some(span) = &over else { continue };
        let texts: Vec<&str> = span.rows.iter().map(String::as_str).collect();
        let index = usize::try_from(line.pos - span.places.start).unwrap_or(usize::MAX);
        proofs.extend(Proof::of(&texts, index, &span.checkpoint, &span.signature));
    }
    Ok((proofs, unsigned))
}
