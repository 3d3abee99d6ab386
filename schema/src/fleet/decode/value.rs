//! Single values: what was expected, what was found, and what to write.

use std::{fmt::Display, str::FromStr};

use super::Findings;
use crate::{
    diagnostic::{codes, shown},
    fleet::{
        Located,
        doc::{Arg, Scalar},
        suggest::similar,
    },
    name::Name,
    object::{Kind, ObjectRef},
};

/// A text; a number or boolean says "quote it".
pub(in crate::fleet) fn text(arg: &Arg, findings: &mut Findings<'_>) -> Option<Located<String>> {
    let what = match &arg.value {
        Scalar::Text(text) if text.contains('\0') => {
            let diagnostic = findings.at(codes::BAD_VALUE, arg.span, "a text cannot hold a NUL character");
            findings.push(diagnostic);
            return None;
        }
        Scalar::Text(text) => return Some(findings.located(text.clone(), arg.span)),
        Scalar::Bool(_) => "boolean",
        Scalar::Int(_) | Scalar::Float => "number",
    };
    let help = format!("quote it: \"{}\"", findings.written(arg.span).trim_start_matches('#'));
    let diagnostic = findings
        .at(codes::QUOTE_IT, arg.span, format!("a text is expected here, and this is a {what}"))
        .label(format!("a {what}"))
        .help(help);
    findings.push(diagnostic);
    None
}

/// A boolean.
pub(super) fn boolean(arg: &Arg, findings: &mut Findings<'_>) -> Option<Located<bool>> {
    if let Scalar::Bool(flag) = arg.value {
        return Some(findings.located(flag, arg.span));
    }
    let mut diagnostic = wrong(arg, findings, "a boolean");
    diagnostic.help = match &arg.value {
        Scalar::Text(text) => {
            let flag = match text.to_ascii_lowercase().as_str() {
                "yes" | "on" | "y" | "true" => Some("true"),
                "no" | "off" | "n" | "false" => Some("false"),
                _ => None,
            };
            flag.map(|flag| format!("write {flag} in YAML, #{flag} in KDL"))
        }
        Scalar::Int(_) | Scalar::Float | Scalar::Bool(_) => None,
    };
    diagnostic.help.get_or_insert_with(|| "write true or false in YAML, #true or #false in KDL".to_owned());
    findings.push(diagnostic);
    None
}

