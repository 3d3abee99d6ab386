//! The cursor in YAML: the lines before it, by their depth, say which mappings are open.

use super::{Cursor, Place};

pub(super) fn cursor(text: &str, at: usize) -> Cursor {
    let begin = text[..at].rfind('\n').map_or(0, |index| index + 1);
    let end = at + text[at..].find('\n').unwrap_or(text.len() - at);
    // The document around the cursor, and the kind that it names anywhere.
    let first = text[..begin].rfind("\n---").map_or(0, |index| index + 1);
    let last = text[end..].find("\n---").map_or(text.len(), |index| end + index);
    let kind = text[first..last].lines().find_map(|line| line.strip_prefix("kind:")).map(|kind| bare(kind).to_owned());
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut long: Option<usize> = None;
    for line in text[first..begin].lines() {
        let depth = line.len() - line.trim_start_matches(' ').len();
        if long.is_some_and(|long| depth > long || line.trim().is_empty()) {
            continue;
        }
        long = None;
        let Some((depth, key, value)) = member(line) else { continue };
        open.retain(|(other, _)| *other < depth);
        if value.starts_with(['|', '>']) {
            long = Some(depth);
        }
        open.push((depth, key.to_owned()));
    }
    let (line, before) = (&text[begin..end], &text[begin..at]);
    let depth = line.len() - line.trim_start_matches(' ').len();
    let comment = before.trim_start().starts_with('#') || before.contains(" #");
    let mut path: Vec<String> = kind.into_iter().collect();
    if comment || long.is_some_and(|long| depth > long || line.trim().is_empty() && before.len() > long) {
        return Cursor { path, place: Place::Nothing, word: at..at, quoted: false };
    }
    let item = line.trim_start_matches(' ').starts_with("- ");
    let inner = line.len() - line.trim_start_matches([' ', '-']).len();
    let deep = if line.trim().is_empty() {
        before.len()
    } else if item {
        inner
    } else {
        depth
    };
    let above = |deep: usize| open.iter().filter(move |(other, _)| *other < deep).map(|(_, key)| key.clone());
    let (start, quoted) = word(text, begin, at);
    let stop = |letter: char| if quoted { matches!(letter, '"' | '\'' | '\n') } else { ",]}:\n".contains(letter) };
    let stop = at + text[at..].find(stop).unwrap_or(text.len() - at);
    let stop = stop - (text[at..stop].len() - text[at..stop].trim_end().len());
    let place = match member(before) {
        Some((_, key, _)) => {
            path.extend(above(deep));
            Place::Value(key.to_owned())
        }
        // An item without a key is a value of the key above it, or begins with a key.
        None if item && !line.contains(": ") && !line.ends_with(':') => {
            let mut keys: Vec<String> = above(inner).collect();
            let key = keys.pop().unwrap_or_default();
            path.extend(keys);
            Place::Either(key)
        }
        None => {
            path.extend(above(deep));
            Place::Key
        }
    };
    Cursor { path, place, word: start..stop, quoted }
}

/// How deep a key stands, the key and what follows it.
fn member(line: &str) -> Option<(usize, &str, &str)> {
    let depth = line.len() - line.trim_start_matches([' ', '-']).len();
    let rest = &line[depth..];
    if rest.starts_with('#') || rest.is_empty() {
        return None;
    }
    let (key, value) = rest.split_once(": ").or_else(|| Some((rest.trim_end().strip_suffix(':')?, "")))?;
    Some((depth, bare(key), value.trim_start()))
}

fn bare(text: &str) -> &str {
    text.split(" #").next().unwrap_or(text).trim().trim_matches(['"', '\''])
}

/// Where the word before the cursor begins, and whether in quotes.
fn word(text: &str, begin: usize, at: usize) -> (usize, bool) {
    let before = &text[begin..at];
    for quote in ['"', '\''] {
        if before.matches(quote).count() % 2 == 1 {
            return (begin + before.rfind(quote).map_or(0, |index| index + 1), true);
        }
    }
    let start = before.rfind([' ', '[', ',', '{']).map_or(0, |index| index + 1);
    (begin + start, false)
}
