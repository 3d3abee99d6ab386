//! Proposals that callers of the API asked for: each becomes one commit that this control plane signs as a service, at a place of its
//! own beside the branch. There it is found as everybody's are ([`super::batches`]).
//!
//! What was pushed is remembered nowhere but at that place. So a crash in between costs nothing, and of two processes that push at
//! once one is first.

use std::{sync::Arc, time::Duration};

use pki::trust::{object::ObjectId, service::Unsigned};
use store::{
    batches::{
        self, BatchState,
        proposals::{self, AskedFor},
    },
    leases::Lease,
};

use super::{Pass, PassError, batches::At};
use crate::{
    batch::{
        proposal::{self, Hindered, Hindrance},
        resolve::Trust,
        standing,
    },
    custody::SourceCustody,
    source::{GitError, Place, history::parse, propose::push, trust::words::PROPOSALS},
};

/// Proposals that are made in one pass.
const MOST: u32 = 64;
/// How long writing one commit may take.
const DEADLINE: Duration = Duration::from_secs(60);

impl Pass {
    /// Makes the proposals that have no commit yet, and takes in those that came of it.
    pub(super) async fn propose(&mut self, lease: &Lease, at: At) -> Result<(), PassError> {
        let Some(custody) = self.custody.clone().filter(|_| self.pinned.get().is_some()) else { return Ok(()) };
        let asked = proposals::asked(&self.db, MOST).await?;
        if asked.is_empty() {
            return Ok(());
        }
        let trust = standing::trust(&self.db, &self.pinned, custody.trust_domain()).await?;
        let Some(trust) = trust else { return Ok(()) };
        let mut came = false;
        for one in asked {
            match self.propose_one(&custody, &trust, at.again(), &one).await {
                Ok(commit) => {
                    tracing::info!(batch = %one.name, commit, by = one.by, "a batch is proposed");
                    came = true;
                }
                Err(hindered) => self.hindered(lease, &one, &hindered).await?,
            }
        }
        if came { self.proposals(lease, at).await } else { Ok(()) }
    }

    async fn propose_one(
        &self,
        custody: &Arc<SourceCustody>,
        trust: &Trust,
        at: At,
        one: &AskedFor,
    ) -> Result<String, Hindered> {
        let path = proposal::path(&one.name);
        let keys = custody.service();
        let (key, principal) = proposal::speaker(&keys, trust, &path)?;
        if !keys.seal(custody.realm()).is_some_and(|seal| seal.is_tag(&one.words(), &one.mark)) {
            let why = "no process of this control plane asked for it: take it back and ask again; if nobody here rotated the service key, somebody wrote into the database";
            return Err(Hindered::new(Hindrance::Unproven, why));
        }
        let place = format!("{PROPOSALS}{}", one.name);
        let by = format!("{principal} <{principal}@{}>", custody.trust_domain());
        let message = format!("batch/{}: {}\n\nAsked for over the API by {}.\n", one.name, one.why, one.by);
        let local = matches!(self.config.place, Place::Local(_));
        let (repo, tip) = (at.repo.again(), at.tip.clone());
        let file = [at.path.trim_matches('/'), &path]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("/");
        let (text, asked_at) = (one.text.clone(), one.at);
        let (to, who) = (place.clone(), by.clone());
        let written = self.blocking(DEADLINE, move |_| {
            let write = || -> Result<String, Hindered> {
                let odd = |error: GitError| Hindered::new(Hindrance::Unreachable, error.to_string());
                if let Some(other) = repo.at_place(&to) {
                    let why = format!("{other} lies at {to} already, and is not this proposal: better-compute why batch/NAME says what it is. Delete that branch, or take the batch back and ask for it under another name");
                    return Err(Hindered::new(Hindrance::Taken, why));
                }
                let before = repo.commit(parse(&tip).map_err(odd)?).map_err(odd)?;
                let tree = repo.tree_with(parse(&before.tree).map_err(odd)?, &file, &text)?;
                let id = |text: String| text.parse::<ObjectId>().map_err(|error| Hindered::new(Hindrance::Unreachable, error.to_string()));
                let unsigned = Unsigned { tree: id(tree.to_string())?, parent: id(tip.clone())?, by: &who, at: asked_at, message: &message };
                let raw = key.commit(&unsigned).map_err(|error| Hindered::new(Hindrance::Refused, error.to_string()))?;
                let commit = repo.keep(&raw)?;
                if local {
                    repo.place(&to, commit, &who)?;
                }
                Ok(commit.to_string())
            };
            Ok(write())
        });
        let commit = written.await.map_err(|error| Hindered::new(Hindrance::Unreachable, error.to_string()))??;
        if let Place::Remote(url) = &self.config.place {
            let own = at.repo.dir();
            push(&own, url, &self.access, &commit, &place).await?;
            let (repo, made) = (at.repo.again(), commit.clone());
            let kept = self.blocking(DEADLINE, move |_| Ok(repo.place(&place, parse(&made)?, &by))).await;
            // Whatever hinders it here: the next fetch brings it.
            if let Ok(Err(error)) = kept {
                tracing::debug!(%error, "a proposal that was pushed is not at its place here yet");
            }
        }
        Ok(commit)
    }

    /// Stores why a proposal has no commit yet.
    async fn hindered(&self, lease: &Lease, one: &AskedFor, hindered: &Hindered) -> Result<(), PassError> {
        let code = hindered.by.code();
        let why = hindered.why.replace("NAME", one.name.as_str());
        if one.said.as_ref().is_some_and(|(said, before)| said == code && *before == why) {
            return Ok(());
        }
        tracing::warn!(batch = %one.name, code, why, "a batch that was asked for is not proposed yet");
        let mut txn = self.begin(lease).await?;
        let found = batches::find_for_update(&mut txn, one.name.as_str()).await?;
        if let Some(batch) = found.filter(batches::Batch::waits_for_commit) {
            batches::move_to(&mut txn, &batch, BatchState::Proposed, Some(code), Some(&why), "source").await?;
            batches::wake(&mut txn, [&one.name]).await?;
        }
        txn.commit().await?;
        Ok(())
    }
}
