//! Cursors: `|` marks them, in buffers that are whole and in others.

use proptest::prelude::*;

use super::*;

fn at(path: &str, marked: &str) -> (Cursor, String) {
    let at = marked.find('|').unwrap();
    let text = marked.replacen('|', "", 1);
    let cursor = cursor(path, &text, at).unwrap();
    let word = text[cursor.word.clone()].to_owned();
    (cursor, word)
}

fn seen(path: &str, marked: &str) -> (String, Place, String) {
    let (cursor, word) = at(path, marked);
    (cursor.path.join("."), cursor.place, word)
}

fn is(path: &str, place: Place, word: &str) -> (String, Place, String) {
    (path.to_owned(), place, word.to_owned())
}

#[test]
fn a_cursor_in_kdl_knows_its_block() {
    let either = |key: &str| Place::Either(key.to_owned());
    let value = |key: &str| Place::Value(key.to_owned());
    for (marked, want) in [
        ("po|", is("", Place::Key, "po")),
        ("pool \"a\" {\n  si|te \"x\"\n}", is("pool", Place::Key, "site")),
        ("pool \"a\" {\n  |\n", is("pool", Place::Key, "")),
        ("pool \"a\" {\n  site \"fr|a1\"\n}", is("pool", either("site"), "fra1")),
        ("pool \"a\" {\n  site \"|\n}", is("pool", either("site"), "")),
        ("pool \"a\" {\n  site |\n}", is("pool", either("site"), "")),
        ("pool \"a\" {\n  hardware { gpus 8 me|mory=\"80GiB\" }\n}", is("pool.hardware.gpus", Place::Key, "memory")),
        (
            "pool \"a\" {\n  hardware { gpus 8 memory=\"8|0GiB\" }\n}",
            is("pool.hardware.gpus", value("memory"), "80GiB"),
        ),
        ("pool \"a\" { policy { }; cl|", is("pool", Place::Key, "cl")),
        ("site \"a\" // comm|ent", is("", Place::Nothing, "")),
        ("profile \"a\" {\n  unit \"x\" {\n    content \"\"\"\n      lo|ng\n", is("", Place::Nothing, "")),
        (
            "profile \"a\" {\n  file \"/x\" content=\"\"\"\n    { a\n    \"\"\"\n  ext|",
            is("profile", Place::Key, "ext"),
        ),
    ] {
        assert_eq!(seen("a.kdl", marked), want, "{marked}");
    }
}

#[test]
fn a_cursor_in_yaml_knows_its_block() {
    let value = |key: &str| Place::Value(key.to_owned());
    for (marked, want) in [
        ("ki|", is("", Place::Key, "ki")),
        ("kind: po|", is("po", value("kind"), "po")),
        ("kind: pool\nname: a\nsi|te: b\n", is("pool", Place::Key, "site")),
        ("site: fr|a1\nkind: pool\n", is("pool", value("site"), "fra1")),
        ("kind: pool\nhardware:\n  gpus:\n    mem|\n", is("pool.hardware.gpus", Place::Key, "mem")),
        ("kind: pool\nhardware:\n  |\n", is("pool.hardware", Place::Key, "")),
        ("kind: pool\nhardware:\n  gpus: {}\n|", is("pool", Place::Key, "")),
        ("kind: image\nuse: [os, ra|]\n", is("image", value("use"), "ra")),
        ("kind: image\nuse:\n  - ra|\n", is("image", Place::Either("use".to_owned()), "ra")),
        ("kind: profile\nunit:\n  - name: x\n    st|\n", is("profile.unit", Place::Key, "st")),
        ("kind: profile\nunit:\n  - name: x\n    state: \"st|\"\n", is("profile.unit", value("state"), "st")),
        ("kind: profile\nfile:\n  /etc/motd:\n    content: |2\n", is("profile.file./etc/motd", value("content"), "2")),
        ("kind: profile\nfile:\n  /x:\n    content: >\n      a: |\n", is("profile", Place::Nothing, "")),
        ("kind: site\n---\nkind: pool\nsi|\n", is("pool", Place::Key, "si")),
        ("kind: pool # c|", is("pool", Place::Nothing, "")),
    ] {
        assert_eq!(seen("a.yaml", marked), want, "{marked}");
    }
}

#[test]
fn keys_are_those_of_the_block() {
    let words =
        |path: &str, marked: &str| -> Vec<&str> { at(path, marked).0.keys().iter().map(|key| key.key).collect() };
    assert!(words("a.kdl", "pool \"a\" { hardware { | } }").contains(&"gpus"));
    assert!(words("a.yaml", "kind: site\nnetwork:\n  management:\n    v|\n").contains(&"vlan"));
    assert!(words("a.yaml", "kind: site\nnetwork:\n  - name: x\n    v|\n").contains(&"vlan"));
    assert!(words("a.kdl", "nonesuch { | }").is_empty());
}

#[test]
fn the_outline_sees_objects_with_mistakes() {
    let found = outline("a.kdl", b"pool \"a\" { nonesuch 1 }\nfreeze \"b\"\nfoo \"c\"\n");
    let found: Vec<String> = found.iter().map(|one| format!("{}/{}", one.kind, one.name)).collect();
    assert_eq!(found, ["pool/a", "freeze/b"]);
    assert!(outline("a.kdl", b"pool {").is_empty() && outline("a.txt", b"pool").is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_is_too_broken(parts in prop::collection::vec(prop::sample::select(vec![
        "pool", " ", "\n", "\"", "{", "}", "=", ";", "#", "\"\"\"", "/*", "//", "/-", "\\", ":", "- ", "kind: ", "---\n", "|", "[", "é", "\u{1f980}", "\t", "'", "  ",
    ]), 0..40), at in 0_usize..80) {
        let text = parts.concat();
        for path in ["a.kdl", "a.yaml"] {
            let cursor = cursor(path, &text, at).unwrap();
            prop_assert!(text.get(cursor.word.clone()).is_some(), "{cursor:?} in {text:?}");
            let _ = (cursor.keys(), cursor.key(&text));
        }
    }
}
