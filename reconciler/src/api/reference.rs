//! The reference page of the API, generated from the table.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Code, openapi, table::METHODS};

/// The page as Markdown.
#[must_use]
pub fn page() -> String {
    let document = openapi::document();
    let mut page = String::from(
        "# API\n\n\
         Generated from the handler table; a test keeps it fresh. The machine-readable form is [openapi.json](openapi.json), also\n\
         served at `/api/openapi.json`.\n\n\
         Every call is `POST /api/compute/{group}/{method}` with a JSON object and `Authorization: Bearer bcat_…`. A call that\n\
         changes something carries an `idempotencyKey`: the same key with the same request replays the stored answer (secrets\n\
         are not stored and come back as `null`), another request under the same key is `CONFLICT`.\n\n\
         An error is `{\"error\": {\"code\", \"message\", \"why\"?, \"fields\": [{\"name\", \"message\"}], \"requestId\"}}`:\n\n\
         | code | HTTP |\n|---|---|\n",
    );
    let done = "a string takes anything";
    for code in Code::ALL {
        writeln!(page, "| `{}` | {} |", code.as_str(), code.status().as_u16()).expect(done);
    }
    page.push_str("\n| method | scope | changes something | |\n|---|---|---|---|\n");
    for method in METHODS.iter() {
        let (name, mark) = (method.full_name(), if method.is_mutation() { "yes" } else { "" });
        writeln!(
            page,
            "| [`{name}`](#{}) | `{}` | {mark} | {} |",
            name.to_lowercase().replace('.', ""),
            method.scope,
            method.summary
        )
        .expect(done);
    }
    for method in METHODS.iter() {
        let operation = &document["paths"][format!("/api/compute/{}/{}", method.group, method.name)]["post"];
        let request = &operation["requestBody"]["content"]["application/json"]["schema"];
        let request = if method.is_mutation() { &request["allOf"][0] } else { request };
        write!(page, "\n## {}\n\n{}\n", method.full_name(), method.summary).expect(done);
        table(&mut page, "Request", request, &document);
        table(&mut page, "Answer", &operation["responses"]["200"]["content"]["application/json"]["schema"], &document);
    }
    page
}

fn table(page: &mut String, title: &str, schema: &Value, document: &Value) {
    let schema = resolve(schema, document);
    let done = "a string takes anything";
    let Some(members) = schema["properties"].as_object().filter(|members| !members.is_empty()) else {
        write!(page, "\n{title}: an empty object.\n").expect(done);
        return;
    };
    write!(page, "\n| {} | type | |\n|---|---|---|\n", title.to_lowercase()).expect(done);
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|member| member == name));
    for (name, member) in members {
        let mark = if title == "Request" && required(name) { " (required)" } else { "" };
        let text = member["description"].as_str().unwrap_or_default().replace('\n', " ");
        writeln!(page, "| `{name}`{mark} | {} | {text} |", kind(member)).expect(done);
    }
}

fn resolve<'a>(schema: &'a Value, document: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
        Some(path) => document.pointer(path).unwrap_or(schema),
        None => schema,
    }
}

/// A schema in a word or two.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return name.to_owned();
    }
    if let Some(options) = schema["anyOf"].as_array() {
        return options.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    match &schema["type"] {
        Value::String(word) if word == "array" => format!("list of {}", kind(&schema["items"])),
        Value::String(word) => word.clone(),
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}
