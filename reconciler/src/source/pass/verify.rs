//! What the trust policy says of the tip, once the fleet is pinned: nothing that does not count is planned.
//!
//! The walk goes on from a checkpoint that this control plane signed, so what was verified once is not judged again. A checkpoint that
//! is not there, or that nobody signed, costs a walk from the anchor.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use pki::{
    checkpoint::CheckpointKey,
    keys::TrustPin,
    trust::{
        object,
        policy::Policy,
        spoken::Heard,
        walk::{self, Known, Refusal, Stuck, Verified, Walk, Walked},
    },
};
use schema::digest::Digest;
use serde_json::json;
use store::{
    audit, batches,
    leases::Lease,
    poke::Poke,
    sources::{self, Source, Stage},
    trust::{self, Checkpoint, CheckpointError, Epoch},
};

use super::{Pass, PassError, checkpoint::Body, hear::Ears};
use crate::{
    apply::ApplyError,
    audit::people,
    source::{GitError, Repo, SourceState, Trouble, fetch::Look, history::short},
};

/// How long one walk may take.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(120);

/// What a pass remembers of trust.
#[derive(Debug, Clone, Default)]
pub(super) struct Trusted {
    /// Whether the checkpoint was read.
    recalled: bool,
    /// The checkpoint that was read, until it is gone on from or passed.
    signed: Option<Body>,
    /// The number of the checkpoint in the database.
    stored: Option<u64>,
    /// The key that signed it.
    key: Option<CheckpointKey>,
    /// How far history was verified, and the number of the checkpoint that says so.
    reached: Option<(Verified, String, u64)>,
    /// What was looked at of what people said.
    pub(super) ears: Ears,
    /// The tip and the number of statements that the last walk was about, when it ended well, and the key that signed how far it came.
    settled: Option<(String, usize, Option<CheckpointKey>)>,
}

impl Trusted {
    /// The branch that was verified; a row that says another one is not believed.
    pub(super) fn branch(&self) -> Option<&str> {
        let reached = self.reached.as_ref().map(|(_, branch, _)| branch);
        reached.or(self.signed.as_ref().map(|signed| &signed.branch)).map(String::as_str)
    }

    /// The last commit that counts.
    pub(super) fn commit(&self) -> Option<object::ObjectId> {
        let reached = self.reached.as_ref().map(|(verified, ..)| verified.commit);
        reached.or(self.signed.as_ref().map(|signed| signed.commit))
    }

    /// Whether a commit is the last one that counts.
    pub(super) fn has_reached(&self, commit: &str) -> bool {
        self.reached.as_ref().is_some_and(|(verified, ..)| verified.commit.to_string() == commit)
    }
}

/// A tip, for several threads.
pub(super) struct Tip {
    repo: Mutex<Repo>,
    pub(super) tip: String,
    branch: String,
    pub(super) path: String,
}

impl Tip {
    pub(super) fn of(seen: &Look) -> Self {
        let Look { tip, branch, path, .. } = seen;
        Self { repo: Mutex::new(seen.repo.again()), tip: tip.clone(), branch: branch.clone(), path: path.clone() }
    }

    pub(super) fn repo(&self) -> Repo {
        self.repo.lock().unwrap_or_else(PoisonError::into_inner).again()
    }
}

/// Why a tip does not come into force.
type Judged = Result<(), Trouble>;

