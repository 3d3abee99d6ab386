//! A tree that is read after others is read as if it were the first: the same bytes of everything, whatever was edited
//! in between.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use proptest::prelude::*;

use super::support::example;
use crate::{
    canonical,
    fleet::{Cache, Limits, Loaded, SourceBlob, Sources, Stop, load},
};

/// One edit of a working tree; the numbers choose what it is done to.
#[derive(Debug, Clone)]
enum Edit {
    AddKdl(u16),
    AddYaml(u16),
    /// A text of the tree is put in place of another.
    Replace(usize, &'static str, &'static str),
    Delete(usize),
    Rename(usize, u16),
    Copy(usize, u16),
    /// Something is put at the end of a file.
    Append(usize, &'static str),
    /// A file is as it was in the beginning.
    Mend(usize),
    Link(usize),
    Nothing,
}

fn edit() -> impl Strategy<Value = Edit> {
    let replaced = prop::sample::select(vec![
        ("h100", "h200"),
        ("r12", "r13"),
        ("acme", "other"),
        ("base", "gpu-host"),
        ("swappiness", "overcommit_memory"),
        ("{{", "{{ node.labels.nothing }} {{"),
        ("{{", "{{ ("),
        ("node.name", "node.labels.rack"),
        ("\n", "\r\n"),
        ("\"", ""),
        ("}", ""),
        (":", ": :"),
    ]);
    let appended = prop::sample::select(vec![
        "\n",
        "\n// more\n",
        "\n# more\n",
        "\nnode \"late\" { pool \"h100\"; labels rack=\"x\" }\n",
        "\n---\nkind: node\nname: late\npool: h200\nlabels: {rack: y}\n",
        "\nremoved \"node/gone\" { reason \"sold\" }\n",
        "\nmoved from=\"node/a\" to=\"node/late\"\n",
        "\npool \"h100\" {",
        "\nignore \"nodes\"\n",
        "{{ node.labels.rack }}\n",
        "{% include \"templates/motd.j2\" %}\n",
        "\u{0}",
    ]);
    let file = 0_usize..40;
    prop_oneof![
        4 => any::<u16>().prop_map(Edit::AddKdl),
        2 => any::<u16>().prop_map(Edit::AddYaml),
        6 => (file.clone(), replaced).prop_map(|(file, (from, to))| Edit::Replace(file, from, to)),
        2 => file.clone().prop_map(Edit::Delete),
        2 => (file.clone(), any::<u16>()).prop_map(|(file, to)| Edit::Rename(file, to)),
        1 => (file.clone(), any::<u16>()).prop_map(|(file, to)| Edit::Copy(file, to)),
        4 => (file.clone(), appended).prop_map(|(file, text)| Edit::Append(file, text)),
        6 => file.clone().prop_map(Edit::Mend),
        1 => file.prop_map(Edit::Link),
        1 => Just(Edit::Nothing),
    ]
}

type Tree = BTreeMap<String, SourceBlob>;

fn path(tree: &Tree, index: usize) -> Option<String> {
    let paths: Vec<&String> = tree.keys().collect();
    (!paths.is_empty()).then(|| paths[index % paths.len()].clone())
}

fn text(tree: &Tree, path: &str) -> Option<String> {
    match tree.get(path)? {
        SourceBlob::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}

fn blob(text: String) -> SourceBlob {
    SourceBlob::Bytes(text.into_bytes().into())
}

/// Where a file may go: the same few places, so that edits meet.
fn place(number: u16, like: &str) -> String {
    let ending = like.rsplit('.').next().unwrap_or("kdl");
    format!("{}/moved-{}.{ending}", ["nodes", "pools", "templates", "more/deep"][usize::from(number % 4)], number % 5)
}

fn apply(edit: &Edit, tree: &mut Tree, first: &Tree) {
    match edit {
        Edit::AddKdl(number) => {
            let (name, pool) = (number % 30, ["h100", "h200", "l40s"][usize::from(number % 3)]);
            let body = format!(
                "node \"extra-{name}\" {{\n  pool \"{pool}\"\n  serial \"S{}\"\n  labels rack=\"r{number}\"\n}}\n",
                number % 50
            );
            tree.insert(format!("nodes/extra-{}.kdl", number % 7), blob(body));
        }
        Edit::AddYaml(number) => {
            let body = format!("kind: node\nname: extra-{}\npool: h200\nlabels:\n  rack: r{number}\n", number % 30);
            tree.insert(format!("nodes/extra-{}.yaml", number % 7), blob(body));
        }
        Edit::Mend(index) => {
            if let Some(path) = path(first, *index) {
                tree.insert(path.clone(), first[&path].clone());
            }
        }
        Edit::Nothing => {}
        Edit::Replace(index, ..)
        | Edit::Delete(index)
        | Edit::Rename(index, _)
        | Edit::Copy(index, _)
        | Edit::Append(index, _)
        | Edit::Link(index) => {
            if let Some(path) = path(tree, *index) {
                at(edit, &path, tree);
            }
        }
    }
}

fn at(edit: &Edit, path: &str, tree: &mut Tree) {
    match edit {
        Edit::Replace(_, from, to) => {
            if let Some(text) = text(tree, path) {
                tree.insert(path.to_owned(), blob(text.replacen(from, to, 1)));
            }
        }
        Edit::Append(_, more) => {
            if let Some(text) = text(tree, path) {
                tree.insert(path.to_owned(), blob(text + more));
            }
        }
        Edit::Rename(_, to) => {
            if let Some(blob) = tree.remove(path) {
                tree.insert(place(*to, path), blob);
            }
        }
        Edit::Copy(_, to) => {
            let blob = tree[path].clone();
            tree.insert(place(*to, path), blob);
        }
        Edit::Link(_) => {
            tree.insert(path.to_owned(), SourceBlob::Symlink);
        }
        _ => {
            tree.remove(path);
        }
    }
}

fn sources(tree: &Tree) -> Sources {
    let mut sources = Sources::default();
    for (path, blob) in tree {
        sources.insert(path.as_str(), blob.clone());
    }
    sources
}

/// Everything that a load says, as text: findings, documents, digests, places and host templates.
fn said(loaded: &Loaded) -> String {
    let mut said = format!("{:#?}\n{:#?}\n{:?}\n", loaded.diagnostics, loaded.sources, loaded.trust_domain);
    let Some(fleet) = &loaded.fleet else { return said };
    said += &format!("{} {:#?}\n", fleet.tree, fleet);
    for entry in fleet.objects() {
        let document = canonical::to_vec(&*entry.doc).expect("canonical");
        said += &format!("{} {} {} {}\n", entry.object, entry.digest, entry.at, String::from_utf8_lossy(&document));
        said += &format!("{:?}\n", fleet.place(&entry.object, "labels.rack"));
    }
    for pool in fleet.pools.keys() {
        for profile in fleet.profiles.keys() {
            let template = fleet.host_template(pool, profile).expect("both are there");
            let bytes = canonical::to_vec(&template).expect("canonical");
            said += &format!("{} {}\n", template.digest(), String::from_utf8_lossy(&bytes));
        }
    }
    said
}

fn compare(cache: &mut Cache, tree: &Tree) -> Result<(), TestCaseError> {
    let sources = sources(tree);
    let again = cache.load(&sources);
    let fresh = load(&sources);
    prop_assert_eq!(said(&again), said(&fresh));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_tree_that_is_read_after_others_is_read_as_if_it_were_the_first(edits in prop::collection::vec(edit(), 1..16)) {
        let first: Tree = example().iter().map(|(path, blob)| (path.to_string(), blob.clone())).collect();
        let (mut tree, mut cache) = (first.clone(), Cache::default());
        compare(&mut cache, &tree)?;
        for edit in &edits {
            apply(edit, &mut tree, &first);
            compare(&mut cache, &tree)?;
        }
    }
}

#[test]
fn what_did_not_change_is_shared_with_the_fleet_before() {
    let mut tree: Tree = example().iter().map(|(path, blob)| (path.to_string(), blob.clone())).collect();
    apply(&Edit::AddKdl(1), &mut tree, &Tree::new());
    let mut cache = Cache::default();
    let before = cache.load(&sources(&tree)).fleet.expect("a fleet");
    apply(&Edit::AddKdl(8), &mut tree, &Tree::new());
    let after = cache.load(&sources(&tree)).fleet.expect("a fleet");
    let same = |name: &str| std::sync::Arc::ptr_eq(&before.nodes[name], &after.nodes[name]);
    assert!(same("fra1-r12-u04") && same("ams1-a03-u20"));
    assert!(before.nodes.contains_key("extra-1") && !after.nodes.contains_key("extra-1"));
}

#[test]
fn a_tree_that_is_stopped_anywhere_is_not_known_and_the_next_one_is_read_as_ever() {
    let first: Tree = example().iter().map(|(path, blob)| (path.to_string(), blob.clone())).collect();
    let mut tree = first.clone();
    apply(&Edit::AddKdl(1), &mut tree, &Tree::new());
    let asked = AtomicUsize::new(0);
    let count = || asked.fetch_add(1, Ordering::Relaxed) == usize::MAX;
    let whole =
        Cache::default().load_until(&sources(&tree), Limits::default(), &Stop::when(&count)).expect("not stopped");
    let (times, whole) = (asked.into_inner(), said(&whole));
    assert!(times > 20, "asked {times} times");
    for upto in (0..times).step_by(times / 8) {
        let mut cache = Cache::default();
        cache.load(&sources(&first));
        let asked = AtomicUsize::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) >= upto;
        let stopped = cache.load_until(&sources(&tree), Limits::default(), &Stop::when(&stop));
        assert!(stopped.is_err() || said(&stopped.expect("a tree")) == whole, "{upto}");
        assert_eq!(said(&cache.load(&sources(&tree))), whole, "{upto}");
    }
}
