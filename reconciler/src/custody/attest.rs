//! Making manifests: what the source says of a revision, from the files of a verified commit and from what it signed before.
//!
//! Nothing that only the database says gets in: of documents that are gone and stay in force, the words are those of the
//! manifest before, and what that one does not name is left out.

use std::collections::{BTreeMap, BTreeSet};

use pki::checkpoint::{CheckpointKey, CheckpointPurpose, CheckpointVerifier};
use schema::{
    canonical,
    digest::Digest,
    fleet::Fleet,
    id::RevisionId,
    name::Name,
    object::{Kind, ObjectRef},
};
use store::{Db, DbError, Txn, manifests, placements, revisions};

use super::{
    Manifest, Signed, SourceCustody,
    manifest::{Part, Words},
};
use crate::{
    plan::{ObjectStanding, Observed, Planned},
    source::CommitInfo,
};

/// How many manifests are read at a time.
const AT_ONCE: u32 = 200;

/// The manifest of a stored revision; `None` when there is none that counts.
pub(crate) async fn proven(
    db: &Db,
    verifier: &CheckpointVerifier,
    revision: RevisionId,
) -> Result<Option<Manifest>, DbError> {
    let stored = manifests::find(db, revision).await?;
    Ok(stored.and_then(|stored| Manifest::verified(&stored, verifier)))
}

/// Manifests that another key than the present one signed, and that count as long as both do.
pub(super) async fn of_other_keys(
    db: &Db,
    verifier: &CheckpointVerifier,
    present: CheckpointKey,
) -> Result<Vec<manifests::Manifest>, DbError> {
    let (mut ours, mut after) = (Vec::new(), None);
    loop {
        let page = manifests::of_other_keys(db, present.as_bytes(), after, AT_ONCE).await?;
        let Some(last) = page.last() else { return Ok(ours) };
        after = Some(last.revision);
        ours.extend(page.into_iter().filter(|stored| Manifest::verified(stored, verifier).is_some()));
    }
}

/// What is about to come into force.
pub(crate) struct Drawing<'a> {
    pub(crate) source: &'a str,
    pub(crate) revision: RevisionId,
    pub(crate) commit: &'a CommitInfo,
    /// The anchor that the commit was verified from.
    pub(crate) verified: Option<String>,
    pub(crate) fleet: &'a Fleet,
    pub(crate) observed: &'a Observed,
    pub(crate) planned: &'a Planned,
}

/// The manifest of a revision, signed. Reads parts of the one before, where documents are gone and stay in force.
pub(crate) async fn draw(db: &Db, custody: &SourceCustody, drawing: &Drawing<'_>) -> Result<Signed, DbError> {
    let signer = custody.signer();
    let newest = revisions::newest(db, drawing.source).await?;
    let before = match &newest {
        Some(newest) => proven(db, signer.verifier(), newest.revision.id).await?,
        None => None,
    };
    let retained = retained(drawing);
    // What nobody verified says nothing of a verified revision.
    let vouches = before.as_ref().filter(|before| before.counts(drawing.verified.as_deref()));
    let (kept_pools, kept_nodes) = carried(db, drawing, vouches, &retained).await?;
    let parts = Part::of_fleet(drawing.fleet, &kept_nodes);
    let mut pools: BTreeMap<Name, Digest> =
        parts.iter().map(|part| (part.pool.clone(), Digest::of(part.to_bytes()))).collect();
    pools.extend(kept_pools);
    let objects: BTreeMap<String, Digest> =
        drawing.fleet.objects().map(|entry| (entry.object.to_string(), entry.digest)).collect();
    let same = newest.is_some_and(|newest| newest.revision.id == drawing.revision);
    let manifest = Manifest {
        source: drawing.source.to_owned(),
        revision: drawing.revision,
        commit: drawing.commit.id.clone(),
        tree: drawing.commit.tree.clone(),
        verified: drawing.verified.clone(),
        files: drawing.fleet.tree,
        objects: canonical::digest(&objects).expect("digests serialise"),
        pools,
        moved: match &before {
            Some(before) if same && before.commit == drawing.commit.id => before.moved.clone(),
            _ => drawing.planned.delta.moved.iter().map(|(old, new)| (old.to_string(), new.to_string())).collect(),
        },
        before: match before {
            Some(before) if same => before.before,
            before => before.map(|before| Digest::of(before.to_bytes())),
        },
    };
    Ok(manifest.sign(parts, &signer))
}

