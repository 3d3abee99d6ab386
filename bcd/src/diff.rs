//! What would change now, for people and programs: the very steps that a pass would carry out, not an imitation.

use std::fmt::Write as _;

use schema::{
    generation::Generation,
    spec::{NodeSpec, Section},
    time::Timestamp,
};
use serde::Serialize;
use similar::TextDiff;

use crate::{
    converge::{self, Host, Step},
    drift::Ledger,
    path::HostPath,
    section::Accounts,
    state::Memories,
    tree::{Entry, FileState},
};

/// Everything that one spec would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    /// The spec's generation; 0 for one that was never sent.
    pub generation: Generation,
    /// By section, in the order of work.
    pub sections: Vec<SectionDiff>,
}

/// What one section would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SectionDiff {
    /// Which.
    pub section: Section,
    /// In the order of work.
    pub changes: Vec<Change>,
    /// What cannot be had.
    pub problems: Vec<String>,
    /// What would wait for a boot.
    pub staged: Vec<String>,
    /// What something else changed and the spec lets be, by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<String>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "what")]
pub enum Change {
    /// A file or link.
    Path {
        /// Where.
        path: HostPath,
        /// As it is; absent when there is nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<Shape>,
        /// As it would be; absent when it would be removed.
        #[serde(skip_serializing_if = "Option::is_none")]
        after: Option<Shape>,
        /// The content's difference, unified; empty when only the rest differs.
        diff: String,
    },
    /// A value in the kernel.
    Value {
        /// The file that shows it.
        path: HostPath,
        /// As it is.
        before: String,
        /// As it would be.
        after: String,
    },
    /// A program that would be run.
    Run {
        /// What it would do.
        action: String,
    },
}

/// What a file is besides its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Shape {
    /// A regular file.
    File {
        /// Four octal digits.
        mode: String,
        /// The user's name, or number.
        owner: String,
        /// The group's name, or number.
        group: String,
    },
    /// A symbolic link.
    Link {
        /// Where it points.
        target: String,
    },
}

/// Computes the difference. Reads the host, changes nothing.
#[must_use]
pub fn diff(
    host: Host<'_>,
    generation: Generation,
    spec: &NodeSpec,
    memories: &Memories,
    ledger: &Ledger,
    now: Timestamp,
) -> Diff {
    let facts = crate::section::Facts::gather(host.tree, spec, host.state_dir.cloned());
    let sections = Section::ALL.iter().map(|section| {
        let memory = memories.get(section).cloned().unwrap_or_default();
        let (planned, weighed) = converge::plan(host, *section, spec, &memory, ledger, now);
        let desired = weighed.desired;
        let left = weighed.findings.iter().filter(|(_, finding)| !finding.correct);
        let left_alone = left.map(|(path, finding)| format!("{path} ({})", finding.mode)).collect();
        let is_secret = |path: &HostPath| memory.secrets.contains_key(path) || desired.secrets.contains_key(path);
        let changes = planned.steps.iter().filter_map(|step| change(host, step, &facts.accounts, is_secret)).collect();
        let problems = desired.problems.into_iter().chain(planned.problems).collect();
        SectionDiff { section: *section, changes, problems, staged: desired.staged, left_alone }
    });
    Diff { generation, sections: sections.collect() }
}

impl Diff {
    /// Whether nothing would be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sections.iter().all(|section| section.changes.is_empty() && section.problems.is_empty())
    }

    /// The difference for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for section in &self.sections {
            for change in &section.changes {
                change.write(&mut out);
            }
            for problem in &section.problems {
                line(&mut out, &format!("! {}: {problem}", section.section));
            }
        }
        for left in self.sections.iter().flat_map(|section| &section.left_alone) {
            line(&mut out, &format!("~ was changed by something else, is left alone: {left}"));
        }
        for staged in self.sections.iter().flat_map(|section| &section.staged) {
            line(&mut out, &format!("~ waits for a boot: {staged}"));
        }
        if self.is_empty() {
            line(&mut out, "nothing to change");
        }
        out
    }
}

impl Change {
    fn write(&self, out: &mut String) {
        match self {
            Self::Path { path, before, after, diff } => {
                line(out, &format!("--- {}", head(path, before.as_ref())));
                line(out, &format!("+++ {}", head(path, after.as_ref())));
                for text in diff.lines() {
                    line(out, text);
                }
            }
            Self::Value { path, before, after } => line(out, &format!("= {path}: {before} -> {after}")),
            Self::Run { action } => line(out, &format!("> {action}")),
        }
    }
}

fn head(path: &HostPath, shape: Option<&Shape>) -> String {
    match shape {
        None => "/dev/null".to_owned(),
        Some(Shape::File { mode, owner, group }) => format!("{path} ({mode} {owner}:{group})"),
        Some(Shape::Link { target }) => format!("{path} -> {target}"),
    }
}

/// A line for a terminal: what a file holds must not move the cursor.
fn line(out: &mut String, text: &str) {
    for letter in text.chars() {
        if letter.is_control() && letter != '\t' {
            write!(out, "{}", letter.escape_default()).expect("a string takes text");
        } else {
            out.push(letter);
        }
    }
    out.push('\n');
}

fn change(host: Host<'_>, step: &Step, accounts: &Accounts, is_secret: impl Fn(&HostPath) -> bool) -> Option<Change> {
    match step {
        Step::Put(path, after) => {
            let before = host.tree.read(path).unwrap_or(Entry::Absent);
            Some(Change::Path {
                path: path.clone(),
                diff: if is_secret(path) {
                    "a secret; its content is not shown\n".to_owned()
                } else {
                    content_diff(&before, after)
                },
                before: shape(&before, accounts),
                after: shape(after, accounts),
            })
        }
        Step::SetValue(path, after) => {
            let before = host.tree.text(path).unwrap_or_default().trim().to_owned();
            Some(Change::Value { path: path.clone(), before, after: after.clone() })
        }
        Step::Load(module) => Some(Change::Run { action: format!("load module {module}") }),
        Step::Activate(unit, wanted) => {
            let verb = if *wanted { "start" } else { "stop" };
            Some(Change::Run { action: format!("{verb} {unit}") })
        }
        // What has no programs of its own runs none.
        Step::Run(action) if host.runner.is_systemd() => Some(Change::Run { action: action.to_string() }),
        _ => None,
    }
}

fn shape(entry: &Entry, accounts: &Accounts) -> Option<Shape> {
    match entry {
        Entry::File(FileState { mode, uid, gid, .. }) => Some(Shape::File {
            mode: format!("{mode:04o}"),
            owner: accounts.user_name(*uid),
            group: accounts.group_name(*gid),
        }),
        Entry::Link(target) => Some(Shape::Link { target: target.clone() }),
        Entry::Absent | Entry::Other(_) => None,
    }
}

fn content_diff(before: &Entry, after: &Entry) -> String {
    let content = |entry: &Entry| match entry {
        Entry::File(file) => file.content.clone(),
        _ => Vec::new(),
    };
    let (before, after) = (content(before), content(after));
    match (std::str::from_utf8(&before), std::str::from_utf8(&after)) {
        (Ok(before), Ok(after)) => TextDiff::from_lines(before, after).unified_diff().to_string(),
        _ if before == after => String::new(),
        _ => format!("binary content differs: {} -> {} bytes\n", before.len(), after.len()),
    }
}

#[cfg(test)]
mod tests;
