//! What the documents in force say about machines that come in.

use std::{collections::BTreeMap, sync::Arc};

use schema::{
    digest::Digest,
    fleet::{Node as NodeDocument, NodeOverlay, Pool as PoolDocument, kind::Admission},
    name::Name,
    node::Hold,
    object::Kind,
    time::Timestamp,
};
use serde::Deserialize as _;
use serde_json::Value;
use store::{
    Db, DbError,
    pools::Pool,
    revisions,
    revisions::{ObjectState, StoredObject},
};

use tokio::sync::Mutex;

use super::{
    attest::{Rule, rules},
    decide::Place,
};
use crate::plan::cordon;

/// The pool's target, or the one that the pool has under the profile that the document names.
pub(super) fn target(pool: &Pool, overlay: &NodeOverlay) -> Option<Digest> {
    match &overlay.profile {
        Some(profile) => pool.profile_targets.get(profile).copied(),
        None => pool.target,
    }
}

pub(super) fn overlay_text(overlay: &NodeOverlay) -> String {
    let bytes = schema::canonical::to_vec(overlay).expect("an overlay serialises");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// What apply would hold the machine by; a stored document knows only where it begins.
pub(super) fn git_hold(place: &Place<'_>, said: &Said, now: Timestamp) -> Option<Hold> {
    let document = place.document?;
    let hold = cordon(document, Some(now))?;
    Some(Hold { place: said.cordoned.get(&document.name).cloned(), ..hold })
}

/// What the documents of a revision say about machines that come in.
#[derive(Debug)]
pub(super) struct Said {
    /// Whether a machine without a document may join.
    pub(super) admission: Admission,
    /// What the pools believe.
    pub(super) rules: Vec<Rule>,
    /// Every `node` document.
    pub(super) nodes: Vec<NodeDocument>,
    /// Where those stand that hold their machine.
    cordoned: BTreeMap<Name, String>,
}

impl Said {
    async fn read(db: &Db) -> Result<Self, DbError> {
        let pools: Vec<PoolDocument> = in_force(db, Kind::Pool).await?.into_iter().map(|(pool, _)| pool).collect();
        let documents = in_force::<NodeDocument>(db, Kind::Node).await?;
        let cordoned = documents.iter().filter(|(document, _)| document.cordon.is_some());
        Ok(Self {
            admission: admission(db).await?,
            rules: rules(&pools),
            cordoned: cordoned
                .map(|(document, object)| (document.name.clone(), format!("{}:{}", object.file, object.line)))
                .collect(),
            nodes: documents.into_iter().map(|(document, _)| document).collect(),
        })
    }
}

/// The documents in force, read once for each revision however many knock at once: anybody may.
#[derive(Debug, Default)]
pub(super) struct InForce(Mutex<Option<(u64, Arc<Said>)>>);

impl InForce {
    /// Those of a revision that was read just now.
    ///
    /// # Errors
    /// When a statement fails.
    pub(super) async fn of(&self, db: &Db, revision: u64) -> Result<Arc<Said>, DbError> {
        let mut kept = self.0.lock().await;
        if let Some((of, said)) = kept.as_ref()
            && *of == revision
        {
            return Ok(Arc::clone(said));
        }
        let said = Arc::new(Said::read(db).await?);
        // What came into force while they were read belongs to a revision that is read with the next join.
        if revisions::latest(db).await?.map_or(0, |latest| latest.seq) == revision {
            *kept = Some((revision, Arc::clone(&said)));
        }
        Ok(said)
    }
}

async fn admission(db: &Db) -> Result<Admission, DbError> {
    let objects = revisions::objects_of(db, Kind::Fleet).await?.whole()?;
    let Some(fleet) = objects.into_iter().find(|object| object.state != ObjectState::Removed) else {
        return Ok(Admission::Token);
    };
    // What another version wrote and this one cannot read lets nobody in whom no document describes.
    let said = serde_json::from_str::<Value>(&fleet.doc).and_then(|document| match document.get("admission") {
        Some(word) => Admission::deserialize(word),
        None => Ok(Admission::Token),
    });
    Ok(said.unwrap_or_else(|error| {
        tracing::warn!(object = ?fleet.object, %error, "the admission in force is not readable and is taken as strict");
        Admission::Strict
    }))
}

/// The documents of a kind that are in force. One that this version cannot read describes nobody.
async fn in_force<T: serde::de::DeserializeOwned>(db: &Db, kind: Kind) -> Result<Vec<(T, StoredObject)>, DbError> {
    let objects = revisions::objects_of(db, kind).await?.whole()?;
    let readable = objects.into_iter().filter(|object| object.state != ObjectState::Removed).filter_map(|object| {
        match serde_json::from_str(&object.doc) {
            Ok(document) => Some((document, object)),
            Err(error) => {
                tracing::warn!(object = ?object.object, %error, "a stored document is not readable");
                None
            }
        }
    });
    Ok(readable.collect())
}