/// A whole number within bounds.
pub(super) fn integer<T>(arg: &Arg, (low, high): (T, T), findings: &mut Findings<'_>) -> Option<Located<T>>
where
    T: TryFrom<i128> + Into<i128> + Display + Copy,
{
    let Scalar::Int(number) = arg.value else {
        let mut diagnostic = wrong(arg, findings, "a whole number");
        if matches!(&arg.value, Scalar::Text(text) if text.parse::<i128>().is_ok()) {
            diagnostic.help = Some("write the number without quotes".to_owned());
        }
        findings.push(diagnostic);
        return None;
    };
    let fits = number >= low.into() && number <= high.into();
    match T::try_from(number) {
        Ok(value) if fits => Some(findings.located(value, arg.span)),
        Ok(_) | Err(_) => {
            let diagnostic =
                findings.at(codes::OUT_OF_RANGE, arg.span, format!("{number} is not between {low} and {high}"));
            findings.push(diagnostic);
            None
        }
    }
}

/// The name that a text was probably meant to be.
pub(in crate::fleet) fn mended_name(text: &str) -> Option<Name> {
    let letter = |letter: char| if matches!(letter, 'a'..='z' | '0'..='9') { letter } else { '-' };
    let mended: String = text.to_lowercase().chars().map(letter).take(63).collect();
    Name::new(mended.trim_matches('-')).ok()
}

/// A name.
pub(super) fn name(arg: &Arg, findings: &mut Findings<'_>) -> Option<Located<Name>> {
    let text = text(arg, findings)?;
    match Name::new(text.value.clone()) {
        Ok(name) => Some(Located::new(name, text.at)),
        Err(error) => {
            let mut diagnostic = findings.at(codes::BAD_NAME, arg.span, error.to_string());
            if let Some(mended) = mended_name(&text) {
                diagnostic = diagnostic.help(format!("for example \"{mended}\""));
            }
            findings.push(diagnostic);
            None
        }
    }
}

/// An object's address, of one of some kinds.
pub(super) fn address(arg: &Arg, kinds: &[Kind], findings: &mut Findings<'_>) -> Option<Located<ObjectRef>> {
    let text = text(arg, findings)?;
    let words = || kinds.iter().map(|kind| kind.as_str());
    let (message, help) = match text.parse::<ObjectRef>() {
        Ok(address) if kinds.contains(&address.kind) => return Some(Located::new(address, text.at)),
        Ok(address) => (
            format!("a {} cannot stand here", address.kind),
            format!("the kinds are: {}", words().collect::<Vec<_>>().join(", ")),
        ),
        Err(error) => {
            let word = text.split('/').next().unwrap_or("");
            let near = similar(word, words()).unwrap_or_else(|| kinds[0].as_str());
            let name = text.split_once('/').map_or(text.value.as_str(), |(_, name)| name);
            let name = if Name::new(name).is_ok() { name } else { "NAME" };
            (error.to_string(), format!("for example \"{near}/{name}\""))
        }
    };
    let diagnostic = findings.at(codes::BAD_VALUE, text.at.span, message).help(help);
    findings.push(diagnostic);
    None
}

/// A text of a form: a duration, a size, a time.
pub(super) fn parse<T: FromStr>(arg: &Arg, expected: &str, findings: &mut Findings<'_>) -> Option<Located<T>> {
    let text = text(arg, findings)?;
    match text.parse() {
        Ok(value) => Some(findings.located(value, arg.span)),
        Err(_) => {
            let shown = shown(&text);
            let diagnostic = findings
                .at(codes::BAD_VALUE, arg.span, format!("{shown:?} is not {expected}"))
                .label(format!("expected {expected}"))
                .maybe_help(if expected.starts_with("a time ") { no_time(&text) } else { None });
            findings.push(diagnostic);
            None
        }
    }
}

/// What is missing of a text that is nearly a time.
fn no_time(text: &str) -> Option<String> {
    let day = text.get(..10).filter(|day| day.bytes().filter(|byte| *byte == b'-').count() == 2)?;
    match (day.parse::<jiff::civil::Date>(), text.len()) {
        (Err(_), _) => Some(format!("there is no day {}", shown(day))),
        (Ok(_), 10) => Some(format!("the time of day and the zone are missing: {day}T00:00:00Z")),
        (Ok(_), _) if !text.ends_with('Z') => {
            Some("its zone is missing: Z is UTC, +01:00 an hour ahead of it".to_owned())
        }
        (Ok(_), _) => None,
    }
}

/// One of a few words.
pub(super) fn word<T: FromStr>(arg: &Arg, words: &[&str], findings: &mut Findings<'_>) -> Option<Located<T>> {
    let text = choice(arg, words, findings)?;
    let value = text.value.parse().ok().expect("the words of a key are those of its type");
    Some(Located::new(value, text.at))
}

/// One of a few words, as a text.
pub(super) fn choice(arg: &Arg, words: &[&str], findings: &mut Findings<'_>) -> Option<Located<String>> {
    let text = text(arg, findings)?;
    one_of(&text, words, findings).then_some(text)
}

/// Whether a text is one of a few words; reported when it is not.
pub(in crate::fleet) fn one_of(text: &Located<String>, words: &[&str], findings: &mut Findings<'_>) -> bool {
    if words.contains(&text.value.as_str()) {
        return true;
    }
    let shown = shown(text);
    let possible = words.join(", ");
    let help = match similar(text, words.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? the words are: {possible}"),
        None => format!("the words are: {possible}"),
    };
    let diagnostic = findings
        .at(codes::UNKNOWN_WORD, text.at.span, format!("{shown:?} is none of the words that are possible here"))
        .help(help);
    findings.push(diagnostic);
    false
}

/// "X is expected, and this is Y".
pub(super) fn wrong(arg: &Arg, findings: &Findings<'_>, expected: &str) -> crate::diagnostic::Diagnostic {
    let found = match &arg.value {
        Scalar::Bool(_) => "a boolean",
        Scalar::Int(_) => "a number",
        Scalar::Float => "a number with a fraction",
        Scalar::Text(_) => "a text",
    };
    findings.at(codes::WRONG_TYPE, arg.span, format!("{expected} is expected here, and this is {found}")).label(found)
}
