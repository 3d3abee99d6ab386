//! `plans.preview`: what would happen if these files were the fleet, without any of it happening.
//!
//! A preview reads what it is given and the database, and writes the plan that it shows, nothing else. Limits, binding and
//! brakes by hand are those in force, so that the files cannot lift them. The work runs on a blocking thread, few at a
//! time, under the bounds that every tree is read under, and ends when nobody waits for it any more.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use schema::{
    diagnostic,
    fleet::{Cache, Limits, Sources, Stop},
    id::PlanId,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{control_plane, plans, revision_files, revisions};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::super::revisions::find as find_revision;
use crate::{
    api::{ApiError, App, Code, auth::Caller},
    apply,
    custody::{self, Manifest},
    plan::{Observed, Plan, Verification, plan},
    source::FLEET,
};

/// How many previews are computed at once. A place is given back when the work ends, also when nobody waits for it.
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(2)));
/// What was read for the last preview of a fleet: the next one costs what it changes.
static READ: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);
/// How many paths a preview may name.
const MAX_PATHS: usize = 200_000;
/// The longest path.
const MAX_PATH: usize = 4_096;
/// What a plan of files says that came without commits.
const NO_COMMITS: &str = "unverified: the files came without commits, so that nobody's signature was looked at; better-compute verify --dry-run does";
/// How many diagnostics are answered.
const MAX_DIAGNOSTICS: usize = 500;

/// The files to plan: those of a commit or revision that was in force, those and what changes in them, or a whole tree.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Preview {
    /// A commit that was in force: its files.
    commit: Option<String>,
    /// A revision that was in force, `rev_…`: its files, as a rollback would bring them.
    revision: Option<String>,
    /// The commit whose files `changed` and `removed` change; without it `changed` is the whole tree.
    base: Option<String>,
    /// Files that are new or have other bytes, by their path below the fleet's root.
    #[serde(default)]
    changed: Vec<Changed>,
    /// Paths that go.
    #[serde(default)]
    removed: Vec<String>,
}

/// A file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Changed {
    /// Its path below the fleet's root.
    path: String,
    /// Its text.
    text: Option<String>,
    /// Its bytes, when they are no text.
    base64: Option<String>,
}

/// What would happen.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Previewed {
    /// The files are a fleet, and it was planned.
    valid: bool,
    /// The commit that was asked for and whose files are not here: send what changes against the one in force, or the whole
    /// tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    /// The commit in force; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force: Option<String>,
    /// What is wrong with the files, as `check --format json` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnostics: Option<Value>,
    /// Why the whole of it would be refused although the files are a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// The stored plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The digest of what it was made of: `bc-plan: DIGEST` as a trailer of the commit says that this was shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// The commit that it starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    /// Everything it would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Value>,
}

pub(in crate::api) async fn preview(app: &App, caller: &Caller, input: Preview) -> Result<Previewed, ApiError> {
    let named = [input.commit.is_some(), input.revision.is_some(), input.base.is_some()];
    let edits = !(input.changed.is_empty() && input.removed.is_empty());
    if named.iter().filter(|named| **named).count() > 1 {
        return Err(ApiError::field("base", "name one of commit, revision and base"));
    }
    if edits && (input.commit.is_some() || input.revision.is_some()) {
        return Err(ApiError::field("changed", "files change a base; a commit or a revision is planned as it is"));
    }
    if input.base.is_none() && !input.removed.is_empty() {
        return Err(ApiError::field("removed", "paths are removed from a base; name it"));
    }
    if input.changed.len() + input.removed.len() > MAX_PATHS {
        return Err(ApiError::field("changed", format!("a preview names at most {MAX_PATHS} paths")));
    }
    let place = Arc::clone(&PLACES).acquire_owned().await.expect("the semaphore is never closed");
    let mut observed = apply::observe(&app.db, FLEET).await?;
    let in_force = observed.commit.clone();
    let (base, commit, verification) = match base(app, &input).await? {
        // What changes a commit's files is no commit.
        Base::Known { files, .. } if input.base.is_some() => (files, None, Verification::Unverified),
        Base::Known { files, commit, verification } => (files, commit, verification),
        Base::Unknown(unknown) => return Ok(Previewed { unknown, in_force, ..Previewed::default() }),
    };
    if let Some(revision) = &input.revision {
        let to = find_revision(app, revision).await?;
        observed.back = apply::renamed_since(&app.db, FLEET, to.seq).await?;
    }
    let trust_domain = control_plane::find(&app.db).await?.and_then(|row| row.trust_domain);
    let now = app.db.now().await?;
    let uploaded = commit.is_none() && input.revision.is_none();
    let sources = edited(base, input)?;
    let made = compute(place, sources, observed, now, commit.clone()).await?;
    let shown = match made {
        Made::Plan { mut plan, trust_domain: wanted } => {
            plan.verification = verification;
            plan.signatures = uploaded.then(|| NO_COMMITS.to_owned());
            let refused = trust_domain.filter(|stored| *stored != wanted).map(|stored| {
                format!("the fleet says trust-domain {wanted:?}, and its certificates were issued for {stored:?}")
            });
            show(app, caller, *plan, commit, refused).await?
        }
        Made::Invalid(diagnostics) => Previewed { diagnostics: Some(diagnostics), ..Previewed::default() },
    };
    Ok(Previewed { in_force, ..shown })
}

