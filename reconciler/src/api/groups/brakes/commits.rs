//! Commits that people stop by hand: in quarantine, and the way back to a revision.

use schema::{digest::Digest, id::RollbackId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    Txn,
    poke::Poke,
    quarantine,
    rollbacks::{self, NewRollback},
    sources::{self, AdvanceError, Source},
};

use super::said;
use crate::{
    api::{ApiError, Code, groups, table::Mutation},
    source::FLEET,
};

/// A commit to keep from coming into force.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Quarantine {
    /// The whole id of the commit.
    commit: String,
    /// Why.
    reason: String,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
}

/// A commit to let go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Release {
    /// The whole id of the commit.
    commit: String,
}

/// A commit that was put in quarantine or let go.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct CommitAnswer {
    /// The commit.
    commit: String,
}

/// The way back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Rollback {
    /// Where to: `rev_…`, or a commit or its beginning of at least 7 digits.
    revision: String,
    /// Why.
    reason: String,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
    /// The digest of the plan that was shown, for effects that are bound to one.
    plan: Option<String>,
    /// The commit that the plan compared with; CONFLICT when another one is in force by now.
    from: Option<String>,
}

/// A rollback that the source will carry out.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Requested {
    /// Its id.
    id: String,
    /// The revision that it goes back to.
    revision: String,
    /// The commit of that revision.
    commit: String,
    /// The commits that are in quarantine from now on: the one in force, and the tip when it is a newer one.
    quarantined: Vec<String>,
}

pub(in crate::api) async fn quarantine(mutation: Mutation<'_>, input: Quarantine) -> Result<CommitAnswer, ApiError> {
    let Mutation { txn, caller, .. } = mutation;
    let (owner, reason) = said(caller, input.owner, &input.reason)?;
    whole_commit(&input.commit)?;
    lock(txn).await?;
    quarantine::place(txn, FLEET, &input.commit, &owner, &reason, &caller.identity).await?;
    txn.poke(Poke::Source(FLEET.to_owned()));
    Ok(CommitAnswer { commit: input.commit })
}

pub(in crate::api) async fn release(mutation: Mutation<'_>, input: Release) -> Result<CommitAnswer, ApiError> {
    let Mutation { txn, .. } = mutation;
    whole_commit(&input.commit)?;
    lock(txn).await?;
    if !quarantine::lift(txn, FLEET, &input.commit).await? {
        return Err(ApiError::not_found(format!("quarantine of commit {}", input.commit))
            .why("fleet.holds names the commits that are in quarantine"));
    }
    txn.poke(Poke::Source(FLEET.to_owned()));
    Ok(CommitAnswer { commit: input.commit })
}

pub(in crate::api) async fn rollback(mutation: Mutation<'_>, input: Rollback) -> Result<Requested, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let (owner, reason) = said(caller, input.owner, &input.reason)?;
    let plan = input.plan.map(|plan| groups::parse::<Digest>("plan", &plan)).transpose()?;
    let revision = groups::revisions::find(app, &input.revision).await?;
    if revision.tree_digest.is_none() {
        return Err(groups::revisions::without_files(&revision));
    }
    let commit = revision.revision.commit.clone();
    // From here on nothing comes into force until this is stored.
    let source = lock(txn).await?;
    let Some(in_force) = source.applied.as_ref().map(|at| at.commit.clone()) else {
        return Err(ApiError::new(Code::InvalidState, "nothing is in force yet"));
    };
    if input.from.as_ref().is_some_and(|from| *from != in_force) {
        return Err(ApiError::new(Code::Conflict, format!("commit {in_force} is in force by now"))
            .why("look at the plan again: it compared with another commit"));
    }
    if in_force == commit {
        let id = revision.revision.id;
        return Err(ApiError::new(Code::InvalidState, format!("{id} is of the commit in force"))
            .why("go back to an earlier revision; revisions.list names them"));
    }
    if let Some(held) = quarantine::find_in(txn, FLEET, &commit).await? {
        return Err(ApiError::new(Code::InvalidState, format!("commit {commit} is in quarantine"))
            .why(format!("{}: {}; release it first (fleet.release)", held.owner, held.reason)));
    }
    let tip = source.remote.map(|at| at.commit).filter(|tip| *tip != commit && *tip != in_force);
    let quarantined: Vec<String> = [Some(in_force.clone()), tip].into_iter().flatten().collect();
    let mut placed = Vec::new();
    for bad in &quarantined {
        if quarantine::find_in(txn, FLEET, bad).await?.is_none() {
            let why = format!("rolled back: {reason}");
            quarantine::place(txn, FLEET, bad, &owner, &why, &caller.identity).await?;
            placed.push(bad.clone());
        }
    }
    let new = NewRollback {
        id: RollbackId::generate(),
        source: FLEET.to_owned(),
        revision: revision.revision.id,
        from_commit: in_force,
        plan,
        owner,
        reason,
        requested_by: caller.identity.clone(),
        quarantined: placed,
    };
    rollbacks::request(txn, &new).await?;
    Ok(Requested { id: new.id.to_string(), revision: new.revision.to_string(), commit, quarantined })
}

/// The fleet repository's row; an apply waits for it.
async fn lock(txn: &mut Txn) -> Result<Source, ApiError> {
    sources::lock(txn, FLEET).await.map_err(|error| match error {
        AdvanceError::Db(error) => error.into(),
        AdvanceError::Missing(_) | AdvanceError::Moved { .. } => ApiError::not_found("a fleet repository"),
    })
}

fn whole_commit(text: &str) -> Result<(), ApiError> {
    let whole = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if whole { Ok(()) } else { Err(ApiError::field("commit", "it is the whole id of a commit, in lower case")) }
}
