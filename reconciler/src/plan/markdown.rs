//! A plan as a comment on a pull request: the summary first, the parts folded, never more than [`MARKDOWN_BYTES`].
//!
//! The same plan gives the same bytes, and the first line is a mark by which one comment is found and edited in place.
//! Text of the repository stands in code alone, where nobody is mentioned, nothing is linked and no tag is read; and what
//! ends code early is not in it.

use std::fmt::Write as _;

use super::{
    Plan,
    render::{self, BOUND, Fold, Section, class_word, cut, few, pool_words, quiet},
};

/// The most bytes that a comment has.
pub const MARKDOWN_BYTES: usize = 60_000;

/// How many of a kind are named, and how long a line is.
const FOLD: Fold = Fold { most: render::FOLD, width: 100 };

/// The most rows of the table of machines.
const ROWS: usize = 16;

/// The longest line of a part: more than what is shown of what differs in one.
const LINE: usize = 2_000;

/// With fewer lines than this in all parts, they are shown unfolded.
const SHORT: usize = 40;

/// Room for the line that counts what is left out.
const REST: usize = 120;

const DONE: &str = "a string takes anything";

/// The line by which a comment is found again. `key` tells the fleets of one repository apart; it may be empty.
#[must_use]
pub fn mark(key: &str) -> String {
    let key: String = key.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-')).collect();
    let key = cut(&key.replace("--", "-"), 100).replace('…', "");
    if key.is_empty() {
        "<!-- better-compute:plan -->".to_owned()
    } else {
        format!("<!-- better-compute:plan {key} -->")
    }
}

/// The plan as a comment.
#[must_use]
pub fn markdown(plan: &Plan, key: &str) -> String {
    let (to, from) = render::compared(plan);
    let mut out = format!("{}\n", mark(key));
    writeln!(out, "### Plan: {}\n", headline(plan)).expect(DONE);
    writeln!(out, "{} compared with {} · {}\n", code(&to), code(&from), render::facts(plan).join(" · ")).expect(DONE);
    table(&mut out, plan);
    let staged = render::staged(plan);
    if !staged.is_empty() {
        writeln!(out, "{}.\n", staged.join(".  \n")).expect(DONE);
    }
    writeln!(out, "**Files:** {}.  ", render::objects(plan)).expect(DONE);
    writeln!(out, "**Machines:** {}.\n", render::machines(plan)).expect(DONE);
    if let Some(bound) = render::bound(plan) {
        let held = bound.held.map_or_else(String::new, |held| format!(" **{held}**"));
        writeln!(out, "{}{held} {}\n", bound.from, bound.how).expect(DONE);
        writeln!(out, "```text\n{}\n```\n", cut(&quiet(bound.trailer), 200).replace('`', "'")).expect(DONE);
    }
    let tail = format!("<sub>plan {}</sub>\n", code(&plan.digest().to_string()));
    let mut sections = render::sections(plan, FOLD);
    // Said above already, where it can be copied.
    sections.retain(|section| section.title != BOUND);
    let lines: usize = sections.iter().map(|section| section.lines.len()).sum();
    let parts: Vec<Part> = sections.iter().map(|section| Part::of(section, lines <= SHORT)).collect();
    let room = MARKDOWN_BYTES.saturating_sub(out.len() + tail.len());
    for (part, share) in parts.iter().zip(shares(&parts.iter().map(Part::bytes).collect::<Vec<_>>(), room)) {
        part.write(&mut out, share);
    }
    out + &tail
}

/// What is said of a tree that is no fleet: what `check` finds, as a comment under the same mark.
#[must_use]
pub fn markdown_of_findings(findings: &str, errors: usize, key: &str) -> String {
    let errors = if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") };
    let mut out = format!("{}\n### Plan: none, the fleet has {errors}\n\n", mark(key));
    out.push_str("Nothing of this can be applied; what is in force stays.\n\n");
    let lines: Vec<String> = findings.lines().map(|line| cut(&quiet(line), LINE)).collect();
    let part = Part { title: "Findings".to_owned(), open: true, lines };
    let room = MARKDOWN_BYTES - out.len();
    part.write(&mut out, room);
    out
}

