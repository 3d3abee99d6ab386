//! While the checkpoint key is replaced: what the key before still stands behind, which counts for nothing once that one is
//! over. The source signs manifests and tags places anew; what waits to be acted on is marked anew here.

use pki::checkpoint::CheckpointPurpose;
use store::{
    Db, DbError, audit, batches,
    commands::{self, Marked},
    placements,
};

use super::{Custody, attest::of_other_keys};
use crate::{audit::look::ours, source::FLEET};

/// So many marks are read, and made anew, at a time.
const AT_ONCE: u32 = 500;

/// What waits and was marked with the key before the present one, with the marks of the present one.
#[derive(Debug, Default)]
struct Before {
    commands: Vec<Marked>,
    batches: Vec<(batches::Batch, Vec<u8>)>,
}

impl Custody {
    /// How much the key before stands behind, and so nobody once that one is over.
    pub(crate) async fn signed_before(&self, db: &Db) -> Result<u64, DbError> {
        let held = self.held();
        if !held.places.is_of_two() {
            return Ok(0);
        }
        let Some(present) = held.manifests.present() else { return Ok(0) };
        let manifests = of_other_keys(db, &held.manifests, present).await?.len();
        let mut txn = db.snapshot().await?;
        let before = |place: &placements::Placement| {
            let bytes = place.bytes();
            let tag = place.tag.as_ref();
            tag.is_some_and(|tag| held.places.is_tag(&bytes, tag) && !held.places.is_present(&bytes, tag))
        };
        let places = placements::list(&mut txn).await?.iter().filter(|place| before(place)).count();
        drop(txn);
        let Before { commands, batches } = self.marked_before(db).await?;
        let verified = store::trust::checkpoint(db, FLEET).await?.is_some_and(|stored| {
            let signed = held.manifests.verify(CheckpointPurpose::VerifiedCheckpoint, &stored.body, &stored.signature);
            signed.is_ok_and(|key| key != present)
        });
        let last = audit::checkpoints_back(db, None, 1).await?.pop();
        let log = last.and_then(|last| ours(&last, &held.audit)).filter(|last| Some(last.key) == held.audit.before());
        let single = usize::from(verified) + usize::from(log.is_some());
        Ok((manifests + places + commands.len() + batches.len() + single) as u64)
    }

    /// Marks anew what waits and was marked with the key before; without one there is nothing to read.
    pub(crate) async fn mark_anew(&self, db: &Db) -> Result<(), DbError> {
        let Before { commands, batches } = self.marked_before(db).await?;
        for some in commands.chunks(AT_ONCE as usize) {
            let mut txn = db.begin().await?;
            commands::mark_anew(&mut txn, some).await?;
            txn.commit().await?;
        }
        for (batch, mark) in &batches {
            let mut txn = db.begin().await?;
            batches::mark_anew(&mut txn, batch, mark).await?;
            txn.commit().await?;
        }
        if !(commands.is_empty() && batches.is_empty()) {
            tracing::info!(commands = commands.len(), batches = batches.len(), "what waits is marked with the new key");
        }
        Ok(())
    }

    async fn marked_before(&self, db: &Db) -> Result<Before, DbError> {
        let (held, mut before) = (self.held(), Before::default());
        if !held.commands.is_of_two() {
            return Ok(before);
        }
        let mut after = None;
        loop {
            let page = commands::marked(db, after, AT_ONCE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            let old = |one: &Marked| {
                held.commands.is_tag(&one.body, &one.mark) && !held.commands.is_present(&one.body, &one.mark)
            };
            let anew = |one: Marked| Marked { mark: held.commands.tag(&one.body), ..one };
            before.commands.extend(page.into_iter().filter(old).map(anew));
        }
        for batch in batches::list_open(db).await?.items {
            let mut txn = db.snapshot().await?;
            let words = batch.words(&batches::leaves(&mut txn, batch.id).await?);
            let old = |mark: &Vec<u8>| held.batches.is_tag(&words, mark) && !held.batches.is_present(&words, mark);
            if batch.mark.as_ref().is_some_and(old) {
                before.batches.push((batch, held.batches.tag(&words)));
            }
        }
        Ok(before)
    }
}
