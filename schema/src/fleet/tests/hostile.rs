//! Input made in bad faith: an answer in bounded time, and never a panic.

use proptest::prelude::*;

use super::support::{example, found, tree};
use crate::{
    diagnostic::codes,
    fleet::{SourceBlob, Sources, load},
};

#[test]
fn deep_documents_are_refused_with_their_code() {
    let blocks = format!("{}{}", "a {\n".repeat(200), "}\n".repeat(200));
    let comments = "/*".repeat(10_000);
    let slashdashes = "a /-{ ".repeat(18);
    for text in [&blocks, &comments, &slashdashes] {
        assert_eq!(found(&[("d.kdl", text)]), [codes::TOO_DEEP]);
    }
    let lists = format!("kind: site\nname: s\nlabels: {}{}\n", "[".repeat(10_000), "]".repeat(10_000));
    let maps = format!("kind: site\nname: s\nlabels: {}", "{a: ".repeat(200));
    let indents: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    for text in [&lists, &maps, &indents] {
        assert_eq!(found(&[("d.yaml", text)]), [codes::TOO_DEEP], "{}", &text[..60]);
    }
}

/// Each of these overflowed a stack, or took exponential time, in the parser alone.
#[test]
fn documents_that_break_the_parser_are_only_errors() {
    let many = |text: &str| text.repeat(4_000);
    let documents = [
        many("//\u{85}a {\n"),
        many("//\ra {\n"),
        format!("x \"\\q {}\"\n", many("a { ")),
        many("\"\\q a { \" } "),
        format!("x \"\"\"\n  y\n b\n{}\n   \"\"\"\n", many("a {\n")),
        format!("x \"\"\"\n{}", many("a {\n")),
        format!("x \"\"\"{}\"\"\"\n", many("a { ")),
        format!("x \"\\q {}\"\n", "a /-{ ".repeat(200)),
        format!("x 5\"{}\"\n", many("a { ")),
        many("/- "),
        many("}"),
        many("a =\n"),
        "a =\n".repeat(100_000),
        "/- a\n".repeat(1_000) + "b {",
    ];
    for text in &documents {
        assert!(load(&tree(&[("d.kdl", text)])).fleet.is_none(), "{}", text.chars().take(40).collect::<String>());
    }
    let commented = "/- site \"x\" { region \"y\" }\n".repeat(1_000) + "site \"a\"\n";
    assert!(load(&tree(&[("d.kdl", &commented)])).fleet.is_some());
}

#[test]
fn alias_bombs_are_never_expanded() {
    let bomb = "a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\n";
    let places = |text: &str| -> Vec<(u32, u32)> {
        let found = load(&tree(&[("b.yaml", text)])).diagnostics;
        assert!(found.iter().all(|found| found.code == codes::YAML_ANCHOR), "{found:?}");
        found.iter().map(|found| (found.span.line, found.span.column)).collect()
    };
    assert_eq!(places(bomb), [(1, 4), (2, 4), (2, 8), (2, 11), (2, 14), (3, 4), (3, 8), (3, 11), (3, 14)]);
    assert_eq!(places(&bomb.repeat(1000)).len(), 20);
}

#[test]
fn a_line_of_a_megabyte_is_no_trouble() {
    let long = format!("node \"n\" {}\n", "a=1 ".repeat(250_000));
    let loaded = load(&tree(&[("n.kdl", &long[..1_000_000]), ("m.yaml", &format!("x: [{}]", "1, ".repeat(300_000)))]));
    assert!(loaded.fleet.is_none());
    let found: Vec<_> = loaded.diagnostics.iter().map(|found| (&*found.file, found.code, found.span.line)).collect();
    assert_eq!(found, [("m.yaml", codes::TOO_MANY, 1), ("n.kdl", codes::TOO_MANY, 1)]);
    let many = tree(&[("n.kdl", &"/* */ a 1\n".repeat(100_001))]);
    assert_eq!(load(&many).diagnostics.iter().map(|found| found.code).collect::<Vec<_>>(), [codes::TOO_MANY]);
}

#[test]
fn absurd_numbers_are_errors() {
    for number in ["1e400", "999999999999999999999999999999999999999999999", "-1", "0x7fffffffffffffffffff"] {
        let text = format!("site \"s\" {{ network \"a\" cidr=\"10.0.0.0/8\" vlan={number} }}\n");
        assert!(load(&tree(&[("s.kdl", &text)])).fleet.is_none(), "{number}");
    }
}

