//! What moved and what is to go: each object is where one line says that it is.

use std::collections::BTreeMap;

use super::references::Unread;
use crate::{
    diagnostic::{Diagnostic, codes},
    fleet::{
        Moved,
        load::{Objects, ParsedFile},
    },
    object::ObjectRef,
};

/// Reports objects that are declared and removed.
pub(super) fn removed(objects: &Objects, found: &mut Vec<Diagnostic>) {
    for removed in &objects.removed {
        if let Some(at) = objects.defined.get(&removed.name) {
            let diagnostic = Diagnostic::new(
                codes::DECLARED_AND_REMOVED,
                &removed.at,
                format!("{} is declared and removed", removed.name),
            )
            .label("removed here")
            .also(at, "declared here")
            .help("delete one of the two");
            found.push(diagnostic);
        }
    }
}

/// Reports lines that cannot all be true.
pub(super) fn check(objects: &Objects, files: &[ParsedFile], found: &mut Vec<Diagnostic>) {
    let unread = Unread::of(files, objects);
    let from: BTreeMap<&ObjectRef, &Moved> = objects.moved.iter().rev().map(|moved| (&moved.from, moved)).collect();
    let to: BTreeMap<&ObjectRef, &Moved> = objects.moved.iter().rev().map(|moved| (&moved.to, moved)).collect();
    for moved in &objects.moved {
        let bad = |message: String| Diagnostic::new(codes::BAD_MOVE, &moved.at, message);
        let twice = |other: &Moved| !std::ptr::eq(other, moved);
        if let Some(other) = from.get(&moved.from).filter(|other| twice(other)) {
            found.push(bad(format!("{} moved already", moved.from)).also(&other.at, "it moved here"));
        } else if let Some(other) = to.get(&moved.to).filter(|other| twice(other)) {
            let message = format!("two objects cannot both become {}", moved.to);
            found.push(bad(message).also(&other.at, "the other one"));
        } else if let Some(next) = from.get(&moved.to) {
            let help = match end(moved, &from) {
                Some(end) => format!("say where it is now: moved from=\"{}\" to=\"{end}\"", moved.from),
                None => "objects cannot move in a circle; to swap two names, move one out of the way first".to_owned(),
            };
            let message = format!("{} is not where it stays: it moves on", moved.to);
            found.push(bad(message).also(&next.at, "it moves on").help(help));
        } else if let Some(at) = objects.defined.get(&moved.from) {
            let message = format!("{} is declared and has moved to {}", moved.from, moved.to);
            found.push(bad(message).also(at, "declared here").help("delete one of the two"));
        } else if let Some(at) = objects.gone.get(&moved.from) {
            let message = format!("{} has moved and is removed", moved.from);
            found.push(bad(message).also(at, "removed here").help("delete one of the two"));
        } else if !objects.defined.contains_key(&moved.to) && !unread.may_hold(&moved.to) {
            let diagnostic = bad(format!("there is no {}", moved.to));
            found.push(diagnostic.help(format!("declare it: `to` is what {} is called now", moved.from)));
        }
    }
}

/// Moves of one object that are followed.
const MOVES: usize = 100;

/// Where an object ends that moves on; `None` when it goes in a circle.
fn end<'m>(moved: &'m Moved, from: &BTreeMap<&ObjectRef, &'m Moved>) -> Option<&'m ObjectRef> {
    let mut here = moved;
    for _ in 0..MOVES {
        match from.get(&here.to) {
            Some(next) => here = next,
            None => return Some(&here.to),
        }
    }
    None
}
