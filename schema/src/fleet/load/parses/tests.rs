//! What is kept is used for the same bytes only, and only when it is whole.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::fleet::{Cache, load, tests::support::example};

const SLOW: &str =
    "/* not plain */ node \"a\" { pool \"p\"; big 123456789012345678901234567890; labels é=\"\\u{41}\" }\n";

fn parsed(text: &str, syntax: Syntax) -> Parsed {
    parse::parse_anywhere(text.as_bytes(), syntax)
}

/// A store that knows one file.
fn store(text: &str, syntax: Syntax) -> String {
    let mut parses = Parses::default();
    let bytes = Blob::from(text.as_bytes());
    parses.add(&bytes, syntax, &parsed(text, syntax));
    let lines = parses.lines(|_| true);
    std::iter::once(PARSER).chain(lines.iter().map(|line| &**line)).map(|line| format!("{line}\n")).collect()
}

fn restored(stored: &str) -> Parses {
    let mut parses = Parses::default();
    parses.restore(stored);
    parses
}

#[test]
fn a_kept_parse_is_the_parse() {
    for (text, syntax) in [
        (SLOW, Syntax::Kdl),
        ("kind: node\r\nname: b\r\nlabels: {a: é, b: [1, 2], c: true}\r\n", Syntax::Yaml),
        ("\u{feff}/* */ a 1.5", Syntax::Kdl),
    ] {
        let bytes = Blob::from(text.as_bytes());
        let known = restored(&store(text, syntax)).find(&bytes, syntax).expect("it is kept");
        assert_eq!(format!("{known:?}"), format!("{:?}", parsed(text, syntax)));
    }
}

#[test]
fn what_is_not_of_these_bytes_is_not_used() {
    let stored = store(SLOW, Syntax::Kdl);
    let bytes = Blob::from(SLOW.as_bytes());
    assert!(restored(&stored).find(&bytes, Syntax::Yaml).is_none());
    assert!(restored(&stored).find(&Blob::from(&b"/* */ other"[..]), Syntax::Kdl).is_none());
    assert!(restored(&stored.replace("parses 2", "parses 0")).find(&bytes, Syntax::Kdl).is_none());
    // A line that names these bytes and was made of others.
    let other = store("/* */ pool \"x\"", Syntax::Kdl);
    let digest =
        |stored: &str| stored.lines().nth(1).and_then(|line| line.split(' ').next()).expect("a digest").to_owned();
    let forged = other.replace(&digest(&other), &digest(&stored));
    assert!(restored(&forged).find(&bytes, Syntax::Kdl).is_none());
}

#[test]
fn what_is_wrong_is_not_kept() {
    assert_eq!(store("node \"a\" {", Syntax::Kdl).lines().count(), 1);
    assert_eq!(store("a: [", Syntax::Yaml).lines().count(), 1);
    assert_eq!(store("a #null", Syntax::Kdl).lines().count(), 1);
}

#[test]
fn a_tree_is_the_same_with_what_was_kept_of_it() {
    let mut first = Cache::default();
    first.load(&example());
    let kept = first.kept();
    assert!(kept.lines().count() > 5, "the YAML files of the example are kept");
    let mut second = Cache::default();
    second.restore(&kept);
    let (again, fresh) = (second.load(&example()), load(&example()));
    assert_eq!(format!("{again:?}"), format!("{fresh:?}"));
    assert_eq!(second.fresh(), "", "nothing was parsed that is kept");
}

/// What the parsers make of every file at hand. When this changes, what is kept must not be used: raise [`PARSER`].
#[test]
fn what_files_become_is_what_this_version_of_the_parser_says() {
    let mut digester = Digester::new("parses");
    let here = |path: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let texts = fs::read_to_string(here("src/fleet/load/parses/sample.txt")).expect("the sample");
    for sample in texts.split("\n====\n") {
        for syntax in [Syntax::Kdl, Syntax::Yaml] {
            let objects = serde_json::to_string(&parsed(sample, syntax).objects).expect("JSON");
            digester.part(objects.as_bytes());
        }
    }
    assert_eq!((PARSER, digester.finish().short().as_str()), ("better-compute parses 2", "b9ec740fe221"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Bytes that were lost, changed or put in.
    #[test]
    fn damage_is_never_believed(at in any::<prop::sample::Index>(), cut in 0_usize..9, put in "[ -~\n]{0,4}") {
        let stored = store(SLOW, Syntax::Kdl);
        let at = at.index(stored.len());
        prop_assume!(stored.is_char_boundary(at) && stored.is_char_boundary((at + cut).min(stored.len())));
        let damaged = format!("{}{put}{}", &stored[..at], &stored[(at + cut).min(stored.len())..]);
        if let Some(known) = restored(&damaged).find(&Blob::from(SLOW.as_bytes()), Syntax::Kdl) {
            prop_assert_eq!(format!("{known:?}"), format!("{:?}", parsed(SLOW, Syntax::Kdl)));
        }
    }
}
