//! What people said: found beside the branch, looked at once, and stored when a policy knows who signed it.
//!
//! What counts as looked at is remembered once it is stored, so what could not be stored is heard by the next pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use gix::ObjectId;
use pki::{
    keys::TrustPin,
    trust::{
        commit::Commit,
        object,
        policy::{KeyState, Policy, Principal},
        spoken::{Heard, Spoken, Unheard},
        statement::{Body as Word, FleetId, Statement},
    },
};
use schema::fleet::trust::PrincipalKind;
use store::{
    audit, batches,
    leases::Lease,
    trust::{self, NewStatement},
};

use super::{Pass, PassError, overlooked::Deafness, verify::Tip};
use crate::{
    audit::people,
    source::{
        GitError, Repo,
        config::Place as Where,
        fetch::{Aside, Beside, Bringing},
        git::chain,
        history::parse,
        trust::{
            Deaf,
            words::{Place, Wanted},
        },
    },
};

/// How long looking at what people said may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// How long words are fetched, and proposals behind them: neither keeps the other out.
const FETCHING: Duration = Duration::from_secs(45);
/// How long reading the policies on the way to the tip may take.
const READING: Duration = Duration::from_secs(30);
/// Statements that are stored at once.
const ENOUGH: usize = 2_000;
/// Statements about the history; those about batches are kept for whoever judges batches.
const KINDS: [&str; 5] = ["change/v1", "trust/v1", "possess/v1", "revoke/v1", "reseal/v1"];

/// What a pass remembers of what people said.
#[derive(Debug, Clone, Default)]
pub(super) struct Ears {
    /// Commits that say nothing that is stored.
    seen: BTreeSet<ObjectId>,
    /// Commits that are stored, as far as nobody deleted them.
    kept: BTreeSet<ObjectId>,
    /// Commits that agree to a policy, or prove a key of it, by a key that no policy lists so far.
    strangers: BTreeSet<ObjectId>,
    /// Commits that could not be fetched.
    aside: Aside,
    /// What nobody hears, whoever signed it.
    pub(super) deaf: Deafness,
    /// The policies on the way from the last commit that counts to the tip.
    coming: Coming,
}

#[derive(Debug, Clone, Default)]
struct Coming {
    way: Option<(String, Option<object::ObjectId>)>,
    policies: Vec<Policy>,
}

impl Ears {
    /// Whom nobody knew may be somebody under another policy.
    pub(super) fn forget(&mut self) {
        self.seen.clear();
        self.strangers.clear();
    }

    /// Reads the policies on the way to a tip. Whoever a policy lists that was not asked before is a stranger no longer.
    fn turn_to(&mut self, repo: &Repo, way: (String, Option<object::ObjectId>), folder: &str, stop: &AtomicBool) {
        if self.coming.way.as_ref() == Some(&way) {
            return;
        }
        let deadline = Instant::now().checked_add(READING).unwrap_or_else(Instant::now);
        let history = repo.trust_history(folder).until(stop, deadline);
        let policies = way.0.parse().map(|tip| history.coming(tip, way.1)).unwrap_or_default();
        let asked = |policy: &Policy| self.coming.policies.iter().any(|asked| asked.digest() == policy.digest());
        if !policies.iter().all(asked) {
            self.strangers.clear();
        }
        self.coming = Coming { way: Some(way), policies };
    }

    fn leave_out(&self, id: &ObjectId, now: Instant) -> bool {
        self.seen.contains(id) || self.kept.contains(id) || self.strangers.contains(id) || self.aside.holds(id, now)
    }

    /// Remembers only what is still there.
    fn retain(&mut self, there: &BTreeSet<ObjectId>) {
        self.seen.retain(|id| there.contains(id));
        self.kept.retain(|id| there.contains(id));
        self.strangers.retain(|id| there.contains(id));
        self.aside.retain(there);
        self.deaf.retain(there);
    }
}

impl Pass {
    /// What people said: what was pushed is stored when a policy knows who signed it, and everything that is stored is heard.
    pub(super) async fn hear(
        &mut self,
        lease: &Lease,
        seen: &Tip,
        known: &BTreeMap<u64, Policy>,
        (pin, domain): (&TrustPin, &str),
    ) -> Result<Result<Vec<Heard>, GitError>, PassError> {
        match self.look_beside(seen, known, pin).await? {
            Ok(Some(beside)) => match self.listen(seen, beside, known, (pin, domain)).await {
                Ok((said, heard)) => {
                    self.store(lease, said).await?;
                    let kept = self.kept(&heard).await?;
                    self.trusted.ears.seen.extend(heard.into_iter().filter(|id| !kept.contains(id)));
                    self.trusted.ears.kept.extend(kept);
                    self.tell_overlooked(lease).await?;
                }
                Err(error) => return Ok(Err(error)),
            },
            Ok(None) => {}
            Err(error) => return Ok(Err(error)),
        }
        let stored = trust::statements_of(&self.db, &KINDS, None).await?;
        let stored = stored.into_iter().map(|one| Heard { raw: one.raw, first_seen: Some(one.first_seen_at) });
        Ok(Ok(stored.collect()))
    }