impl Pass {
    /// Verifies the tip when the fleet is pinned. What is not verified does not go on.
    pub(super) async fn verify(&mut self, lease: &Lease, source: &Source, seen: &Tip) -> Result<Judged, PassError> {
        let Some(pin) = self.pinned.get() else { return Ok(self.pinned_before().await?.map_or(Ok(()), Err)) };
        let domain = self.custody.as_ref().map(|custody| custody.trust_domain().to_owned()).unwrap_or_default();
        self.recall().await?;
        let mut known = self.pinned.follows(&self.db, &pin, &domain).await?.policies.clone();
        // Gateways hand out whatever is stored and follows.
        let handed_out: BTreeMap<u64, Digest> = known.iter().map(|(epoch, policy)| (*epoch, policy.digest())).collect();
        if let Some(signed) = self.trusted.signed.take() {
            match signed.resume(&seen.branch, known.clone(), &domain) {
                Some(reached) => self.trusted.reached = Some((reached, seen.branch.clone(), signed.seq)),
                None => {
                    tracing::warn!(source = %self.name, "the history is verified from its anchor again");
                    known.retain(|epoch, _| *epoch <= signed.epoch);
                    self.trusted.signed = Some(signed);
                }
            }
        }
        let heard = match self.hear(lease, seen, &known, (&pin, &domain)).await? {
            Ok(heard) => heard,
            Err(error) => return Ok(Err(error.into())),
        };
        let key = self.custody.as_ref().map(|custody| custody.signer().key());
        let settled = |(tip, count, by): &(String, usize, _)| *tip == seen.tip && *count == heard.len() && *by == key;
        if self.trusted.settled.as_ref().is_some_and(settled) {
            return Ok(Ok(()));
        }
        let walked = match self.walk(seen, (&pin, &domain), (known, handed_out.clone()), heard.clone()).await {
            Ok(walked) => walked,
            Err(error) => return Ok(Err(error.into())),
        };
        let walked = match walked {
            Ok(walked) => walked,
            Err((stuck, stale)) => return Ok(Err(stuck_words(&stuck, stale, seen))),
        };
        if let Some(trouble) = not_pinned(&walked, &pin) {
            return Ok(Err(trouble));
        }
        if self.trusted.signed.as_ref().is_none_or(|signed| signed.is_reached_by(&walked, &seen.branch)) {
            let newest = handed_out.keys().next_back().copied().unwrap_or(1);
            self.keep_verified(lease, source, seen, (&pin, newest), &walked).await?;
        }
        let Some((judged, refusal)) = walked.refused() else {
            self.trusted.settled = Some((seen.tip.clone(), heard.len(), key));
            return Ok(Ok(()));
        };
        let state = match refusal {
            Refusal::TrustRemoved => SourceState::TrustRemoved,
            Refusal::OtherTrustDomain { .. } | Refusal::NotPinned { .. } => SourceState::OtherHistory,
            Refusal::Lacking(_) => SourceState::ObjectBroken,
            _ => SourceState::UnverifiedCommit,
        };
        let (commit, code) = (judged.id.short(), refusal.code());
        let reason = match refusal {
            Refusal::Lacking(_) => format!(
                "commit {commit} cannot be judged: {refusal} ({code}). What was verified before it stands, and every look tries it again; `git fsck` in the repository says what else is missing"
            ),
            _ => format!(
                "commit {commit} does not count: {refusal} ({code}); `better-compute verify --dry-run` shows it and what is missing"
            ),
        };
        let detail = json!({
            "commit": judged.id,
            "subject": judged.subject,
            "code": code,
            "why": refusal.to_string(),
            "signedBy": judged.signer.as_ref().map(|signer| signer.principal.as_str()),
            "epoch": judged.epoch,
        });
        Ok(Err(Trouble { detail: Some(detail), ..Trouble::new(state, reason) }))
    }

    /// Reads how far history was verified, before anything is looked at: the branch is the one that was verified.
    pub(super) async fn recall(&mut self) -> Result<(), PassError> {
        let Some(pin) = self.pinned.get().filter(|_| !self.trusted.recalled) else { return Ok(()) };
        (self.trusted.signed, self.trusted.stored, self.trusted.key) = self.checkpoint(Some(&pin)).await?;
        self.trusted.recalled = true;
        Ok(())
    }

