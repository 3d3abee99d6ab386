//! Formatting: one style, reached in one step, and nothing lost on the way.

use std::{fs, path::Path};

use kdl::{KdlDocument, KdlNode};
use proptest::prelude::*;

use super::*;

fn fmt(text: &str) -> String {
    String::from_utf8(format(text.as_bytes()).unwrap()).unwrap()
}

#[test]
fn a_file_reads_as_the_style_says() {
    let before = "\n\n// top\n\n\n\nfleet   \"acme\"   {format 1;trust-domain  \"a.example\" ; }  // end of line\n/- site   \"gone\" {\n a 1\n}\nsite \"x\" {\n\n      // about labels\n   labels   a = \"b\" /- c=\"d\"  \\\n e=\"f\" // g\n\n\n  gateway \"h:1\" ; network \"n\" { }\n  empty {\n\n }\n  file \"/etc/motd\" {  // why\n content \"\"\"\n  one\n    two\n\n  \"\"\"\n  }\n\n}\n\n";
    let after = "// top\n\nfleet \"acme\" { format 1; trust-domain \"a.example\" } // end of line\n/- site \"gone\" {\n  a 1\n}\nsite \"x\" {\n  // about labels\n  labels a=\"b\" /- c=\"d\" \\\n      e=\"f\" // g\n\n  gateway \"h:1\"\n  network \"n\" {}\n  empty {}\n  file \"/etc/motd\" { // why\n    content \"\"\"\n      one\n        two\n\n      \"\"\"\n  }\n}\n";
    assert_eq!(fmt(before), after);
    assert_eq!(fmt(after), after);
}

#[test]
fn a_line_that_is_too_long_is_opened() {
    let long = format!("a \"{}\" {{ b 1; c 2 }}\n", "x".repeat(100));
    assert_eq!(fmt(&long), format!("a \"{}\" {{\n  b 1\n  c 2\n}}\n", "x".repeat(100)));
}

#[test]
fn two_comments_of_a_node_stay_two() {
    assert_eq!(fmt("a \\ // b\n ; // c\n"), "a // b\n// c\n");
}

#[test]
fn a_file_with_an_error_is_left_alone() {
    assert!(matches!(format(b"a \"x\" {\n  b\n"), Err(FormatError::Unreadable { line: 1, .. })));
    assert!(matches!(format(b"a \"x\" (u8)1\n"), Err(FormatError::Unreadable { .. })));
    assert_eq!(format(b""), Ok(Vec::new()));
}

#[test]
fn marks_and_line_ends_become_those_of_the_style() {
    assert_eq!(fmt("\u{feff}a \"x\" {\r\n  b 1\r\n}\r\n"), "a \"x\" {\n  b 1\n}\n");
}

/// What a document says, without how it is written.
fn said(document: &KdlDocument) -> Vec<String> {
    let mut out = Vec::new();
    document.nodes().iter().for_each(|node| said_node(node, &mut out));
    out
}

fn said_node(node: &KdlNode, out: &mut Vec<String>) {
    out.push(format!("{:?} {:?}", node.ty().map(kdl::KdlIdentifier::value), node.name().value()));
    for entry in node.entries() {
        let ty = entry.ty().map(kdl::KdlIdentifier::value);
        out.push(format!("{ty:?} {:?} {:?}", entry.name().map(kdl::KdlIdentifier::value), entry.value()));
    }
    if let Some(children) = node.children() {
        out.push("{".to_owned());
        children.nodes().iter().for_each(|child| said_node(child, out));
        out.push("}".to_owned());
    }
}

