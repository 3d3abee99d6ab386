//! Suites of others: the official KDL cases where they are at hand, and YAML files that parsers disagree about.

use std::{fs, path::PathBuf};

use super::support::{found, text, tree};
use crate::{
    diagnostic::codes,
    fleet::{
        doc::{Entry, Scalar},
        load,
        parse::{Syntax, parse},
    },
};

/// The official KDL version 2 cases, which are not part of this repository.
fn kdl_suite() -> Option<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/cases/fleet/kdl-suite"));
    root.is_dir().then_some(root)
}

/// Where the parser departs from the suite: a raw string of three quotes on one line is read, and a commented-out block
/// directly after a value is not.
const KNOWN: [&str; 2] = ["multiline_raw_string_single_line_err_fail.kdl", "zero_space_before_slashdash_children.kdl"];

#[test]
fn the_kdl_suite_is_accepted_and_refused_as_it_says() {
    let Some(root) = kdl_suite() else {
        eprintln!("skipped: the KDL suite is not at hand");
        return;
    };
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root.join("input")).expect("the inputs") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let good = root.join("expected_kdl").join(&name).exists();
        let parsed = parse(&fs::read(&path).expect("a case"), Syntax::Kdl);
        if parsed.whole != good && !KNOWN.contains(&name.as_str()) {
            wrong.push(format!("{name}: read {}, expected {good}", parsed.whole));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What operators really have in their repositories is never taken for something of ours, and never without a word.
#[test]
fn files_of_other_tools_are_errors_in_their_place() {
    let Some(root) = kdl_suite().and_then(|suite| Some(suite.parent()?.to_owned())) else {
        eprintln!("skipped: the files of others are not at hand");
        return;
    };
    let files = fs::read_dir(root).expect("the folder").map(|entry| entry.expect("an entry").path());
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        (name.ends_with(".yaml") || name.ends_with(".kdl")).then(|| (name, fs::read(path).expect("a file")))
    };
    let mut silent = Vec::new();
    for (name, bytes) in files.filter_map(named) {
        let mut sources = tree(&[]);
        sources.insert_file(name.as_str(), bytes);
        let loaded = load(&sources);
        if !loaded.diagnostics.iter().any(|found| found.is_error() && *found.file == *name) {
            silent.push(name);
        }
    }
    silent.sort();
    assert_eq!(silent, Vec::<String>::new());
}

fn values(yaml: &str) -> Vec<(String, Scalar)> {
    let parsed = parse(format!("kind: x\nname: y\n{yaml}").as_bytes(), Syntax::Yaml);
    assert!(parsed.whole && parsed.problems.is_empty(), "{yaml}: {:?}", parsed.problems);
    let one = |entry: &Entry| (entry.key.clone(), entry.args[0].value.clone());
    parsed.objects[0].fields.iter().map(one).collect()
}

#[test]
fn words_that_older_yaml_reads_as_booleans_are_texts() {
    for (key, value) in values("country: NO\nenabled: no\nanswer: on\nyes: y\nbase: y\nsite: off\nn: N\n") {
        assert!(matches!(value, Scalar::Text(_)), "{key}: {value:?}");
    }
    assert_eq!(
        values("a: true\nb: False\n").iter().map(|(_, value)| value.clone()).collect::<Vec<_>>(),
        [Scalar::Bool(true), Scalar::Bool(false)]
    );
}

#[test]
fn numbers_are_what_the_core_schema_says_or_texts() {
    let text = |text: &str| Scalar::Text(text.to_owned());
    let expected = [
        ("mode: 0644", text("0644")),
        ("port: 0o17", Scalar::Int(15)),
        ("big: 12345678901234567890123", Scalar::Int(12_345_678_901_234_567_890_123)),
        ("exp: 1e3", Scalar::Float),
        ("ver: 1.10", Scalar::Float),
        ("mac: 00:11:22:33:44:55", text("00:11:22:33:44:55")),
        ("mac2: 12:34:56:78:90:12", text("12:34:56:78:90:12")),
        ("sexa: 190:20:30", text("190:20:30")),
        ("hex: 0x1F", Scalar::Int(31)),
        ("nan: .nan", Scalar::Float),
        ("inf: -.inf", Scalar::Float),
        ("under: 1_000", text("1_000")),
        ("serial: 0123456789", text("0123456789")),
        ("plus: +12", Scalar::Int(12)),
        ("day: 2024-02-30", text("2024-02-30")),
        ("quoted: \"12\"", text("12")),
        ("block: |\n  12\n", text("12\n")),
        ("tagged: !!str 12", text("12")),
    ];
    for (yaml, value) in expected {
        assert_eq!(values(yaml)[0].1, value, "{yaml}");
    }
}

