//! Tables that fit a terminal. Pure: rows in, text out.
//!
//! On a terminal the widest columns give way until a row fits, and what is cut ends in `…`. In a pipe nothing is cut.

use super::text::{Style, printable};

const GAP: usize = 2;
const NARROWEST: usize = 8;

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
}

impl Table {
    /// A table with these columns.
    #[must_use]
    pub fn new(heading: &[&str]) -> Self {
        Self { heading: heading.iter().map(|title| title.to_uppercase()).collect(), rows: Vec::new() }
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
        let widths = self.widths(width);
        let heading: Vec<Cell> =
            self.heading.iter().map(|title| Cell { text: title.clone(), style: Style::Dim }).collect();
        let lines = std::iter::once(&heading).chain(&self.rows).map(|row| render_row(row, &widths, colour));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heading.iter().map(|title| title.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let Some(limit) = limit else { return widths };
        while widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > limit {
            match widths.iter_mut().max() {
                Some(widest) if *widest > NARROWEST => *widest -= 1,
                _ => break,
            }
        }
        widths
    }
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
    fn colours_do_not_move_columns() {
        let plain = nodes().render(Some(60), false);
        let coloured = nodes().render(Some(60), true);
        let stripped = ["\x1b[0m", "\x1b[2m", "\x1b[32m"].iter().fold(coloured, |text, code| text.replace(code, ""));
        let trimmed = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(trimmed(&stripped), trimmed(&plain));
    }
}
