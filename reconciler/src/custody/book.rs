//! What signed manifests grant: read once for a target, checked, and kept.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use pki::checkpoint::CheckpointVerifier;
use schema::{digest::Digest, id::NodeId};
use store::{
    Db, DbError, manifests,
    marks::{self, Marker as _},
    placements,
};

use super::{Custody, Manifest, manifest::Part};

/// So many parts are looked at for one target: as many revisions of one pool may differ in nothing but the words of machines.
const LOOKED_AT: u32 = 256;
/// So many targets are kept; then all are forgotten and read again.
const KEPT: usize = 4_096;
/// So many renaming revisions are followed.
const RENAMES: u32 = 512;

/// What was read of signed manifests.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    verifier: Option<CheckpointVerifier>,
    by_target: HashMap<Digest, Arc<[Arc<Part>]>>,
}

/// Why nothing is composed: what the rows say follows from nothing that this control plane signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unproven {
    /// What the machine is called, or where it belongs, is not what was written when it came in.
    Place { name: String },
    /// The text of the host template is another one than its digest names.
    Target { target: Digest },
    /// No signed manifest names what the machine is assigned.
    Assignment { target: Digest, name: String },
}

impl Unproven {
    /// The stable word.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Place { .. } => "place-unproven",
            Self::Target { .. } => "target-altered",
            Self::Assignment { .. } => "assignment-unproven",
        }
    }
}

impl fmt::Display for Unproven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place { name } => write!(
                f,
                "the row says that the machine is {name} and where it belongs, and no process of this control plane wrote that; the last good spec stays in force"
            ),
            Self::Target { target } => write!(
                f,
                "the stored host template is not the one that {} names: somebody changed it in the database; the last good spec stays in force",
                target.short()
            ),
            Self::Assignment { target, name } => write!(
                f,
                "no signed revision says that {name} should be {} with these words: somebody wrote that into the database; the last good spec stays in force",
                target.short()
            ),
        }
    }
}

/// What a machine is assigned, as its row has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Assigned<'a> {
    /// The target.
    pub(crate) target: Digest,
    /// The text of the target.
    pub(crate) doc: &'a str,
    /// Its own words, canonical JSON.
    pub(crate) overlay: &'a str,
    /// The name that it had when it was assigned, where that is another one.
    pub(crate) former_name: Option<&'a str>,
}

/// What a machine is called and where it belongs, as its row has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who<'a> {
    /// The machine.
    pub(crate) id: NodeId,
    /// Its name.
    pub(crate) name: &'a str,
    /// Its pool.
    pub(crate) pool: Option<&'a str>,
}

impl Custody {
    /// Whether what a machine is assigned follows from what this control plane signed.
    pub(crate) async fn prove(
        &self,
        db: &Db,
        who: Who<'_>,
        assigned: &Assigned<'_>,
    ) -> Result<Result<(), Unproven>, DbError> {
        let place = marks::placement(who.id, who.name, who.pool);
        let tag = placements::find(db, who.id).await?.and_then(|row| row.tag);
        if !tag.is_some_and(|tag| self.is_placement(&place, &tag)) {
            return Ok(Err(Unproven::Place { name: who.name.to_owned() }));
        }
        let target = assigned.target;
        if Digest::of(assigned.doc) != target {
            return Ok(Err(Unproven::Target { target }));
        }
        let verifier = self.manifests();
        let renames = Renames { db, verifier: &verifier };
        let name = match assigned.former_name {
            Some(former) if former != who.name && renames.lead("node", former, who.name).await? => former,
            Some(former) if former != who.name => {
                return Ok(Err(Unproven::Assignment { target, name: former.to_owned() }));
            }
            _ => who.name,
        };
        let grants = |part: &Arc<Part>| part.grants(name, assigned.overlay, target);
        let mut pools: Vec<Arc<Part>> =
            self.book.of(&verifier, target).iter().filter(|part| grants(part)).cloned().collect();
        if pools.is_empty() {
            pools = self.book.read(db, &verifier, target).await?.iter().filter(|part| grants(part)).cloned().collect();
        }
        let Some(pool) = who.pool else { return Ok(Err(Unproven::Assignment { target, name: name.to_owned() })) };
        if pools.iter().any(|part| part.pool.as_str() == pool) {
            return Ok(Ok(()));
        }
        for part in &pools {
            if renames.lead("pool", part.pool.as_str(), pool).await? {
                return Ok(Ok(()));
            }
        }
        Ok(Err(Unproven::Assignment { target, name: name.to_owned() }))
    }
}

impl Book {
    fn of(&self, verifier: &CheckpointVerifier, target: Digest) -> Arc<[Arc<Part>]> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.verifier.as_ref() != Some(verifier) {
            // What a key signed that is over is read again, and does not count then.
            *pages = Pages { verifier: Some(verifier.clone()), by_target: HashMap::new() };
        }
        pages.by_target.get(&target).cloned().unwrap_or_default()
    }

    async fn read(&self, db: &Db, verifier: &CheckpointVerifier, target: Digest) -> Result<Arc<[Arc<Part>]>, DbError> {
        let mut heads: HashMap<Vec<u8>, Option<Manifest>> = HashMap::new();
        let mut parts = Vec::new();
        for manifests::Naming { part: body, manifest } in manifests::naming(db, &target, LOOKED_AT).await? {
            let head =
                heads.entry(manifest.signature.clone()).or_insert_with(|| Manifest::verified(&manifest, verifier));
            let Some(head) = head else {
                tracing::warn!(revision = %manifest.revision, "a manifest is not signed by this control plane, and counts for nothing");
                continue;
            };
            let Ok(part) = serde_json::from_slice::<Part>(&body) else { continue };
            if head.pools.get(&part.pool) == Some(&Digest::of(&body)) {
                parts.push(Arc::new(part));
            }
        }
        let parts: Arc<[Arc<Part>]> = parts.into();
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.by_target.len() >= KEPT {
            pages.by_target.clear();
        }
        pages.by_target.insert(target, Arc::clone(&parts));
        Ok(parts)
    }
}

/// What revisions gave another name, as they were signed.
struct Renames<'a> {
    db: &'a Db,
    verifier: &'a CheckpointVerifier,
}

impl Renames<'_> {
    /// Whether something of a kind goes on under the second name.
    async fn lead(&self, kind: &str, from: &str, to: &str) -> Result<bool, DbError> {
        let (mut at, to) = (format!("{kind}/{from}"), format!("{kind}/{to}"));
        let newest_first = manifests::with_renames(self.db, RENAMES).await?;
        for stored in newest_first.iter().rev() {
            let Some(manifest) = Manifest::verified(stored, self.verifier) else { continue };
            if let Some((_, next)) = manifest.moved.iter().find(|(old, _)| *old == at) {
                at.clone_from(next);
            }
            if at == to {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
