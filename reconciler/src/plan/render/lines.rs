//! What differs between two texts, line by line, and between two lists, item by item.

use similar::{Algorithm, ChangeTag, capture_diff_slices, group_diff_ops};

use super::{
    page::{Ink, Line},
    quiet::{DIFFERS, around, cut, quiet_line, whole},
};

/// Beyond this many lines between what two texts begin and end with, one is told as going and the other as coming.
const COMPARED: usize = 2_000;

/// How many lines around a change are shown.
const AROUND: usize = 1;

/// Where lines go and how many there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// How far they stand in.
    pub(super) indent: usize,
    /// How many there are at most.
    pub(super) most: usize,
    /// How long each is; what differs in one is shown all the same.
    pub(super) width: usize,
}

impl Room {
    /// How much of what differs in one line is shown.
    pub(super) const fn differs(self) -> usize {
        if self.most == usize::MAX { usize::MAX } else { DIFFERS }
    }
}

/// The lines of a text that differ, with the ones around them.
pub(super) fn text(before: &str, after: &str, room: Room) -> Vec<Line> {
    let (old, new): (Vec<&str>, Vec<&str>) = (split(before), split(after));
    if old == new {
        let what = if before == after { "no line differs" } else { "only the line break at the end differs" };
        return vec![Line::new(room.indent).with(Ink::Dim, what)];
    }
    compare(&old, &new, AROUND, room)
}

/// The items of a list that come and go.
pub(super) fn items(before: &[String], after: &[String], room: Room) -> Vec<Line> {
    let old: Vec<&str> = before.iter().map(String::as_str).collect();
    let new: Vec<&str> = after.iter().map(String::as_str).collect();
    compare(&old, &new, 0, room)
}

fn compare(old: &[&str], new: &[&str], around: usize, room: Room) -> Vec<Line> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (goes, comes) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    if goes.len().max(comes.len()) > COMPARED {
        let goes = goes.iter().map(|line| (ChangeTag::Delete, *line));
        let changes = goes.chain(comes.iter().map(|line| (ChangeTag::Insert, *line))).collect();
        return shown(vec![(head, changes)], false, room);
    }
    let groups = group_diff_ops(capture_diff_slices(Algorithm::Myers, old, new), around);
    let groups: Vec<Group<'_>> = groups
        .iter()
        .map(|group| {
            let first = group.first().map_or(0, |op| op.new_range().start);
            let changes = group.iter().flat_map(|op| op.iter_changes(old, new));
            (first, changes.map(|change| (change.tag(), change.value())).collect())
        })
        .collect();
    let placed = around > 0 && (groups.len() > 1 || head > around);
    shown(groups, placed, room)
}

/// The first line of a place, and what is there.
type Group<'a> = (usize, Vec<(ChangeTag, &'a str)>);

fn shown(groups: Vec<Group<'_>>, placed: bool, room: Room) -> Vec<Line> {
    let total: usize = groups.iter().map(|(_, changes)| changes.len()).sum();
    // One line that says "1 more" takes as much room as the line itself.
    let most = if total <= room.most.saturating_add(2) { total } else { room.most.max(1) };
    let (mut lines, mut left) = (Vec::new(), most);
    for (first, changes) in groups {
        if placed && left > 0 {
            lines.push(Line::new(room.indent).with(Ink::Dim, &format!("line {}:", first + 1)));
        }
        let fits = changes.len().min(left);
        left -= fits;
        let texts = texts(&changes, room);
        lines.extend(changes[..fits].iter().zip(texts).map(|((tag, _), text)| one(*tag, &text, room)));
    }
    if total > most {
        lines.push(Line::new(room.indent).with(Ink::Dim, &format!("and {} more lines", total - most)));
    }
    lines
}

/// The lines of one place as they are shown: one that takes the place of another is held against it.
fn texts(changes: &[(ChangeTag, &str)], room: Room) -> Vec<String> {
    let (width, most) = (room.width.max(16), room.differs());
    let mut out = Vec::with_capacity(changes.len());
    for run in changes.chunk_by(|(one, _), (next, _)| *one == *next || *next == ChangeTag::Insert) {
        let goes = run.iter().take_while(|(tag, _)| *tag == ChangeTag::Delete).count();
        let quiet: Vec<String> = run.iter().map(|(_, line)| quiet_line(line)).collect();
        out.extend(run.iter().enumerate().map(|(index, (tag, _))| match tag {
            ChangeTag::Equal => cut(&quiet[index], width),
            ChangeTag::Delete => match quiet.get(goes + index).filter(|_| run[goes + index].0 == ChangeTag::Insert) {
                Some(new) => around(&quiet[index], new, width, most).0,
                None => whole(&quiet[index], most),
            },
            ChangeTag::Insert => match index.checked_sub(goes).and_then(|at| quiet[..goes].get(at)) {
                Some(old) => around(old, &quiet[index], width, most).1,
                None => whole(&quiet[index], most),
            },
        }));
    }
    out
}

fn one(tag: ChangeTag, text: &str, room: Room) -> Line {
    match tag {
        ChangeTag::Delete => Line::marked(room.indent, '-').with(Ink::Bad, text),
        ChangeTag::Insert => Line::marked(room.indent, '+').with(Ink::Good, text),
        ChangeTag::Equal => Line::new(room.indent + 2).with(Ink::Dim, text),
    }
}

fn split(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.last() == Some(&"") {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { indent: 0, most: 12, width: 80 };

    fn page(lines: &[Line]) -> String {
        lines.iter().map(|line| line.terminal(false)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_change_stands_between_its_neighbours() {
        let old: String = (1..=20).map(|number| format!("line {number}\n")).collect();
        let new = old.replace("line 9\n", "line nine\n").replace("line 15\n", "");
        insta::assert_snapshot!(page(&text(&old, &new, ROOM)), @r"
        line 8:
          line 8
        - line 9
        + line nine
          line 10
        line 14:
          line 14
        - line 15
          line 16
        ");
    }

    #[test]
    fn an_edit_far_along_a_line_is_seen() {
        let line = |end: &str| format!("first\n{} and {end}{}\nlast\n", "word ".repeat(40), " word".repeat(40));
        insta::assert_snapshot!(page(&text(&line("undone."), &line("undone at once."), ROOM)), @r"
          first
        - …ord word word word word  and undone. word word word word word word wor…
        + …ord word word word word  and undone at once. word word word word word word wor…
          last
        ");
        let added = format!("first\n{}; rm -rf /\n", "word ".repeat(40));
        assert!(page(&text("first\n", &added, ROOM)).ends_with("; rm -rf /"));
        let (old, new) = (["one\n".repeat(2), line("x")].concat(), [line("y"), "four\n".to_owned()].concat());
        assert!(page(&text(&old, &new, ROOM)).contains("and y"));
    }

    #[test]
    fn what_cannot_be_seen_is_said() {
        assert_eq!(page(&text("a\n", "a", ROOM)), "only the line break at the end differs");
        assert_eq!(page(&text("a\nb \n", "a\r\nb\n", ROOM)), "- a\n- b·\n+ a\\r\n+ b");
    }

    #[test]
    fn long_changes_are_counted() {
        let new: String = (0..5_000).map(|number| format!("{number}\n")).collect();
        let lines = page(&text("x\n", &new, ROOM));
        assert!(lines.ends_with("and 4989 more lines") && lines.lines().count() == 13, "{lines}");
    }

    #[test]
    fn lists_are_told_item_by_item() {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        assert_eq!(page(&items(&list(&["quiet", "a=1"]), &list(&["a=1", "iommu=pt"]), ROOM)), "- quiet\n+ iommu=pt");
    }
}
