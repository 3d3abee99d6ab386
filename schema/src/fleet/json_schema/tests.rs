//! The schema against the decoders: it takes what they take, and refuses what it can of what they refuse.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Validator;

use super::*;
use crate::{
    diagnostic::{Diagnostic, codes},
    fleet::tests::support::example,
    fleet::{Sources, load},
};

const ROOT: &str = "fleet \"acme\" { format 1; trust-domain \"acme.example\" }\n";

fn validator() -> Validator {
    jsonschema::draft202012::new(&json_schema(None)).unwrap()
}

/// The documents of every object of the example fleet and of the examples of the reference.
fn documents() -> Vec<Value> {
    let mut sources = Sources::default();
    for kind in reference::kinds() {
        // What is removed or moved must not be there, and what stays must.
        if !matches!(kind.kind, Kind::Moved | Kind::Removed) {
            let file = if kind.kind == Kind::Fleet { "fleet.kdl".to_owned() } else { format!("{}.kdl", kind.kind) };
            sources.insert_file(file, kind.kdl.as_bytes());
        }
    }
    sources.insert_file("access/operators.cedar", &b"permit(principal, action, resource);"[..]);
    let mut all = Vec::new();
    for sources in [sources, example()] {
        let loaded = load(&sources);
        let errors: Vec<&Diagnostic> = loaded.diagnostics.iter().filter(|found| found.is_error()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        all.extend(loaded.fleet.unwrap().objects().map(|object| Value::clone(&object.doc)));
    }
    all.push(json!({ "kind": "moved", "from": "pool/a", "to": "pool/b" }));
    all.push(json!({ "kind": "removed", "name": "pool/a", "reason": "sold" }));
    all
}

/// What the decoders say of a document that is written in YAML; JSON is YAML too.
fn found(document: &Value) -> Vec<Diagnostic> {
    let text = document.to_string();
    let files: Vec<(&str, &[u8])> = if document["kind"] == "fleet" {
        vec![("fleet.yaml", text.as_bytes())]
    } else {
        vec![("fleet.kdl", ROOT.as_bytes()), ("x.yaml", text.as_bytes())]
    };
    let sources: Sources = files.into_iter().collect();
    load(&sources).diagnostics.into_iter().filter(Diagnostic::is_error).collect()
}

#[test]
fn the_schema_is_one() {
    jsonschema::draft202012::meta::validate(&json_schema(None)).unwrap();
    for kind in Kind::ALL {
        jsonschema::draft202012::meta::validate(&json_schema(Some(*kind))).unwrap();
    }
}

#[test]
fn the_document_of_every_object_is_taken() {
    let all = validator();
    for document in documents() {
        let kind: Kind = document["kind"].as_str().unwrap().parse().unwrap();
        let one = jsonschema::draft202012::new(&json_schema(Some(kind))).unwrap();
        assert!(one.is_valid(&document), "{:?} in {document}", one.iter_errors(&document).next());
        assert!(all.is_valid(&document), "{document}");
    }
}

#[test]
fn the_yaml_of_the_example_fleet_is_taken() {
    let all = validator();
    let mut count = 0;
    for (path, blob) in example().iter().filter(|(path, _)| path.ends_with(".yaml")) {
        let crate::fleet::SourceBlob::Bytes(blob) = blob else { continue };
        let text = std::str::from_utf8(blob.as_ref()).unwrap();
        for document in serde_yaml::Deserializer::from_str(text) {
            let document: Value = serde::Deserialize::deserialize(document).unwrap();
            assert!(all.is_valid(&document), "{path}: {document}");
            count += 1;
        }
    }
    assert!(count >= 4);
}

/// Codes for what a schema can see: the words and types of one document.
const SEEN: [codes::Code; 7] = [
    codes::UNKNOWN_KEY,
    codes::WRONG_TYPE,
    codes::QUOTE_IT,
    codes::UNKNOWN_WORD,
    codes::OUT_OF_RANGE,
    codes::NULL,
    codes::KEY_NOT_TEXT,
];

/// Every document with one value replaced, one key added or one key taken away, anywhere.
fn mutations(document: &Value) -> Vec<Value> {
    fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
        all.push(at.to_owned());
        match value {
            Value::Object(members) => members.iter().for_each(|(key, value)| {
                pointers(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, value)| pointers(value, &format!("{at}/{index}"), all));
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    pointers(document, "", &mut all);
    let mut mutated = Vec::new();
    let values = [
        json!(true),
        json!(5),
        json!(-1),
        json!("some words"),
        json!([]),
        json!({}),
        json!(["a", "b"]),
        json!([3]),
        json!({"a": "b"}),
        json!([{"name": "a"}]),
        Value::Null,
    ];
    for pointer in all.iter().filter(|pointer| !pointer.is_empty() && *pointer != "/kind") {
        for value in &values {
            let mut one = document.clone();
            *one.pointer_mut(pointer).unwrap() = value.clone();
            mutated.push(one);
        }
        let (above, key) = pointer.rsplit_once('/').unwrap();
        let mut one = document.clone();
        if let Some(Value::Object(members)) = one.pointer_mut(above) {
            members.remove(&key.replace("~1", "/").replace("~0", "~"));
            mutated.push(one);
        }
    }
    for pointer in &all {
        let mut one = document.clone();
        if let Some(Value::Object(members)) = one.pointer_mut(pointer) {
            members.insert("nonesuch".to_owned(), json!("x"));
            mutated.push(one);
        }
    }
    mutated
}

/// What an editor tells of a document: each error and its place.
fn told(document: &Value) -> Vec<String> {
    validator()
        .iter_errors(document)
        .map(|error| format!("{} at {}", error.to_string().chars().take(90).collect::<String>(), error.instance_path()))
        .collect()
}

#[test]
fn one_mistake_is_one_error_where_it_is() {
    let pool = || json!({ "kind": "pool", "name": "p", "site": "s", "profile": "b" });
    let with = |key: &str, value: Value| {
        let mut pool = pool();
        pool[key] = value;
        pool
    };
    let cases = [
        (with("kind", json!("Pool")), "/kind"),
        (with("kind", json!("pol")), "/kind"),
        (with("clas", json!("metal-host")), ""),
        (with("class", json!("metal")), "/class"),
        (with("site", json!("FRA 1")), "/site"),
        (with("hardware", json!({ "gpus": { "count": "8" } })), "/hardware/gpus/count"),
        (with("hardware", json!({ "gpus": "8" })), "/hardware/gpus"),
        (with("policy", json!({ "tenants": ["a", 5] })), "/policy/tenants/1"),
        (with("policy", json!({ "disruption-budget": -1 })), "/policy/disruption-budget"),
        (with("policy", json!({ "acceptance": { "diag.nvml": { "timeuot": "5m" } } })), "/policy/acceptance/diag.nvml"),
        (with("policy", json!({ "acceptance": [{ "check": "diag.nvlm" }] })), "/policy/acceptance/0/check"),
        (
            json!({ "kind": "profile", "name": "b", "file": { "/etc/x": { "content": "x", "mode": 644 } } }),
            "/file/~1etc~1x/mode",
        ),
        (
            json!({ "kind": "profile", "name": "b", "unit": [{ "name": "a.service", "enable": "yes" }] }),
            "/unit/0/enable",
        ),
        (json!({ "kind": "rollout", "name": "r", "wave": [{ "nodes": 1 }, { "percnt": 100 }] }), "/wave/1"),
        (json!({ "kind": "removed", "name": "pool/x" }), ""),
    ];
    for (document, place) in cases {
        let told = told(&document);
        assert!(told.len() == 1 && told[0].ends_with(&format!(" at {place}")), "{document}\n{told:#?}");
    }
    assert_eq!(told(&pool()), Vec::<String>::new());
}

#[test]
fn schema_and_decoders_agree_about_mistakes() {
    let all = validator();
    let mut disagreements: BTreeMap<String, String> = BTreeMap::new();
    let (mut taken, mut refused) = (0, 0);
    let mut seen = BTreeSet::new();
    for document in documents() {
        // All of them take half a minute; which are left out changes with every edit of the examples.
        for mutated in mutations(&document).into_iter().step_by(7) {
            if !seen.insert(mutated.to_string()) {
                continue;
            }
            let found = found(&mutated);
            let visible = found.iter().find(|found| SEEN.contains(&found.code));
            let decodes = !found.iter().any(|found| {
                found.file.as_ref() != "fleet.kdl" && matches!(&found.code.to_string()[..4], "BC01" | "BC02")
            });
            match (all.is_valid(&mutated), visible) {
                (true, Some(finding)) => {
                    let what = format!("decoder alone refuses {} {}", document["kind"], finding.message);
                    disagreements.entry(what).or_insert_with(|| mutated.to_string());
                }
                (false, None) if decodes => {
                    let one: Kind = document["kind"].as_str().unwrap().parse().unwrap();
                    let one = jsonschema::draft202012::new(&json_schema(Some(one))).unwrap();
                    let why = one
                        .iter_errors(&mutated)
                        .next()
                        .map(|error| format!("{error} at {}", error.instance_path()))
                        .unwrap_or_default();
                    disagreements
                        .entry(format!("schema alone refuses {} {why}", document["kind"]))
                        .or_insert_with(|| mutated.to_string());
                }
                (true, None) => taken += 1,
                (false, _) => refused += 1,
            }
        }
    }
    assert!(taken > 20 && refused > 500, "{taken} {refused}");
    let short = |text: &str| text.chars().take(300).collect::<String>();
    let told: Vec<String> =
        disagreements.iter().map(|(what, example)| format!("{}\n    {}", short(what), short(example))).collect();
    assert!(told.is_empty(), "{} kinds of disagreement:\n{}", told.len(), told.join("\n"));
}
