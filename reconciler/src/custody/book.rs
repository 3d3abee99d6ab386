//! What signed manifests grant: read once for a target, checked, and kept.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use pki::checkpoint::CheckpointVerifier;
use schema::{digest::Digest, id::NodeId, name::Name};
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

/// The stable word for a process whose keys are from before the fleet was pinned.
const KEYS_UNPINNED: &str = "keys-unpinned";
/// The same for people.
pub(crate) const BEHIND_PIN: &str = "the fleet is pinned, and the keys of this process are from before that, so that it cannot tell what counts: give them to it again, copied since (better-compute keys signing)";

/// What was read of signed manifests.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    rules: Option<Rules>,
    by_target: HashMap<Digest, Arc<[Named]>>,
}

/// Which manifests count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rules {
    verifier: CheckpointVerifier,
    anchor: Option<String>,
}

/// A part that a signed manifest names.
#[derive(Debug, Clone)]
struct Named {
    part: Arc<Part>,
    /// The manifest counts, and is not only signed.
    counts: bool,
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
    /// Only a revision does that nobody verified: it is from before the fleet was pinned.
    Unverified { target: Digest, name: String },
    /// The keys of this process are from before the fleet was pinned, and it cannot know what counts.
    Keys,
}

impl Unproven {
    /// The stable word.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Place { .. } => "place-unproven",
            Self::Target { .. } => "target-altered",
            Self::Assignment { .. } => "assignment-unproven",
            Self::Unverified { .. } => "assignment-unverified",
            Self::Keys => KEYS_UNPINNED,
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
            Self::Unverified { target, name } => write!(
                f,
                "the revision that says that {name} should be {} is from before the fleet was pinned, and nobody verified its commit; the last good spec stays in force until a commit that counts assigns the machine anew",
                target.short()
            ),
            Self::Keys => f.write_str(BEHIND_PIN),
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
        let rules = Rules { verifier: self.manifests(), anchor: self.anchor() };
        let renames = Renames { db, rules: &rules };
        let name = match assigned.former_name {
            Some(former) if former != who.name && renames.lead("node", former, who.name).await? => former,
            Some(former) if former != who.name => {
                return Ok(Err(Unproven::Assignment { target, name: former.to_owned() }));
            }
            _ => who.name,
        };
        let grants = |named: &Named| named.part.grants(name, assigned.overlay, target);
        let counts = |named: &Named| named.counts && grants(named);
        let mut found = self.book.of(&rules, target);
        if !found.iter().any(counts) {
            if self.is_behind_pin(db).await? {
                return Ok(Err(Unproven::Keys));
            }
            found = self.book.read(db, &rules, target).await?;
        }
        let Some(pool) = who.pool else { return Ok(Err(Unproven::Assignment { target, name: name.to_owned() })) };
        let pools: Vec<&Name> = found.iter().filter(|named| counts(named)).map(|named| &named.part.pool).collect();
        if pools.iter().any(|granted| granted.as_str() == pool) {
            return Ok(Ok(()));
        }
        for granted in &pools {
            if renames.lead("pool", granted.as_str(), pool).await? {
                return Ok(Ok(()));
            }
        }
        let name = name.to_owned();
        Ok(Err(if pools.is_empty() && found.iter().any(grants) {
            Unproven::Unverified { target, name }
        } else {
            Unproven::Assignment { target, name }
        }))
    }
}

impl Book {
    fn of(&self, rules: &Rules, target: Digest) -> Arc<[Named]> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.rules.as_ref() != Some(rules) {
            // What a key signed that is over, and what is from before a pin, is read again, and does not count then.
            *pages = Pages { rules: Some(rules.clone()), by_target: HashMap::new() };
        }
        pages.by_target.get(&target).cloned().unwrap_or_default()
    }

    async fn read(&self, db: &Db, rules: &Rules, target: Digest) -> Result<Arc<[Named]>, DbError> {
        let mut heads: HashMap<Vec<u8>, Option<Manifest>> = HashMap::new();
        let mut parts = Vec::new();
        for manifests::Naming { part: body, manifest } in manifests::naming(db, &target, LOOKED_AT).await? {
            let head = heads
                .entry(manifest.signature.clone())
                .or_insert_with(|| Manifest::verified(&manifest, &rules.verifier));
            let Some(head) = head else {
                tracing::warn!(revision = %manifest.revision, "a manifest is not signed by this control plane, and counts for nothing");
                continue;
            };
            let Ok(part) = serde_json::from_slice::<Part>(&body) else { continue };
            if head.pools.get(&part.pool) == Some(&Digest::of(&body)) {
                parts.push(Named { part: Arc::new(part), counts: head.counts(rules.anchor.as_deref()) });
            }
        }
        let parts: Arc<[Named]> = parts.into();
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.rules.as_ref() != Some(rules) {
            return Ok(parts);
        }
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
    rules: &'a Rules,
}

impl Renames<'_> {
    /// Whether something of a kind goes on under the second name.
    async fn lead(&self, kind: &str, from: &str, to: &str) -> Result<bool, DbError> {
        let (mut at, to) = (format!("{kind}/{from}"), format!("{kind}/{to}"));
        let newest_first = manifests::with_renames(self.db, RENAMES).await?;
        for stored in newest_first.iter().rev() {
            let manifest = Manifest::verified(stored, &self.rules.verifier);
            let Some(manifest) = manifest.filter(|one| one.counts(self.rules.anchor.as_deref())) else { continue };
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