/// Stores the plan as shown.
async fn show(
    app: &App,
    caller: &Caller,
    plan: Plan,
    commit: Option<String>,
    refused: Option<String>,
) -> Result<Previewed, ApiError> {
    let new = plans::NewPlan {
        id: PlanId::generate(),
        source: FLEET.to_owned(),
        commit,
        base_commit: plan.base.clone(),
        digest: plan.digest(),
        doc: String::from_utf8(plan.to_bytes()).map_err(ApiError::internal)?,
    };
    let mut txn = app.db.begin().await?;
    let id = plans::show(&mut txn, &new, &caller.identity).await?;
    txn.commit().await?;
    Ok(Previewed {
        valid: true,
        refused,
        id: Some(id.to_string()),
        digest: Some(new.digest.to_string()),
        base: new.base_commit,
        document: Some(serde_json::from_str(&new.doc).map_err(ApiError::internal)?),
        ..Previewed::default()
    })
}

/// What the files start from.
enum Base {
    Known {
        files: Sources,
        /// The commit whose files they are.
        commit: Option<String>,
        /// Whether people's signatures vouch for that.
        verification: Verification,
    },
    Unknown(Option<String>),
}

async fn base(app: &App, input: &Preview) -> Result<Base, ApiError> {
    let revision = if let Some(id) = &input.revision {
        let revision = find_revision(app, id).await?;
        let kept = revision.tree_digest.is_some();
        kept.then_some(()).ok_or_else(|| super::super::revisions::without_files(&revision))?;
        revision
    } else if let Some(commit) = input.commit.as_ref().or(input.base.as_ref()) {
        let found = revisions::find_by_commit(&app.db, FLEET, commit).await?;
        match found.into_iter().find(|revision| revision.revision.commit == *commit && revision.tree_digest.is_some()) {
            Some(revision) => revision,
            None => return Ok(Base::Unknown(Some(commit.clone()))),
        }
    } else if input.changed.is_empty() {
        return Ok(Base::Unknown(None));
    } else {
        let files = Sources::default();
        return Ok(Base::Known { files, commit: None, verification: Verification::Unverified });
    };
    let Some(files) = revision_files::read(&app.db, revision.revision.id).await? else {
        return Ok(Base::Unknown(None));
    };
    let verification = verification(app, &revision.revision).await?;
    Ok(Base::Known { files, commit: Some(revision.revision.commit), verification })
}

/// Whether people's signatures vouch for what was in force: its manifest says so, which this control plane signed.
async fn verification(app: &App, revision: &revisions::NewRevision) -> Result<Verification, ApiError> {
    let (Some(pin), Some(auditor)) = (app.pinned.get(), &app.auditor) else { return Ok(Verification::Unverified) };
    let manifest = custody::proven(&app.db, &auditor.custody.manifests(), revision.id).await?;
    let vouched =
        |manifest: Manifest| manifest.commit == revision.commit && manifest.is_verified_from(&pin.commit.to_string());
    Ok(if manifest.is_some_and(vouched) { Verification::Verified } else { Verification::Unverified })
}

/// What became of the files.
enum Made {
    Plan { plan: Box<Plan>, trust_domain: String },
    Invalid(Value),
}

async fn compute(
    place: OwnedSemaphorePermit,
    sources: Sources,
    observed: Observed,
    now: Timestamp,
    commit: Option<String>,
) -> Result<Made, ApiError> {
    // Whoever leaves, or whose time is over, drops this.
    let left = CancellationToken::new();
    let _waits = left.clone().drop_guard();
    let work = move || {
        let _place = place;
        let asked = || left.is_cancelled();
        let mut cache = READ.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let loaded = cache.load_until(&sources, Limits::default(), &Stop::when(&asked));
        let loaded = loaded.map_err(|_| ApiError::new(Code::Unavailable, "nobody waits for this preview any more"))?;
        if loaded.fleet.is_some() {
            *READ.lock().unwrap_or_else(PoisonError::into_inner) = cache;
        }
        let Some(fleet) = loaded.fleet else {
            let kept = &loaded.diagnostics[..loaded.diagnostics.len().min(MAX_DIAGNOSTICS)];
            return Ok(Made::Invalid(diagnostic::json::to_value(kept)));
        };
        let planned = plan(&fleet, &observed, now);
        let planned = match &commit {
            Some(commit) => planned.at_commit(commit),
            None => planned,
        };
        Ok(Made::Plan { plan: Box::new(planned.plan), trust_domain: fleet.document.trust_domain.value })
    };
    tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)?
}

