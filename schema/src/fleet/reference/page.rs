//! The pages of the reference, in Markdown.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Key, KindDoc, Naming, Takes, kinds};
use crate::{
    diagnostic::codes,
    fleet::{Sources, edit::yaml_value, load},
    object::Kind,
};

const MADE: &str = "Made from the types that read a fleet; a test keeps it fresh (`UPDATE_REFERENCE=1 cargo test -p schema reference`).";

/// The page that lists the kinds.
#[must_use]
pub fn index_page() -> String {
    let mut page = format!(
        "# Kinds\n\n{MADE}\n\nEvery object of a fleet repository has a kind. The pages below list its keys; `better-compute kinds KIND` prints the\n\
         same, and [schema.json](schema.json) is the JSON Schema of YAML files (see [editors](../guides/editors.md)).\n\
         [Diagnostics](diagnostics.md) lists every code that `check` reports.\n\n| kind | usual file | it says |\n|---|---|---|\n"
    );
    for kind in kinds() {
        writeln!(page, "| [`{0}`](kinds/{0}.md) | `{1}` | {2} |", kind.kind, kind.file, kind.doc).ok();
    }
    page
}

/// The page of a kind.
#[must_use]
pub fn kind_page(kind: &KindDoc) -> String {
    let naming = match kind.naming {
        Naming::Name => "It has a name, which is a DNS label of at most 63 characters.",
        Naming::Optional => "It has a name, or is called `fleet`.",
        Naming::Address => "Its name is the address of the object, `kind/name`.",
        Naming::Nameless => "It has no name.",
    };
    let mut page = format!("# `{}`\n\n{MADE}\n\n{} {naming} Usually in `{}`.\n\n", kind.kind, kind.doc, kind.file);
    page.push_str("## Keys\n\nKeys with a star must be there.\n\n");
    table(&kind.keys, &mut page);
    blocks(&kind.keys, "", &mut page);
    writeln!(page, "\n## Example\n\n```kdl\n{}```\n\n```yaml\n{}```", kind.kdl, yaml(kind.kind)).ok();
    page
}

fn table(keys: &[Key], page: &mut String) {
    page.push_str("| key | takes | it says |\n|---|---|---|\n");
    for key in keys.iter().filter(|key| key.takes != Takes::Later) {
        let star = if key.required { "*" } else { "" };
        let or: String = key.or.iter().map(|or| format!(" or `{or}`")).collect();
        let or = if or.is_empty() { or } else { format!(" This{or} must be there.") };
        writeln!(page, "| `{}`{star} | {} | {}{or} |", key.key, takes(&key.takes), key.doc.replace('|', "\\|")).ok();
    }
    let later: Vec<String> =
        keys.iter().filter(|key| key.takes == Takes::Later).map(|key| format!("`{}`", key.key)).collect();
    if !later.is_empty() {
        writeln!(page, "\nReserved for a later version: {}.", later.join(", ")).ok();
    }
}

fn takes(takes: &Takes) -> String {
    match takes {
        Takes::Words(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Takes::List(one) => format!("one or more: {}", self::takes(one)),
        other => other.in_words(),
    }
}

fn blocks(keys: &[Key], path: &str, page: &mut String) {
    for key in keys.iter().filter(|key| !key.keys().is_empty()) {
        let path = if path.is_empty() { key.key.to_owned() } else { format!("{path}.{}", key.key) };
        writeln!(page, "\n### `{path}`\n").ok();
        table(key.keys(), page);
        blocks(key.keys(), &path, page);
    }
}

/// How `check` tells what it found.
const FORMATS: &str = "\
## Formats

`better-compute check` ends with 0 when there is no error, with 3 when there is one, and with 2 when the command line makes no sense. It takes
several paths; one inside a fleet stands for the whole fleet.

| `--format` | what is written |
|---|---|
| `text` | for people: source lines with carets, and help |
| `json` | `{\"errors\": 1, \"diagnostics\": [{code, severity, message, file, line, column, start, end, label?, related?, help?}]}`: columns count characters from 1, `start` and `end` are bytes of the text without its byte order mark and with plain line ends; with several fleets `file` begins with the fleet's path |
| `github` | workflow commands, errors first, with paths from the repository's root; GitHub shows ten errors, ten warnings and ten notices of a step |
| `sarif` | a SARIF 2.1.0 log with paths from the repository's root and a rule per code, for code scanning |
";

/// The page that lists every diagnostic.
#[must_use]
pub fn codes_page() -> String {
    let mut page = format!(
        "# Diagnostics\n\n{MADE}\n\nWhat `better-compute check` reports. `better-compute explain CODE` prints the page of a code. A tree with an error\n\
         yields no fleet; a warning is probably not meant; a note is worth knowing.\n\n{FORMATS}\n## Codes\n\n| code | weight | |\n|---|---|---|\n"
    );
    for entry in codes::ALL {
        writeln!(page, "| [`{0}`](../errors/{0}.md) | {1} | {2} |", entry.code, entry.severity.as_str(), entry.title)
            .ok();
    }
    page
}

/// The examples of all kinds, which are a fleet together.
pub(super) fn examples() -> Sources {
    let mut sources = Sources::default();
    for kind in kinds() {
        let path = if kind.kind == Kind::Fleet { "fleet.kdl".to_owned() } else { format!("{}.kdl", kind.kind) };
        sources.insert_file(path, kind.kdl.as_bytes());
    }
    sources.insert_file("access/operators.cedar", &b"permit(principal, action, resource);\n"[..]);
    sources
}

/// The example of a kind in YAML.
pub(super) fn yaml(kind: Kind) -> String {
    let Some(fleet) = load(&examples()).fleet else { return String::new() };
    let line = match kind {
        Kind::Moved => fleet.moved.first().and_then(|moved| serde_json::to_value(moved).ok()),
        Kind::Removed => fleet.removed.first().and_then(|removed| serde_json::to_value(removed).ok()),
        _ => fleet.objects().find(|object| object.object.kind == kind).map(|object| Value::clone(&object.doc)),
    };
    let mut out = format!("kind: {kind}\n");
    if let Some(Value::Object(members)) = line {
        let name = members.iter().filter(|(key, _)| *key == "name");
        let rest = members.iter().filter(|(key, _)| *key != "name" && *key != "kind");
        name.chain(rest).for_each(|(key, value)| yaml_value(key, value, 0, &mut out));
    }
    out
}
