//! How far history was verified, as this control plane signed it: in the database and beside the repositories, of which the later one counts.
//!
//! It is what a pass goes on from, and what it does not fall behind: where policies or statements are gone, the walk begins at the anchor
//! again, and comes at least as far.

use std::{collections::BTreeMap, path::PathBuf};

use pki::{
    checkpoint::{CheckpointKey, CheckpointPurpose},
    keys::TrustPin,
    trust::{
        object,
        policy::Policy,
        statement::FleetId,
        walk::{Accepted, Memory, Verified, Walked},
    },
};
use schema::{canonical, digest::Digest};
use serde::{Deserialize, Serialize};
use store::trust;

use super::{Pass, PassError};
use crate::source::{SourceState, Trouble, git::chain};

/// What a checkpoint says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Body {
    pub(super) source: String,
    pub(super) branch: String,
    pub(super) anchor: object::ObjectId,
    pub(super) fleet: FleetId,
    pub(super) commit: object::ObjectId,
    pub(super) epoch: u64,
    pub(super) digest: Digest,
    pub(super) seq: u64,
    pub(super) memory: Memory,
}

/// A checkpoint beside the repositories.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    body: String,
    signature: String,
}

impl Body {
    /// What a walk goes on from, when the policies of then are there and it is about the same branch.
    pub(super) fn resume(&self, branch: &str, mut policies: BTreeMap<u64, Policy>, domain: &str) -> Option<Verified> {
        policies.retain(|epoch, _| *epoch <= self.epoch);
        let same = policies.get(&self.epoch).is_some_and(|policy| policy.digest() == self.digest);
        let Self { fleet, commit, memory, .. } = self.clone();
        (same && self.branch == branch).then(|| Verified {
            trust_domain: domain.to_owned(),
            fleet,
            commit,
            policies,
            memory,
        })
    }

    /// Whether a walk that began again comes as far: to a policy that is no older, and on the same branch past the commit, or to a
    /// history that people accepted since.
    pub(super) fn is_reached_by(&self, walked: &Walked, branch: &str) -> bool {
        let newest = walked.reached.as_ref().and_then(Verified::policy).map_or(0, Policy::epoch);
        let known = |id| self.memory.sealed.iter().any(|sealed| sealed.new == id);
        let counts = &walked.commits[..walked.verified()];
        let resealed = |judged: &pki::trust::walk::Judged| {
            matches!(judged.verdict, Ok(Accepted::Resealed(_))) && !known(judged.id)
        };
        let passes = counts.iter().any(|judged| judged.id == self.commit) || counts.first().is_some_and(resealed);
        newest >= self.epoch && (passes || self.branch != branch)
    }
}

impl Pass {
    fn file(&self) -> PathBuf {
        self.data.join(format!("{}.verified", self.name))
    }

    /// The checkpoint of a pin, of any where there is none, and the number of the one in the database, with the key that signed it.
    pub(super) async fn checkpoint(
        &self,
        pin: Option<&TrustPin>,
    ) -> Result<(Option<Body>, Option<u64>, Option<CheckpointKey>), PassError> {
        let Some(custody) = self.custody.clone() else { return Ok((None, None, None)) };
        let stored = trust::checkpoint(&self.db, &self.name).await?;
        let number = stored.as_ref().map(|stored| stored.seq);
        let file = std::fs::read(self.file()).ok().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
        let file = file.and_then(|kept| Some((hex::decode(kept.body).ok()?, hex::decode(kept.signature).ok()?)));
        let database = stored.map(|stored| (stored.body, stored.signature));
        let signer = custody.signer();
        let verifier = signer.verifier();
        let key = database.as_ref().and_then(|(bytes, signature): &(Vec<u8>, Vec<u8>)| {
            verifier.verify(CheckpointPurpose::VerifiedCheckpoint, bytes, signature).ok()
        });
        let read = |(bytes, signature): (Vec<u8>, Vec<u8>)| {
            if let Err(error) = verifier.verify(CheckpointPurpose::VerifiedCheckpoint, &bytes, &signature) {
                tracing::error!(source = %self.name, %error, "a checkpoint of the verified history is not believed");
                return None;
            }
            let body: Body = serde_json::from_slice(&bytes).ok()?;
            let ours = pin.is_none_or(|pin| (body.anchor, body.fleet) == (pin.commit, pin.fleet));
            (ours && body.source == self.name).then_some(body)
        };
        Ok(([file, database].into_iter().flatten().filter_map(read).max_by_key(|body| body.seq), number, key))
    }

    /// Why nothing is followed without a pin: a checkpoint that our own key signed says that there is one.
    pub(super) async fn pinned_before(&self) -> Result<Option<Trouble>, PassError> {
        let (body, ..) = self.checkpoint(None).await?;
        Ok(body.map(|body| {
            let why = format!(
                "the fleet is pinned to {}, and the keys of this process are from before that: give them to it again (better-compute keys source)",
                body.anchor
            );
            Trouble::new(SourceState::OtherHistory, why)
        }))
    }

    /// Signs a checkpoint.
    pub(super) fn sign(&self, body: &Body) -> Option<(Vec<u8>, Vec<u8>)> {
        let custody = self.custody.as_ref()?;
        let body = canonical::to_vec(body).expect("a checkpoint serialises");
        let signature = custody.signer().sign(CheckpointPurpose::VerifiedCheckpoint, &body);
        Some((body, signature))
    }

    /// Keeps a checkpoint beside the repositories.
    pub(super) fn keep_beside(&self, body: &[u8], signature: &[u8]) {
        let kept = Kept { body: hex::encode(body), signature: hex::encode(signature) };
        let text = serde_json::to_vec(&kept).expect("a checkpoint serialises");
        let beside = self.file().with_extension("verified.new");
        let written = std::fs::create_dir_all(&self.data)
            .and_then(|()| std::fs::write(&beside, text))
            .and_then(|()| std::fs::rename(&beside, self.file()));
        if let Err(error) = written {
            tracing::warn!(error = %chain(&error), "the checkpoint is kept in the database only");
        }
    }
}