#[test]
fn every_value_of_a_yaml_file_knows_its_place() {
    let yaml =
        "kind: site\nname: \"frä1\"\nregion:   'x y'   # comment\nlabels:\n  a: b\ngateway:\n  - one\n  - |\n    two\n";
    let parsed = parse(yaml.as_bytes(), Syntax::Yaml);
    let slice = |span: crate::diagnostic::Span| &yaml[span.start as usize..span.end as usize];
    let object = &parsed.objects[0];
    assert_eq!(slice(object.name.as_ref().expect("a name").span), "\"frä1\"");
    let field = |index: usize| &object.fields[index];
    assert_eq!(
        (slice(field(0).span), slice(field(0).args[0].span), field(0).args[0].span.line),
        ("region", "'x y'", 3)
    );
    assert_eq!((slice(field(1).fields[0].span), slice(field(1).fields[0].args[0].span)), ("a", "b"));
    assert_eq!((slice(field(2).args[0].span), field(2).args[0].span.column), ("one", 5));
    assert_eq!(field(2).args[1].span.line, 9);
}

#[test]
fn every_value_of_a_kdl_file_knows_its_place() {
    let kdl =
        "site \"frä1\" region=\"x y\" /* c */ a= 5 {\n  labels \\\n    b=\"c\"\n  gateway \"ü\" #\"raw\"# // d\n}\n";
    let parsed = parse(kdl.as_bytes(), Syntax::Kdl);
    assert!(parsed.whole, "{:?}", parsed.problems);
    let slice = |span: crate::diagnostic::Span| &kdl[span.start as usize..span.end as usize];
    let object = &parsed.objects[0];
    assert_eq!((slice(object.kind.1), slice(object.name.as_ref().expect("a name").span)), ("site", "\"frä1\""));
    let field = |index: usize| &object.fields[index];
    assert_eq!((slice(field(0).span), slice(field(0).args[0].span)), ("region", "\"x y\""));
    assert_eq!((slice(field(1).span), slice(field(1).args[0].span)), ("a", "5"));
    assert_eq!(
        (slice(field(2).fields[0].span), slice(field(2).fields[0].args[0].span), field(2).fields[0].span.line),
        ("b", "\"c\"", 3)
    );
    assert_eq!((slice(field(3).args[0].span), slice(field(3).args[1].span)), ("\"ü\"", "#\"raw\"#"));
}

#[test]
fn several_documents_are_several_objects_and_empty_ones_are_none() {
    let parsed = parse(
        b"---\nkind: pool\nname: h100\n...\n---\nkind: pool\nname: h200\n---\n---\n# only a comment\n",
        Syntax::Yaml,
    );
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    assert_eq!(parsed.objects.len(), 2);
    assert!(parse(b"", Syntax::Yaml).objects.is_empty());
    assert!(parse(b"# nothing\n", Syntax::Yaml).problems.is_empty());
}

#[test]
fn reserved_characters_are_errors_where_they_stand() {
    for (yaml, line) in
        [("kind: x\na: @home\n", 2), ("kind: x\na: `cmd`\n", 2), ("kind: x\na: %x\n", 2), ("pool:\n\tname: h100\n", 2)]
    {
        let loaded = load(&tree(&[("a.yaml", yaml)]));
        assert_eq!(
            (loaded.diagnostics[0].code, loaded.diagnostics[0].span.line),
            (codes::YAML_SYNTAX, line),
            "{}",
            text(&loaded)
        );
    }
}

