//! What changes in the files: objects that come, change and go, get another name, or are retained.

use std::collections::{BTreeMap, BTreeSet};

use schema::object::{Kind, ObjectRef};

use super::{Fold, count, more, named};
use crate::plan::{
    Change, FieldChange, ObjectChange, Plan, Warning,
    render::{
        groups,
        lines::Room,
        page::{Ink, Line},
        values,
    },
};

/// Where places begin.
const PLACES: usize = 34;

pub(super) fn changes(plan: &Plan, fold: Fold) -> Vec<Line> {
    let mut by_kind: BTreeMap<_, Vec<&ObjectChange>> = BTreeMap::new();
    for object in plan.objects.iter().filter(|object| object.change != Change::Retain) {
        by_kind.entry((object.object.kind, object.change)).or_default().push(object);
    }
    let mut out = Vec::new();
    for ((kind, change), objects) in by_kind {
        if objects.len() <= fold.most.saturating_add(2) {
            out.extend(objects.iter().flat_map(|change| object(change, fold)));
            continue;
        }
        let groups = alike(&objects);
        let shown = named(groups.len(), fold);
        for group in &groups[..shown] {
            match group.as_slice() {
                [one] => out.extend(object(one, fold)),
                many => out.extend(self::many(kind, change, many, fold)),
            }
        }
        if groups.len() > shown {
            let rest: usize = groups[shown..].iter().map(Vec::len).sum();
            out.push(Line::marked(2, sign(change)).with(Ink::Dim, &count(rest, &format!("more {kind}"))));
        }
    }
    out
}

/// Objects that change in the same way, whatever file says so.
fn alike<'a>(objects: &[&'a ObjectChange]) -> Vec<Vec<&'a ObjectChange>> {
    let mut groups: Vec<Vec<&ObjectChange>> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for object in objects {
        let fields: Vec<_> = object.fields.iter().map(|field| (&field.path, &field.before, &field.after)).collect();
        let index = *known.entry(format!("{fields:?} {:?}", object.reason)).or_insert(groups.len());
        match groups.get_mut(index) {
            Some(group) => group.push(object),
            None => groups.push(vec![object]),
        }
    }
    groups
}

fn many(kind: Kind, change: Change, objects: &[&ObjectChange], fold: Fold) -> Vec<Line> {
    let names: Vec<&str> = objects.iter().map(|object| object.object.name.as_str()).collect();
    let room = fold.width.saturating_sub(24).max(24);
    let (first, files) = (objects[0], objects.iter().map(|object| &object.file).collect::<BTreeSet<_>>());
    let place = match files.len() {
        1 => first.file.clone(),
        files => format!("{} and {}", first.file, count(files - 1, "more file")),
    };
    let head = Line::marked(2, sign(change))
        .with(ink(change), &format!("{}: {}", count(objects.len(), kind.as_str()), groups::few(&names, room)))
        .with(Ink::Dim, &format!("  {place}"))
        .with(Ink::Plain, &first.reason.as_ref().map_or_else(String::new, |reason| format!("  {reason}")));
    let fields: Vec<FieldChange> =
        first.fields.iter().map(|field| FieldChange { place: None, ..field.clone() }).collect();
    let fields: Vec<&FieldChange> = fields.iter().collect();
    std::iter::once(head)
        .chain(values::fields(&fields, Room { indent: 6, most: fold.most, width: fold.width }))
        .collect()
}

fn object(object: &ObjectChange, fold: Fold) -> Vec<Line> {
    let note = match (object.change, &object.reason) {
        (Change::Restore, _) => "  its document is back".to_owned(),
        (Change::Hold, Some(reason)) => format!("  held, see below ({reason})"),
        (Change::Hold, None) => "  held, see below".to_owned(),
        (_, Some(reason)) => format!("  {reason}"),
        _ => String::new(),
    };
    let head = Line::marked(2, sign(object.change))
        .with(ink(object.change), &object.object.to_string())
        .column(PLACES)
        .with(Ink::Dim, &format!("{}:{}", object.file, object.line))
        .with(Ink::Plain, &note);
    let fields: Vec<&FieldChange> = object.fields.iter().collect();
    let room = Room { indent: 6, most: fold.most, width: fold.width };
    std::iter::once(head).chain(values::fields(&fields, room)).collect()
}

pub(super) fn moved(plan: &Plan, fold: Fold) -> Vec<Line> {
    let shown = named(plan.moved.len(), fold);
    let lines = plan.moved[..shown].iter().map(|moved| {
        let machines = match moved.machines {
            0 => String::new(),
            1 => "  1 machine comes along".to_owned(),
            machines => format!("  {machines} machines come along"),
        };
        Line::marked(2, '~')
            .with(Ink::Attention, &format!("{} → {}", moved.from, moved.to))
            .with(Ink::Plain, &machines)
            .with(Ink::Dim, &moved.place.as_ref().map_or_else(String::new, |place| format!("  {place}")))
    });
    lines.chain(more(plan.moved.len(), shown, "", 2)).collect()
}

