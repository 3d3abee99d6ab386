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
    fn spaces_at_the_end_of_a_line_are_seen() {
        assert_eq!(quiet_line("a b  "), "a b··");
    }
}