fn holds(text: &str) -> Result<(), TestCaseError> {
    let Ok(before) = KdlDocument::parse_v2(text) else { return Ok(()) };
    let once = formatted(text);
    prop_assert!(once.is_some(), "something would be lost: {text:?}\n{}", print::print(&lex::tokens(text)));
    let once = once.unwrap();
    let after = KdlDocument::parse_v2(&once);
    prop_assert!(after.is_ok(), "{text:?} became {once:?}: {after:?}");
    prop_assert_eq!(said(&before), said(&after.unwrap()), "{:?} became {:?}", text, once);
    let twice = formatted(&once);
    prop_assert_eq!(twice.as_deref(), Some(once.as_str()), "not stable: {:?}", text);
    prop_assert!(once.lines().all(|line| line.trim_end() == line || once.contains("\"\"\"") || once.contains("*/")));
    Ok(())
}

#[test]
fn the_official_suite_keeps_its_meaning() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/fleet");
    let Ok(files) = fs::read_dir(cases.join("kdl-suite/input")) else {
        return eprintln!("skipped: the official KDL suite is not here");
    };
    let files = files.chain(fs::read_dir(&cases).unwrap());
    let mut count = 0;
    for file in files {
        let path = file.unwrap().path();
        let kdl = path.extension().is_some_and(|end| end == "kdl");
        let Some(text) = kdl.then(|| fs::read_to_string(&path).ok()).flatten() else { continue };
        if let Err(error) = holds(&text) {
            panic!("{}: {error}", path.display());
        }
        count += 1;
    }
    assert!(count > 100);
}

/// Pieces that make valid documents often, in any order.
fn document() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b-c",
        "\"t\"",
        "#\"r\"#",
        "1",
        "#true",
        "k=1",
        "k = \"v\"",
        "(u8)2",
        "( t ) \"x\"",
        "/-",
        "/- ",
        "{",
        "}",
        "{ ",
        "}\n",
        ";",
        "\n",
        "\n\n\n",
        " ",
        "  \t",
        "// c\n",
        "/* d */",
        "/* e\n  f */",
        "\\\n",
        " \\ // g\n",
        "\"\"\"\n  l\n    m\n\n  \"\"\"",
        "#\"\"\"\n\\ r\n\"\"\"#",
        "\"\"\"\n  x \\\n     y\n  \"\"\"",
        "{ h 1; i 2 }",
        "\u{a0}",
        "{\n}",
        "\u{85}",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.join(" "))
}

/// A document that is valid for certain.
fn nested() -> impl Strategy<Value = String> {
    let entry = prop::sample::select(vec![
        "1",
        "\"t\"",
        "w",
        "k=v",
        "k = 2",
        "/- 3",
        "/-\n 4",
        "/* c */",
        "\\\n 5",
        "\\ // d\n 6",
        "(t)7",
        "\"\"\"\n   l\n  m\n  \"\"\"",
    ]);
    let before = prop::sample::select(vec!["", "// c\n", "\n\n\n", "/* d */ ", "/- ", "/-\n\n// e\n", "   "]);
    let end = prop::sample::select(vec!["\n", ";", " // f\n", "; // g\n", ";;\n", "\n\n", " /* h */\n", "; /* i */ "]);
    let leaf = (before, "[a-z]{1,5}", prop::collection::vec(entry, 0..4), end)
        .prop_map(|(before, name, entries, end)| (before, format!("{name} {} ", entries.join("  ")), end));
    let leaf = leaf.prop_map(|(before, node, end)| format!("{before}{node}{end}"));
    leaf.prop_recursive(3, 24, 4, |inner| {
        let open = prop::sample::select(vec!["{", "{ // j\n", "{\n", "{ /* k */\n\n", "/- { z } {"]);
        let after = prop::sample::select(vec!["}\n", "};", "} // l\n", "} /- { y; }\n", "\n\n}\n"]);
        ("[a-z]{1,5}", open, prop::collection::vec(inner, 0..4), after)
            .prop_map(|(name, open, inner, after)| format!("{name} {open}{}{after}", inner.concat()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_parses_keeps_its_meaning(text in document()) {
        holds(&text)?;
    }

    #[test]
    fn documents_keep_their_meaning(nodes in prop::collection::vec(nested(), 0..5)) {
        holds(&nodes.concat())?;
    }
}
