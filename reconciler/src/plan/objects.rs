//! Objects: what is new, changed, retained, held or gone.

use std::collections::BTreeMap;

use schema::{
    fleet::{ObjectEntry, brake},
    object::{Kind, ObjectRef},
    time::Timestamp,
};
use serde_json::Value;

use super::{
    Change, Delta, ObjectChange, ObjectRow, ObjectStanding, ObservedObject,
    diff::{FieldChange, diff},
    gates::Removals,
    identity,
    in_order::InOrder,
    machines::Scene,
    observed::text,
    places,
};

pub(super) struct Objects {
    pub(super) changes: Vec<ObjectChange>,
    pub(super) unchanged: usize,
}

pub(super) fn compare(scene: &Scene<'_>, declared: &BTreeMap<&ObjectRef, &ObjectEntry>, delta: &mut Delta) -> Objects {
    let Scene { fleet, observed, identity, removals, now, .. } = *scene;
    let mut out = Objects { changes: Vec::new(), unchanged: 0 };
    let mut known = InOrder::new(&observed.objects);
    for (object, entry) in declared {
        let held = known.find(object);
        let (change, fields) = match held {
            None => (Some(Change::Create), Vec::new()),
            Some(held) if held.digest != entry.digest => {
                let mut fields = diff(&held.doc, &entry.doc);
                places::of_object(fleet, object, &mut fields);
                (Some(Change::Update), fields)
            }
            Some(held) if held.retained => (Some(Change::Restore), Vec::new()),
            Some(_) => (None, Vec::<FieldChange>::new()),
        };
        let line = entry.at.line();
        let elsewhere = held.is_some_and(|held| held.file != *entry.at.file || held.line != line);
        if change.is_some() || elsewhere || identity.former(object).is_some() {
            delta.objects.push(ObjectRow {
                object: (*object).clone(),
                digest: entry.digest,
                doc: text(&*entry.doc),
                file: entry.at.file.to_string(),
                line,
                standing: ObjectStanding::Declared,
            });
        }
        match change {
            Some(change) => {
                out.changes.push(ObjectChange {
                    object: (*object).clone(),
                    change,
                    file: entry.at.file.to_string(),
                    line,
                    fields,
                    reason: None,
                    paste: None,
                    renamed_to: None,
                });
            }
            None => out.unchanged += 1,
        }
    }
    let mut declared_again = InOrder::new(declared.keys().map(|object| (*object, ())));
    for (object, held) in observed.objects.iter().filter(|(object, _)| declared_again.find(object).is_none()) {
        out.changes.push(match object.kind {
            Kind::Freeze | Kind::Batch if is_over(object, held, now) => over(object, held, now, delta),
            _ => absent(object, held, removals, identity.follows(object), delta),
        });
    }
    out.changes.sort_by(|a, b| a.object.cmp(&b.object));
    identity::suggest(&mut out.changes, observed, declared);
    out
}

/// A freeze that has ended, or a batch: its document may be deleted freely, because nothing more happens then.
fn is_over(object: &ObjectRef, held: &ObservedObject, now: Timestamp) -> bool {
    if object.kind == Kind::Freeze {
        let brakes = brake::of_document(object.kind, &object.name, &held.doc);
        let ends = |brake: &brake::Brake| {
            let standing = brake.standing(now);
            !standing.holds && standing.next_edge.is_none()
        };
        return !brakes.is_empty() && brakes.iter().all(ends);
    }
    true
}

fn over(object: &ObjectRef, held: &ObservedObject, now: Timestamp, delta: &mut Delta) -> ObjectChange {
    let expires = held.doc.get("expires").and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    let taken_back = object.kind == Kind::Batch && expires.is_none_or(|expires| expires > now);
    delta.objects.push(ObjectRow {
        object: object.clone(),
        digest: held.digest,
        doc: text(&*held.doc),
        file: held.file.clone(),
        line: held.line,
        standing: ObjectStanding::Removed,
    });
    ObjectChange {
        object: object.clone(),
        change: Change::Remove,
        file: held.file.clone(),
        line: held.line,
        fields: Vec::new(),
        reason: Some(if taken_back { "it is taken back" } else { "its time has passed" }.to_owned()),
        paste: None,
        renamed_to: None,
    }
}

/// An object whose document is gone.
fn absent(
    object: &ObjectRef,
    held: &ObservedObject,
    removals: &Removals<'_>,
    follows: bool,
    delta: &mut Delta,
) -> ObjectChange {
    let mut row = |standing: ObjectStanding| {
        delta.objects.push(ObjectRow {
            object: object.clone(),
            digest: held.digest,
            doc: text(&*held.doc),
            file: held.file.clone(),
            line: held.line,
            standing,
        });
    };
    if let Some(removed) = removals.granted.get(object) {
        row(ObjectStanding::Removed);
        return ObjectChange {
            object: object.clone(),
            change: Change::Remove,
            file: removed.at.file.to_string(),
            line: removed.at.line(),
            fields: Vec::new(),
            reason: Some(removed.reason.value.clone()),
            paste: None,
            renamed_to: None,
        };
    }
    if !held.retained || follows {
        row(ObjectStanding::Retained);
    }
    if let Some((removed, _)) = removals.held.get(object) {
        return ObjectChange {
            object: object.clone(),
            change: Change::Hold,
            file: removed.at.file.to_string(),
            line: removed.at.line(),
            fields: Vec::new(),
            reason: Some(removed.reason.value.clone()),
            paste: None,
            renamed_to: None,
        };
    }
    ObjectChange {
        object: object.clone(),
        change: Change::Retain,
        file: held.file.clone(),
        line: held.line,
        fields: Vec::new(),
        reason: None,
        paste: Some(paste(object, &held.file)),
        renamed_to: None,
    }
}

/// The line that lets an object go, in the syntax of the file it was in.
fn paste(object: &ObjectRef, file: &str) -> String {
    if file.ends_with(".kdl") {
        format!("removed \"{object}\" {{ reason \"why it goes\" }}")
    } else {
        let value = Value::from(object.to_string());
        format!("{{ kind: removed, name: {value}, reason: \"why it goes\" }}")
    }
}
