//! `freeze`: no change here for a time, or in a window of every week. The fleet file holds freezes of the whole fleet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hold::{TIME, ordered};
use crate::{
    diagnostic::{SourceRef, codes, shown},
    fleet::{
        Located,
        decode::{Fields, Findings, Subject},
        suggest::similar,
        window::{ClockTime, Weekday, Window, Zone},
    },
    name::Name,
    object::{Kind, ObjectRef},
    time::Timestamp,
};

/// When no change is made, why and by whose word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FreezeRule {
    /// Why.
    pub reason: Located<String>,
    /// Who can answer for it.
    pub owner: Located<String>,
    /// When it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Located<Timestamp>>,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Located<Timestamp>>,
    /// The weekly window: `days`, `hours` and `zone`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

/// A freeze's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Freeze {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The sites, pools and nodes where no change is made.
    pub scope: Vec<Located<ObjectRef>>,
    /// When, why and by whose word.
    #[serde(flatten)]
    pub rule: FreezeRule,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Freeze> {
    let fields = &mut subject.fields;
    let scope = fields.addresses("scope", &[Kind::Pool, Kind::Site, Kind::Node], findings);
    findings.refers.extend_from_slice(&scope);
    if scope.is_empty() {
        fields.require("scope", None::<()>);
    }
    fields.filled("scope", scope.is_empty(), findings);
    let rule = rule(fields, findings);
    Some(Freeze { name: subject.name.clone(), at: subject.at.clone(), scope, rule: rule? })
}

pub(super) fn rule(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<FreezeRule> {
    let reason = fields.required_line("reason", findings);
    let owner = fields.required_line("owner", findings);
    let from = fields.parse("from", TIME, findings);
    let until = fields.parse("until", TIME, findings);
    ordered(("from", from.as_ref()), ("until", until.as_ref()), findings);
    let weekly = WEEKLY.iter().any(|key| fields.has(key));
    let window = window(fields, findings);
    never(from.as_ref(), until.as_ref(), window.as_ref(), findings);
    if !weekly && !fields.has("until") {
        let at = fields.place(findings);
        let diagnostic = findings
            .at(codes::MISSING_KEY, at.span, "a freeze ends: it has `until`, or a weekly window, or both")
            .help("days \"sat\" \"sun\" and zone \"Europe/Berlin\", for example");
        findings.push(diagnostic);
    }
    Some(FreezeRule { reason: reason?, owner: owner?, from, until, window })
}

/// Reports a window that does not come between two times.
fn never(
    from: Option<&Located<Timestamp>>,
    until: Option<&Located<Timestamp>>,
    window: Option<&Window>,
    findings: &mut Findings<'_>,
) {
    let (Some(from), Some(until), Some(window)) = (from, until, window) else { return };
    let first = window.standing(from.value);
    if from.value < until.value && !first.holds && first.next_edge.is_none_or(|edge| edge >= until.value) {
        let diagnostic = findings
            .at(codes::BAD_SPAN, until.at.span, "the window does not come between `from` and `until`: this never is")
            .also(&from.at, "`from`");
        findings.push(diagnostic);
    }
}

const WEEKLY: [&str; 3] = ["days", "hours", "zone"];

/// The keys of a weekly window; `None` without any of them. A zone alone says no time of the week, and would be all.
pub(super) fn window(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Window> {
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let weekly = WEEKLY.iter().any(|key| fields.has(key));
    let mut days: Vec<Weekday> = fields.words("days", &DAYS, findings).into_iter().map(|day| day.value).collect();
    days.sort_unstable();
    days.dedup();
    fields.filled("days", days.is_empty(), findings);
    let hours = hours(fields, findings);
    let zone: Option<Located<Zone>> = zone(fields, findings);
    if !weekly {
        return None;
    }
    if !fields.has("days") && !fields.has("hours") {
        let at = zone.as_ref().map_or_else(|| fields.place(findings), |zone| zone.at.clone());
        let diagnostic = findings
            .at(codes::MISSING_KEY, at.span, "a weekly window has `days`, or `hours`, or both")
            .help("days \"sat\" \"sun\", or hours \"22:00\" \"06:00\"");
        findings.push(diagnostic);
        return None;
    }
    let zone = fields.require("zone", zone)?;
    Some(Window { days, hours, zone: zone.value })
}

fn hours(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<(ClockTime, ClockTime)> {
    const TWO: &str = "two times of a day such as \"22:00\" \"06:00\"";
    let has = fields.has("hours");
    let texts = fields.texts("hours", findings);
    let parsed: Vec<Option<ClockTime>> = texts.iter().map(|text| text.value.parse().ok()).collect();
    if let Some((text, _)) = texts.iter().zip(&parsed).find(|(_, parsed)| parsed.is_none()) {
        super::form::refuse(codes::BAD_VALUE, text, "a time of day such as 06:00", findings);
        return None;
    }
    let at = texts.last().map_or_else(|| fields.place(findings), |text| text.at.clone());
    match parsed[..] {
        [Some(from), Some(until)] if from == until => {
            let diagnostic = findings
                .at(codes::BAD_SPAN, at.span, "the window ends when it begins: this never is")
                .help("leave `hours` out for whole days");
            findings.push(diagnostic);
            None
        }
        [Some(from), Some(until)] => Some((from, until)),
        _ if !has => None,
        _ => {
            let diagnostic = findings.at(codes::WRONG_TYPE, at.span, format!("`hours` takes {TWO}"));
            findings.push(diagnostic);
            None
        }
    }
}

fn zone(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Located<Zone>> {
    let text = fields.text("zone", findings)?;
    if let Ok(zone) = text.value.parse() {
        return Some(Located::new(zone, text.at));
    }
    let names = || Zone::names().iter().map(String::as_str);
    let shown = shown(&text);
    let parts = |name: &'static str| name.rsplit_once('/').unwrap_or(("", name));
    let (region, city) = text.rsplit_once('/').unwrap_or(("", &text));
    let same = names().find(|name| name.eq_ignore_ascii_case(&text) || parts(name).1.eq_ignore_ascii_case(city));
    let near = same.or_else(|| similar(&text, names().filter(|name| parts(name).0.eq_ignore_ascii_case(region))));
    let diagnostic = findings
        .at(codes::BAD_VALUE, text.at.span, format!("there is no time zone {shown:?}"))
        .label("expected an IANA time zone such as Europe/Berlin")
        .maybe_help(near.map(|near| format!("did you mean {near:?}?")));
    findings.push(diagnostic);
    None
}