    /// Walks from what was verified to the tip. Beside a history that diverged stands whether its tip was verified before.
    async fn walk(
        &self,
        seen: &Tip,
        (pin, domain): (&TrustPin, &str),
        (policies, handed_out): (BTreeMap<u64, Policy>, BTreeMap<u64, Digest>),
        heard: Vec<Heard>,
    ) -> Result<Result<Walked, (Stuck, bool)>, GitError> {
        let (repo, tip, path, branch) = (seen.repo(), seen.tip.clone(), seen.path.clone(), seen.branch.clone());
        let after =
            self.trusted.reached.as_ref().filter(|(_, of, _)| *of == branch).map(|(reached, ..)| reached.clone());
        let (pin, now) = (*pin, self.db.now().await.ok());
        let domain = domain.to_owned();
        let signed = self.trusted.signed.clone();
        self.blocking(DEADLINE, move |stop| {
            let deadline = Instant::now().checked_add(DEADLINE).unwrap_or_else(Instant::now);
            let history = repo.trust_history(&path).until(stop, deadline);
            let tip: object::ObjectId =
                tip.parse().map_err(|_| GitError::Broken { id: tip.clone(), what: "is no name".to_owned() })?;
            let memory = signed.as_ref().map(|signed| signed.memory.clone());
            let known = Known { trust_domain: domain, fleet: pin.fleet, policies, handed_out, memory };
            let walk = Walk {
                branch: &branch,
                tip,
                anchor: Some(pin.commit),
                after: after.as_ref(),
                known: Some(&known),
                statements: &heard,
                now,
                beyond: 0,
            };
            let last = after.as_ref().map(|after| after.commit).or(signed.as_ref().map(|signed| signed.commit));
            let fallen_behind = |walked: &Walked| {
                let reached = signed.as_ref().is_none_or(|signed| signed.is_reached_by(walked, &branch));
                (!reached && walked.refused().is_none()).then_some(last).flatten()
            };
            let stuck = match walk::walk(&history, &walk)? {
                Ok(walked) => match fallen_behind(&walked) {
                    None => return Ok(Ok(walked)),
                    Some(anchor) => Stuck::HistoryDiverged { anchor, tip },
                },
                Err(stuck) => stuck,
            };
            let diverged = matches!(stuck, Stuck::HistoryDiverged { .. });
            let stale = last.is_some_and(|last| diverged && repo.follows(&last.to_string(), &tip.to_string()));
            Ok(Err((stuck, stale)))
        })
        .await
    }

