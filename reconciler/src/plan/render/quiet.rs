//! Text of a repository made harmless: it cannot steer a terminal, reorder a line, or hide in it.

use std::fmt::Write as _;

/// The text on one line, with every character that steers, reorders or is invisible written as its escape.
pub(in crate::plan) fn quiet(text: &str) -> String {
    if text.chars().all(|c| !hides(c)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\t' => out.push('⇥'),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if hides(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// The same for a line of a file: spaces at its end are shown, because they may be all that changes.
pub(in crate::plan) fn quiet_line(text: &str) -> String {
    let kept = text.trim_end_matches(' ');
    format!("{}{}", quiet(kept), "·".repeat(text.len() - kept.len()))
}

/// At most `room` characters, with `…` for what is left out.
pub(in crate::plan) fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// What a line shows of what differs before the rest is counted.
pub(in crate::plan) const DIFFERS: usize = 1_000;

/// What stands beside what differs, however little room there is.
const BESIDE: usize = 16;

/// Two texts of which one takes the place of the other: all of what differs, at most `most` characters of it, and of what
/// is the same on both sides as much as there is room for. Both begin at the same place.
pub(in crate::plan) fn around(old: &str, new: &str, room: usize, most: usize) -> (String, String) {
    let (old, new): (Vec<char>, Vec<char>) = (old.chars().collect(), new.chars().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let longest = old.len().max(new.len());
    let spare = if longest <= room { longest } else { room.saturating_sub(longest - head - tail + 2) };
    let left = head.min((spare / 2).max(spare.saturating_sub(tail)).max(BESIDE));
    let right = tail.min(spare.saturating_sub(left).max(BESIDE));
    let shown = |text: &[char]| {
        let (end, rest) = (text.len() - tail, (text.len() - tail - head).saturating_sub(most));
        let mut out = String::from(if left < head { "…" } else { "" });
        out.extend(&text[head - left..end - rest]);
        if rest > 0 {
            let _ = write!(out, "… ({rest} more characters: `better-compute plan --all` writes them)");
        } else {
            out.extend(&text[end..end + right]);
            out.push_str(if right < tail { "…" } else { "" });
        }
        out
    };
    (shown(&old), shown(&new))
}

/// A text that has nothing to be held against: all of it, as what differs.
pub(in crate::plan) fn whole(text: &str, most: usize) -> String {
    around("", text, 0, most).1
}

/// Control characters, directions, and what has no width.
fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_or_hides_is_written_out() {
        assert_eq!(quiet("a\u{1b}[2Jb\u{202e}c\u{200b}d\te\r\n"), "a\\u{1b}[2Jb\\u{202e}c\\u{200b}d⇥e\\r\\n");
        assert_eq!(quiet("größer → 日本"), "größer → 日本");
    }

    #[test]
    fn what_differs_is_shown_wherever_it_stands() {
        let at = |start: usize, text: &str| format!("{}{text}{}", "a".repeat(start), "z".repeat(200 - start));
        for start in [0, 5, 60, 100, 199, 200] {
            let (old, new) = around(&at(start, "[old]"), &at(start, "[new one]"), 40, DIFFERS);
            assert!(old.contains("[old]") && new.contains("[new one]"), "{start}: {old} {new}");
            assert!(new.chars().count() <= 46 && old.find('[') == new.find('['), "{start}: {old} {new}");
            assert_eq!((new.starts_with('…'), new.ends_with('…')), (start > 30, start < 170), "{new}");
        }
        assert_eq!(around("a b c", "a x c", 5, DIFFERS), ("a b c".to_owned(), "a x c".to_owned()));
        let long = format!("{}harm", "x".repeat(500));
        assert!(around("y", &long, 40, DIFFERS).1.ends_with("harm") && whole(&long, DIFFERS).ends_with("harm"));
        assert!(whole(&long, 100).contains("… (404 more characters"));
    }

    #[test]
    fn spaces_at_the_end_of_a_line_are_seen() {
        assert_eq!(quiet_line("a b  "), "a b··");
    }
}
