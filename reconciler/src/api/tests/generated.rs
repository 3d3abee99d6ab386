//! The generated descriptions are fresh: run with `BETTER_COMPUTE_REGENERATE=1` to write them.

use std::{collections::BTreeSet, path::Path};

use crate::api::{auth, openapi, reference, table::METHODS};

fn is_fresh(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(file);
    if std::env::var_os("BETTER_COMPUTE_REGENERATE").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, wanted).expect("written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/reference/{file} is stale; run this test with BETTER_COMPUTE_REGENERATE=1");
}

#[test]
fn the_openapi_document_is_fresh() {
    let text = serde_json::to_string_pretty(&openapi::document()).expect("json");
    is_fresh("openapi.json", &format!("{text}\n"));
}

#[test]
fn the_reference_page_is_fresh() {
    is_fresh("api.md", &reference::page());
}

#[test]
fn the_table_is_sound() {
    let names: Vec<String> = METHODS.iter().map(|method| method.full_name()).collect();
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    for method in METHODS.iter() {
        assert!(auth::is_scope(method.scope), "{method:?}");
        assert_eq!(method.scope.split(':').next(), Some(method.group), "{method:?}");
        assert_eq!(method.scope.ends_with(":write"), method.is_mutation(), "{method:?}");
        assert!(method.summary.ends_with('.'), "{method:?}");
    }
}
