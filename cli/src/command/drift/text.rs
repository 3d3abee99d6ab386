//! What differs in the texts of files, and what can be done about it: a few of them, a few lines each.

use schema::report::DriftMode;
use serde::Deserialize;
use serde_json::Value;
use similar::TextDiff;

use super::{Drifted, ask};
use crate::{
    client::Client,
    exit::{During as _, Failure},
    output::{
        Output,
        text::{Style, count, printable},
    },
};

/// How many texts are compared.
const TEXTS: usize = 5;
/// How many lines of a comparison are shown.
const LINES: usize = 20;
/// How long a line is.
const LINE: usize = 160;

/// A field with the whole of its text.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Whole {
    path: String,
    observed: Option<String>,
    desired_text: Option<String>,
    template: Option<String>,
}

/// What is said below the table.
#[derive(Debug, Default)]
pub(super) struct Below {
    /// The comparisons.
    pub(super) diffs: Vec<String>,
    /// What can be done.
    pub(super) hint: Option<String>,
}

/// Asks for the whole texts of the first few fields that are not as desired.
///
/// # Errors
/// When a call fails.
pub(super) async fn below(client: &Client, drifted: &[Drifted], output: &Output) -> Result<Below, Failure> {
    let standing = |drifted: &&Drifted| !drifted.entry.corrected && drifted.entry.observed.is_some();
    let (mut below, mut made) = (Below::default(), None);
    for (index, Drifted { node, entry, .. }) in drifted.iter().filter(standing).enumerate() {
        let is_text = entry.path.starts_with("files.") && entry.path.ends_with(".content");
        let taken = || Some(takes_over(node, &entry.path));
        if !is_text {
            below.hint = below.hint.take().or_else(taken);
            continue;
        }
        if index >= TEXTS {
            continue;
        }
        let found = ask(client, Some(node), None, Some(&entry.path)).await?;
        let Some(whole) = found.iter().find_map(|item| whole(item, &entry.path).transpose()).transpose()? else {
            continue;
        };
        below.diffs.extend(whole.diff(node, output));
        match &whole.template {
            Some(template) => made = made.or_else(|| Some(made_by(&entry.path, template, entry.mode))),
            None => below.hint = below.hint.take().or_else(taken),
        }
    }
    below.hint = below.hint.or(made);
    Ok(below)
}

fn whole(item: &Value, path: &str) -> Result<Option<Whole>, Failure> {
    let whole = Whole::deserialize(item)
        .during("the control plane's word of drift is in a form that this version does not know")?;
    Ok((whole.path == path).then_some(whole))
}

fn takes_over(node: &str, path: &str) -> String {
    format!("`better-compute adopt node/{node} {path}` takes a value over into the fleet repository")
}

/// What can be done about a text that a template makes: `adopt` edits values, and a template is none.
fn made_by(path: &str, template: &str, mode: DriftMode) -> String {
    let (field, template) = (printable(path), printable(template));
    let rule = field.trim_end_matches(".content");
    let said = format!("{field} is made by the template {template}, so that it cannot be adopted: change the template");
    match mode {
        DriftMode::Enforce => {
            format!("{said}, or let the machine keep its own with `drift {{ warn \"{rule}\" }}` in its profile")
        }
        DriftMode::Warn | DriftMode::Adopt => said,
    }
}

impl Whole {
    /// The lines that differ, from what should be to what is.
    fn diff(&self, node: &str, output: &Output) -> Option<String> {
        let (Some(desired), Some(observed)) = (&self.desired_text, &self.observed) else { return None };
        let diff = TextDiff::from_lines(desired, observed);
        let text = diff.unified_diff().context_radius(1).missing_newline_hint(true).to_string();
        let all: Vec<&str> = text.lines().collect();
        let path = printable(&self.path);
        let mut lines = vec![Style::Bold.paint(&format!("{} {path}", printable(node)), output.colour)];
        lines.extend(all.iter().take(LINES).map(|line| {
            let shown = printable(&line.chars().take(LINE).collect::<String>());
            let style = match line.as_bytes().first() {
                Some(b'-') => Style::Bad,
                Some(b'+') => Style::Good,
                _ => Style::Dim,
            };
            format!("  {}", style.paint(&shown, output.colour))
        }));
        if all.len() > LINES {
            lines.push(format!(
                "  and {}; --path {path} --format json has the whole texts",
                count((all.len() - LINES) as u64, "more line")
            ));
        }
        Some(lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn output() -> Output {
        Output { format: Format::Text, colour: false, width: None, now: "2026-11-29T12:10:00Z".parse().unwrap() }
    }

    fn of(desired: &str, observed: &str) -> Whole {
        Whole {
            path: "files./etc/motd.content".to_owned(),
            observed: Some(observed.to_owned()),
            desired_text: Some(desired.to_owned()),
            template: None,
        }
    }

    #[test]
    fn a_text_is_told_by_the_lines_that_differ() {
        let told =
            of("welcome\nto fra1\nask ops\n", "welcome\nto my host\u{1b}[2J\nask ops\n").diff("gpu-1", &output());
        insta::assert_snapshot!(told.unwrap());
    }

    #[test]
    fn a_long_difference_is_counted() {
        let (desired, observed): (String, String) =
            ((0..100).map(|n| format!("a{n}\n")).collect(), (0..100).map(|n| format!("b{n}\n")).collect());
        let told = of(&desired, &observed).diff("gpu-1", &output()).unwrap();
        assert_eq!(told.lines().count(), LINES + 2);
        assert!(
            told.ends_with("and 181 more lines; --path files./etc/motd.content --format json has the whole texts"),
            "{told}"
        );
    }

    #[test]
    fn what_a_template_makes_is_not_recommended_to_be_adopted() {
        let said = made_by("files./etc/motd.content", "templates/motd.j2", DriftMode::Enforce);
        assert!(!said.contains("better-compute adopt") && said.contains("templates/motd.j2"), "{said}");
        assert!(said.contains("warn \"files./etc/motd\""), "{said}");
    }
}
