//! What people and programs read: the only place of this crate that writes to the terminal.
//!
//! Text goes to standard output in a form that fits the terminal, coloured only when it is one; what is said on the side
//! (progress, hints, errors) goes to standard error. With `--format json` standard output holds one JSON value.

pub mod age;
mod outline;
pub mod table;
pub mod text;

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use clap::ValueEnum;
use schema::time::{Moment, Timestamp};
use serde_json::Value;

use crate::exit::Failure;
pub use table::Table;
use text::Style;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON value on standard output.
    Json,
}

/// Where a command writes, and how.
#[derive(Debug, Clone)]
pub struct Output {
    /// How results are written.
    pub format: Format,
    /// Whether standard output takes colours.
    pub colour: bool,
    /// How many columns text may take: those of the terminal, or of `COLUMNS`; in a pipe without it, as many as it needs.
    pub width: Option<usize>,
    /// The moment that ages are counted from.
    pub now: Timestamp,
}

impl Output {
    /// Looks at standard output and at `NO_COLOR`.
    #[must_use]
    pub fn detect(format: Format, now: Timestamp) -> Self {
        let terminal = io::stdout().is_terminal();
        let quiet = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let width = columns(io::stdout(), terminal);
        Self { format, colour: terminal && !quiet, width, now }
    }

    /// Whether results are for programs.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Writes text and ends the line.
    ///
    /// # Errors
    /// When standard output cannot be written. A reader that went away ends the process quietly.
    pub fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        write_or_leave(io::stdout().lock(), text.as_ref())
    }

    /// Writes one JSON value over several lines.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn json(&self, value: &Value) -> Result<(), Failure> {
        self.line(serde_json::to_string_pretty(value).unwrap_or_default())
    }

    /// Writes a table, or one line that says why there is none.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn table(&self, table: &Table, when_empty: &str) -> Result<(), Failure> {
        if table.is_empty() {
            return self.line(when_empty);
        }
        self.line(table.render(self.width, self.colour))
    }

    /// Whether somebody looks at standard output.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Clears the terminal before a picture that is drawn again; nothing when it is not one.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn redraw(&self) -> Result<(), Failure> {
        if self.is_terminal() { self.line("\x1b[2J\x1b[H") } else { Ok(()) }
    }

    /// The moment at which this command began.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The same at a later moment, for what is shown after a while.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Self { now, ..self.clone() }
    }

    /// How long ago a moment was, for people.
    #[must_use]
    pub fn ago(&self, then: Timestamp) -> String {
        age::ago(then, self.now)
    }

    /// An end for people: the moment, and in how long that is.
    #[must_use]
    pub fn until(&self, end: Timestamp) -> String {
        format!("until {} ({})", Moment(end), self.ago(end))
    }

    /// A sentence in lines that fit, each behind this indent.
    #[must_use]
    pub fn indented(&self, text: &str, indent: &str) -> String {
        let lines = match self.width {
            Some(width) => text::wrap(text, width.saturating_sub(indent.len())),
            None => vec![text.to_owned()],
        };
        lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
    }

    /// `label  text`, the text in a column of its own: what does not fit goes on below it, and every word stays whole. A word that has
    /// no room in the column has the line below to itself.
    #[must_use]
    pub fn labelled(&self, label: &str, column: usize, text: &str, indent: &str) -> String {
        let beside = indent.len() + column;
        let Some(width) = self.width else { return format!("{indent}{label:<column$}{text}") };
        let room = width.saturating_sub(beside);
        if text::longest_word(text) <= room {
            let lines = text::wrap_whole(text, room);
            return format!("{indent}{label:<column$}{}", lines.join(&format!("\n{}", " ".repeat(beside))))
                .trim_end()
                .to_owned();
        }
        let lines = text::wrap_whole(text, width.saturating_sub(indent.len() + 2));
        format!("{indent}{label}\n{indent}  {}", lines.join(&format!("\n{indent}  ")))
    }

    /// Short facts beside each other, `one · another`, each whole; what does not fit goes on in the next line.
    #[must_use]
    pub fn beside(&self, facts: impl IntoIterator<Item = (Style, String)>) -> String {
        const BETWEEN: &str = " · ";
        let (mut text, mut used) = (String::new(), 0);
        for (style, fact) in facts {
            let long = fact.chars().count();
            let fits = self.width.is_none_or(|width| used + BETWEEN.chars().count() + long <= width);
            if used > 0 {
                text.push_str(if fits { BETWEEN } else { "\n" });
                used = if fits { used + BETWEEN.chars().count() } else { 0 };
            }
            text.push_str(&style.paint(&fact, self.colour));
            used += long;
        }
        text
    }

    /// A sentence in lines that fit, all but the first a step further to the right, every word whole.
    #[must_use]
    pub fn hanging(&self, text: &str, indent: &str) -> String {
        let Some(width) = self.width else { return format!("{indent}{text}") };
        let lines = text::wrap_whole(text, width.saturating_sub(indent.len() + 2));
        format!("{indent}{}", lines.join(&format!("\n{indent}  ")))
    }
}

