//! What the trust policy says of the tip, once the fleet is pinned: nothing that does not count is planned.
//!
//! The walk goes on from a checkpoint that this control plane signed, so what was verified once is not judged again. A checkpoint that
//! is not there, or that nobody signed, costs a walk from the anchor. It lies in the database and beside the repositories; the
//! later one counts, so that a database that was set back does not set back what was verified.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use gix::ObjectId;
use pki::{
    checkpoint::CheckpointPurpose,
    keys::TrustPin,
    trust::{
        object,
        policy::Policy,
        spoken::{Heard, Spoken, Unheard},
        statement::FleetId,
        walk::{self, Known, Memory, Refusal, Stuck, Verified, Walk, Walked},
    },
};
use schema::{canonical, digest::Digest, fleet::trust::PrincipalKind};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{
    batches,
    leases::Lease,
    sources::{self, Source, Stage},
    trust::{self, Checkpoint, CheckpointError, Epoch, NewStatement},
};

use super::{Pass, PassError};
use crate::{
    apply::ApplyError,
    source::{
        GitError, Repo, SourceState, Trouble,
        fetch::{Look, fetch_words},
        git::chain,
        history::short,
        trust::words::{Place, STATEMENTS, Wanted},
    },
    trust::policies_in,
};

/// How long one walk may take.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(120);
/// Statements about the history; those about batches are kept for whoever judges batches.
const KINDS: [&str; 5] = ["change/v1", "trust/v1", "possess/v1", "revoke/v1", "reseal/v1"];

/// What a checkpoint says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    source: String,
    branch: String,
    anchor: object::ObjectId,
    fleet: FleetId,
    commit: object::ObjectId,
    epoch: u64,
    digest: Digest,
    seq: u64,
    memory: Memory,
}

/// A checkpoint beside the repositories.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    body: String,
    signature: String,
}

/// What a pass remembers of trust.
#[derive(Debug, Clone, Default)]
pub(super) struct Trusted {
    /// How far history was verified, and the number of the checkpoint that says so.
    reached: Option<(Verified, String, u64)>,
    /// The number of the checkpoint in the database.
    stored: Option<u64>,
    /// What an earlier checkpoint says that cannot be gone on from.
    forgotten: Option<Forgotten>,
    /// Commits at places of statements that were looked at.
    seen: BTreeSet<ObjectId>,
    /// The tip and the number of statements that the last walk was about, when it ended well.
    settled: Option<(String, usize)>,
}

impl Trusted {
    /// Whether a commit is the last one that counts.
    pub(super) fn has_reached(&self, commit: &str) -> bool {
        self.reached.as_ref().is_some_and(|(verified, ..)| verified.commit.to_string() == commit)
    }
}

/// What is left of a checkpoint.
#[derive(Debug, Clone)]
struct Forgotten {
    memory: Memory,
    epoch: u64,
    seq: u64,
}

/// A tip, for several threads.
pub(super) struct Tip {
    repo: Mutex<Repo>,
    tip: String,
    branch: String,
    path: String,
}

impl Tip {
    pub(super) fn of(seen: &Look) -> Self {
        let Look { tip, branch, path, .. } = seen;
        Self { repo: Mutex::new(seen.repo.again()), tip: tip.clone(), branch: branch.clone(), path: path.clone() }
    }

    fn repo(&self) -> Repo {
        self.repo.lock().unwrap_or_else(PoisonError::into_inner).again()
    }
}

/// Why a tip does not come into force.
type Judged = Result<(), Trouble>;

