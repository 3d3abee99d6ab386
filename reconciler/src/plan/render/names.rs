//! Many machines in few words: `fra1-r12-n[01-18]`, `r[000-224]-u[00-39]`. What is written this way is exactly what was
//! given, and nothing else.

use std::collections::BTreeMap;

/// The most ranges between one pair of brackets.
const RANGES: usize = 8;

/// How many levels of numbers are folded: machines, racks, rows.
const LEVELS: usize = 3;

/// A few machines in one word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::plan) struct Piece {
    /// The word.
    pub(in crate::plan) text: String,
    /// How many machines it stands for.
    pub(in crate::plan) count: usize,
}

/// A piece on its way: the head may still hold numbers to fold, the tail is folded.
struct Part {
    head: String,
    tail: String,
    count: usize,
}

/// Folds names that differ in a number only.
pub(in crate::plan) fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Piece> {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    let mut parts: Vec<Part> =
        names.into_iter().map(|name| Part { head: name.to_owned(), tail: String::new(), count: 1 }).collect();
    for _ in 0..LEVELS {
        parts = level(parts);
    }
    let mut pieces: Vec<Piece> =
        parts.into_iter().map(|part| Piece { text: part.head + &part.tail, count: part.count }).collect();
    pieces.sort_by_key(|piece| piece.text.replace('[', ""));
    pieces
}

/// As many pieces as fit in `room` characters, at least one, and how many machines are left over.
pub(in crate::plan) fn in_room(pieces: &[Piece], room: usize) -> String {
    let total: usize = pieces.iter().map(|piece| piece.count).sum();
    let (mut text, mut shown) = (String::new(), 0);
    for (index, piece) in pieces.iter().enumerate() {
        let rest = if index + 1 == pieces.len() { 0 } else { " and 10000 more".len() };
        if index > 0 && text.len() + 1 + piece.text.len() + rest > room {
            return format!("{text} and {} more", total - shown);
        }
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&piece.text);
        shown += piece.count;
    }
    text
}

/// One level: parts whose tails are equal, and which differ in the last number before them, come together.
fn level(parts: Vec<Part>) -> Vec<Part> {
    let mut out = Vec::new();
    let mut groups: BTreeMap<(String, String, usize), Vec<String>> = BTreeMap::new();
    for part in parts {
        match last_number(&part.head) {
            Some((prefix, digits, suffix)) => groups
                .entry((prefix.to_owned(), format!("{suffix}{}", part.tail), part.count))
                .or_default()
                .push(digits.to_owned()),
            None => out.push(part),
        }
    }
    for ((prefix, tail, count), members) in groups {
        let padded = members.iter().any(|digits| digits.len() > 1 && digits.starts_with('0'));
        let mut by_width: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for digits in members {
            let width = if padded { digits.len() } else { 0 };
            by_width.entry(width).or_default().push(digits.parse().unwrap_or_default());
        }
        for (width, numbers) in by_width {
            for some in ranges(numbers).chunks(RANGES) {
                let words: Vec<String> = some.iter().map(|range| word(*range, width)).collect();
                let single = matches!(some, [(from, to)] if from == to);
                let number = if single { words.concat() } else { format!("[{}]", words.join(",")) };
                let members: u64 = some.iter().map(|(from, to)| to - from + 1).sum();
                let count = count * usize::try_from(members).unwrap_or(1);
                out.push(Part { head: prefix.clone(), tail: format!("{number}{tail}"), count });
            }
        }
    }
    out
}

/// What stands before the last number of a text, the number, and what stands behind it.
fn last_number(text: &str) -> Option<(&str, &str, &str)> {
    let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = text[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    // A number of more than 18 digits is a word.
    (end - start <= 18).then(|| (&text[..start], &text[start..end], &text[end..]))
}

fn ranges(mut numbers: Vec<u64>) -> Vec<(u64, u64)> {
    numbers.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, to)) if *to + 1 == number => *to = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

fn word((from, to): (u64, u64), width: usize) -> String {
    if from == to { format!("{from:0width$}") } else { format!("{from:0width$}-{to:0width$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(names: &[&str]) -> String {
        fold(names.iter().copied()).into_iter().map(|piece| piece.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn neighbours_become_ranges() {
        assert_eq!(folded(&["n01", "n02", "n03", "n05", "n07", "n08"]), "n[01-03,05,07-08]");
        assert_eq!(folded(&["n8", "n9", "n10", "n11"]), "n[8-11]");
        assert_eq!(folded(&["n1", "n01", "n02"]), "n[01-02] n1");
        assert_eq!(folded(&["gateway", "db-1"]), "db-1 gateway");
        assert_eq!(folded(&["a-1-x", "a-2-x", "a-2-y"]), "a-[1-2]-x a-2-y");
    }

    #[test]
    fn racks_that_hold_the_same_machines_become_one_word() {
        let names: Vec<String> = (0..9_000).map(|number| format!("r{:03}-u{:02}", number / 40, number % 40)).collect();
        let pieces = fold(names.iter().map(String::as_str));
        assert_eq!(pieces, [Piece { text: "r[000-224]-u[00-39]".to_owned(), count: 9_000 }]);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let names = ["alpha", "beta", "gamma", "delta", "n1", "n2", "n3"];
        let pieces = fold(names);
        assert_eq!(in_room(&pieces, 30), "alpha beta and 5 more");
        assert_eq!(in_room(&pieces, 80), "alpha beta delta gamma n[1-3]");
    }

    #[test]
    fn no_machine_is_lost_or_invented() {
        let names: Vec<String> = (0..300_u32)
            .map(|number| number.wrapping_mul(2_654_435_761) % 500)
            .map(|number| format!("fra{}-r{:02}-n{:02}", number % 3, number / 40, number % 17))
            .collect();
        let mut wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let pieces = fold(names.iter().map(String::as_str));
        let mut found: Vec<String> = pieces.iter().flat_map(|piece| unfold(&piece.text)).collect();
        found.sort_unstable();
        assert_eq!(found, wanted);
        assert_eq!(pieces.iter().map(|piece| piece.count).sum::<usize>(), wanted.len());
    }

    /// The opposite, written without a look at how folding works.
    fn unfold(text: &str) -> Vec<String> {
        let Some((head, rest)) = text.split_once('[') else { return vec![text.to_owned()] };
        let (inside, tail) = rest.split_once(']').expect("a bracket that closes");
        let mut out = Vec::new();
        for range in inside.split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let width = if from.starts_with('0') { from.len() } else { 0 };
            let width = if from.len() == to.len() { from.len() } else { width };
            for number in from.parse::<u64>().expect("a number")..=to.parse().expect("a number") {
                out.extend(unfold(tail).into_iter().map(|tail| format!("{head}{number:0width$}{tail}")));
            }
        }
        out
    }
}
