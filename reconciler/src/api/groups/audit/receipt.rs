//! Everything about one batch in one file.

use std::collections::{BTreeMap, BTreeSet};

use pki::{
    audit::{Checkpoint, Proof, Vouch},
    batch::Approval,
    checkpoint::CheckpointKey,
    receipt::{Deed, Parts, PolicyStep, SentCommand, SignedResult, seal},
};
use schema::{digest::Digest, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    audit::{self, Chained},
    batches, commands, node_certs, trust,
};

use super::{last, read, unreadable};
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
    /// Lines about the batch that are not what was signed, because somebody changed them in the database; they are not in it.
    altered: usize,
}

pub(in crate::api) async fn receipt(app: &App, input: Of) -> Result<Receipt, ApiError> {
    let auditor = app.auditor()?;
    let name = input.batch.strip_prefix("batch/").unwrap_or(&input.batch);
    let batch = batches::find(&app.db, name).await?.ok_or_else(|| ApiError::not_found(format!("batch/{name}")))?;
    let mut txn = app.db.snapshot().await?;
    let leaves = batches::leaves(&mut txn, batch.id).await?;
    drop(txn);
    // Before the chained ones: a line that moves meanwhile is seen twice and not missed.
    let fresh = audit::tail(&app.db, LINES).await?;
    let mut subjects = BTreeSet::from([format!("batch/{name}")]);
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
                subjects.insert(id.to_string());
                lines.extend(audit::chained_of(&app.db, &id.to_string(), LINES).await?);
            }
        }
        deeds.push(Deed::new(leaf.node.to_string(), leaf.leaf, command, result, leaf.state.to_string()));
    }
    let vouches = vouches(app).await?;
    let Found { proofs, unsigned, altered } = proofs(app, &vouches, &lines).await?;
    let unsigned = unsigned + fresh.iter().filter(|line| subjects.contains(&line.subject)).count();
    let last = last(app).await?;
    let (vouch, others): (Vec<Vouch>, Vec<Vouch>) = vouches.into_iter().partition(|vouch| vouch.key == last.key);
    let keys = checkpoint_keys(&proofs);
    let (mut policies, mut statements, mut emergency) = (Vec::new(), Vec::new(), Vec::new());
    if batch.new.signed.is_some() {
        policies = people(app, batch.decided_at).await?;
        statements.extend(
            trust::statements_of(&app.db, &WORDS, Some(name)).await?.into_iter().map(|statement| statement.raw),
        );
    }
    if let Some(Ok(Approval::Breakglass(called))) = batch.new.evidence.as_deref().map(Approval::read) {
        policies = people(app, batch.decided_at).await?;
        emergency = called.statements;
    }
    let plan = match &batch.new.plan {
        Some((commit, _)) if batch.new.signed.is_some() => batches::plan(&app.db, commit).await?,
        _ => None,
    };
    let parts = Parts {
        anchor: auditor.joins.anchor().to_bytes(),
        vouch: vouch.into_iter().next().ok_or_else(|| unreadable(last.n))?,
        vouches: others.into_iter().filter(|vouch| keys.contains(&vouch.key)).collect(),
        batch: name.to_owned(),
        document: batch.new.doc,
        header: batch.new.signed.map(|signed| signed.header),
        plan,
        policies,
        statements,
        emergency,
        deeds,
        audit: proofs,
    };
    let file = seal(parts, &auditor.custody.audit()).ok_or_else(|| {
        ApiError::new(Code::InvalidState, "the key of the last checkpoint is not this process's; try again in a moment")
    })?;
    Ok(Receipt { text: String::from_utf8(file).map_err(ApiError::internal)?, unsigned, altered })
}

/// The words of workers for keys that sign checkpoints, as far as the anchor names whoever says them.
async fn vouches(app: &App) -> Result<Vec<Vouch>, ApiError> {
    let verifier = app.auditor()?.joins.anchor().verifier();
    let read = |stored: audit::KeyVouch| Vouch::read(std::str::from_utf8(&stored.vouch).ok()?).ok();
    let stored = audit::vouches(&app.db).await?.into_iter().filter_map(read);
    Ok(stored.filter(|vouch| vouch.verify(&verifier).is_ok()).collect())
}

