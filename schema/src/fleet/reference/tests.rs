//! What the reference says is what is read, and its pages are fresh.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::*;
use crate::fleet::{Fleet, Sources, json_schema, load, tests::support};

#[test]
fn every_key_says_what_it_is() {
    fn walk(path: &str, keys: &[Key], silent: &mut Vec<String>) {
        for key in keys {
            let path = format!("{path}.{}", key.key);
            if key.doc.is_empty() && key.takes != Takes::Later {
                silent.push(path.clone());
            }
            walk(&path, key.keys(), silent);
        }
    }
    let mut silent = Vec::new();
    for kind in kinds() {
        assert!(!kind.keys.is_empty(), "{}", kind.kind);
        walk(kind.kind.as_str(), &kind.keys, &mut silent);
    }
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn every_form_is_that_of_a_key() {
    fn walk(path: &str, keys: &[Key], all: &mut Vec<String>) {
        for key in keys {
            all.push(format!("{path}.{}", key.key));
            walk(&all[all.len() - 1].clone(), key.keys(), all);
        }
    }
    let mut all = Vec::new();
    kinds().iter().for_each(|kind| walk(kind.kind.as_str(), &kind.keys, &mut all));
    for (path, _) in record::FORMS.iter().chain(&record::NAMES) {
        assert!(all.iter().any(|key| key == path), "{path}");
    }
}

/// A decoder that returns before it asked for everything would leave keys out of the reference.
#[test]
fn every_key_of_a_stored_document_is_in_the_reference() {
    fn walk(path: &str, value: &serde_json::Value, keys: &[Key], unknown: &mut Vec<String>) {
        for (word, value) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{word}");
            let Some(key) = keys.iter().find(|key| key.key == word) else {
                unknown.push(path);
                continue;
            };
            match &key.takes {
                Takes::Named { keys, .. } => {
                    value.as_object().into_iter().flatten().for_each(|(_, value)| walk(&path, value, keys, unknown));
                }
                Takes::Blocks { keys } => {
                    value.as_array().into_iter().flatten().for_each(|value| walk(&path, value, keys, unknown));
                }
                Takes::Table(_) => {}
                _ => walk(&path, value, key.keys(), unknown),
            }
        }
    }
    let mut unknown = Vec::new();
    for object in fleet(&support::example()).objects() {
        let mut document = serde_json::Value::clone(&object.doc);
        document.as_object_mut().unwrap().retain(|key, _| key != "kind" && key != "name");
        let kind = kind(object.object.kind);
        walk(kind.kind.as_str(), &document, &kind.keys, &mut unknown);
    }
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn the_examples_are_a_fleet_and_the_same_one_in_yaml() {
    let kdl = fleet(&page::examples());
    let mut sources = Sources::default();
    for kind in kinds() {
        let path = if kind.kind == Kind::Fleet { "fleet.yaml".to_owned() } else { format!("{}.yaml", kind.kind) };
        sources.insert_file(path, page::yaml(kind.kind).as_bytes());
    }
    sources.insert_file("access/operators.cedar", &b"permit(principal, action, resource);\n"[..]);
    let yaml = fleet(&sources);
    let digests = |fleet: &Fleet| -> BTreeMap<String, String> {
        fleet.objects().map(|object| (object.object.to_string(), object.digest.to_string())).collect()
    };
    assert_eq!(digests(&kdl), digests(&yaml));
    let lines = |fleet: &Fleet| serde_json::json!([fleet.moved, fleet.removed]);
    assert_eq!(lines(&kdl), lines(&yaml));
    for kind in kinds() {
        let bytes = kind.kdl.as_bytes();
        assert_eq!(crate::fleet::format(bytes).as_deref(), Ok(bytes), "{} is not in the style", kind.kind);
    }
}

fn fleet(sources: &Sources) -> Fleet {
    let loaded = load(sources);
    let shown = support::text(&loaded);
    loaded.fleet.unwrap_or_else(|| panic!("{shown}"))
}

#[test]
fn the_pages_are_fresh() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let mut pages: BTreeMap<PathBuf, String> = BTreeMap::new();
    pages.insert(folder.join("kinds.md"), index_page());
    pages.insert(folder.join("diagnostics.md"), codes_page());
    pages.insert(folder.join("schema.json"), serde_json::to_string_pretty(&json_schema(None)).unwrap() + "\n");
    for kind in kinds() {
        pages.insert(folder.join(format!("kinds/{}.md", kind.kind)), kind_page(kind));
    }
    let update = std::env::var_os("UPDATE_REFERENCE").is_some();
    for (path, page) in &pages {
        if update {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, page).unwrap();
        }
        let written = fs::read_to_string(path).unwrap_or_default();
        assert!(written == *page, "{} is stale: run this test with UPDATE_REFERENCE=1", path.display());
    }
    for page in fs::read_dir(folder.join("kinds")).unwrap() {
        let path = page.unwrap().path();
        assert!(pages.contains_key(&path), "{} is about no kind", path.display());
    }
}

#[test]
fn the_files_of_the_example_fleet_are_in_the_style() {
    for (path, blob) in support::example().iter().filter(|(path, _)| path.ends_with(".kdl")) {
        let crate::fleet::SourceBlob::Bytes(bytes) = blob else { continue };
        let formatted = crate::fleet::format(bytes.as_ref()).unwrap();
        assert!(formatted[..] == bytes[..], "{path} is not in the style: run `better-compute fmt examples-fleet`");
    }
}
