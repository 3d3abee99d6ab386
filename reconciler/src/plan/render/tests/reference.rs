//! `docs/reference/plan.md` and `plan.schema.json`, made from the types; run with `BETTER_COMPUTE_REGENERATE=1` to write them.

use std::{fmt::Write as _, path::Path};

use serde_json::Value;

use crate::plan::Plan;

const DONE: &str = "a string takes anything";

const HEAD: &str = "\
# A plan as JSON

Generated from the types; a test keeps it fresh. The machine-readable form is [plan.schema.json](plan.schema.json).

`better-compute plan --format json` writes one object of the type [Plan](#plan). `plans.get` and `plans.preview` answer the
same object as `document`, and `better-compute plan FILE` shows one that was kept as a file.

## What may be relied on

- `format` is 1. A change that a reader of format 1 would get wrong makes it 2; new members and new words may come at any
  time, so a reader leaves alone what it does not know.
- A list that is empty, and a member that says nothing, may be absent.
- Objects stand by address, machines by name, effects by class and subject: the same plan has the same bytes. No time of its
  making is in it.
- The digest of a plan is the SHA-256 of the canonical JSON of `inputs` alone: the trees, the facts that were looked at, the
  limits in force and the renderer. Commit ids are not among them, so that the merge of the same trees has the digest that
  the pull request showed. A commit carries it as the trailer `bc-plan: sha256:…`.
- Paths of fields, reasons and names of files come from the repository. Whoever shows them escapes them.

## How the command ends

| | nothing changes | changes | the fleet has errors | anything else |
|---|---|---|---|---|
| `better-compute plan` | 0 | 0 | 3 | 1, 2, 4 or 5, as `--help` says |
| `better-compute plan --exit-code` | 0 | 2 | 1 | 1 |

A fleet with errors has no plan: with `--format json` the command then writes what `check --format json` writes, an object
with `errors` and `diagnostics`.

## How hard a change is

From nothing to everything: `none`, `live`, `service-restart`, `drain`, `reboot`, `reimage`, `wipe`. A machine's `effect` is
the hardest of what is done to it; `effects` is the place of the whole list in the plan's `effects`. The daemon uses the same
classifier, so that what is done is what was shown. A `reboot` is staged: it is in effect from the machine's next boot, and
nothing reboots by itself.
";

fn schema() -> Value {
    serde_json::to_value(schemars::schema_for!(Plan)).expect("a schema")
}

fn page(schema: &Value) -> String {
    let mut page = HEAD.to_owned();
    type_of(&mut page, "Plan", schema);
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        type_of(&mut page, name, definition);
    }
    page
}

fn type_of(page: &mut String, name: &str, definition: &Value) {
    write!(page, "\n## {name}\n").expect(DONE);
    if let Some(text) = definition["description"].as_str() {
        write!(page, "\n{}\n", text.replace('\n', " ")).expect(DONE);
    }
    if definition["properties"].is_object() {
        members(page, definition);
    }
    let variants = definition["oneOf"].as_array().into_iter().flatten().collect::<Vec<_>>();
    if variants.is_empty() && !definition["properties"].is_object() {
        write!(page, "\nA {}", kind(definition)).expect(DONE);
        let words: Vec<String> = definition["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|word| format!("`{}`", word.as_str().unwrap_or_default()))
            .collect();
        writeln!(page, "{}.", if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) })
            .expect(DONE);
    }
    if variants.iter().any(|variant| variant["properties"].is_object()) {
        for variant in variants {
            let tags = variant["properties"].as_object().into_iter().flatten();
            let tag: Vec<String> =
                tags.filter_map(|(name, member)| Some(format!("`{name}: {}`", member["const"].as_str()?))).collect();
            let text = variant["description"].as_str().unwrap_or_default();
            write!(page, "\n{}: {text}\n", tag.join(", ")).expect(DONE);
            members(page, variant);
        }
    } else if !variants.is_empty() {
        page.push_str("\n| word | |\n|---|---|\n");
        for variant in variants {
            let text = variant["description"].as_str().unwrap_or_default().replace('\n', " ");
            let words = variant["const"]
                .as_str()
                .into_iter()
                .chain(variant["enum"].as_array().into_iter().flatten().filter_map(Value::as_str));
            let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
            writeln!(page, "| {} | {text} |", words.join(", ")).expect(DONE);
        }
    }
}

fn members(page: &mut String, definition: &Value) {
    let members = definition["properties"].as_object().into_iter().flatten();
    let members: Vec<_> = members.filter(|(_, member)| member.get("const").is_none()).collect();
    if members.is_empty() {
        return;
    }
    page.push_str("\n| member | type | |\n|---|---|---|\n");
    for (name, member) in members {
        let always = definition["required"].as_array().is_some_and(|all| all.iter().any(|member| member == name));
        let mark = if always { "" } else { " (may be absent)" };
        let text = member["description"].as_str().unwrap_or_default().replace('\n', " ");
        writeln!(page, "| `{name}` | {}{mark} | {text} |", kind(member)).expect(DONE);
    }
}

/// A schema in a word or two.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    for union in ["anyOf", "oneOf", "allOf"] {
        if let Some(options) = schema[union].as_array() {
            let words: Vec<String> = options.iter().map(kind).filter(|word| word != "null").collect();
            return words.join(" or ");
        }
    }
    match &schema["type"] {
        Value::String(word) if word == "array" => format!("list of {}", kind(&schema["items"])),
        Value::String(word) if word == "object" && schema["additionalProperties"].is_object() => {
            format!("map to {}", kind(&schema["additionalProperties"]))
        }
        Value::String(word) => word.clone(),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).filter(|word| *word != "null").collect();
            match words.as_slice() {
                ["array"] => format!("list of {}", kind(&schema["items"])),
                words => words.join(" or "),
            }
        }
        _ => "anything".to_owned(),
    }
}

fn is_fresh(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(file);
    if std::env::var_os("BETTER_COMPUTE_REGENERATE").is_some() {
        std::fs::write(&path, wanted).expect("written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/reference/{file} is stale; run this test with BETTER_COMPUTE_REGENERATE=1");
}

#[test]
fn the_schema_of_a_plan_is_fresh() {
    is_fresh("plan.schema.json", &format!("{}\n", serde_json::to_string_pretty(&schema()).expect("json")));
}

#[test]
fn the_reference_of_a_plan_is_fresh() {
    is_fresh("plan.md", &page(&schema()));
}

#[test]
fn a_plan_is_read_back_as_it_was_written() {
    let plan = super::hundred();
    let text = serde_json::to_string(&plan).expect("json");
    assert_eq!(serde_json::from_str::<Plan>(&text).expect("a plan"), plan);
}
