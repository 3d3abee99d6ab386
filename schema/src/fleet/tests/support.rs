//! What the tests share.

use std::{fs, path::Path};

use crate::{
    diagnostic::{Code, render},
    fleet::{Fleet, Loaded, Sources, load},
};

/// The files below a folder, as a caller would give them.
pub(in crate::fleet) fn folder(root: &Path) -> Sources {
    fn walk(root: &Path, below: &Path, sources: &mut Sources) {
        for entry in fs::read_dir(below).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                walk(root, &entry, sources);
            } else {
                let path = entry.strip_prefix(root).expect("below the root").to_str().expect("UTF-8").to_owned();
                sources.insert_file(path, fs::read(&entry).expect("a file"));
            }
        }
    }
    let mut sources = Sources::default();
    walk(root, root, &mut sources);
    sources
}

/// The example fleet of the repository.
pub(in crate::fleet) fn example() -> Sources {
    folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples-fleet"))
}

/// A tree of a fleet file and others.
pub(in crate::fleet) fn tree(files: &[(&str, &str)]) -> Sources {
    let root = (
        "fleet.kdl",
        "fleet \"t\" { format 1; trust-domain \"t.example\"; rollout \"now\" }\nrollout \"now\" { immediate }\n",
    );
    let given = files.iter().any(|(path, _)| path.starts_with("fleet."));
    files.iter().chain((!given).then_some(&root)).map(|(path, text)| (*path, text.as_bytes())).collect()
}

pub(in crate::fleet) fn text(loaded: &Loaded) -> String {
    render::text(&loaded.diagnostics, &loaded.sources, render::Colour::Never)
}

/// The codes that a tree yields, in order.
pub(in crate::fleet) fn found(files: &[(&str, &str)]) -> Vec<Code> {
    load(&tree(files)).diagnostics.iter().map(|diagnostic| diagnostic.code).collect()
}

/// The fleet of a tree without errors.
pub(in crate::fleet) fn fleet(files: &[(&str, &str)]) -> Fleet {
    let loaded = load(&tree(files));
    let shown = text(&loaded);
    loaded.fleet.unwrap_or_else(|| panic!("{shown}"))
}