/// The pools and machines whose documents are gone and stay in force.
fn retained(drawing: &Drawing<'_>) -> BTreeSet<ObjectRef> {
    let changed: BTreeMap<&ObjectRef, ObjectStanding> =
        drawing.planned.delta.objects.iter().map(|row| (&row.object, row.standing)).collect();
    let moved: BTreeSet<&ObjectRef> = drawing.planned.delta.moved.iter().map(|(old, _)| old).collect();
    let of = |object: &&ObjectRef| matches!(object.kind, Kind::Pool | Kind::Node);
    let held = drawing
        .observed
        .objects
        .iter()
        .filter(|(object, held)| held.retained && !changed.contains_key(object) && !moved.contains(object));
    let newly = changed.iter().filter(|(_, standing)| **standing == ObjectStanding::Retained);
    held.map(|(object, _)| object).chain(newly.map(|(object, _)| *object)).filter(of).cloned().collect()
}

type Carried = (BTreeMap<Name, Digest>, Vec<(Option<Name>, Name, Words)>);

/// What the manifest before says of them.
async fn carried(
    db: &Db,
    drawing: &Drawing<'_>,
    before: Option<&Manifest>,
    retained: &BTreeSet<ObjectRef>,
) -> Result<Carried, DbError> {
    let (mut pools, mut nodes) = (BTreeMap::new(), Vec::new());
    if retained.is_empty() {
        return Ok((pools, nodes));
    }
    let Some(before) = before else {
        tracing::warn!(
            objects = retained.len(),
            "no manifest that counts stands before this revision: what its files do not say is not vouched for"
        );
        return Ok((pools, nodes));
    };
    let moved: BTreeMap<String, String> =
        drawing.planned.delta.moved.iter().map(|(old, new)| (old.to_string(), new.to_string())).collect();
    for (pool, digest) in &before.pools {
        if retained.contains(&ObjectRef::new(Kind::Pool, pool.clone())) && !drawing.fleet.pools.contains_key(pool) {
            pools.insert(pool.clone(), *digest);
        }
        if !retained.iter().any(|object| object.kind == Kind::Node) {
            continue;
        }
        let part = manifests::find_part(db, digest).await?.filter(|body| Digest::of(body) == *digest);
        let Some(part) = part.and_then(|body| serde_json::from_slice::<Part>(&body).ok()) else { continue };
        let goes_on = moved.get(&format!("pool/{pool}")).and_then(|new| new.strip_prefix("pool/")?.parse().ok());
        let pool = goes_on.unwrap_or_else(|| pool.clone());
        for (name, words) in part.nodes {
            if retained.contains(&ObjectRef::new(Kind::Node, name.clone())) && !drawing.fleet.nodes.contains_key(&name)
            {
                nodes.push((Some(pool.clone()), name, words));
            }
        }
    }
    Ok((pools, nodes))
}

/// Makes good what is not as it should be for a revision that is in force and was read from a verified commit: a manifest that
/// is missing or counts no more, signatures and tags of a key that is being replaced. `None` when nothing had to be done.
pub(crate) async fn attest(
    db: &Db,
    custody: &SourceCustody,
    drawing: &Drawing<'_>,
) -> Result<Option<Attested>, DbError> {
    let signer = custody.signer();
    let (verifier, key) = (signer.verifier(), signer.key());
    let anew = |stored: manifests::Manifest| manifests::Manifest {
        signature: signer.sign(CheckpointPurpose::RevisionManifest, &stored.body),
        ..stored
    };
    let again: Vec<manifests::Manifest> = of_other_keys(db, verifier, key).await?.into_iter().map(anew).collect();
    let present = proven(db, verifier, drawing.revision).await?;
    let drawn = draw(db, custody, drawing).await?;
    let manifest = (present.as_ref() != Some(&drawn.manifest)).then_some(drawn);
    let seal = custody.places();
    let mut txn = db.snapshot().await?;
    let places: Vec<placements::Placement> = placements::list(&mut txn)
        .await?
        .into_iter()
        .filter_map(|place| {
            let bytes = place.bytes();
            let tag = place.tag.as_ref()?;
            let old = seal.is_tag(&bytes, tag) && !seal.is_present(&bytes, tag);
            old.then(|| placements::Placement { tag: Some(seal.tag(&bytes)), ..place })
        })
        .collect();
    let attested = Attested { key: *key.as_bytes(), again, manifest, places };
    Ok((!attested.is_empty()).then_some(attested))
}

/// What has to be written.
#[derive(Debug)]
pub(crate) struct Attested {
    key: [u8; 32],
    again: Vec<manifests::Manifest>,
    manifest: Option<Signed>,
    places: Vec<placements::Placement>,
}

impl Attested {
    fn is_empty(&self) -> bool {
        self.again.is_empty() && self.manifest.is_none() && self.places.is_empty()
    }

    /// Writes it. Whoever waited for it is woken afterwards.
    pub(crate) async fn write(&self, txn: &mut Txn) -> Result<(), DbError> {
        manifests::sign_again(txn, &self.key, &self.again).await?;
        placements::tag(txn, &self.places).await?;
        if let Some(manifest) = &self.manifest {
            manifests::put(txn, &manifest.rows()).await?;
        }
        Ok(())
    }
}