fn headline(plan: &Plan) -> String {
    if render::is_empty(plan) {
        return "nothing changes".to_owned();
    }
    let hardest = |held: bool| {
        let nodes = plan.nodes.iter().filter(|node| node.held.is_empty() != held);
        nodes.map(|node| node.effect).max().map_or_else(String::new, |class| class_word(class).to_owned())
    };
    let held = plan.nodes.iter().filter(|node| !node.held.is_empty()).count();
    let machines = plan.counts.machines;
    let mut text = match plan.counts.moves.saturating_sub(held) {
        0 if held > 0 => format!("no machine of {machines} moves now"),
        0 => "no machine moves".to_owned(),
        1 => format!("1 of {} moves, {}", render::count(machines, "machine"), hardest(false)),
        going => format!("{going} of {machines} machines move, up to {}", hardest(false)),
    };
    if let Some(going) = render::at_once(plan) {
        write!(text, ", {going} at once").expect(DONE);
    }
    match held {
        0 => {}
        1 => write!(text, ", 1 held ({})", hardest(true)).expect(DONE),
        held => write!(text, ", {held} held (up to {})", hardest(true)).expect(DONE),
    }
    for (number, word) in [(plan.counts.remove, "removed"), (plan.counts.retain, "retained")] {
        if number > 0 {
            write!(text, ", {} {word}", render::count(number, "object")).expect(DONE);
        }
    }
    text
}

fn table(out: &mut String, plan: &Plan) {
    let rows = render::rows(plan);
    if rows.is_empty() {
        return;
    }
    out.push_str("| effect | machines | held | pool | which |\n|---|--:|--:|---|---|\n");
    let shown = if rows.len() <= ROWS + 2 { rows.len() } else { ROWS };
    for row in &rows[..shown] {
        let held = if row.held > 0 { format!("**{}**", row.held) } else { String::new() };
        let (class, pool, nodes) = (class_word(row.class), pool_words(&row.pools), few(&row.nodes, 160));
        writeln!(out, "| {class} | {} | {held} | `{pool}` | `{nodes}` |", row.nodes.len()).expect(DONE);
    }
    if rows.len() > shown {
        let machines: usize = rows[shown..].iter().map(|row| row.nodes.len()).sum();
        writeln!(out, "| … | {machines} | | {} more rows | |", rows.len() - shown).expect(DONE);
    }
    out.push('\n');
}

/// Foreign words among ours.
fn code(text: &str) -> String {
    let text = cut(&quiet(text), 120).replace('`', "'");
    if text.trim().is_empty() { "`-`".to_owned() } else { format!("`{text}`") }
}

/// A part that can be cut short.
struct Part {
    title: String,
    open: bool,
    lines: Vec<String>,
}

impl Part {
    fn of(section: &Section, short: bool) -> Self {
        let lines: Vec<String> = section.lines.iter().map(|line| cut(&line.diff(), LINE)).collect();
        let urgent = ["Held", "Retained"].iter().any(|word| section.title.starts_with(word));
        Self { title: section.title.clone(), open: short || urgent, lines }
    }

    /// A fence that no line of it ends.
    fn fence(&self) -> String {
        let longest = |line: &String| line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        "`".repeat(self.lines.iter().map(longest).max().unwrap_or(0).max(2) + 1)
    }

    fn frame(&self) -> (String, String) {
        let (open, fence) = (if self.open { " open" } else { "" }, self.fence());
        let title = &self.title;
        (format!("<details{open}><summary>{title}</summary>\n\n{fence}diff\n"), format!("{fence}\n\n</details>\n\n"))
    }

    /// The bytes that the whole part takes.
    fn bytes(&self) -> usize {
        let (head, tail) = self.frame();
        head.len() + tail.len() + self.lines.iter().map(|line| line.len() + 1).sum::<usize>()
    }

    /// Writes as much as `share` bytes hold.
    fn write(&self, out: &mut String, share: usize) {
        let (head, tail) = self.frame();
        let whole = self.bytes() <= share;
        let Some(mut left) = share.checked_sub(head.len() + tail.len() + if whole { 0 } else { REST }) else { return };
        out.push_str(&head);
        let mut shown = 0;
        for line in &self.lines {
            let Some(rest) = left.checked_sub(line.len() + 1) else { break };
            left = rest;
            out.push_str(line);
            out.push('\n');
            shown += 1;
        }
        if shown < self.lines.len() {
            writeln!(out, "# and {} more lines: `better-compute plan` shows them all", self.lines.len() - shown)
                .expect(DONE);
        }
        out.push_str(&tail);
    }
}

/// Divides `room` fairly: who needs less than an equal share leaves the rest to the others.
fn shares(needs: &[usize], room: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|index| needs[*index]);
    let (mut shares, mut left) = (vec![0; needs.len()], room);
    for (done, index) in order.into_iter().enumerate() {
        let share = needs[index].min(left / (needs.len() - done));
        shares[index] = share;
        left -= share;
    }
    shares
}
