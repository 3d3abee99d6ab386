//! What can be asked of a node, for people: made from the table of kinds and from the types of payloads and results.

use schemars::Schema;
use serde_json::Value;

use super::{CommandState, KINDS, KindRow, Lane, Refusal};

/// A member of a payload or of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name; what is inside another one is indented.
    pub name: String,
    /// What it holds, in words.
    pub takes: String,
    /// It must be there.
    pub required: bool,
    /// What it is when it is left out.
    pub default: Option<String>,
    /// What it says.
    pub doc: String,
}

/// The members of a document, in their order.
#[must_use]
pub fn members(schema: &Schema) -> Vec<Member> {
    let mut all = Vec::new();
    collect(schema.as_value(), 0, &mut all);
    all
}

fn collect(schema: &Value, depth: usize, all: &mut Vec<Member>) {
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name));
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let doc = member["description"].as_str().unwrap_or_default().replace('\n', " ");
        let default = Some(&member["default"]).filter(|value| !value.is_null()).map(ToString::to_string);
        all.push(Member {
            name: format!("{}{name}", "  ".repeat(depth)),
            takes: in_words(member),
            required: required(name),
            default,
            doc,
        });
        let inner = [member, &member["items"]].into_iter().chain(member["anyOf"].as_array().into_iter().flatten());
        for inner in inner.filter(|inner| inner["properties"].is_object()) {
            collect(inner, depth + 1, all);
        }
    }
}

fn in_words(schema: &Value) -> String {
    if let Some(words) = words(schema) {
        return words.join(" | ");
    }
    let choices = schema["anyOf"].as_array().into_iter().flatten().filter(|choice| choice["type"] != "null");
    if let Some(choice) = choices.into_iter().next() {
        return in_words(choice);
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").and_then(Value::as_str),
        kind => kind.as_str(),
    };
    match kind {
        Some("array") => format!("list of {}", in_words(&schema["items"])),
        Some("string") => "text".to_owned(),
        Some("integer") => match (&schema["minimum"], &schema["maximum"]) {
            (Value::Number(from), Value::Number(to)) => format!("number from {from} to {to}"),
            _ => "number".to_owned(),
        },
        Some("boolean") => "true | false".to_owned(),
        Some("object") if schema["properties"].is_object() => "object".to_owned(),
        Some("object") => "object by name".to_owned(),
        Some(other) => other.to_owned(),
        None => "any value".to_owned(),
    }
}

/// The words of an enum, which schemars writes as a list or as one constant each.
fn words(schema: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(text).collect();
    }
    let choices = schema["oneOf"].as_array()?;
    choices.iter().map(|choice| text(&choice["const"])).collect()
}

/// The flags of a kind, in words.
#[must_use]
pub fn flags(row: &KindRow) -> Vec<&'static str> {
    [
        (row.destructive, "destructive"),
        (row.retry_safe, "retry-safe"),
        (row.self_terminating, "self-terminating"),
        (row.attested, "attested"),
        (row.by_run, "by commands.run"),
    ]
    .into_iter()
    .filter_map(|(is, word)| is.then_some(word))
    .collect()
}

/// The reference page.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "# Commands\n\n\
         Made from the table of kinds; a test keeps it fresh (`UPDATE_REFERENCE=1 cargo test -p schema reference`).\n\n\
         A command is one-shot work for one node, with a deadline. `better-compute kinds --commands KIND` prints what a kind\n\
         takes and answers.\n\n\
         | kind | lane | destructive | retry-safe | self-terminating | attested | by `commands.run` | timeout | roles |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let mark = |is: bool| if is { "yes" } else { "–" };
    for row in &KINDS {
        let roles: Vec<&str> = row.roles.iter().map(|role| role.as_str()).collect();
        page.push_str(&format!(
            "| [`{0}`](#{1}) | {2} | {3} | {4} | {5} | {6} | {7} | {8} | {9} |\n",
            row.kind,
            row.kind.as_str().replace('.', ""),
            row.lane,
            mark(row.destructive),
            mark(row.retry_safe),
            mark(row.self_terminating),
            mark(row.attested),
            mark(row.by_run),
            row.timeout,
            roles.join(", "),
        ));
    }
    page.push_str(
        "\n- **destructive**: it harms what runs on the machine, and needs the quorum where there is a trust policy.\n\
         - **retry-safe**: running it twice does no more than running it once, so that an interrupted one begins again by itself.\n\
         - **self-terminating**: it ends the daemon that runs it. A new boot on rejoin says that it succeeded, unless it is safe to run\n\
         \x20\x20again: then the daemon that is back says what runs.\n\
         - **attested**: somebody acts on its result; the node's signature stays with it as evidence.\n\
         - **timeout**: how long it may take from its deadline on.\n\n## Lanes\n\n\
         | lane | in flight per node at most |\n|---|---|\n",
    );
    for lane in Lane::ALL {
        page.push_str(&format!("| {lane} | {} |\n", lane.credits()));
    }
    page.push_str("\n## States and refusals\n\n");
    let words = |words: Vec<&str>| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let terminal = CommandState::ALL.iter().filter(|state| state.is_terminal()).map(|state| state.as_str()).collect();
    page.push_str(&format!(
        "States: {}. Final: {}.\n\nA node refuses a command with the first of these that applies: {}.\n\
         `better-compute why WORD` says what each means. Only `BUSY` is tried again by itself.\n",
        words(CommandState::ALL.iter().map(|state| state.as_str()).collect()),
        words(terminal),
        words(Refusal::ALL.iter().map(|refusal| refusal.as_str()).collect()),
    ));
    for row in &KINDS {
        page.push_str(&format!("\n## {}\n\n{}\n", row.kind, row.summary));
        if !row.minted.is_empty() {
            page.push_str(&format!(
                "\nThe control plane alone fills in {}, and shows it to nobody.\n",
                words(row.minted.to_vec())
            ));
        }
        table("Payload", &members(&row.payload.schema()), true, &mut page);
        table("Result", &members(&row.result.schema()), false, &mut page);
    }
    page
}

fn table(title: &str, members: &[Member], defaults: bool, page: &mut String) {
    page.push_str(&format!(
        "\n{title}:\n\n| member | holds | {}it says |\n",
        if defaults { "left out | " } else { "" }
    ));
    page.push_str(if defaults { "|---|---|---|---|\n" } else { "|---|---|---|\n" });
    let cell = |text: &str| text.replace('|', "\\|");
    for member in members {
        let depth = member.name.len() - member.name.trim_start().len();
        let name = format!("{}`{}`", "· ".repeat(depth / 2), member.name.trim_start());
        let default = match (&member.default, member.required) {
            (_, true) => "must be there".to_owned(),
            (Some(value), false) => format!("`{}`", cell(value)),
            (None, false) => "–".to_owned(),
        };
        let default = if defaults { format!("{default} | ") } else { String::new() };
        page.push_str(&format!("| {name} | {} | {default}{} |\n", cell(&member.takes), cell(&member.doc)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_fresh() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/commands.md");
        let page = page();
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, &page).expect("the page is writable");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "{} is stale: run this test with UPDATE_REFERENCE=1", path.display());
    }

    #[test]
    fn every_member_says_what_it_is_and_holds() {
        for row in &KINDS {
            for member in members(&row.payload.schema()).iter().chain(&members(&row.result.schema())) {
                assert!(!member.doc.is_empty() && member.takes != "any value", "{} {member:?}", row.kind);
            }
        }
    }
}