/// What is retained: its names, many of a kind on one line, and below it the lines to paste.
pub(super) fn retained(plan: &Plan, fold: Fold) -> Vec<Line> {
    let mut kinds: BTreeMap<Kind, Vec<&ObjectChange>> = BTreeMap::new();
    for object in plan.objects.iter().filter(|object| object.change == Change::Retain) {
        kinds.entry(object.object.kind).or_default().push(object);
    }
    let mut out = Vec::new();
    for (kind, objects) in &kinds {
        if objects.len() > named(objects.len(), fold) {
            let names: Vec<&str> = objects.iter().map(|object| object.object.name.as_str()).collect();
            let room = fold.width.saturating_sub(40).max(24);
            let text = format!("{}: {}", count(objects.len(), kind.as_str()), groups::few(&names, room));
            let files: BTreeSet<&String> = objects.iter().map(|object| &object.file).collect();
            let more =
                if files.len() > 1 { format!(" and {}", count(files.len() - 1, "more file")) } else { String::new() };
            out.push(
                Line::marked(2, '!')
                    .with(Ink::Attention, &text)
                    .with(Ink::Dim, &format!("  was {}{more}", objects[0].file)),
            );
            continue;
        }
        out.extend(objects.iter().map(|object| {
            Line::marked(2, '!')
                .with(Ink::Attention, &object.object.to_string())
                .column(PLACES)
                .with(Ink::Dim, &format!("was {}:{}", object.file, object.line))
        }));
    }
    let pastes = |renamed: bool| -> Vec<(&ObjectChange, &str)> {
        let some = kinds.values().flatten().filter(move |object| object.renamed_to.is_some() == renamed);
        some.filter_map(|object| Some((*object, object.paste.as_deref()?))).collect()
    };
    let renamed = pastes(true);
    let shown = named(renamed.len(), fold);
    for (object, paste) in &renamed[..shown] {
        let to = object.renamed_to.as_ref().map_or_else(String::new, ToString::to_string);
        let text =
            format!("{to} looks like {} under another name. If it is, paste into {}:", object.object, file_for(paste));
        out.push(Line::new(2).with(Ink::Plain, &text));
        out.push(Line::new(4).with(Ink::Bold, paste));
    }
    out.extend(more(renamed.len(), shown, " like these", 2));
    let (kdl, yaml): (Vec<_>, Vec<_>) = pastes(false).into_iter().partition(|(_, paste)| !is_yaml(paste));
    for gone in [kdl, yaml] {
        let Some((_, first)) = gone.first() else { continue };
        let text = format!("To let {} go, paste into {} and say why:", them(gone.len()), file_for(first));
        out.push(Line::new(2).with(Ink::Plain, &text));
        let shown = named(gone.len(), fold);
        out.extend(gone[..shown].iter().map(|(_, paste)| Line::new(4).with(Ink::Bold, paste)));
        out.extend(more(gone.len(), shown, " lines; `better-compute plan --all` writes all of them", 4));
    }
    out
}

fn is_yaml(paste: &str) -> bool {
    paste.starts_with('{')
}

/// Where a line can be pasted: a file is in one syntax.
fn file_for(paste: &str) -> &'static str {
    if is_yaml(paste) { "a .yaml file, below a line `---`" } else { "a .kdl file" }
}

const fn them(objects: usize) -> &'static str {
    if objects == 1 { "it" } else { "them" }
}

/// What is worth knowing: of what changes all of it, and what is found in these files whatever changes in one line.
pub(super) fn notes(plan: &Plan, fold: Fold) -> Vec<Line> {
    let changes: BTreeSet<&ObjectRef> = plan.objects.iter().map(|object| &object.object).collect();
    let all = fold.most == usize::MAX;
    let matters = |warning: &&Warning| all || !warning.note || changes.contains(&warning.object);
    let (notes, aside): (Vec<&Warning>, Vec<&Warning>) = plan.warnings.iter().partition(matters);
    let shown = named(notes.len(), fold);
    let lines = notes[..shown].iter().map(|warning| {
        let object = warning.object.to_string();
        // Some begin with the name of what they are about.
        let message =
            warning.message.strip_prefix(&object).map_or_else(|| format!(": {}", warning.message), str::to_owned);
        Line::new(2)
            .with(Ink::Bold, &object)
            .with(Ink::Plain, &message)
            .with(Ink::Dim, &warning.place.as_ref().map_or_else(String::new, |place| format!("  {place}")))
    });
    let mut out: Vec<Line> = lines.chain(more(notes.len(), shown, " notes", 2)).collect();
    // Alone it is nothing that a reader of this plan has to know.
    if !out.is_empty() && !aside.is_empty() {
        let text =
            format!("and {} on what does not change: `better-compute check` says it", count(aside.len(), "note"));
        out.push(Line::new(2).with(Ink::Dim, &text));
    }
    out
}

const fn ink(change: Change) -> Ink {
    match change {
        Change::Create | Change::Restore => Ink::Good,
        Change::Update | Change::Retain => Ink::Attention,
        Change::Remove | Change::Hold => Ink::Bad,
    }
}

const fn sign(change: Change) -> char {
    match change {
        Change::Create | Change::Restore => '+',
        Change::Update => '~',
        Change::Remove => '-',
        Change::Retain | Change::Hold => '!',
    }
}
