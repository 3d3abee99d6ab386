//! The report of `dcgmi diag -j`, of DCGM 3 (results by `gpu_id`) and of DCGM 4 (results by entity).
//!
//! Its versions differ in where things stand, so that it is walked and not fitted: what is missing is missing, and a status
//! that nobody knows is never a success.

use schema::command::result::{Check, CheckStatus, Diagnosis};
use serde_json::Value;

use super::{check, discovery::Found};

/// So much of what DCGM says about one result is kept.
const LONGEST: usize = 600;

/// The checks of a report; `None` when the text holds none. `asked` are the numbers of the GPUs that were meant, `None` for
/// all of them: one that no result names is one that nobody looked at.
pub(super) fn read(text: &str, found: &[Found], asked: Option<&[u32]>) -> Option<Diagnosis> {
    // Warnings of the program stand before it.
    let start = text.find('{')?;
    let document: Value = serde_json::Deserializer::from_str(&text[start..]).into_iter().next()?.ok()?;
    let root = ["DCGM Diagnostic", "DCGM GPU Diagnostic"].iter().find_map(|name| document.get(name))?;
    let mut checks = Vec::new();
    for place in [root, &document] {
        if let Some(error) = place.get("runtime_error").and_then(words) {
            checks.push(check("dcgm.run", None, CheckStatus::Unknown, Some(error)));
        }
    }
    for category in list(root, "test_categories") {
        for test in list(category, "tests") {
            of_test(test, found, &mut checks);
        }
    }
    if checks.is_empty() {
        return None;
    }
    if checks.iter().all(|check| check.status == CheckStatus::NotSupported) {
        let why = "every test was skipped, so that nothing is known".to_owned();
        checks.push(check("dcgm.run", None, CheckStatus::Unknown, Some(why)));
    }
    // A report that says itself that something is wrong with all of it needs no more words.
    let is_wrong =
        |check: &Check| check.gpu.is_none() && matches!(check.status, CheckStatus::Fail | CheckStatus::Unknown);
    if !checks.iter().any(is_wrong) {
        checks.extend(forgotten(&checks, found, asked));
    }
    let driver = [root.get("Driver Version Detected"), document["metadata"].get("Driver Version Detected")];
    let driver = driver.into_iter().flatten().find_map(Value::as_str).map(str::to_owned);
    Some(Diagnosis::of(Some("dcgmi".to_owned()), driver, checks))
}

/// GPUs that were asked for and that no result names.
fn forgotten(checks: &[Check], found: &[Found], asked: Option<&[u32]>) -> Vec<Check> {
    let is_asked = |gpu: &&Found| asked.is_none_or(|numbers| numbers.contains(&gpu.number));
    let is_named = |gpu: &&Found| checks.iter().any(|check| check.gpu.as_deref() == Some(gpu.gpu.name()));
    let of = |gpu: &Found| {
        let why = "no result of the report names it".to_owned();
        check("dcgm.run", Some(gpu.gpu.name()), CheckStatus::Unknown, Some(why))
    };
    found.iter().filter(is_asked).filter(|gpu| !is_named(gpu)).map(of).collect()
}

fn of_test(test: &Value, found: &[Found], checks: &mut Vec<Check>) {
    let Some(name) = test["name"].as_str() else { return };
    let name = format!("dcgm.{}", in_kebab(name));
    let results: Vec<&Value> = list(test, "results").collect();
    for result in &results {
        let Some((status, why)) = verdict(result) else { continue };
        let gpus = gpus(result, found);
        if gpus.is_empty() {
            checks.push(check(&name, None, status, why.clone()));
        }
        checks.extend(gpus.iter().map(|gpu| check(&name, Some(gpu), status, why.clone())));
    }
    // What a test says of the machine as a whole counts where no result says the same.
    let Some((status, why)) = verdict(&test["test_summary"]) else { return };
    let is_said = results.iter().filter_map(|result| verdict(result)).any(|(said, _)| said == status);
    if !is_said {
        checks.push(check(&name, None, status, why));
    }
}

