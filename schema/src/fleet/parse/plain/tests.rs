//! The plain reader against the `kdl` crate: what it reads, the crate reads alike, and without a finding.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use super::read;
use crate::fleet::{
    doc::{Object, Parsed},
    parse::{MOST_FINDINGS, kdl},
};

/// What the crate makes of a text.
fn crates(text: &str) -> Parsed {
    let mut parsed = Parsed { whole: true, text: text.into(), ..Parsed::default() };
    kdl::parse(&mut parsed);
    parsed
}

/// Whether the plain reader took the text; if so, the crate must say the same.
fn agrees(text: &str) -> bool {
    let Some(objects) = read(text) else { return false };
    let oracle = crates(text);
    assert!(oracle.whole && oracle.problems.is_empty(), "the crate finds fault with {text:?}: {:?}", oracle.problems);
    assert_eq!(objects, oracle.objects, "{text:?}");
    true
}

fn files(root: PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(path));
        } else if path.extension().is_some_and(|extension| extension == "kdl") {
            found.push(path);
        }
    }
    found
}

fn beside(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn what_people_write_is_plain() {
    let examples = files(beside("../examples-fleet"));
    let plain = examples.iter().filter(|path| agrees(&fs::read_to_string(path).expect("a file"))).count();
    assert!(plain * 2 > examples.len(), "{plain} of {} example files are plain", examples.len());
    assert!(agrees(
        "// é \u{1f600}\nnode \"fra1-é\" a=\"\u{1f600}\" b=c d=-12 e=#true {\n\tlabels rack=\"r\\\"1\" // é\n  mac \"a\" \"b\"; x y\n\n  \"vm.swappiness\" 10\n  empty { }\n}\n"
    ));
    for text in ["", "\n // x\n", "a { b; c }", "// x", "a \"\"{"] {
        assert_eq!(agrees(text), !text.ends_with("\"{"), "{text:?}");
    }
}

#[test]
fn the_suite_of_the_language_is_read_alike() {
    let suite = files(beside("../../shared/cases/fleet/kdl-suite/input"));
    for path in &suite {
        if let Ok(text) = fs::read_to_string(path)
            && crate::fleet::parse::text::check(text.as_bytes(), &mut Vec::new()).is_some()
        {
            agrees(&text);
        }
    }
}

#[test]
fn what_is_unusual_is_left_to_the_crate() {
    for text in [
        "a /* c */ b",
        "a /- b",
        "/- a",
        "a \\\n b",
        "a #\"x\"#",
        "a \"\"\"\n x\n \"\"\"",
        "(t)a",
        "a (t)b",
        "a 1.5",
        "a 1e3",
        "a 0x1f",
        "a 007",
        "a 1_000",
        "a +1",
        "a b =c",
        "a b= c",
        "a true",
        "a #null",
        "a #inf",
        "a \"\\u{41}\"",
        "a\rb",
        "a \"x\u{85}\"",
        "// \u{2028}b",
        "a{",
        "a {",
        "}",
        "a \"",
        ";",
        "a b c d",
        "a x=1 x=2",
        "é",
        "a .5",
        "a -",
        "a 10m",
        "a #truest",
        "a \"x\"y",
        "a \"x\"\"y\"",
        "a b=",
        "a =b",
        "a {} b",
        "a {}{}",
        "inf",
        "null x=1",
    ] {
        assert_eq!(read(text), None::<Vec<Object>>, "{text:?}");
    }
    assert_eq!(read(&"a { ".repeat(33)), None);
    assert_eq!(read(&format!("{}{}", "a { ".repeat(33), "} ".repeat(33))), None);
    assert!(agrees(&format!("{}{}", "a { ".repeat(32), "} ".repeat(32))));
    assert_eq!(read(&"a \"{\"\n".repeat(20_001)), None);
    assert_eq!(read(&"//-\n".repeat(13)), None);
}

/// Pieces that make documents which are nearly right.
fn piece() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        " ",
        " ",
        " ",
        "\n",
        "\n",
        "\t",
        ";",
        "{",
        "}",
        " {",
        " }",
        "\n}",
        "=",
        "/",
        "//",
        "/-",
        "/*",
        "*/",
        "\\",
        "#",
        "\"",
        "\"\"",
        "\"\"\"",
        "(",
        ")",
        "-",
        "+",
        ".",
        "0",
        "12",
        "-7",
        "1.5",
        "1_0",
        "0x1",
        "#true",
        "#false",
        "#null",
        "true",
        "null",
        "inf",
        "a",
        "b=1",
        "b=\"c\"",
        "c=d",
        " e=f",
        "node \"x\"",
        "pool \"h100\"",
        "\"q\"",
        " \"two\"",
        "\"\\n\"",
        "\"\\\"\"",
        "\"\\u{e9}\"",
        "\"\\q\"",
        "// c\n",
        " // d",
        "é",
        "\"é\"",
        "\u{85}",
        "\u{2028}",
        "\r",
        "\u{b}",
        "\u{a0}",
        "\u{3000}",
        "r\"x\"",
        "#\"x\"#",
        "x-y.z_1",
        "_",
        "-a",
        "--",
        "'s'",
        "[",
        "]",
        "<",
        ",",
    ]);
    fixed.prop_map(str::to_owned)
}

