//! Objects: what is new, changed, retained, held or gone.

use std::collections::BTreeSet;

use schema::{
    fleet::Fleet,
    object::{Kind, ObjectRef},
};
use serde_json::Value;

use super::{
    Change, Delta, ObjectChange, ObjectRow, ObjectStanding, Observed, ObservedObject,
    diff::{FieldChange, diff},
    gates::Removals,
    observed::text,
};

pub(super) struct Objects {
    pub(super) changes: Vec<ObjectChange>,
    pub(super) unchanged: usize,
}

pub(super) fn compare(fleet: &Fleet, observed: &Observed, removals: &Removals<'_>, delta: &mut Delta) -> Objects {
    let mut out = Objects { changes: Vec::new(), unchanged: 0 };
    let mut declared = BTreeSet::new();
    for entry in fleet.objects() {
        let (file, line) = (entry.at.file.to_string(), entry.at.line());
        let held = observed.objects.get(&entry.object);
        let (change, fields) = match held {
            None => (Some(Change::Create), Vec::new()),
            Some(held) if held.digest != entry.digest => {
                let mut fields = diff(&held.doc, &entry.doc);
                for field in fields.iter_mut().filter(|field| field.after.is_some()) {
                    field.place =
                        fleet.place(&entry.object, &field.path).map(|at| format!("{}:{}", at.file, at.line()));
                }
                (Some(Change::Update), fields)
            }
            Some(held) if held.retained => (Some(Change::Restore), Vec::new()),
            Some(_) => (None, Vec::<FieldChange>::new()),
        };
        let moved = held.is_some_and(|held| held.file != file || held.line != line);
        if change.is_some() || moved {
            delta.objects.push(ObjectRow {
                object: entry.object.clone(),
                digest: entry.digest,
                doc: text(&entry.doc),
                file: file.clone(),
                line,
                standing: ObjectStanding::Declared,
            });
        }
        match change {
            Some(change) => {
                out.changes.push(ObjectChange {
                    object: entry.object.clone(),
                    change,
                    file,
                    line,
                    fields,
                    reason: None,
                    paste: None,
                    renamed_to: None,
                });
            }
            None => out.unchanged += 1,
        }
        declared.insert(entry.object);
    }
    for (object, held) in observed.objects.iter().filter(|(object, _)| !declared.contains(*object)) {
        out.changes.push(match object.kind {
            Kind::Fleet => renamed(object, held, fleet, delta),
            _ => absent(object, held, removals, delta),
        });
    }
    out.changes.sort_by(|a, b| a.object.cmp(&b.object));
    out
}

/// A fleet that has another name now: a tree has one fleet, so the former document is replaced and never retained.
fn renamed(object: &ObjectRef, held: &ObservedObject, fleet: &Fleet, delta: &mut Delta) -> ObjectChange {
    delta.objects.push(ObjectRow {
        object: object.clone(),
        digest: held.digest,
        doc: text(&held.doc),
        file: held.file.clone(),
        line: held.line,
        standing: ObjectStanding::Removed,
    });
    ObjectChange {
        object: object.clone(),
        change: Change::Remove,
        file: fleet.document.at.file.to_string(),
        line: fleet.document.at.line(),
        fields: Vec::new(),
        reason: Some(format!("the fleet is called {} now", fleet.document.name)),
        paste: None,
        renamed_to: None,
    }
}

/// An object whose document is gone.
fn absent(object: &ObjectRef, held: &ObservedObject, removals: &Removals<'_>, delta: &mut Delta) -> ObjectChange {
    let mut row = |standing: ObjectStanding| {
        delta.objects.push(ObjectRow {
            object: object.clone(),
            digest: held.digest,
            doc: text(&held.doc),
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
    if !held.retained {
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