#[test]
fn lines_end_where_everybody_sees_it() {
    let loaded = load(&tree(&[("a.kdl", "site \"a\" \r\nsite \"b\"\nsite \"D\"\n")]));
    let bad = loaded.diagnostics.iter().find(|diagnostic| diagnostic.code == codes::BAD_NAME).expect("a bad name");
    assert_eq!((bad.span.line, bad.span.column), (3, 6));
    for end in ["\r", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"] {
        for file in
            [("a.kdl", format!("// two people{end}site \"a\"\n")), ("a.yaml", format!("kind: site # a{end}name: b\n"))]
        {
            assert_eq!(found(&[(file.0, &file.1)]), [codes::CONTROL_CHARACTER], "{end:?} in {}", file.0);
        }
    }
}

#[test]
fn what_nobody_sees_is_refused_and_what_shapes_a_letter_is_not() {
    for letter in
        "\u{200f}\u{61c}\u{200b}\u{200c}\u{200d}\u{2060}\u{ad}\u{feff}\u{e0020}\u{3164}\u{ffa0}\u{fe0f}\u{e0100}"
            .chars()
    {
        for text in [format!("site \"gpu{letter}1\"\n"), format!("// a{letter}b\nsite \"gpu\"\n")] {
            assert_eq!(found(&[("a.kdl", &text)]), [codes::CONTROL_CHARACTER], "{text:?}");
        }
    }
    // A woman at a keyboard, a heart in red, and a Persian word.
    for text in ["\u{1f469}\u{200d}\u{1f4bb}", "\u{2764}\u{fe0f}\u{200d}\u{1f525}", "\u{645}\u{6cc}\u{200c}\u{62e}"] {
        assert_eq!(found(&[("a.kdl", &format!("// {text}\nsite \"gpu\"\n"))]), [], "{text}");
    }
    assert_eq!(found(&[("a.kdl", "site \"gpu\" { labels a=\"x\\u{200d}y\"; }\n")]), [], "an escape is seen");
}

/// What both readers take, they read alike.
#[test]
fn serde_yaml_agrees_on_plain_documents() {
    fn compare(entry: &Entry, value: &serde_yaml::Value) {
        match value {
            serde_yaml::Value::Mapping(map) => {
                assert_eq!(entry.fields.len(), map.len());
                for field in &entry.fields {
                    compare(field, &map[field.key.as_str()]);
                }
            }
            serde_yaml::Value::Sequence(items) => assert_eq!(entry.args.len(), items.len()),
            serde_yaml::Value::String(text) => assert_eq!(entry.args[0].value, Scalar::Text(text.clone())),
            serde_yaml::Value::Bool(flag) => assert_eq!(entry.args[0].value, Scalar::Bool(*flag)),
            serde_yaml::Value::Number(number) => match number.as_i64() {
                Some(number) => assert_eq!(entry.args[0].value, Scalar::Int(number.into())),
                None => assert_eq!(entry.args[0].value, Scalar::Float),
            },
            serde_yaml::Value::Null | serde_yaml::Value::Tagged(_) => panic!("not in these documents"),
        }
    }
    let documents = [
        "a: b\nc: 'it''s'\nd: \"\\u00e9\\n\"\ne: 12\nf: -3\ng: true\nh: {i: j, k: [1, 2]}\n",
        "text: |\n  one\n   two\n\nfolded: >-\n  one\n  two\n\n  three\nkeep: |+\n  x\n\nlast: y\n",
        "plain: several words\n  on two lines\nurl: https://x.example:80/a#b\nno: no\ntime: 12:30\nmode: 0644\nfloat: 1.5\n",
        "\"quoted key\": x\n? simple\n: y\nempty: \"\"\nlist:\n- a\n- b\n",
    ];
    for yaml in documents {
        let parsed = parse(format!("kind: k\nname: n\n{yaml}").as_bytes(), Syntax::Yaml);
        assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
        let serde_yaml::Value::Mapping(oracle) = serde_yaml::from_str(yaml).expect("the oracle reads it") else {
            panic!("a mapping")
        };
        assert_eq!(parsed.objects[0].fields.len(), oracle.len(), "{yaml}");
        for field in &parsed.objects[0].fields {
            compare(field, &oracle[field.key.as_str()]);
        }
    }
}
