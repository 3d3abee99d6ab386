//! The rules of the repository that no compiler checks: who may depend on whom, who may read a clock, and how a file begins.
//!
//! A rule says what to do when it is broken. An exception has a reason, and the list of them only gets shorter.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Which rooms a room may use. `tests` may use all of them, and nothing uses `tests` or `benches`.
const EDGES: &[(&str, &[&str])] = &[
    ("schema", &[]),
    ("proto", &["schema"]),
    ("pki", &["schema"]),
    ("store", &["schema"]),
    ("bcd", &["schema", "proto", "pki"]),
    ("gateway", &["schema", "proto", "store", "pki"]),
    ("reconciler", &["schema", "proto", "store", "pki"]),
    ("cli", &["schema", "proto", "store", "pki", "gateway", "reconciler", "bcd"]),
    ("tests", &["schema", "proto", "store", "pki", "gateway", "reconciler", "bcd", "cli"]),
    ("benches", &["schema", "proto", "store", "pki", "gateway", "reconciler"]),
];

/// Crates that one room alone may use, so that what they do happens there and nowhere else.
const WRAPPED: &[(&str, &[&str])] = &[
    ("sqlx", &["store"]),
    ("gix", &["reconciler", "benches"]),
    ("rcgen", &["pki"]),
    ("aws-lc-rs", &["pki"]),
    ("sha1dc", &["pki"]),
    ("sha2", &["schema"]),
    ("x509-parser", &["pki"]),
    ("rustls-webpki", &["pki"]),
    ("subtle", &["pki"]),
    // One provider, and no second implementation of what it does.
    ("aes-gcm", &[]),
    ("argon2", &[]),
    ("blake3", &[]),
    ("chacha20poly1305", &[]),
    ("ed25519-dalek", &[]),
    ("hkdf", &[]),
    ("hmac", &[]),
    ("hpke", &[]),
    ("p256", &[]),
    ("pbkdf2", &[]),
    ("rsa", &[]),
    ("kdl", &["schema"]),
    ("serde-saphyr", &["schema"]),
    ("minijinja", &["schema"]),
    ("clap", &["cli", "bcd"]),
];

/// Lines of a file without its tests.
const MAX_LINES: usize = 800;

/// Files that are longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Every file of the project with these endings, by its path below the root.
fn files(endings: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(&root(), &root(), endings, &mut found);
    assert!(found.len() > 1, "no files with {endings:?}");
    found
}

fn walk(root: &Path, dir: &Path, endings: &[&str], found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry")) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let skipped = name == "target" || name == ".git" || name == ".demo";
        if path.is_dir() && !skipped {
            walk(root, &path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) && path.is_file() {
            let text = fs::read_to_string(&path).unwrap_or_default();
            found.insert(path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned(), text);
        }
    }
}

fn is_generated(path: &str) -> bool {
    path.contains("/gen/")
}

/// The part of a source file that comes before its tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("/testing.rs")
        || path.ends_with("/fixture.rs")
}

#[track_caller]
fn nothing(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let done = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let metadata: Value = serde_json::from_slice(&done.stdout).expect("cargo metadata is JSON");
    metadata["packages"].as_array().cloned().expect("packages")
}

fn dependencies(package: &Value) -> Vec<(String, bool)> {
    let all = package["dependencies"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| (one["name"].as_str().unwrap_or_default().to_owned(), one["kind"] == "dev")).collect()
}

#[test]
fn rooms_depend_only_on_the_rooms_below_them() {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().expect("a name").to_owned();
        let Some(edges) = allowed.get(name.as_str()) else {
            wrong.push(format!("{name} is no room of docs/ARCHITECTURE.md"));
            continue;
        };
        for (dependency, _) in dependencies(&package) {
            if allowed.contains_key(dependency.as_str()) && !edges.contains(&dependency.as_str()) && dependency != name
            {
                wrong.push(format!("{name} -> {dependency}"));
            }
        }
    }
    nothing(wrong, "an edge that docs/ARCHITECTURE.md does not have");
}