/// The example fleet with one file changed at random.
fn mutated() -> impl Strategy<Value = Sources> {
    let tokens = [
        "{", "}", "\"", "#", "\"\"\"", "/*", "*/", "/-", "\\", "=", "#true", ";", "\n", "(", "é", "\u{0}", "&a", "*a",
        "<<:", "- ", ": ", "!x", "|", "{{", "%}", "\u{feff}", "[", "~",
    ];
    let change = (any::<prop::sample::Index>(), any::<bool>(), prop::sample::select(tokens.to_vec()));
    (any::<prop::sample::Index>(), prop::collection::vec(change, 1..6)).prop_map(|(file, changes)| {
        let mut sources = example();
        let paths: Vec<_> = sources.iter().map(|(path, _)| path.clone()).collect();
        let path = file.get(&paths).clone();
        let Some(SourceBlob::Bytes(bytes)) = sources.get(&path) else { return sources };
        let mut text: Vec<char> = String::from_utf8_lossy(bytes).chars().collect();
        for (at, insert, token) in changes {
            let at = at.index(text.len() + 1);
            if insert || at == text.len() {
                text.splice(at..at, token.chars());
            } else {
                text.remove(at);
            }
        }
        sources.insert_file(path, text.into_iter().collect::<String>().into_bytes());
        sources
    })
}

/// What is looked up for each mistake is bounded: thousands of them end like one.
#[test]
fn many_mistakes_of_one_kind_are_only_errors() {
    let many = |line: fn(usize) -> String| (0..3_000).map(line).collect::<String>();
    let names = many(|n| format!("\"x{n}\" "));
    let files = [
        many(|n| format!("node \"n{n}\" pool=\"x{n}\" profile=\"y{n}\"\n")),
        many(|n| format!("moved from=\"pool/x{n}\" to=\"pool/x{}\"\n", n + 1)),
        many(|n| format!("removed \"pool/x{n}\" reason=\"y\"\nmoved from=\"pool/x{n}\" to=\"pool/y{n}\"\n")),
        many(|n| format!("freeze \"f{n}\" scope=\"site/x{n}\" reason=\"x\" owner=\"y\" zone=\"Europe/X{n}\"\n")),
        format!("profile \"b\"\nprofile \"p\" extends=\"b\" {{ without {{ sysctl {names}; file {names} }} }}\n"),
        format!(
            "site \"s\"\nbatch \"b\" command=\"node.reboot\" reason=\"x\" expires=\"2027-01-01T00:00:00Z\" {{ scope {{ nodes {names} }} }}\n"
        ),
        many(|n| format!("profile \"p{n}\" extends=\"p{}\"\n", n.saturating_sub(1))),
        // Each was read with its whole file again.
        "node \"n\" mac=\"x\"\n".repeat(15_000),
        format!("rollout \"w\" {{\n{}}}\n", many(|_| "wave nodes=1\n".to_owned())),
    ];
    for text in files {
        let loaded = load(&tree(&[("x.kdl", &text)]));
        assert!(loaded.fleet.is_none() && loaded.diagnostics.len() <= 101, "{}", loaded.diagnostics.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_of_any_kind_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), ending in prop::sample::select(vec!["kdl", "yaml", "j2"])) {
        let mut sources = tree(&[]);
        sources.insert_file(format!("x.{ending}"), bytes.clone());
        prop_assert!(load(&sources).diagnostics.iter().all(|diagnostic| diagnostic.span.line >= 1));
        let root: Sources = [(format!("fleet.{ending}"), bytes)].into_iter().collect();
        prop_assert!(load(&root).fleet.is_none() || ending == "kdl");
    }

    #[test]
    fn text_of_any_kind_never_panics(text in "[a-z{}\"#=;/*\\-\\\\\n :\\[\\]&!|>'()0-9.]{0,200}", ending in prop::sample::select(vec!["kdl", "yaml", "j2"])) {
        let mut sources = tree(&[]);
        sources.insert_file(format!("x.{ending}"), text.into_bytes());
        let loaded = load(&sources);
        prop_assert_eq!(loaded.fleet.is_none(), loaded.errors() > 0);
    }

    #[test]
    fn a_fleet_with_a_change_never_panics_and_errors_yield_no_fleet(sources in mutated()) {
        let loaded = load(&sources);
        let errors = loaded.errors();
        prop_assert_eq!(loaded.fleet.is_none(), errors > 0);
        for diagnostic in &loaded.diagnostics {
            prop_assert!(diagnostic.span.line >= 1 && diagnostic.span.column >= 1);
        }
        let shown = crate::diagnostic::render::text(&loaded.diagnostics, &loaded.sources, crate::diagnostic::render::Colour::Always);
        prop_assert_eq!(shown.is_empty(), loaded.diagnostics.is_empty());
    }
}