fn checkpoint_keys(proofs: &[Proof]) -> BTreeSet<CheckpointKey> {
    proofs
        .iter()
        .filter_map(|proof| Checkpoint::read(&proof.checkpoint).ok())
        .map(|checkpoint| checkpoint.key)
        .collect()
}

/// Every policy with what agreed to it, and the keys that were revoked while it was in force: before the batch was decided, or
/// after that.
async fn people(app: &App, decided: Option<Timestamp>) -> Result<Vec<PolicyStep>, ApiError> {
    let epochs = trust::epochs(&app.db).await?;
    let said = trust::statements_of(&app.db, &["revoke/v1"], None).await?;
    let heard_at: BTreeMap<Digest, Timestamp> = said.iter().map(|one| (one.digest, one.first_seen_at)).collect();
    // When one was heard whose statement is gone nobody knows; that it takes away is not forgotten.
    let before =
        |digest: &Digest| decided.is_none_or(|decided| heard_at.get(digest).is_none_or(|heard| *heard <= decided));
    let mut revocations = trust::revocations(&app.db).await?.into_iter().peekable();
    let ends: Vec<Option<u64>> = epochs.iter().skip(1).map(|next| Some(next.epoch)).chain([None]).collect();
    let steps = epochs.into_iter().zip(ends).map(|(epoch, end)| {
        let mut step = PolicyStep::new(epoch.policy, epoch.statements);
        while let Some(one) = revocations.next_if(|one| end.is_none_or(|end| one.epoch < end)) {
            let before = before(&one.digest);
            step.revoke(one.raw, before);
        }
        step
    });
    Ok(steps.collect())
}

/// The lines that one checkpoint stands by.
struct Span {
    places: std::ops::Range<u64>,
    checkpoint: Checkpoint,
    signature: Vec<u8>,
    rows: Vec<String>,
}

/// What the log says of a batch.
#[derive(Default)]
struct Found {
    proofs: Vec<Proof>,
    unsigned: usize,
    altered: usize,
}

/// A proof for each line that a checkpoint stands by, whose key is vouched for; how many lines there are besides.
async fn proofs(app: &App, vouches: &[Vouch], lines: &[Chained]) -> Result<Found, ApiError> {
    let realm = app.auditor()?.joins.anchor().realm();
    let mut found = Found::default();
    let mut lines: Vec<&Chained> = lines.iter().collect();
    lines.sort_by_key(|line| line.pos);
    let mut over: Option<Span> = None;
    for line in lines {
        if over.as_ref().is_none_or(|span| !span.places.contains(&line.pos)) {
            let Some(stored) = audit::checkpoint_over(&app.db, line.pos).await? else {
                found.unsigned += 1;
                continue;
            };
            over = Span::of(app, &stored).await?;
        }
        let proof = over.as_ref().and_then(|span| span.prove(line.pos));
        let proven = proof.filter(|proof| {
            let over = proof.verify(&realm).map(|(_, checkpoint)| checkpoint.key);
            over.is_ok_and(|key| vouches.iter().any(|vouch| vouch.key == key))
        });
        match proven {
            Some(proof) => found.proofs.push(proof),
            None => found.altered += 1,
        }
    }
    Ok(found)
}

impl Span {
    /// Its lines as they stand there; `None` when the checkpoint is none.
    async fn of(app: &App, stored: &audit::Checkpoint) -> Result<Option<Self>, ApiError> {
        let Ok(checkpoint) = read(stored) else { return Ok(None) };
        let from = match stored.n.checked_sub(1) {
            Some(before) => audit::checkpoints(&app.db, before, 1).await?.pop().map_or(0, |before| before.rows),
            None => 0,
        };
        let count = u32::try_from(stored.rows.saturating_sub(from)).unwrap_or(u32::MAX);
        let lines = audit::chained(&app.db, from, count).await?;
        let rows = lines.iter().map(|line| row(line.pos, &line.entry).text()).collect();
        Ok(Some(Self { places: from..stored.rows, checkpoint, signature: stored.signature.clone(), rows }))
    }

    fn prove(&self, pos: u64) -> Option<Proof> {
        let texts: Vec<&str> = self.rows.iter().map(String::as_str).collect();
        let index = usize::try_from(pos.checked_sub(self.places.start)?).ok()?;
        Proof::of(&texts, index, &self.checkpoint, &self.signature)
    }
}