    /// Finds what is beside the branch and not looked at yet; `None` when the remote does not say.
    async fn look_beside(
        &mut self,
        seen: &Tip,
        known: &BTreeMap<u64, Policy>,
        pin: &TrustPin,
    ) -> Result<Result<Option<Beside>, GitError>, PassError> {
        // What somebody deleted is heard again.
        self.trusted.ears.kept = self.kept(&self.trusted.ears.kept).await?;
        let open = batches::open_names(&self.db).await?.into_iter().collect();
        let verified = (!known.is_empty()).then(|| self.trusted.commit().unwrap_or(pin.commit));
        let (repo, config, access) = (seen.repo(), self.config.clone(), self.access.clone());
        let (way, path, mut ears) = ((seen.tip.clone(), verified), seen.path.clone(), self.trusted.ears.clone());
        let known: Vec<Policy> = known.values().cloned().collect();
        let work = move |stop: &AtomicBool| {
            ears.turn_to(&repo, way, &path, stop);
            let mut beside = match Beside::list(&repo, &config, &access) {
                Ok(beside) => beside,
                Err(error) if matches!(config.place, Where::Remote(_)) => {
                    tracing::warn!(error = %chain(&error), "what people said could not be asked for");
                    return Ok((ears, None));
                }
                Err(error) => return Err(error),
            };
            ears.retain(&beside.ids());
            ears.deaf.misplaced(&beside.words);
            let wanted = wanted(known.iter().chain(&ears.coming.policies), open);
            let now = Instant::now();
            beside.words = wanted.of(beside.words, |id| ears.leave_out(id, now));
            Ok((ears, Some(beside)))
        };
        let mut beside = match self.blocking(DEADLINE, work).await {
            Ok((ears, beside)) => {
                self.trusted.ears = ears;
                beside
            }
            Err(error) => return Ok(Err(error)),
        };
        if let Some(Beside { words, .. }) = &mut beside {
            // What is stored was heard by whoever looked before this process.
            let stored = self.kept(words.iter().map(|word| &word.id)).await?;
            words.retain(|word| !stored.contains(&word.id));
            self.trusted.ears.kept.extend(stored);
        }
        Ok(Ok(beside))
    }

    /// Which of these commits are stored.
    async fn kept<'i>(&self, ids: impl IntoIterator<Item = &'i ObjectId>) -> Result<BTreeSet<ObjectId>, PassError> {
        let commits: Vec<String> = ids.into_iter().map(ObjectId::to_string).collect();
        if commits.is_empty() {
            return Ok(BTreeSet::new());
        }
        let stored = trust::carried(&self.db, &commits).await?;
        Ok(stored.iter().filter_map(|id| parse(id).ok()).collect())
    }

    /// Reads what was found. Answers what is to be stored, and the commits that were looked at once it is.
    async fn listen(
        &mut self,
        seen: &Tip,
        beside: Beside,
        known: &BTreeMap<u64, Policy>,
        (pin, domain): (&TrustPin, &str),
    ) -> Result<(Vec<NewStatement>, Vec<ObjectId>), GitError> {
        let (repo, config, access) = (seen.repo(), self.config.clone(), self.access.clone());
        let (known, mut ears) = (known.clone(), self.trusted.ears.clone());
        let (fleet, domain) = (pin.fleet, domain.to_owned());
        let work = move |stop: &AtomicBool| {
            let bringing = || {
                let until = Instant::now().checked_add(FETCHING).unwrap_or_else(Instant::now);
                Bringing { config: &config, access: &access, stop, until }
            };
            let (mut said, mut heard) = (Vec::new(), Vec::new());
            let Ears { seen, strangers, aside, coming, deaf, .. } = &mut ears;
            let each = |place: Place, raw: Result<Result<Vec<u8>, Deaf>, GitError>| {
                let word = match raw {
                    Ok(Ok(raw)) => find(raw, &domain, fleet, &known, &coming.policies),
                    Ok(Err(why)) => {
                        deaf.put(&place, why);
                        Found::Nothing
                    }
                    // What is missing may come.
                    Err(_) => return true,
                };
                match word {
                    Found::Statement(statement) => {
                        said.push(statement);
                        heard.push(place.id);
                    }
                    Found::Stranger => drop(strangers.insert(place.id)),
                    Found::Nothing => drop(seen.insert(place.id)),
                }
                said.len() < ENOUGH
            };
            if let Err(error) = bringing().words(&repo, beside.words, aside, each) {
                tracing::warn!(error = %chain(&error), "what people said could not be fetched");
            }
            bringing().proposals(&repo, beside.proposals, aside);
            Ok((ears, said, heard))
        };
        let (ears, said, heard) = self.blocking(DEADLINE, work).await?;
        self.trusted.ears = ears;
        Ok((said, heard))
    }

    async fn store(&self, lease: &Lease, said: Vec<NewStatement>) -> Result<(), PassError> {
        if said.is_empty() {
            return Ok(());
        }
        let mut txn = self.begin(lease).await?;
        let put = trust::put_statements(&mut txn, &said).await?;
        for statement in put.too_many {
            let NewStatement { kind, subject, principal, key, commit, .. } = statement;
            tracing::warn!(kind, subject, principal, key, commit, "one key says too much about one thing: not stored");
        }
        audit::append_all(&mut txn, &put.fresh.iter().copied().map(people::said).collect::<Vec<_>>()).await?;
        for statement in put.fresh {
            let about = statement.kind.split('/').next().unwrap_or_default();
            if ["approve", "reject", "withdraw", "breakglass"].contains(&about) {
                let subject = if about == "breakglass" { about } else { statement.subject.as_str() };
                batches::heard(&mut txn, subject).await?;
            }
        }
        txn.commit().await?;
        Ok(())
    }
}

