//! What the reference says is what is read.
use super::*;

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
fn dump() {
    fn walk(indent: usize, keys: &[Key]) {
        for key in keys {
            eprintln!(
                "{:indent$}{} [{}]{}{} {:?} -- {}",
                "",
                key.key,
                key.takes.in_words(),
                if key.required { " required" } else { "" },
                key.or.as_ref().map(|or| format!(" or {or}")).unwrap_or_default(),
                key.pattern,
                key.doc
            );
            walk(indent + 2, key.keys());
        }
    }
    for kind in kinds() {
        eprintln!("== {}", kind.kind);
        walk(2, &kind.keys);
    }
}