/// The base with what changes.
fn edited(base: Sources, input: Preview) -> Result<Sources, ApiError> {
    let removed: BTreeSet<String> = input.removed.into_iter().collect();
    for (n, path) in removed.iter().enumerate() {
        check_path(path).map_err(|why| ApiError::field(format!("removed[{n}]"), why))?;
    }
    let mut sources = Sources::default();
    for (path, blob) in base.iter().filter(|(path, _)| !removed.contains(&***path)) {
        sources.insert(Arc::clone(path), blob.clone());
    }
    let mut named: BTreeSet<Arc<str>> = BTreeSet::new();
    for (n, file) in input.changed.into_iter().enumerate() {
        let wrong = |member: &str, why: String| ApiError::field(format!("changed[{n}].{member}"), why);
        check_path(&file.path).map_err(|why| wrong("path", why))?;
        if removed.contains(&file.path) {
            return Err(wrong("path", "the same path is removed".to_owned()));
        }
        let path: Arc<str> = file.path.into();
        if !named.insert(Arc::clone(&path)) {
            return Err(wrong("path", "the path is named twice".to_owned()));
        }
        let bytes = match (file.text, file.base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => BASE64_STANDARD.decode(text).map_err(|error| wrong("base64", error.to_string()))?,
            _ => return Err(wrong("text", "a file has either text or base64".to_owned())),
        };
        if Sources::wants(&path) {
            sources.insert_file(path, bytes);
        }
    }
    match both(&sources, &named) {
        Some((file, below)) => {
            let why = format!("{file} is a file, so that {below} cannot be below it; if it goes, say so in `removed`");
            Err(ApiError::field("changed", why))
        }
        None => Ok(sources),
    }
}

/// A path that is a file and a folder.
fn both<'s>(sources: &'s Sources, named: &'s BTreeSet<Arc<str>>) -> Option<(&'s str, &'s str)> {
    let all = sources.iter().map(|(path, _)| &**path).chain(named.iter().map(|path| &**path));
    all.filter_map(|path| {
        let above = path.match_indices('/').map(|(end, _)| &path[..end]);
        let file = above.into_iter().find(|above| sources.get(above).is_some() || named.contains(*above))?;
        Some((file, path))
    })
    .next()
}

fn check_path(path: &str) -> Result<(), String> {
    let plain = path.len() <= MAX_PATH
        && !path.contains(['\0', '\\'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if plain { Ok(()) } else { Err("it is a path below the fleet's root, such as pools/h100.kdl".to_owned()) }
}

impl From<apply::ObserveError> for ApiError {
    fn from(error: apply::ObserveError) -> Self {
        match error {
            apply::ObserveError::Db(error) => error.into(),
            corrupt @ apply::ObserveError::Corrupt { .. } => Self::internal(corrupt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_root_are_taken() {
        for good in ["fleet.kdl", "pools/h100.kdl", "ä/b c.yaml"] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        for bad in ["", "/etc/passwd", "../x.kdl", "a/../b.kdl", "a//b.kdl", "a/./b.kdl", "a\\b.kdl", "a\0.kdl"] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
        assert!(check_path(&"a".repeat(MAX_PATH + 1)).is_err());
    }

    fn preview(changed: &[&str], removed: &[&str]) -> Preview {
        let changed = changed.iter().map(|path| serde_json::json!({ "path": path, "text": "" })).collect::<Vec<_>>();
        serde_json::from_value(serde_json::json!({ "base": "x", "changed": changed, "removed": removed }))
            .expect("a preview")
    }

    #[test]
    fn a_path_is_one_file_or_one_folder() {
        let base: Sources = [("fleet.kdl", b"".as_slice()), ("nodes/a.kdl", b"")].into_iter().collect();
        let edited = |changed: &[&str], removed: &[&str]| edited(base.clone(), preview(changed, removed));
        for (changed, removed) in [
            (vec!["x.kdl", "x.kdl"], vec![]),
            (vec!["x.kdl"], vec!["x.kdl"]),
            (vec!["x.kdl", "x.kdl/y.kdl"], vec![]),
            (vec!["fleet.kdl/y.kdl"], vec![]),
            (vec!["nodes"], vec![]),
            (vec!["README", "README/y.kdl"], vec![]),
        ] {
            assert!(edited(&changed, &removed).is_err(), "{changed:?} {removed:?}");
        }
        assert_eq!(edited(&["nodes/a.kdl", "x.kdl", "x.kdl-y"], &[]).map(|sources| sources.len()).ok(), Some(3));
        assert_eq!(edited(&["nodes.kdl/b.kdl"], &["nodes/a.kdl"]).map(|sources| sources.len()).ok(), Some(2));
        assert_eq!(edited(&["fleet.kdl/b.kdl"], &["fleet.kdl"]).map(|sources| sources.len()).ok(), Some(2));
    }
}