/// Whom to listen to, and about what: people, and who else has a key to prove.
fn wanted<'p>(policies: impl Iterator<Item = &'p Policy>, open: BTreeSet<String>) -> Wanted {
    let (mut people, mut holders) = (BTreeSet::new(), BTreeSet::new());
    for (name, held) in policies.flat_map(Policy::principals) {
        let names = if held.kind == PrincipalKind::Human { &mut people } else { &mut holders };
        names.insert(name.to_string());
    }
    Wanted { principals: Some(people), holders, batches: Some(open), about_batches: true }
}

/// What a commit beside the branch turned out to be.
enum Found {
    Statement(NewStatement),
    /// It agrees to a policy, or proves a key, and nobody that is known signed it.
    Stranger,
    /// Nothing that any policy asks for.
    Nothing,
}

fn find(raw: Vec<u8>, domain: &str, fleet: FleetId, known: &BTreeMap<u64, Policy>, coming: &[Policy]) -> Found {
    match Spoken::hear(&raw, domain, fleet, known.values().rev().chain(coming)) {
        Ok(spoken) if is_kept(&spoken, known) => Found::Statement(NewStatement {
            digest: spoken.statement.digest(),
            key: spoken.key.name(),
            kind: spoken.statement.body.kind().to_owned(),
            subject: spoken.statement.body.subject(),
            principal: spoken.principal.to_string(),
            commit: spoken.commit.to_string(),
            raw,
        }),
        // Whoever agrees to a policy may be known by one only that is not on the branch yet.
        Err(Unheard::Signature(_)) if is_about_trust(&raw) => Found::Stranger,
        Ok(_) | Err(_) => Found::Nothing,
    }
}

fn is_about_trust(raw: &[u8]) -> bool {
    let format = object::ObjectFormat::of_commit(raw).unwrap_or(object::ObjectFormat::Sha1);
    let statement = Commit::split(format, raw).ok().and_then(|commit| Statement::parse(&commit).ok());
    statement.is_some_and(|statement| matches!(statement.body, Word::Trust(_) | Word::Possess(_)))
}

/// Whether what somebody said is kept. Whom only a policy on the way lists agrees to it and proves a key, and says nothing else before
/// it is in force; and a key is revoked by one that still counts.
fn is_kept(spoken: &Spoken, known: &BTreeMap<u64, Policy>) -> bool {
    let Some(newest) = known.values().next_back() else { return true };
    match spoken.statement.body {
        Word::Trust(_) | Word::Possess(_) => true,
        Word::Revoke { .. } => {
            let human = |(_, held): (_, &Principal)| held.kind == PrincipalKind::Human;
            newest.state(&spoken.key) == KeyState::Good && newest.holder(&spoken.key).is_some_and(human)
        }
        _ => known.values().any(|policy| policy.holder(&spoken.key).is_some()),
    }
}