/// How a result came out, and why when it did not pass; `None` when it says nothing.
fn verdict(result: &Value) -> Option<(CheckStatus, Option<String>)> {
    let word = result["status"].as_str()?;
    let said = said(result);
    let or = |text: &str| if said.is_empty() { text.to_owned() } else { said.clone() };
    Some(match word.to_ascii_lowercase().as_str() {
        "pass" => (CheckStatus::Pass, None),
        "fail" => (CheckStatus::Fail, Some(or("DCGM says no more than that it failed"))),
        "warn" => (CheckStatus::Fail, Some(format!("a warning: {}", or("DCGM says no more")))),
        "skip" | "skipped" => (CheckStatus::NotSupported, Some(or("DCGM skipped it"))),
        _ => (CheckStatus::Unknown, Some(format!("DCGM says {word:?}: {}", or("no more")))),
    })
}

/// The warnings of a result, each with what to do about it.
fn said(result: &Value) -> String {
    let warnings = list(result, "warnings").chain(result.get("warning"));
    let mut lines: Vec<String> = warnings.filter_map(warning).collect();
    if lines.is_empty() {
        lines.extend(result.get("info").and_then(words));
    }
    short(&lines.join("; "))
}

fn warning(said: &Value) -> Option<String> {
    let text = said.as_str().or_else(|| said["warning"].as_str()).or_else(|| said["message"].as_str())?;
    let text = text.trim().trim_end_matches('.');
    let advice = said["error_severity"].as_u64().and_then(advice);
    Some(advice.map_or_else(|| text.to_owned(), |advice| format!("{text} → {advice}")))
}

/// What DCGM's own severity of an error asks for.
const fn advice(severity: u64) -> Option<&'static str> {
    match severity {
        1 => Some("watch it: no harm is done yet"),
        2 => Some("take the GPU out of use: its hardware is at fault"),
        4 => Some("find the cause before the machine takes work again"),
        5 => Some("mend the installation: the hardware is not at fault"),
        6 => Some("reset the GPU, and reboot the machine when that does not help"),
        _ => None,
    }
}

/// The GPUs that a result is about, by the names that people use.
fn gpus(result: &Value, found: &[Found]) -> Vec<String> {
    let is_other = result["entity_group"].as_str().is_some_and(|group| !group.eq_ignore_ascii_case("gpu"));
    if is_other {
        return Vec::new();
    }
    let said = ["gpu_id", "gpu_ids", "entity_id"].iter().find_map(|name| result.get(name));
    let numbers: Vec<u32> = match said {
        Some(Value::Number(number)) => {
            number.as_u64().and_then(|number| u32::try_from(number).ok()).into_iter().collect()
        }
        Some(Value::String(text)) => text.split(',').filter_map(|part| part.trim().parse().ok()).collect(),
        Some(Value::Array(all)) => {
            all.iter().filter_map(Value::as_u64).filter_map(|number| u32::try_from(number).ok()).collect()
        }
        _ => Vec::new(),
    };
    let name = |number: &u32| {
        let found = found.iter().find(|found| found.number == *number);
        found.map_or_else(|| format!("GPU {number} of DCGM"), |found| found.gpu.name().to_owned())
    };
    numbers.iter().map(name).collect()
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    // Its older versions write null between the tests.
    value[name].as_array().into_iter().flatten().filter(|item| !item.is_null())
}

/// A text, or a list of texts as one.
fn words(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::trim).collect::<Vec<_>>().join("; "),
        _ => return None,
    };
    (!text.is_empty()).then(|| short(&text))
}

fn short(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(LONGEST).collect()
}

/// The name of a test as a word: `Page Retirement/Row Remap` is `page-retirement-row-remap`.
fn in_kebab(name: &str) -> String {
    let word = |part: &str| part.to_ascii_lowercase();
    let parts = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(word).collect::<Vec<_>>().join("-").chars().take(80).collect()
}

#[cfg(test)]
mod tests;
