//! Tables that fit a terminal. Pure: rows in, text out.
//!
//! On a terminal the widest columns give way until a row fits, and what is cut ends in `…`. What people copy (ids, names,
//! paths) is never cut, and what they read (the sentence in the last column) is broken into lines, below its row where no room
//! is left beside it or where a word of it would be broken. In a pipe nothing is cut and every row is one line.

use super::text::{Style, longest_word, printable, wrap};

const GAP: usize = 2;
const NARROWEST: usize = 8;
/// A sentence that has less room than this beside its row goes below it.
const ROOM_FOR_WORDS: usize = 28;
const INDENT: usize = 2;

/// One cell and its look.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    text: String,
    style: Style,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self { text: printable(text), style: Style::Plain }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl Cell {
    /// The cell in a look.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }
}

/// Rows under a heading.
#[derive(Debug, Clone, Default)]
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<Cell>>,
    whole: Vec<usize>,
    words: bool,
}

impl Table {
    /// A table with these columns.
    #[must_use]
    pub fn new(heading: &[&str]) -> Self {
        Self { heading: heading.iter().map(|title| title.to_uppercase()).collect(), ..Self::default() }
    }

    /// Says which columns are never cut.
    #[must_use]
    pub fn whole(mut self, titles: &[&str]) -> Self {
        let kept = |title: &String| titles.iter().any(|kept| kept.eq_ignore_ascii_case(title));
        self.whole = (0..self.heading.len()).filter(|&index| kept(&self.heading[index])).collect();
        self
    }

    /// Says that the last column holds sentences.
    #[must_use]
    pub const fn words(mut self) -> Self {
        self.words = true;
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, without a line break at its end.
    #[must_use]
    pub fn render(&self, width: Option<usize>, colour: bool) -> String {
        let heading: Vec<Cell> =
            self.heading.iter().map(|title| Cell { text: title.clone(), style: Style::Dim }).collect();
        let natural = self.natural();
        let last = natural.len().saturating_sub(1);
        let beside = width.filter(|limit| self.words && taken(&natural) > *limit).map(|limit| {
            let before = self.fitting(&natural[..last], limit);
            let room = limit.saturating_sub(taken(&before) + GAP);
            (before, room, limit)
        });
        let all = std::iter::once(&heading).chain(&self.rows);
        let lines: Vec<String> = match beside {
            None => {
                let widths = width.map_or_else(|| natural.clone(), |limit| self.fitting(&natural, limit));
                all.map(|row| render_row(row, &widths, colour)).collect()
            }
            Some((mut widths, room, limit)) if room >= self.room_for_words(limit) => {
                let from = taken(&widths) + GAP;
                widths.push(room);
                all.map(|row| render_beside(row, &widths, from, colour)).collect()
            }
            Some((widths, _, limit)) => {
                let heading = std::iter::once(render_row(&heading, &widths, colour));
                heading.chain(self.rows.iter().map(|row| render_below(row, &widths, limit, colour))).collect()
            }
        };
        lines.join("\n")
    }

    /// How much room the sentences need beside their rows: enough to read, and for the longest word that has room below.
    fn room_for_words(&self, limit: usize) -> usize {
        let words =
            self.rows.iter().filter_map(|row| row.get(self.heading.len() - 1)).map(|cell| longest_word(&cell.text));
        words.filter(|&word| word <= limit.saturating_sub(INDENT)).max().unwrap_or(0).max(ROOM_FOR_WORDS)
    }

    fn natural(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heading.iter().map(|title| title.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        widths
    }

    /// These widths, the widest cut until all fit.
    fn fitting(&self, widths: &[usize], limit: usize) -> Vec<usize> {
        let mut widths = widths.to_vec();
        while taken(&widths) > limit {
            let cut = widths.iter_mut().enumerate().filter(|(index, _)| !self.whole.contains(index));
            match cut.map(|(_, width)| width).max() {
                Some(widest) if *widest > NARROWEST => *widest -= 1,
                _ => break,
            }
        }
        widths
    }
}

fn taken(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// The row, its sentence in lines of the last column.
fn render_beside(row: &[Cell], widths: &[usize], from: usize, colour: bool) -> String {
    let Some((words, cells)) = row.split_last().filter(|_| row.len() == widths.len()) else {
        return render_row(row, widths, colour);
    };
    let mut lines = wrap(&words.text, widths[widths.len() - 1]).into_iter();
    let first = Cell { text: lines.next().unwrap_or_default(), style: words.style };
    let row: Vec<Cell> = cells.iter().cloned().chain([first]).collect();
    let more = lines.map(|line| format!("\n{}{}", " ".repeat(from), words.style.paint(&line, colour)));
    render_row(&row, widths, colour) + &more.collect::<String>()
}

/// The row without its sentence, and that below it.
fn render_below(row: &[Cell], widths: &[usize], limit: usize, colour: bool) -> String {
    let (cells, words) = row.split_at(row.len().min(widths.len()));
    let lines = words.iter().filter(|cell| !cell.text.is_empty()).flat_map(|cell| {
        let paint = |line: String| format!("\n{}{}", " ".repeat(INDENT), cell.style.paint(&line, colour));
        wrap(&cell.text, limit.saturating_sub(INDENT)).into_iter().map(paint)
    });
    let text = render_row(cells, widths, colour) + &lines.collect::<String>();
    // A row that only goes on with the sentence has nothing above it.
    text.trim_start_matches('\n').to_owned()
}

fn render_row(row: &[Cell], widths: &[usize], colour: bool) -> String {
    let mut line = String::new();
    let last = row.len().min(widths.len()).saturating_sub(1);
    for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
        let text = fit(&cell.text, *width);
        let padding = if index == last { 0 } else { width - text.chars().count() + GAP };
        line.push_str(&cell.style.paint(&text, colour));
        line.push_str(&" ".repeat(padding));
    }
    line.truncate(line.trim_end().len());
    line
}

fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Table {
        let mut table = Table::new(&["name", "pool", "why"]);
        table.row(["fra1-r12".into(), "h100".into(), Cell::from("converged").style(Style::Good)]);
        table.row(["fra1-r13-with-a-long-name".into(), "h100".into(), "waits for its first complete inventory".into()]);
        table
    }

    #[test]
    fn a_pipe_gets_every_word() {
        insta::assert_snapshot!(nodes().render(None, false));
    }

    #[test]
    fn a_narrow_terminal_gets_rows_that_fit() {
        let text = nodes().render(Some(48), false);
        assert!(text.lines().all(|line| line.chars().count() <= 48), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_people_copy_is_never_cut_and_what_they_read_is_broken_into_lines() {
        let kept = || nodes().whole(&["name"]).words();
        for width in [66, 48] {
            let text = kept().render(Some(width), false);
            assert!(text.lines().all(|line| line.chars().count() <= width) && !text.contains('…'), "{text}");
        }
        insta::assert_snapshot!("words_beside_their_row", kept().render(Some(66), false));
        insta::assert_snapshot!("words_below_their_row", kept().render(Some(48), false));
        assert_eq!(kept().render(None, false), nodes().render(None, false));
    }

    #[test]
    fn colours_do_not_move_columns() {
        let plain = nodes().render(Some(60), false);
        let coloured = nodes().render(Some(60), true);
        let stripped = ["\x1b[0m", "\x1b[2m", "\x1b[32m"].iter().fold(coloured, |text, code| text.replace(code, ""));
        let trimmed = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(trimmed(&stripped), trimmed(&plain));
    }
}