/// Writes text to standard output without looking at what it is.
///
/// # Errors
/// When standard output cannot be written.
pub fn plain(text: &str) -> Result<(), Failure> {
    write_or_leave(io::stdout().lock(), text)
}

/// A file that is made, with this mode, and never one that is there already.
///
/// # Errors
/// When it is there, or cannot be made.
pub fn new_file(path: &Path, mode: u32) -> Result<File, Failure> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            return Failure::failed(format!("{} is there already, and nothing was written", path.display()))
                .hint("name a file that is not there, or move this one away first");
        }
        Failure::because(format!("cannot write {}", path.display()), &error)
    })
}

/// Says something on the side.
pub fn note(text: impl AsRef<str>) {
    writeln!(io::stderr().lock(), "{}", text.as_ref()).ok();
}

/// Asks, where somebody can answer. Only the whole word is a yes.
///
/// # Errors
/// When nobody can.
pub fn confirm(output: &Output, question: &str) -> Result<bool, Failure> {
    if output.is_json() || !io::stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked here").hint("--yes goes without asking"));
    }
    let mut answer = String::new();
    let ask = output.indented(&format!("{question} Type yes:"), "");
    write!(io::stderr().lock(), "{ask} ").ok();
    io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::because("cannot read the answer", &error))?;
    Ok(answer.trim() == "yes")
}

/// How many columns text may take there.
fn columns(place: impl std::os::fd::AsFd, terminal: bool) -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    let width = terminal_size::terminal_size_of(place).filter(|_| terminal).map(|(width, _)| usize::from(width.0));
    width.or(asked).or(terminal.then_some(80))
}

/// Shows a failure the way every command does.
pub fn failure(failure: &Failure) {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let width = columns(io::stderr(), io::stderr().is_terminal());
    let said = |word: &str, code: &str, text: &str| {
        let text = text::fitted(&format!("{word}: {text}"), width);
        let word_in_colour = format!("\x1b[{code}m{word}\x1b[0m");
        note(if colour { text.replacen(word, &word_in_colour, 1) } else { text });
    };
    said("error", "1;31", &text::printable_lines(&failure.message));
    if let Some(text) = &failure.hint {
        said("hint", "1;36", text);
    }
}

fn write_or_leave(mut to: impl io::Write, text: &str) -> Result<(), Failure> {
    match writeln!(to, "{text}").and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::because("cannot write to standard output", &error)),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_not_written_over_and_what_to_do_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        drop(new_file(&path, 0o666).unwrap());
        let failure = new_file(&path, 0o666).unwrap_err();
        assert!(failure.message.contains("audit.log is there already"), "{failure}");
        assert!(failure.hint.is_some_and(|hint| hint.contains("move this one away")));
        assert!(new_file(&dir.path().join("no/such"), 0o666).unwrap_err().message.contains("cannot write"));
    }
}