#[test]
fn what_one_room_does_no_other_room_does() {
    let wrapped: BTreeMap<&str, &[&str]> = WRAPPED.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().expect("a name").to_owned();
        for (dependency, dev) in dependencies(&package) {
            if let Some(rooms) = wrapped.get(dependency.as_str())
                && !rooms.contains(&name.as_str())
                && !dev
            {
                let whose = if rooms.is_empty() { "nobody".to_owned() } else { rooms.join(" and ") };
                wrong.push(format!("{name} uses {dependency}, which belongs to {whose}"));
            }
        }
    }
    nothing(wrong, "a crate is used outside its room");
}

#[test]
fn only_pki_says_what_tls_believes() {
    let words = [
        "rustls::crypto",
        "rustls::sign",
        "rustls::client::danger",
        "ServerConfig::builder",
        "ClientConfig::builder",
        "dangerous()",
        "danger_accept",
    ];
    let mut wrong = Vec::new();
    for (path, text) in files(&[".rs"]) {
        if path.starts_with("pki/") || is_test(&path) {
            continue;
        }
        for (number, line) in without_tests(&text).lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    nothing(wrong, "a TLS configuration is made outside pki::tls; take one of its own, or add it there");
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let wrong = files(&[".rs"])
        .into_iter()
        .filter(|(path, text)| !is_generated(path) && !text.starts_with("//! "))
        .map(|(path, _)| path);
    nothing(wrong.collect(), "a file does not open with `//!`");
}

#[test]
fn sql_reads_time_through_one_function() {
    let mut wrong = Vec::new();
    for (path, text) in files(&[".sql", ".rs"]) {
        let sql = path.starts_with("migrations/") || path.starts_with("store/");
        if !sql || path == "migrations/0001_clock.sql" || path.ends_with("schema.sql") || is_test(&path) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or(line).split("--").next().unwrap_or(line).to_lowercase();
            let foreign = [
                "clock_timestamp",
                "current_timestamp",
                "statement_timestamp",
                "transaction_timestamp",
                "localtimestamp",
            ];
            let bare = code
                .match_indices("now()")
                .any(|(at, _)| !code[..at].ends_with(['.', '_', ':']) && !code[..at].ends_with("fn "));
            if bare || foreign.iter().any(|word| code.contains(word)) {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    nothing(wrong, "SQL reads time in another way than compute_now()");
}

#[test]
fn only_the_mains_read_a_clock() {
    // A bench is a main with more files: what it measures runs in real time.
    let is_main = |path: &str| path.ends_with("/main.rs") || path.starts_with("benches/");
    let may = |path: &str| path == "schema/src/clock.rs" || is_main(path) || is_test(path);
    let mut wrong = Vec::new();
    for (path, text) in files(&[".rs"]) {
        if may(&path) || is_generated(&path) {
            continue;
        }
        for (number, line) in without_tests(&text).lines().enumerate() {
            let clock = [
                "Timestamp::now()",
                "SystemTime::now()",
                "Zoned::now()",
                "UtcDateTime::now",
                "OffsetDateTime::now",
                "SystemClock)",
                "SystemClock,",
            ];
            let code = line.trim_start();
            if !code.starts_with("//") && !code.starts_with("use ") && clock.iter().any(|word| code.contains(word)) {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    nothing(wrong, "a clock is read outside schema::clock and the mains; take the time as an argument");
}

#[test]
fn files_stay_short_enough_to_be_read() {
    let excused: BTreeSet<&str> = LONG_FILES.iter().map(|(path, _)| *path).collect();
    let mut wrong = Vec::new();
    for (path, text) in files(&[".rs"]) {
        let lines = if is_test(&path) { text.lines().count() * 4 / 5 } else { without_tests(&text).lines().count() };
        if is_generated(&path) {
            continue;
        }
        match (lines > MAX_LINES, excused.contains(path.as_str())) {
            (true, false) => wrong.push(format!("{path} has {lines} lines")),
            (false, true) => wrong.push(format!("{path} is short enough: take it off the list")),
            _ => {}
        }
    }
    nothing(wrong, "a file is too long, or an exception is no longer needed");
}

#[test]
fn mains_are_small() {
    let long = files(&["main.rs"])
        .into_iter()
        .filter(|(path, text)| path.ends_with("src/main.rs") && text.lines().count() > 150);
    nothing(long.map(|(path, _)| path).collect(), "a main does more than compose");
}

#[test]
fn nothing_is_left_for_later_without_a_place() {
    let mut wrong = Vec::new();
    for (path, text) in files(&[".rs"]) {
        if path == "tests/rules.rs" || is_generated(&path) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let left = ["todo!(", "unimplemented!(", "#[allow(", "#[ignore]", "TODO", "FIXME"];
            if left.iter().any(|word| line.contains(word)) {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    nothing(wrong, "something is left for later, ignored or allowed; do it, or say it in docs/SHORTCOMINGS.md");
}

#[test]
fn the_project_names_no_path_of_the_machine_it_was_written_on() {
    let here = root().to_string_lossy().into_owned();
    let text = files(&[".rs", ".md", ".toml", ".sh", ".sql", ".kdl", ".yaml", ".json", ".proto", ".snap", "Makefile"]);
    // A short root such as /src stands in many texts and says nothing.
    let found = text.into_iter().filter(|(_, text)| here.len() > 6 && text.contains(&format!("{here}/")));
    nothing(found.map(|(path, _)| path).collect(), "a file names the directory that it was written in");
}

#[test]
fn every_end_to_end_file_is_part_of_the_binary() {
    let main = fs::read_to_string(root().join("tests/it/main.rs")).expect("tests/it/main.rs");
    let mut forgotten = Vec::new();
    for entry in fs::read_dir(root().join("tests/it")).expect("tests/it") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if let Some(module) = name.strip_suffix(".rs")
            && module != "main"
            && !main.contains(&format!("mod {module};"))
        {
            forgotten.push(name);
        }
    }
    nothing(forgotten, "a file of tests/it is not named in its main.rs");
}

/// The literals of every `fn code(…)` in a file: the stable words of its refusals and waits.
fn code_words(text: &str) -> Vec<String> {
    let bodies = without_tests(text).split("fn code(").skip(1);
    bodies
        .flat_map(|body| {
            let end = body.find("\n    }").unwrap_or(body.len());
            body[..end].split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_code_that_says_no_or_not_yet_is_explained() {
    use reconciler::why::catalogue::{self, Area};

    let mut unknown = Vec::new();
    let mut look = |path: &str, areas: &[Area], word: String| {
        if !areas.iter().any(|area| catalogue::find(*area, &word).is_some()) {
            unknown.push(format!("{path}: {word}"));
        }
    };
    for (path, text) in files(&[".rs"]) {
        let areas: &[Area] = match path.as_str() {
            "gateway/src/refusal.rs" => &[Area::Session],
            "reconciler/src/join/refusal.rs" => &[Area::Join, Area::Renewal],
            "pki/src/verify.rs" => &[Area::Renewal],
            path if path.starts_with("reconciler/src/batch/") && !is_test(path) => &[Area::Batch],
            path if path.starts_with("reconciler/src/source/pass/batches") => &[Area::Batch],
            path if path.starts_with("reconciler/src/reconcile/") && !is_test(path) => &[Area::Work, Area::Command],
            _ => continue,
        };
        for word in code_words(&text) {
            look(&path, areas, word);
        }
        for rest in without_tests(&text).split("Failure::new(\"").skip(1) {
            look(&path, areas, rest.split('"').next().unwrap_or_default().to_owned());
        }
    }
    nothing(unknown, "give the code a line in reconciler/src/why/catalogue/: what it means, who can lift it, and how");
}
