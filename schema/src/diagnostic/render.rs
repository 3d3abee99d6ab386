//! Diagnostics for people: code, message, source line, caret, label and help.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

use super::{Diagnostic, Severity, SourceMap, SourceRef};
use crate::letter::hidden;

/// Whether the text carries terminal colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colour {
    /// Plain text.
    #[default]
    Never,
    /// ANSI colours.
    Always,
}

const WIDTH: usize = 160;

/// All diagnostics, one after the other, with a blank line between, and a last line that counts them.
#[must_use]
pub fn text(diagnostics: &[Diagnostic], sources: &SourceMap, colour: Colour) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        out.push_str(&one(diagnostic, sources, colour));
        out.push('\n');
    }
    let count = |severity| diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
    let counted: Vec<String> = [Severity::Error, Severity::Warning, Severity::Note]
        .into_iter()
        .filter_map(|severity| match count(severity) {
            0 => None,
            1 => Some(format!("1 {}", severity.as_str())),
            many => Some(format!("{many} {}s", severity.as_str())),
        })
        .collect();
    if !counted.is_empty() {
        out.push_str(&counted.join(", "));
        out.push('\n');
    }
    out
}

/// One diagnostic.
#[must_use]
pub fn one(diagnostic: &Diagnostic, sources: &SourceMap, colour: Colour) -> String {
    let paint = Paint(colour);
    let tone = match diagnostic.severity {
        Severity::Error => "1;31",
        Severity::Warning => "1;33",
        Severity::Note => "1;36",
    };
    let lines = diagnostic.labels.iter().map(|label| label.at.line()).chain([diagnostic.span.line]);
    let gutter = lines.max().unwrap_or(1).to_string().len();
    let head = paint.wrap(tone, &format!("{}[{}]", diagnostic.severity.as_str(), diagnostic.code));
    let mut out = format!("{head}: {}\n", paint.wrap("1", &safe(&diagnostic.message)));
    quote(&mut out, sources, &diagnostic.at(), "-->", ('^', diagnostic.label.as_deref(), tone), (gutter, paint));
    for label in &diagnostic.labels {
        quote(&mut out, sources, &label.at, ":::", ('-', Some(&label.text), "1;34"), (gutter, paint));
    }
    if let Some(help) = &diagnostic.help {
        for (index, line) in safe(help).lines().enumerate() {
            let lead = if index == 0 { "= help:" } else { "       " };
            push(&mut out, format_args!("{:gutter$} {} {line}\n", "", paint.wrap("1;34", lead)));
        }
    }
    out
}

fn quote(
    out: &mut String,
    sources: &SourceMap,
    at: &SourceRef,
    arrow: &str,
    (mark, label, tone): (char, Option<&str>, &str),
    (gutter, paint): (usize, Paint),
) {
    let bar = paint.wrap("1;34", "|");
    push(
        out,
        format_args!(
            "{:gutter$}{} {}\n",
            "",
            paint.wrap("1;34", arrow),
            safe(&at.to_string()).replace('\n', "\u{fffd}")
        ),
    );
    let Some(line) = sources.line(at) else {
        if let Some(label) = label {
            push(out, format_args!("{:gutter$} {bar} {}\n", "", safe(label)));
        }
        return;
    };
    let column = at.span.column as usize - 1;
    let marked = sources
        .text(&at.file)
        .and_then(|text| text.get(at.span.start as usize..at.span.end as usize))
        .map_or(0, |text| text.lines().next().unwrap_or("").chars().count());
    // A long line is cut to a window around the place.
    let skip = if column > WIDTH / 2 && line.chars().count() > WIDTH { column - WIDTH / 2 } else { 0 };
    let shown: String = line.chars().skip(skip).take(WIDTH).collect();
    let (before, rest): (Vec<char>, Vec<char>) =
        (shown.chars().take(column - skip).collect(), shown.chars().skip(column - skip).collect());
    // A letter may be as wide as two, or as none; a tab is as wide as it is in the line above.
    let blank = |letter: &char| if *letter == '\t' { "\t".to_owned() } else { " ".repeat(width(*letter)) };
    let lead: String = before.iter().map(blank).collect();
    let under: usize = rest.iter().take(marked.max(1)).map(|letter| width(*letter)).sum();
    let carets: String = std::iter::repeat_n(mark, under.max(1)).collect();
    let under = match label {
        Some(label) => format!("{carets} {}", safe(label)),
        None => carets,
    };
    push(out, format_args!("{:gutter$} {bar}\n", ""));
    push(out, format_args!("{} {bar} {}\n", paint.wrap("1;34", &format!("{:>gutter$}", at.span.line)), safe(&shown)));
    push(out, format_args!("{:gutter$} {bar} {lead}{}\n", "", paint.wrap(tone, &under)));
}

/// The columns that a letter takes, shown as [`safe`] shows it.
fn width(letter: char) -> usize {
    if hidden(letter) { 1 } else { letter.width().unwrap_or(1) }
}

/// Text from a repository never controls a terminal, and hides nothing: what is not seen is shown as a replacement.
fn safe(text: &str) -> String {
    text.chars().map(|letter| if hidden(letter) { '\u{fffd}' } else { letter }).collect()
}

fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    out.write_fmt(line).expect("a string takes every text");
}

#[derive(Clone, Copy)]
struct Paint(Colour);

impl Paint {
    fn wrap(self, tone: &str, text: &str) -> String {
        match self.0 {
            Colour::Never => text.to_owned(),
            Colour::Always => format!("\u{1b}[{tone}m{text}\u{1b}[0m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        diagnostic::{Lines, codes},
        fleet::Sources,
    };

    /// What is shown below a word of a line.
    fn under(line: &str, word: &str) -> String {
        let start = line.find(word).expect("the word");
        let at = SourceRef::new("x", Lines::new(line).span(start, start + word.len()));
        let sources: SourceMap = [("x".into(), line.into())].into_iter().collect();
        let shown = one(&Diagnostic::new(codes::BAD_VALUE, &at, "wrong"), &sources, Colour::Never);
        shown.lines().last().expect("a line").trim_start_matches("  | ").to_owned()
    }

    #[test]
    fn a_caret_stands_below_its_letter() {
        assert_eq!(under("\tname=\"x\" \tbad", "bad"), "\t         \t^^^");
        assert_eq!(under("name=\"日本\" bad", "bad"), "            ^^^");
        assert_eq!(under("name=\"日本\"", "\"日本\""), "     ^^^^^^");
        assert_eq!(under("e\u{301}e\u{301} bad", "bad"), "   ^^^");
        assert_eq!(under("\u{202e}\u{7} bad", "bad"), "   ^^^");
    }

    #[test]
    fn columns_count_letters_after_a_byte_order_mark_and_before_crlf() {
        let text = "\u{feff}site \"日本\" region=5\r\nsite \"b\" {\r\n\tregion 5\r\n}\r\n";
        let root = "fleet \"t\" { format 1; trust-domain \"t.example\"; }\n";
        let sources: Sources = [("fleet.kdl", root.as_bytes()), ("x.kdl", text.as_bytes())].into_iter().collect();
        let found = crate::fleet::load(&sources).diagnostics;
        let places: Vec<String> =
            found.iter().filter(|found| found.is_error()).map(|found| found.at().to_string()).collect();
        assert_eq!(places, ["x.kdl:1:6", "x.kdl:1:18", "x.kdl:3:9"]);
    }
}
