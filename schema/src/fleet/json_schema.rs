//! The JSON Schema (2020-12) of YAML files: what an editor completes and validates with. Made from [`reference`], so it
//! takes every form that the decoders take: a value or a list of them, a mapping by name or a list of mappings, a lone
//! value for a block. What needs more than one value to judge (references, exclusions, times) is left to `check`.
//!
//! Wherever there is a choice the schema says what decides it (`kind`, or the type of the value), so that an editor tells
//! the one thing that is wrong and not everything that the value could have been instead.

use serde_json::{Map, Value, json};

use super::reference::{self, Key, KindDoc, Naming, Takes};
use crate::object::Kind;

/// The version of the language that the schema is of.
pub const FORMAT: u32 = 1;

const NAME: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";

/// The schema of every kind, or of one.
#[must_use]
pub fn json_schema(kind: Option<Kind>) -> Value {
    let dialect = "https://json-schema.org/draft/2020-12/schema";
    if let Some(kind) = kind {
        let mut schema = json!({ "$schema": dialect, "$id": format!("urn:better-compute:fleet:{FORMAT}:{kind}") });
        merge(&mut schema, object(reference::kind(kind)));
        return schema;
    }
    let definitions: Map<String, Value> =
        reference::kinds().iter().map(|kind| (kind.kind.to_string(), object(kind))).collect();
    let by_kind = reference::kinds().iter().map(|kind| {
        let of_kind = json!({ "properties": { "kind": { "const": kind.kind.as_str() } }, "required": ["kind"] });
        json!({ "if": of_kind, "then": { "$ref": format!("#/$defs/{}", kind.kind) } })
    });
    let by_kind: Vec<Value> = by_kind.collect();
    let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    let says = format!("What the object is, in lower case: {}.", kinds.join(", "));
    let wrong = "There is no such kind. `better-compute kinds` lists them.";
    json!({
        "$schema": dialect,
        "$id": format!("urn:better-compute:fleet:{FORMAT}"),
        "title": "A fleet document",
        "description": "One object of a fleet repository. A file may hold several, parted by ---.",
        "type": "object",
        "required": ["kind"],
        "properties": { "kind": { "enum": kinds, "description": says, "errorMessage": wrong } },
        "allOf": by_kind,
        "$defs": definitions,
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

/// An object: its kind, its name and its keys.
fn object(doc: &KindDoc) -> Value {
    let mut schema = block(&doc.keys, &[]);
    let mut properties = Map::new();
    properties.insert("kind".to_owned(), json!({ "const": doc.kind.as_str(), "description": doc.doc }));
    let mut required = vec![json!("kind")];
    if doc.naming != Naming::Nameless {
        let (pattern, says) = match doc.naming {
            Naming::Address => (address(&Kind::ALL[1..Kind::ALL.len() - 2]), "The object, written kind/name."),
            _ => (NAME.to_owned(), "Its name: lower-case letters, digits and -, at most 63."),
        };
        properties.insert("name".to_owned(), json!({ "type": "string", "pattern": pattern, "description": says }));
    }
    if matches!(doc.naming, Naming::Name | Naming::Address) {
        required.push(json!("name"));
    }
    if let Some(Value::Object(own)) = schema.get_mut("properties").map(Value::take) {
        properties.extend(own);
    }
    if let Some(Value::Array(own)) = schema.get_mut("required").map(Value::take) {
        required.extend(own);
    }
    schema["title"] = json!(doc.kind.as_str());
    schema["description"] = json!(doc.doc);
    schema["properties"] = Value::Object(properties);
    schema["required"] = Value::Array(required);
    schema
}

/// A mapping with these keys and no others; `also` are keys that hold a name.
fn block(keys: &[Key], also: &[&str]) -> Value {
    let carried = keys.iter().filter(|key| key.takes != Takes::Later);
    let mut properties: Map<String, Value> = carried.map(|key| (key.key.to_owned(), property(key))).collect();
    for id in also {
        properties.entry((*id).to_owned()).or_insert_with(|| json!({ "type": "string", "description": "Its name." }));
    }
    let mut required: Vec<&str> = keys.iter().filter(|key| key.required).map(|key| key.key).collect();
    required.extend(also);
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    let either = |key: &Key| {
        let keys = std::iter::once(key.key).chain(key.or.iter().map(String::as_str));
        json!({ "anyOf": keys.map(|key| json!({ "required": [key] })).collect::<Vec<_>>() })
    };
    let either: Vec<Value> = keys.iter().filter(|key| !key.or.is_empty()).map(either).collect();
    if !either.is_empty() {
        schema["allOf"] = json!(either);
    }
    schema
}

fn property(key: &Key) -> Value {
    let mut schema = value(&key.takes, key);
    schema["description"] = match &key.takes {
        Takes::Form(form) => json!(format!("{} Written as {form}.", key.doc)),
        _ => json!(key.doc),
    };
    schema
}

fn value(takes: &Takes, key: &Key) -> Value {
    let share = || json!({ "type": "string", "pattern": "^0*(100|[0-9]{1,2})%$" });
    match takes {
        Takes::Text | Takes::Form(_) => match &key.pattern {
            Some(pattern) => json!({ "type": "string", "pattern": pattern }),
            None => json!({ "type": "string" }),
        },
        Takes::Name | Takes::Reference(_) => json!({ "type": "string", "pattern": NAME }),
        Takes::Words(words) => json!({ "type": "string", "enum": words }),
        Takes::Boolean => json!({ "type": "boolean" }),
        Takes::Integer(least, most) => json!({
            "type": "integer",
            "minimum": i64::try_from(*least).unwrap_or(i64::MIN),
            "maximum": i64::try_from(*most).unwrap_or(i64::MAX),
        }),
        Takes::Share => by_type("integer", json!({ "type": "integer", "minimum": 0, "maximum": 100 }), share()),
        Takes::CountOrShare => {
            let number = json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX });
            by_type("integer", number, json!({ "type": "string", "pattern": "^(0*(100|[0-9]{1,2})%|[0-9]+)$" }))
        }
        Takes::Address(kinds) => json!({ "type": "string", "pattern": address(kinds) }),
        // A window has a beginning and an end.
        Takes::List(one) if key.key == "hours" => {
            json!({ "type": "array", "minItems": 2, "maxItems": 2, "items": value(one, key) })
        }
        Takes::List(one) => {
            let one = value(one, key);
            by_type("array", json!({ "type": "array", "items": one }), one)
        }
        Takes::Table(values) => {
            let values: Vec<Value> = values.iter().map(|one| value(one, key)).collect();
            let values = if let [one] = values.as_slice() { one.clone() } else { any(values) };
            json!({ "type": "object", "additionalProperties": values })
        }
        Takes::Block { positional, keys } => lone(block(keys, &[]), *positional, keys),
        Takes::Blocks { keys } => {
            let one = block(keys, &[]);
            by_type("array", json!({ "type": "array", "minItems": 1, "items": one }), one)
        }
        Takes::Named { id, short, keys } => {
            let mut listed = block(keys, &[id]);
            if let Some(pattern) = key.named {
                listed["properties"][*id]["pattern"] = json!(pattern);
            }
            // What is called as a key inside is no name: such a mapping is one thing without its name.
            let inner: Vec<&str> = keys.iter().map(|key| key.key).chain([*id]).collect();
            let mut names = json!({ "not": { "enum": inner } });
            if let Some(pattern) = key.named {
                names["pattern"] = json!(pattern);
            }
            let by_name = json!({
                "type": "object",
                "minProperties": 1,
                "propertyNames": names,
                "additionalProperties": lone(block(keys, &[]), *short, keys),
            });
            // In a list each has its name among its keys; so has one that stands alone.
            let list = json!({ "type": "array", "minItems": 1, "items": listed.clone() });
            let alone = json!({ "if": { "required": [id] }, "then": listed, "else": by_name });
            by_type("array", list, alone)
        }
        Takes::Later => json!(false),
    }
}

/// A block, or the value that may stand in its place.
fn lone(block: Value, positional: Option<&str>, keys: &[Key]) -> Value {
    let key = positional.and_then(|positional| keys.iter().find(|key| key.key == positional));
    let alone = |key: &Key| keys.iter().all(|other| other.key == key.key || !other.required);
    match key.filter(|key| alone(key)) {
        Some(key) => by_type("object", block, value(&key.takes, key)),
        None => block,
    }
}

/// One schema for values of a type, another for all others.
fn by_type(of: &str, then: Value, other: Value) -> Value {
    json!({ "if": { "type": of }, "then": then, "else": other })
}

fn any(schemas: impl IntoIterator<Item = Value>) -> Value {
    json!({ "anyOf": schemas.into_iter().collect::<Vec<_>>() })
}

fn address(kinds: &[Kind]) -> String {
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    format!("^({})/[a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?$", kinds.join("|"))
}

#[cfg(test)]
mod tests;
