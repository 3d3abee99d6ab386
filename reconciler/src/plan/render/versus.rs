//! Two plans, held against each other: what moved between the one that was shown and the one that is.

use std::collections::BTreeMap;

use super::{
    groups::{few, said},
    page::{Ink, Line, Section},
    sections::{Fold, count},
};
use crate::plan::{Inputs, NodeMove, ObjectChange, Plan};

/// What differs between a plan that was shown and another one.
pub(super) fn sections(shown: &Plan, plan: &Plan, fold: Fold) -> Vec<Section> {
    let parts = [
        ("What was looked at", inputs(&shown.inputs, &plan.inputs)),
        ("Machines that move otherwise", nodes(shown, plan, fold)),
        ("Files that change otherwise", objects(shown, plan, fold)),
    ];
    let parts = parts.into_iter().filter(|(_, lines)| !lines.is_empty());
    parts.map(|(title, lines)| Section { title: title.to_owned(), lines }).collect()
}

fn inputs(shown: &Inputs, now: &Inputs) -> Vec<Line> {
    let facts = [
        (
            shown.observed != now.observed,
            "one is of declared machines only, the other of those the control plane knows",
        ),
        (shown.base_tree != now.base_tree, "the files in force are others"),
        (shown.tree != now.tree, "the files that it leads to are others"),
        (shown.policy != now.policy, "limits or binding are others"),
        (shown.renderer != now.renderer, "another version rendered it"),
        (shown.facts != now.facts, "machines, objects or brakes are others"),
    ];
    let differ = facts.into_iter().filter(|(differs, _)| *differs);
    differ.map(|(_, text)| Line::marked(2, '~').with(Ink::Plain, text)).collect()
}

/// What becomes of a machine between two plans, and the sign of it.
fn otherwise(before: Option<&NodeMove>, after: Option<&NodeMove>) -> Option<(char, String)> {
    let held = |node: &NodeMove| if node.held.is_empty() { "" } else { ", held" };
    match (before, after) {
        (None, Some(node)) => Some(('+', format!("was not shown: {}{}", said(node.effect), held(node)))),
        (Some(node), None) => Some(('-', format!("was shown as {}, and does not move any more", said(node.effect)))),
        (Some(old), Some(new)) if old.effect != new.effect => {
            Some(('~', format!("{} → {}{}", said(old.effect), said(new.effect), held(new))))
        }
        (Some(old), Some(new)) if (old.before_spec, old.after_spec) != (new.before_spec, new.after_spec) => {
            let what =
                if old.after_spec == new.after_spec { "starts from something else" } else { "becomes something else" };
            Some(('~', format!("{what}, {} as before{}", said(new.effect), held(new))))
        }
        _ => None,
    }
}

fn nodes(shown: &Plan, plan: &Plan, fold: Fold) -> Vec<Line> {
    let of =
        |plan: &'_ Plan| plan.nodes.iter().map(|node| (node.node.clone(), node.clone())).collect::<BTreeMap<_, _>>();
    let (old, new) = (of(shown), of(plan));
    let mut groups: BTreeMap<(char, String), Vec<&str>> = BTreeMap::new();
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        if let Some(key) = otherwise(old.get(name), new.get(name)) {
            groups.entry(key).or_default().push(name.as_str());
        }
    }
    let room = if fold.most == usize::MAX { usize::MAX } else { fold.width.saturating_sub(6).max(24) };
    let lines = groups.iter().flat_map(|((mark, text), names)| {
        let head = Line::marked(2, *mark).with(Ink::Bold, &count(names.len(), "machine"));
        [head.with(Ink::Plain, &format!(" {text}")), Line::new(6).with(Ink::Dim, &few(names, room))]
    });
    lines.collect()
}

fn objects(shown: &Plan, plan: &Plan, fold: Fold) -> Vec<Line> {
    // Lines move when something above them changes; that alone is no other change.
    let told = |object: &ObjectChange| {
        let fields: Vec<_> =
            object.fields.iter().map(|field| (field.path.clone(), field.before.clone(), field.after.clone())).collect();
        (object.change, fields)
    };
    let of = |plan: &'_ Plan| {
        plan.objects.iter().map(|object| (object.object.clone(), told(object))).collect::<BTreeMap<_, _>>()
    };
    let (old, new) = (of(shown), of(plan));
    let mut out = Vec::new();
    for object in old.keys().chain(new.keys().filter(|object| !old.contains_key(*object))) {
        let (mark, text) = match (old.get(object), new.get(object)) {
            (None, _) => ('+', "was not shown"),
            (_, None) => ('-', "was shown, and does not change any more"),
            (Some(old), Some(new)) if old != new => ('~', "changes otherwise"),
            _ => continue,
        };
        out.push(Line::marked(2, mark).with(Ink::Bold, &object.to_string()).with(Ink::Plain, &format!(" {text}")));
    }
    let most = fold.most.saturating_add(2);
    if out.len() > most {
        let rest = out.len() - fold.most.max(1);
        out.truncate(fold.most.max(1));
        out.push(Line::new(2).with(Ink::Dim, &format!("and {rest} more")));
    }
    out
}