impl Pass {
    /// Verifies the tip when the fleet is pinned. What is not verified does not go on.
    pub(super) async fn verify(&mut self, lease: &Lease, source: &Source, seen: &Tip) -> Result<Judged, PassError> {
        let Some(pin) = self.pinned.get() else { return Ok(Ok(())) };
        let domain = self.custody.as_ref().map(|custody| custody.trust_domain().to_owned()).unwrap_or_default();
        if self.trusted.reached.is_none() && self.trusted.forgotten.is_none() {
            self.recall(&pin, &seen.branch, &domain).await?;
        }
        let mut known = policies_in(&self.db, &pin, &domain).await?;
        if let Some(forgotten) = &self.trusted.forgotten {
            known.retain(|epoch, _| *epoch <= forgotten.epoch);
        }
        let heard = match self.hear(lease, seen, &known, (&pin, &domain)).await? {
            Ok(heard) => heard,
            Err(error) => return Ok(Err(error.into())),
        };
        if self.trusted.settled.as_ref().is_some_and(|(tip, count)| *tip == seen.tip && *count == heard.len()) {
            return Ok(Ok(()));
        }
        let walked = match self.walk(seen, (&pin, &domain), known, heard.clone()).await {
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
        self.keep_verified(lease, source, seen, &pin, &walked).await?;
        let Some((judged, refusal)) = walked.refused() else {
            self.trusted.settled = Some((seen.tip.clone(), heard.len()));
            return Ok(Ok(()));
        };
        let state = match refusal {
            Refusal::TrustRemoved => SourceState::TrustRemoved,
            Refusal::OtherTrustDomain { .. } | Refusal::NotPinned { .. } => SourceState::OtherHistory,
            _ => SourceState::UnverifiedCommit,
        };
        let reason = format!(
            "commit {} does not count: {refusal} ({}); `better-compute verify --dry-run` shows it and what is missing",
            judged.id.short(),
            refusal.code()
        );
        let detail = json!({
            "commit": judged.id,
            "subject": judged.subject,
            "code": refusal.code(),
            "why": refusal.to_string(),
            "signedBy": judged.signer.as_ref().map(|signer| signer.principal.as_str()),
            "epoch": judged.epoch,
        });
        Ok(Err(Trouble { detail: Some(detail), ..Trouble::new(state, reason) }))
    }

    fn file(&self) -> PathBuf {
        self.data.join(format!("{}.verified", self.name))
    }

    /// Reads how far history was verified, out of the database and beside the repositories.
    async fn recall(&mut self, pin: &TrustPin, branch: &str, domain: &str) -> Result<(), PassError> {
        let Some(custody) = self.custody.clone() else { return Ok(()) };
        let stored = trust::checkpoint(&self.db, &self.name).await?;
        self.trusted.stored = stored.as_ref().map(|stored| stored.seq);
        let file = std::fs::read(self.file()).ok().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
        let file = file.and_then(|kept| Some((hex::decode(kept.body).ok()?, hex::decode(kept.signature).ok()?)));
        let database = stored.map(|stored| (stored.body, stored.signature));
        let signer = custody.signer();
        let verifier = signer.verifier();
        let read = |(bytes, signature): (Vec<u8>, Vec<u8>)| {
            if let Err(error) = verifier.verify(CheckpointPurpose::VerifiedCheckpoint, &bytes, &signature) {
                tracing::error!(source = %self.name, %error, "a checkpoint of the verified history is not believed");
                return None;
            }
            let body: Body = serde_json::from_slice(&bytes).ok()?;
            let ours = body.source == self.name && (body.anchor, body.fleet) == (pin.commit, pin.fleet);
            ours.then_some(body)
        };
        let best = [file, database].into_iter().flatten().filter_map(read).max_by_key(|body| body.seq);
        let Some(body) = best else { return Ok(()) };
        let mut policies = policies_in(&self.db, pin, domain).await?;
        policies.retain(|epoch, _| *epoch <= body.epoch);
        let same = policies.get(&body.epoch).is_some_and(|policy| policy.digest() == body.digest);
        let Body { fleet, commit, epoch, seq, memory, .. } = body;
        if same && body.branch == branch {
            let reached = Verified { trust_domain: domain.to_owned(), fleet, commit, policies, memory };
            self.trusted.reached = Some((reached, branch.to_owned(), seq));
        } else {
            tracing::warn!(source = %self.name, "the history is verified from its anchor again");
            self.trusted.forgotten = Some(Forgotten { memory, epoch, seq });
        }
        Ok(())
    }

    /// What people said: what was pushed is stored when a policy knows who signed it, and everything that is stored is heard.
    async fn hear(
        &mut self,
        lease: &Lease,
        seen: &Tip,
        known: &BTreeMap<u64, Policy>,
        (pin, domain): (&TrustPin, &str),
    ) -> Result<Result<Vec<Heard>, GitError>, PassError> {
        let people = |policy: &Policy| -> Vec<String> {
            let humans = policy.principals().iter().filter(|(_, held)| held.kind == PrincipalKind::Human);
            humans.map(|(name, _)| name.to_string()).collect()
        };
        let open = batches::open_names(&self.db).await?;
        let (repo, config, access) = (seen.repo(), self.config.clone(), self.access.clone());
        let (tip, path, looked) = (seen.tip.clone(), seen.path.clone(), self.trusted.seen.clone());
        let mut principals: BTreeSet<String> = known.values().flat_map(people).collect();
        let work = move |stop: &std::sync::atomic::AtomicBool| {
            // Whoever the policy at the tip lists may prove a key or agree to it, before it is in force.
            let held = repo.policy_at(&tip, &path)?;
            principals.extend(held.as_ref().map(people).into_iter().flatten());
            let batches = Some(open.into_iter().collect());
            let wanted = Wanted { principals: Some(principals), batches, about_batches: true };
            if let Err(error) = fetch_words(&repo, &config, &access, &wanted, &looked, stop) {
                tracing::warn!(%error, "what people said could not be fetched");
            }
            let places = wanted.of(repo.places(STATEMENTS)?);
            let fresh = places.into_iter().filter(|place| !looked.contains(&place.id));
            let said: Vec<(Place, Option<Vec<u8>>)> = fresh
                .map(|place| {
                    let raw = repo.word(place.id);
                    (place, raw)
                })
                .collect();
            Ok((said, held))
        };
        let (said, held) = match self.blocking(DEADLINE, work).await {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let (mut new, mut loose) = (Vec::new(), Vec::new());
        for (place, raw) in said {
            let Some(raw) = raw else { continue };
            let policies = known.values().rev().chain(&held);
            match Spoken::hear(&raw, domain, pin.fleet, policies) {
                Ok(spoken) => {
                    self.trusted.seen.insert(place.id);
                    let statement = &spoken.statement;
                    new.push(NewStatement {
                        digest: statement.digest(),
                        kind: statement.body.kind().to_owned(),
                        subject: statement.body.subject(),
                        principal: spoken.principal.to_string(),
                        commit: spoken.commit.to_string(),
                        raw,
                    });
                }
                // Whoever agrees to a policy may be known by it only, and the one at the tip may not be the one.
                Err(Unheard::Signature(_)) if place.is_of_trust() => loose.push(Heard::from(raw)),
                Err(_) => drop(self.trusted.seen.insert(place.id)),
            }
        }
        if !new.is_empty() {
            let mut txn = self.begin(lease).await?;
            let fresh = trust::put_statements(&mut txn, &new).await?;
            for statement in new.iter().filter(|statement| fresh.contains(&statement.digest)) {
                let about = statement.kind.split('/').next().unwrap_or_default();
                if ["approve", "reject", "withdraw", "breakglass"].contains(&about) {
                    let subject = if about == "breakglass" { about } else { statement.subject.as_str() };
                    batches::heard(&mut txn, subject).await?;
                }
            }
            txn.commit().await?;
        }
        let stored = trust::statements_of(&self.db, &KINDS, None).await?;
        let stored = stored.into_iter().map(|one| Heard { raw: one.raw, first_seen: Some(one.first_seen_at) });
        Ok(Ok(stored.chain(loose).collect()))
    }

    /// Walks from what was verified to the tip. Beside a history that diverged stands whether its tip was verified before.
    async fn walk(
        &self,
        seen: &Tip,
        (pin, domain): (&TrustPin, &str),
        policies: BTreeMap<u64, Policy>,
        heard: Vec<Heard>,
    ) -> Result<Result<Walked, (Stuck, bool)>, GitError> {
        let (repo, tip, path, branch) = (seen.repo(), seen.tip.clone(), seen.path.clone(), seen.branch.clone());
        let after =
            self.trusted.reached.as_ref().filter(|(_, of, _)| *of == branch).map(|(reached, ..)| reached.clone());
        let (pin, now) = (*pin, self.db.now().await.ok());
        let domain = domain.to_owned();
        let memory = self.trusted.forgotten.as_ref().map(|forgotten| forgotten.memory.clone());
        self.blocking(DEADLINE, move |stop| {
            let deadline = Instant::now().checked_add(DEADLINE).unwrap_or_else(Instant::now);
            let history = repo.trust_history(&path).until(stop, deadline);
            let tip: object::ObjectId =
                tip.parse().map_err(|_| GitError::Broken { id: tip.clone(), what: "is no name".to_owned() })?;
            let known = Known { trust_domain: domain, fleet: pin.fleet, policies, memory };
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
            match walk::walk(&history, &walk)? {
                Ok(walked) => Ok(Ok(walked)),
                Err(stuck) => {
                    let stale = match (&stuck, &after) {
                        (Stuck::HistoryDiverged { .. }, Some(after)) => {
                            repo.follows(&after.commit.to_string(), &tip.to_string())
                        }
                        _ => false,
                    };
                    Ok(Err((stuck, stale)))
                }
            }
        })
        .await
    }

    /// Stores how far history was verified, and the policies that came into force.
    async fn keep_verified(
        &mut self,
        lease: &Lease,
        source: &Source,
        seen: &Tip,
        pin: &TrustPin,
        walked: &Walked,
    ) -> Result<(), PassError> {
        let (Some(reached), Some(custody)) = (&walked.reached, self.custody.clone()) else { return Ok(()) };
        let before = self.trusted.reached.as_ref().filter(|(_, of, _)| *of == seen.branch);
        let same = before.is_some_and(|(before, ..)| before == reached) && walked.epochs.is_empty();
        let commit = reached.commit.to_string();
        if same && source.verified.as_ref().is_some_and(|at| at.commit == commit) {
            return Ok(());
        }
        let Some(policy) = reached.policy() else { return Ok(()) };
        let last = [
            self.trusted.stored,
            before.map(|(.., seq)| *seq),
            self.trusted.forgotten.as_ref().map(|forgotten| forgotten.seq),
        ];
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
        let body = canonical::to_vec(&body).expect("a checkpoint serialises");
        let signature = custody.signer().sign(CheckpointPurpose::VerifiedCheckpoint, &body);
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
        let kept = Kept { body: hex::encode(&body), signature: hex::encode(&signature) };
        let text = serde_json::to_vec(&kept).expect("a checkpoint serialises");
        let beside = self.file().with_extension("verified.new");
        let written = std::fs::create_dir_all(&self.data)
            .and_then(|()| std::fs::write(&beside, text))
            .and_then(|()| std::fs::rename(&beside, self.file()));
        if let Err(error) = written {
            tracing::warn!(error = %chain(&error), "the checkpoint is kept in the database only");
        }
        self.trusted.stored = Some(seq);
        self.trusted.reached = Some((reached.clone(), seen.branch.clone(), seq));
        self.trusted.forgotten = None;
        if !walked.epochs.is_empty() {
            // Whom nobody knew may be somebody now.
            self.trusted.seen.clear();
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
        Stuck::TooLong => Trouble::new(SourceState::Refused, stuck.to_string()),
    }
}
