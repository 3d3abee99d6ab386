//! The pages of `docs/errors`: the example of each gives its code, and the mended one does not.

use std::collections::BTreeSet;

use super::support::text;
use crate::{
    diagnostic::codes::{self, Code},
    fleet::{Limits, Loaded, SourceBlob, Sources, load, load_with},
};

/// What the examples speak of and do not say.
const WORLD: [(&str, &str, &str); 6] = [
    (
        "fleet \"acme\"",
        "fleet.kdl",
        "fleet \"acme\" { format 1; trust-domain \"acme.example\"; rollout \"all-at-once\"; }\n",
    ),
    ("rollout \"all-at-once\"", "rollouts.kdl", "rollout \"all-at-once\" { immediate; }\n"),
    ("site \"fra1\"", "sites.kdl", "site \"fra1\"\nsite \"ams1\"\n"),
    ("profile \"gpu-host\"", "profiles.kdl", "profile \"gpu-host\"\n"),
    ("pool \"h100\"", "h100.kdl", "pool \"h100\" { site \"fra1\"; profile \"gpu-host\"; }\n"),
    ("tenant \"research\"", "tenants.kdl", "tenant \"research\"\n"),
];

/// A block of a page: its language, its path, its text.
struct Block<'p> {
    language: &'p str,
    path: String,
    text: &'p str,
}

fn blocks(part: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut rest = part;
    while let Some((_, begun)) = rest.split_once("```") {
        let (head, body) = begun.split_once('\n').expect("a fence has an end of line");
        let (inside, after) = body.split_once("```").expect("a block is closed");
        let (language, path) = head.split_once(' ').unwrap_or((head, ""));
        let path = if path.is_empty() { format!("example.{language}") } else { path.to_owned() };
        found.push(Block { language, path, text: inside });
        rest = after;
    }
    found
}

fn tree(blocks: &[Block<'_>]) -> Sources {
    let mut sources = Sources::default();
    for (defines, path, text) in WORLD {
        if !blocks.iter().any(|block| block.text.lines().any(|line| line.starts_with(defines))) {
            sources.insert_file(path, text.as_bytes());
        }
    }
    for block in blocks {
        sources.insert_file(block.path.clone(), block.text.as_bytes());
    }
    sources
}

/// The trees that a page cannot write down.
fn told(code: Code) -> Option<Loaded> {
    let mut sources = tree(&[]);
    let file = |path: &str, bytes: &[u8]| {
        let mut sources = tree(&[]);
        sources.insert_file(path, bytes);
        sources
    };
    Some(match code {
        codes::NO_ROOT => load(&[("sites/fra1.kdl", &b"site \"fra1\"\n"[..])].into_iter().collect()),
        codes::FILE_TOO_LARGE => load(&file("nodes/all.yaml", &vec![b'#'; 2 << 20])),
        codes::NOT_UTF8 => load(&file("x.yaml", b"kind: site\nname: lab\nregion: M\xfcller\n")),
        codes::CONTROL_CHARACTER => load(&file("x.kdl", b"site \"l\0ab\"\n")),
        codes::BAD_PATH => load(&file("pools/../../etc/passwd.kdl", b"")),
        codes::BOM_OR_CRLF => load(&file("x.kdl", b"\xef\xbb\xbfsite \"lab\" {\r\n}\r\n")),
        codes::TOO_MANY => load_with(&sources, Limits { objects: 3, ..Limits::default() }),
        codes::SYMLINK | codes::SUBMODULE | codes::UNREADABLE => {
            let blob = match code {
                codes::SYMLINK => SourceBlob::Symlink,
                codes::SUBMODULE => SourceBlob::Submodule,
                _ => SourceBlob::Unreadable { reason: "object 3f2a is missing".into() },
            };
            sources.insert("pools/h200.kdl", blob);
            load(&sources)
        }
        _ => return None,
    })
}

fn found(loaded: &Loaded) -> BTreeSet<Code> {
    loaded.diagnostics.iter().map(|found| found.code).collect()
}

#[test]
fn the_example_of_every_page_gives_its_code_and_the_mended_one_does_not() {
    let mut wrong = Vec::new();
    // What a trust policy means is judged in `pki`, and so are its pages.
    for entry in codes::ALL.iter().filter(|entry| !entry.code.as_str().starts_with("BC06")) {
        let (before, mend) = entry.page.split_once("\n## How to mend it\n").expect("a page says how to mend it");
        let (_, example) = before.split_once("\n## Example\n").expect("a page has an example");
        let examples = blocks(example);
        let in_words = examples.iter().all(|block| block.language == "text");
        let loaded = if in_words {
            told(entry.code).unwrap_or_else(|| panic!("{}: an example in words needs a tree here", entry.code))
        } else {
            load(&tree(&examples))
        };
        let errors: BTreeSet<Code> =
            loaded.diagnostics.iter().filter(|found| found.is_error()).map(|found| found.code).collect();
        if !found(&loaded).contains(&entry.code) || errors.iter().any(|error| *error != entry.code) {
            wrong.push(format!("{}: the example gives\n{}", entry.code, text(&loaded)));
        }
        let mended: Vec<Block<'_>> = blocks(mend).into_iter().filter(|block| block.language != "text").collect();
        if mended.is_empty() {
            if !in_words && entry.code.severity() == crate::diagnostic::Severity::Error {
                wrong.push(format!("{}: nothing is mended", entry.code));
            }
            continue;
        }
        let loaded = load(&tree(&mended));
        if loaded.errors() > 0 || found(&loaded).contains(&entry.code) {
            wrong.push(format!("{}: the mended example gives\n{}", entry.code, text(&loaded)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
