//! A plan as people read it on a terminal. Pure: a plan in, a text out.
//!
//! It says first what a reviewer has to know (how many machines, how hard, where), then every part in detail, and ends
//! with one line that says it all. [`markdown`](super::markdown) shows the same parts in a comment.

mod groups;
mod lines;
mod names;
mod page;
mod quiet;
mod sections;
mod summary;
mod values;
mod versus;

#[cfg(test)]
mod tests;

pub(super) use groups::{few, pool_words, rows, said as class_word};
pub(super) use page::Section;
pub(super) use quiet::{cut, quiet};
pub(super) use sections::{BOUND, Fold, count, of as sections};
pub(super) use summary::{at_once, bound, compared, facts, is_empty, machines, objects, staged};

use super::Plan;
use page::{Ink, paint};

/// How many machines, objects and fields of one kind are named before the rest is counted, on a terminal and in a comment.
pub(super) const FOLD: usize = 12;

/// How a plan is shown.
#[derive(Debug, Clone, Copy)]
pub struct RenderOptions {
    /// Colours, for a terminal that has them.
    pub colour: bool,
    /// The width of a line.
    pub width: usize,
    /// How many machines, objects and fields of one kind are named before the rest is counted.
    pub fold: usize,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { colour: false, width: 100, fold: FOLD }
    }
}

impl RenderOptions {
    /// The same with everything named.
    #[must_use]
    pub const fn unfolded(self) -> Self {
        Self { fold: usize::MAX, ..self }
    }
}

impl Plan {
    /// Whether it would change nothing at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        is_empty(self)
    }
}

/// The whole plan.
#[must_use]
pub fn render(plan: &Plan, options: RenderOptions) -> String {
    let RenderOptions { colour, width, fold: most } = options;
    let fold = Fold { most, width };
    let (to, from) = compared(plan);
    let title = format!("{} of {to}, compared with {from}", paint(Ink::Bold, "Plan", colour));
    let mut lines = vec![title];
    lines.extend(beside(&facts(plan), width).iter().map(|line| paint(Ink::Dim, line, colour)));
    let mut titled = |title: &str, rows: &[page::Line]| {
        lines.push(String::new());
        lines.push(paint(Ink::Bold, title, colour));
        lines.extend(rows.iter().map(|row| row.terminal(colour)));
    };
    let table = summary::table(plan, fold);
    if !table.is_empty() {
        titled("Machines", &table);
    }
    for section in sections(plan, fold) {
        titled(&section.title, &section.lines);
    }
    let verdict = if is_empty(plan) {
        format!("Nothing changes: {}, {}.", objects(plan), machines(plan))
    } else {
        format!("{}; {}.", objects(plan), machines(plan))
    };
    lines.push(String::new());
    lines.extend(page::wrap(&verdict, width).iter().map(|line| paint(Ink::Bold, line, colour)));
    lines.join("\n") + "\n"
}

/// Facts on one line where they fit, else each on lines of its own.
fn beside(facts: &[String], width: usize) -> Vec<String> {
    let one = facts.join(" · ");
    if one.chars().count() <= width {
        vec![one]
    } else {
        facts.iter().flat_map(|fact| page::wrap(fact, width)).collect()
    }
}

/// What differs between a plan that was shown and another one, by machines, files and facts.
#[must_use]
pub fn render_against(shown: &Plan, plan: &Plan, options: RenderOptions) -> String {
    let RenderOptions { colour, width, fold: most } = options;
    let title = format!("Against the plan {}", shown.digest().short());
    let mut lines = vec![paint(Ink::Bold, &title, colour)];
    let sections = versus::sections(shown, plan, Fold { most, width });
    if sections.is_empty() {
        lines.push("  It says the same.".to_owned());
    }
    for section in sections {
        lines.push(format!("  {}", section.title));
        lines.extend(section.lines.iter().map(|line| format!("  {}", line.terminal(colour))));
    }
    lines.join("\n") + "\n"
}
