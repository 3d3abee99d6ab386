//! The OpenAPI description, generated from the table.

use std::sync::LazyLock;

use bytes::Bytes;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{
    Code,
    table::{METHODS, Method},
};

/// The document as it is served: written once, because whoever asks for it need be nobody in particular.
pub(super) fn served() -> Bytes {
    static SERVED: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());
    SERVED.clone()
}

/// The OpenAPI 3.1 document of every method.
#[must_use]
pub fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for method in METHODS.iter() {
        let input = (method.input)(&mut generator).to_value();
        let output = (method.output)(&mut generator).to_value();
        paths.insert(
            format!("/api/compute/{}/{}", method.group, method.name),
            json!({ "post": operation(method, input, output) }),
        );
    }
    let mut schemas: Map<String, Value> = generator.take_definitions(true).into_iter().collect();
    schemas.insert("Error".into(), error_schema());
    schemas.sort_keys();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Better Compute",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Every call is a POST of a JSON object. A call that changes something carries an idempotencyKey: the same key with the same request replays the answer.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "An API token, bcat_…" } },
            "schemas": schemas,
        },
    })
}

fn operation(method: &Method, input: Value, output: Value) -> Value {
    let request = if method.is_mutation() {
        let key = json!({ "type": "object", "required": ["idempotencyKey"], "properties": {
            "idempotencyKey": { "type": "string", "minLength": 1, "maxLength": 200, "description": "New for each intent." },
        }});
        json!({ "allOf": [input, key] })
    } else {
        input
    };
    json!({
        "operationId": method.full_name(),
        "summary": method.summary,
        "tags": [method.group],
        "x-scope": method.scope,
        "x-mutation": method.is_mutation(),
        "requestBody": { "required": true, "content": { "application/json": { "schema": request } } },
        "responses": {
            "200": { "description": "Done.", "content": { "application/json": { "schema": output } } },
            "default": { "description": "Not done.", "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } } },
        },
    })
}

fn error_schema() -> Value {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message", "fields", "requestId"],
            "properties": {
                "code": { "enum": codes },
                "message": { "type": "string" },
                "why": { "type": "string" },
                "fields": { "type": "array", "items": {
                    "type": "object",
                    "required": ["name", "message"],
                    "properties": { "name": { "type": "string" }, "message": { "type": "string" } },
                }},
                "requestId": { "type": "string", "description": "The log has the cause under it." },
            },
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_written_once_and_served_as_often_as_it_is_asked_for() {
        assert_eq!(served().as_ptr(), served().as_ptr());
        assert_eq!(serde_json::from_slice::<Value>(&served()).expect("JSON"), document());
    }
}