/// A document of the plain kind.
fn node(depth: u32) -> BoxedStrategy<String> {
    let word = prop_oneof!["[a-z_][a-z0-9_.-]{0,6}", "\"[a-z é/{}=#;-]{0,6}\"", Just("\"\\\\ \\\" \\n\"".to_owned())];
    let value = prop_oneof![
        word.clone(),
        "-?[1-9][0-9]{0,9}",
        Just("#true".to_owned()),
        Just("#false".to_owned()),
        Just("0".to_owned())
    ];
    let entry = prop_oneof![
        value.clone().prop_map(|value| format!(" {value}")),
        (word.clone(), value).prop_map(|(key, value)| format!(" {key}={value}"))
    ];
    let head =
        (word, prop::collection::vec(entry, 0..3)).prop_map(|(name, entries)| format!("{name}{}", entries.concat()));
    let end = prop::sample::select(vec!["\n", ";", " ; ", " // é {\n", "\n\n", "\t\n  "]);
    if depth == 0 {
        return (head, end).prop_map(|(head, end)| head + end).boxed();
    }
    let open = prop::sample::select(vec![" {\n", " { ", "\t{", " { // x\n"]);
    let inside = prop::collection::vec(node(depth - 1), 0..4);
    let block = (head.clone(), open, inside, end.clone())
        .prop_map(|(head, open, inside, end)| format!("{head}{open}{} }}{end}", inside.concat()));
    prop_oneof![(head, end).prop_map(|(head, end)| head + end), block].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pieces_in_any_order_are_read_alike(pieces in prop::collection::vec(piece(), 0..24)) {
        let text = pieces.concat();
        if crate::fleet::parse::text::check(text.as_bytes(), &mut Vec::new()).is_some() {
            agrees(&text);
        }
    }

    #[test]
    fn documents_with_something_put_in_or_cut_out_are_read_alike(
        nodes in prop::collection::vec(node(2), 1..5), piece in piece(), at in any::<prop::sample::Index>(), cut in 0_usize..4,
    ) {
        let text = nodes.concat();
        agrees(&text);
        let letters: Vec<char> = text.chars().collect();
        let at = at.index(letters.len() + 1);
        let rest = &letters[(at + cut).min(letters.len())..];
        let changed = letters[..at].iter().collect::<String>() + &piece + &rest.iter().collect::<String>();
        if crate::fleet::parse::text::check(changed.as_bytes(), &mut Vec::new()).is_some() {
            agrees(&changed);
        }
    }
}

/// Each of these took minutes when every key was held against every other.
#[test]
fn as_many_keys_as_a_file_holds_are_looked_at_once_each() {
    let line = |last: &str| (0..9_000).map(|n| format!("k{n}=1 ")).collect::<String>() + last + "\n";
    let whole = read(&format!("node \"n\" {}", line("")));
    assert_eq!(whole.map(|objects| objects[0].fields.len()), Some(9_000));
    assert!(read(&format!("node \"n\" {}", line("k7=2"))).is_none(), "a key that is written twice");

    // What the crate reads instead, and how much of what is wrong is kept.
    let parsed = crates(&format!("node \"n\" {}", "k=1 ".repeat(9_000)));
    assert_eq!((parsed.objects[0].fields.len(), parsed.problems.len()), (1, MOST_FINDINGS));
}
