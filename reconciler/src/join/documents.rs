//! What the documents in force say about machines that come in.

use schema::{
    digest::Digest,
    fleet::{Node as NodeDocument, NodeOverlay, kind::Admission},
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

use super::decide::Place;
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
pub(super) fn git_hold(place: &Place<'_>, documents: &[(NodeDocument, StoredObject)], now: Timestamp) -> Option<Hold> {
    let document = place.document?;
    let hold = cordon(document, Some(now))?;
    let object = documents.iter().find(|(other, _)| other.name == document.name).map(|(_, object)| object);
    Some(Hold { place: object.map(|object| format!("{}:{}", object.file, object.line)), ..hold })
}

pub(super) async fn admission(db: &Db) -> Result<Admission, DbError> {
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
pub(super) async fn in_force<T: serde::de::DeserializeOwned>(
    db: &Db,
    kind: Kind,
) -> Result<Vec<(T, StoredObject)>, DbError> {
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
