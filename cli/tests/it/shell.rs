//! `check`, `fmt`, `schema`, `kinds` and `explain`, as a shell sees them: what they print and how they end.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples-fleet")
}

/// Runs a command; what it printed and its exit code.
fn run(dir: &Path, args: &[&str]) -> (String, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_better-compute"))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
}

/// A repository with a good fleet in `a` and one with a mistake in `b`.
fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, site) in [("a", "site \"x\"\n"), ("b", "site \"x\" nonesuch=1\n")] {
        let fleet = dir.path().join(name);
        fs::create_dir_all(fleet.join("sites")).unwrap();
        fs::write(fleet.join("fleet.kdl"), "fleet \"t\" { format 1; trust-domain \"t.example\" }\n").unwrap();
        fs::write(fleet.join("sites/x.kdl"), site).unwrap();
    }
    fs::create_dir(dir.path().join(".git")).unwrap();
    dir
}

#[test]
fn several_fleets_are_checked_with_one_exit_code() {
    let dir = repository();
    let at = dir.path();
    assert_eq!(run(at, &["check", "a"]).1, 0);
    let (text, code) = run(at, &["check", "a", "b", "b/sites/x.kdl"]);
    assert_eq!(code, 3);
    assert!(text.starts_with("a:\nok: fleet t"), "{text}");
    assert_eq!(text.matches("error[BC0203]").count(), 1, "{text}");
    assert_eq!(run(at, &["check", "nowhere"]).1, 2);

    let (text, _) = run(at, &["check", "a", "b", "--format", "json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&found["errors"], &found["diagnostics"][0]["file"]), (&1.into(), &"b/sites/x.kdl".into()));
}

#[test]
fn findings_are_placed_in_the_repository_for_those_who_show_it() {
    let dir = repository();
    let inside = dir.path().join("b/sites");
    let (text, code) = run(&inside, &["check", "--format", "github"]);
    assert_eq!(code, 3);
    assert!(text.starts_with("::error file=b/sites/x.kdl,line=1,col=10,title=BC0203::"), "{text}");
    let (text, _) = run(&inside, &["check", "--format", "sarif"]);
    let log: Value = serde_json::from_str(&text).unwrap();
    let place = &log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert_eq!(place, "b/sites/x.kdl");
    assert_eq!(run(&dir.path().join("a"), &["check", "--format", "github"]), (String::new(), 0));
}

#[test]
fn the_example_fleet_is_formatted_and_a_file_is_as_standard_input() {
    assert_eq!(run(&example(), &["fmt", "--check"]), (String::new(), 0));
    let dir = repository();
    let ugly = dir.path().join("a/sites/x.kdl");
    fs::write(&ugly, "site   \"x\"{ }\n").unwrap();
    let (text, code) = run(dir.path(), &["fmt", "--check", "--diff", "a"]);
    assert_eq!(code, 1);
    assert!(text.ends_with("-site   \"x\"{ }\n+site \"x\" {}\n"), "{text}");
    let mut child = Command::new(env!("CARGO_BIN_EXE_better-compute"));
    let output = child.args(["fmt", "-"]).stdin(fs::File::open(&ugly).unwrap()).output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"site \"x\" {}\n"[..], Some(0)));
    assert_eq!(run(dir.path(), &["fmt", "a"]).1, 0);
    assert_eq!(fs::read_to_string(&ugly).unwrap(), "site \"x\" {}\n");
}

#[test]
fn the_schema_is_the_one_of_the_reference() {
    let (text, code) = run(&example(), &["schema"]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/schema.json");
    assert_eq!((text, code), (fs::read_to_string(page).unwrap(), 0));
    let (text, _) = run(&example(), &["schema", "pool"]);
    let pool: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(pool["$id"], "urn:better-compute:fleet:1:pool");
    assert_eq!(run(&example(), &["schema", "nonesuch"]).1, 2);
}

#[test]
fn kinds_and_values_are_explained() {
    let (text, _) = run(&example(), &["kinds", "pool"]);
    assert!(text.contains("\n    count*  ") && text.contains("How many."), "{text}");
    let (text, _) = run(&example(), &["kinds", "pool", "--format", "json"]);
    let pool: Value = serde_json::from_str(&text).unwrap();
    assert!(
        pool["keys"].as_array().unwrap().iter().any(|key| key["key"] == "class" && key["words"][0] == "metal-host")
    );

    let path = "host.sysctl.net.core.somaxconn";
    let (text, code) = run(&example(), &["explain", "node/fra1-r12-u04", path]);
    assert_eq!(code, 0);
    for part in
        ["  value       16384\n", "  from        profile/gpu-host\n", "  instead of  profiles/base.kdl:", "  4096\n"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let (text, _) = run(&example(), &["explain", "node/fra1-r12-u04", path, "--format", "json"]);
    let one: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&one["values"][0]["value"], &one["values"][0]["layer"]), (&"16384".into(), &"profile/gpu-host".into()));
    let (text, _) = run(&example(), &["explain", "pool/h100", "host.files./etc/motd.content"]);
    assert!(text.contains("  template    templates/motd.j2\n  reads       "), "{text}");
}

/// What bash offers for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let (script, code) = run(&example(), &["completions", "bash"]);
    assert_eq!(code, 0);
    let (last, before) = (words.len() - 1, words.len().checked_sub(2).map_or("", |at| words[at]));
    let ask = format!(
        "{script}\nCOMP_WORDS=({}) COMP_CWORD={last}\n_better__compute better-compute '{}' '{before}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words[last],
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ask");
    fs::write(&file, ask).unwrap();
    let output = Command::new("bash").arg("--norc").arg(&file).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completes_every_word_of_a_command_line() {
    assert_eq!(offered(&["better-compute", "uncor"]), ["uncordon"]);
    assert_eq!(offered(&["better-compute", "keys", "rot"]), ["rotate"]);
    assert_eq!(offered(&["better-compute", "audit", "--act"]), ["--actor", "--action"]);
    assert_eq!(offered(&["better-compute", "audit", "verify", "--pi"]), ["--pin"]);
}

#[test]
fn a_newline_at_the_end_of_a_secret_is_said_wherever_the_value_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    let said = |value: &str| {
        let file = dir.path().join("token");
        fs::write(&file, value).unwrap();
        // Nobody listens there: what is said is said before the value goes anywhere.
        let output = Command::new(env!("CARGO_BIN_EXE_better-compute"))
            .args(["secrets", "put", "registry/pull-token", "--url", "https://127.0.0.1:1", "--file"])
            .arg(&file)
            .env("BETTER_COMPUTE_TOKEN", "none")
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said("abc\n").contains("ends with a newline"), "{}", said("abc\n"));
    assert!(!said("abc").contains("ends with a newline"), "{}", said("abc"));
}

#[test]
fn the_list_of_kinds_says_what_each_takes() {
    let (text, _) = run(&example(), &["kinds", "--commands"]);
    let refresh = text.lines().find(|line| line.starts_with("inventory.refresh")).unwrap();
    assert!(refresh.contains("sections rescan") || refresh.contains("rescan sections"), "{text}");
}
