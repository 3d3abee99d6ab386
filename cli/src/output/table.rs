//! Tables that fit a terminal. Pure: rows in, text out.
//!
//! On a terminal the widest columns give way until a row fits, and what is cut ends in `…`. In a pipe nothing is cut, and
//! neither is what people copy (ids, paths, reasons): when that does not fit on a line, its row takes two.

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
    whole: Vec<usize>,
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
        let stacked = width.is_some_and(|limit| taken(&widths) > limit);
        let lines = std::iter::once(&heading)
            .chain(&self.rows)
            .map(|row| if stacked { render_stacked(row, colour) } else { render_row(row, &widths, colour) });
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

/// The first cell on a line of its own, the others below it.
fn render_stacked(row: &[Cell], colour: bool) -> String {
    let paint = |cell: &Cell| cell.style.paint(&cell.text, colour);
    let mut cells = row.iter().filter(|cell| !cell.text.is_empty());
    let first = cells.next().map(paint).unwrap_or_default();
    let rest: Vec<String> = cells.map(paint).collect();
    format!("{first}\n  {}", rest.join("  ")).trim_end().to_owned()
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
    fn what_people_copy_is_never_cut() {
        let kept = Table { whole: vec![0, 2], ..nodes() };
        assert!(!kept.render(Some(48), false).contains('…'));
        insta::assert_snapshot!(kept.render(Some(48), false));
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