    /// Stores how far history was verified, and the policies that came into force.
    async fn keep_verified(
        &mut self,
        lease: &Lease,
        source: &Source,
        seen: &Tip,
        (pin, handed_out): (&TrustPin, u64),
        walked: &Walked,
    ) -> Result<(), PassError> {
        let Some(reached) = &walked.reached else { return Ok(()) };
        let before = self.trusted.reached.as_ref().filter(|(_, of, _)| *of == seen.branch);
        // What the key before signed counts for nothing once that one is over.
        let key = self.custody.as_ref().map(|custody| custody.signer().key());
        let same =
            before.is_some_and(|(before, ..)| before == reached) && walked.epochs.is_empty() && self.trusted.key == key;
        let commit = reached.commit.to_string();
        if same && source.verified.as_ref().is_some_and(|at| at.commit == commit) {
            return Ok(());
        }
        let Some(policy) = reached.policy() else { return Ok(()) };
        let last =
            [self.trusted.stored, before.map(|(.., seq)| *seq), self.trusted.signed.as_ref().map(|signed| signed.seq)];
        let seq = last.into_iter().flatten().max().map_or(1, |seq| seq + 1);
        let body = Body {
            source: self.name.clone(),
            branch: seen.branch.clone(),
            anchor: pin.commit,
            fleet: pin.fleet,
            commit: reached.commit,
            epoch: policy.epoch(),
            digest: policy.digest(),
            seq,
            memory: reached.memory.clone(),
        };
        let Some((body, signature)) = self.sign(&body) else { return Ok(()) };
        let mut txn = self.begin(lease).await?;
        for epoch in &walked.epochs {
            let stored = Epoch {
                epoch: epoch.epoch,
                digest: epoch.digest,
                policy: epoch.policy.clone(),
                commit: epoch.commit.to_string(),
                statements: epoch.statements.clone(),
                at: schema::time::Timestamp::UNIX_EPOCH,
            };
            trust::put_epoch(&mut txn, &stored).await?;
        }
        if !walked.epochs.is_empty() {
            batches::trust_changed(&mut txn).await?;
        }
        let told = before.is_some_and(|(before, ..)| before.memory.revoked == reached.memory.revoked);
        if !walked.epochs.is_empty() || !told {
            txn.poke(Poke::Policies);
        }
        // Machines never go back, and hear a revocation behind the newest policy that they had by then.
        let revoked = reached.memory.revoked.iter();
        let revoked = revoked.map(|one| (one.statement, one.by_key.clone(), one.epoch.max(handed_out)));
        trust::keep_revocations(&mut txn, &revoked.collect::<Vec<_>>()).await?;
        audit::append_all(&mut txn, &people::verified(&self.name, walked)).await?;
        let checkpoint = Checkpoint {
            commit: commit.clone(),
            epoch: policy.epoch(),
            seq,
            body: body.clone(),
            signature: signature.clone(),
        };
        match trust::put_checkpoint(&mut txn, &self.name, self.trusted.stored, &checkpoint).await {
            Ok(()) => {}
            Err(CheckpointError::Db(error)) => return Err(error.into()),
            Err(error @ CheckpointError::Moved { .. }) => {
                // Somebody else verified meanwhile: what they reached is read again.
                tracing::warn!(source = %self.name, %error, "the verified history is looked at again");
                self.trusted = Trusted::default();
                return Err(ApplyError::Overtaken.into());
            }
        }
        let verified = source.verified.as_ref().map(|at| at.commit.as_str());
        sources::advance(&mut txn, &self.name, Stage::Verified, verified, &commit).await?;
        txn.commit().await?;
        self.keep_beside(&body, &signature);
        (self.trusted.stored, self.trusted.key) = (Some(seq), key);
        self.trusted.reached = Some((reached.clone(), seen.branch.clone(), seq));
        self.trusted.signed = None;
        if !walked.epochs.is_empty() {
            // Whom nobody knew may be somebody now.
            self.trusted.ears.forget();
        }
        Ok(())
    }
}

/// The history is not the one that people confirmed.
fn not_pinned(walked: &Walked, pin: &TrustPin) -> Option<Trouble> {
    let first = walked.epochs.iter().find(|epoch| epoch.epoch == 1);
    if walked.fleet != pin.fleet {
        let reason = format!("the history is that of the fleet {}, and {} is pinned", walked.fleet, pin.fleet);
        return Some(Trouble::new(SourceState::OtherHistory, reason));
    }
    let other = first.filter(|first| first.digest != pin.digest)?;
    let reason = format!("the first trust policy has the digest {}, and {} is pinned", other.digest, pin.digest);
    Some(Trouble::new(SourceState::OtherHistory, reason))
}

fn stuck_words(stuck: &Stuck, stale: bool, seen: &Tip) -> Trouble {
    let tip = short(&seen.tip);
    match stuck {
        Stuck::HistoryDiverged { anchor, .. } if stale => Trouble::new(
            SourceState::StaleSource,
            format!(
                "the remote shows {tip}, which was verified before {}: an old mirror, or a branch that was set back",
                anchor.short()
            ),
        ),
        Stuck::HistoryDiverged { anchor, .. } => Trouble::new(
            SourceState::HistoryDiverged,
            format!(
                "{tip} does not follow {}, which was verified last: the branch was rewritten. Push the old history again, or let people of the reseal rule accept the other one: better-compute trust reseal {} {}",
                anchor.short(),
                anchor,
                seen.tip
            ),
        ),
        Stuck::HistoryIncomplete(_) => Trouble::new(SourceState::HistoryIncomplete, stuck.to_string()),
        Stuck::OtherTrustDomain { .. } | Stuck::NoPolicy | Stuck::NoTrustDomain(_) => {
            Trouble::new(SourceState::OtherHistory, stuck.to_string())
        }
        Stuck::Lacking { .. } => Trouble::new(SourceState::ObjectBroken, stuck.to_string()),
        Stuck::TooLong => Trouble::new(SourceState::Refused, stuck.to_string()),
    }
}
