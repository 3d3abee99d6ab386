//! How a plan, or what keeps a tree from having one, reaches a reader.

use std::{fs, path::Path};

use reconciler::plan::{self, Plan, RenderOptions};
use schema::{diagnostic, fleet::Loaded};
use serde_json::Value;

use super::{Copy, PlanFormat};
use crate::{
    command::check,
    exit::{During as _, Failure},
    output::{Output, text::printable_lines},
};

/// What a plan came to.
pub(super) enum End {
    /// Nothing to do.
    Nothing,
    /// Changes.
    Changes,
    /// The tree is no fleet.
    Invalid,
}

/// How it is shown.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) format: PlanFormat,
    /// Files that it is written into as well.
    pub(super) copies: &'a [Copy],
    /// Everything is named.
    pub(super) all: bool,
    /// Tells the comments of several fleets apart.
    pub(super) key: &'a str,
    /// The plan that it is held against.
    pub(super) against: Option<&'a Plan>,
    pub(super) output: &'a Output,
}

impl Look<'_> {
    /// A plan.
    pub(super) fn plan(self, plan: &Plan) -> Result<End, Failure> {
        self.put(|format, output| match format {
            PlanFormat::Json => pretty(&serde_json::to_value(plan).during("cannot write the plan")?),
            PlanFormat::Markdown => Ok(plan::markdown(plan, self.key)),
            PlanFormat::Text => {
                let text = in_words(plan, self.all, output);
                let Some(shown) = self.against else { return Ok(text) };
                let page = plan::render_against(shown, plan, options(self.all, output));
                Ok(format!("{text}\n\n{}", page.trim_end()))
            }
        })?;
        Ok(End::of(plan))
    }

    /// What is wrong with a tree, as `check` says it.
    pub(super) fn findings(self, loaded: &Loaded) -> Result<End, Failure> {
        self.put(|format, output| match format {
            PlanFormat::Json => pretty(&diagnostic::json::to_value(&loaded.diagnostics)),
            PlanFormat::Text => Ok(check::in_words(loaded, output.colour)),
            PlanFormat::Markdown => {
                let errors = loaded.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
                Ok(plan::markdown_of_findings(&check::in_words(loaded, false), errors, self.key))
            }
        })?;
        Ok(End::Invalid)
    }

    /// The same, when only the control plane found it: it may know rules that this version does not.
    pub(super) fn said_invalid(self, findings: &Value) -> Result<End, Failure> {
        let items = findings.get("diagnostics").and_then(Value::as_array);
        let lines: Vec<String> = items.into_iter().flatten().map(finding).collect();
        let text = format!("The control plane finds errors in this fleet:\n\n{}", lines.join("\n"));
        self.put(|format, _| match format {
            PlanFormat::Json => pretty(findings),
            PlanFormat::Text => Ok(printable_lines(&text)),
            PlanFormat::Markdown => Ok(plan::markdown_of_findings(&text, lines.len(), self.key)),
        })?;
        Ok(End::Invalid)
    }

    /// Writes a page in every form that is wanted, the files first.
    fn put(&self, page: impl Fn(PlanFormat, &Output) -> Result<String, Failure>) -> Result<(), Failure> {
        let plain = Output { colour: false, width: None, ..self.output.clone() };
        for Copy { format, file } in self.copies {
            let text = page(*format, &plain)?;
            fs::write(file, format!("{}\n", text.trim_end())).during(format!("cannot write {}", file.display()))?;
        }
        self.output.line(page(self.format, self.output)?.trim_end())
    }
}

fn pretty(value: &Value) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).during("cannot write the plan")
}

fn finding(item: &Value) -> String {
    let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
    let number = |key: &str| item.get(key).and_then(Value::as_u64).unwrap_or_default();
    let help = item.get("help").and_then(Value::as_str).map_or_else(String::new, |help| format!(" ({help})"));
    format!("{}:{}:{}: {} [{}]{help}", text("file"), number("line"), number("column"), text("message"), text("code"))
}

impl End {
    fn of(plan: &Plan) -> Self {
        if plan.is_empty() { Self::Nothing } else { Self::Changes }
    }
}

/// Shows what `plans.get` answered.
///
/// # Errors
/// When it is no plan that this version knows.
pub fn show_stored(stored: &Value, output: &Output) -> Result<(), Failure> {
    let plan = document(stored)?;
    output.line(format!("{}\n\n{}", headline(stored), in_words(&plan, false, output)))
}

/// A stored plan in a line: its id and what became of it.
pub(super) fn headline(stored: &Value) -> String {
    let text = |pointer: &str| stored.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
    format!("{}  {}", text("/plan/id"), text("/plan/state"))
}

/// The plan in an answer.
pub(in crate::command) fn document(stored: &Value) -> Result<Plan, Failure> {
    let document = stored.get("document").cloned().unwrap_or(Value::Null);
    serde_json::from_value(document).during("the control plane's plan is in a form that this version does not know")
}

/// The plan in a file: one that `plan --format json` wrote, or an answer of `plans.get`.
pub(super) fn from_file(path: &Path) -> Result<Plan, Failure> {
    let what = || format!("{} is not a plan that this version knows", path.display());
    let value: Value = serde_json::from_str(&super::read(path)?).during(what())?;
    if value.get("document").is_some() { document(&value) } else { serde_json::from_value(value).during(what()) }
}

/// A plan for people.
pub(in crate::command) fn in_words(plan: &Plan, all: bool, output: &Output) -> String {
    plan::render(plan, options(all, output)).trim_end().to_owned()
}

fn options(all: bool, output: &Output) -> RenderOptions {
    let options =
        RenderOptions { colour: output.colour, width: output.width.unwrap_or(100), ..RenderOptions::default() };
    if all { options.unfolded() } else { options }
}
