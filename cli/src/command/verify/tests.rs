//! Real repositories with real signatures, as a person meets them. Without `git` and `ssh-keygen` there is nothing to verify.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::*;
use crate::output::Format;

const FLEET: &str = "fleet \"acme\" { format 1; trust-domain \"acme.example\"; }\n";

/// A repository whose people have keys.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    /// None where a program is missing.
    fn new() -> Option<Self> {
        let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !there("git") || !there("ssh-keygen") {
            crate::output::note("skipped: git and ssh-keygen are needed");
            return None;
        }
        let world = Self { dir: tempfile::tempdir().expect("a directory") };
        for who in ["ada", "bob", "eve"] {
            let key = world.dir.path().join(who);
            let args = ["-q", "-t", "ed25519", "-N", "", "-C", who, "-f"];
            assert!(Command::new("ssh-keygen").args(args).arg(key).status().expect("ssh-keygen runs").success());
        }
        world.git(&["init", "-q", "-b", "main", "repo"], Path::new("."));
        Some(world)
    }

    fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    fn git(&self, args: &[&str], dir: &Path) -> String {
        let mut git = Command::new("git");
        git.current_dir(self.dir.path().join(dir)).args(["-c", "gc.auto=0"]).args(args);
        git.env("HOME", self.dir.path()).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "Ada").env(format!("GIT_{who}_EMAIL"), "ada@acme.example");
        }
        let done = git.output().expect("git runs");
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text").trim().to_owned()
    }

    fn line(&self, who: &str) -> String {
        let text = std::fs::read_to_string(self.dir.path().join(format!("{who}.pub"))).expect("a key");
        text.trim().to_owned()
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.repo().join(path);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("folders");
        std::fs::write(file, text).expect("a file");
    }

    /// Commits what was written, signed by somebody, or not at all.
    fn commit(&self, who: Option<&str>, message: &str) {
        let repo = Path::new("repo");
        self.git(&["add", "-A"], repo);
        let key =
            who.map_or_else(String::new, |who| format!("user.signingKey={}", self.dir.path().join(who).display()));
        let sign: &[&str] = if who.is_some() { &["-c", "gpg.format=ssh", "-c", &key] } else { &[] };
        let more: &[&str] = if who.is_some() { &["-S"] } else { &[] };
        let args = [sign, &["commit", "-q", "--allow-empty", "-m", message], more].concat();
        self.git(&args, repo);
    }

    /// A commit without files, on a branch of its own.
    fn state(&self, who: &str, message: &str) {
        let repo = Path::new("repo");
        let empty = self.git(&["hash-object", "-t", "tree", "-w", "/dev/null"], repo);
        self.state_with(who, message, &empty);
    }

    fn state_with(&self, who: &str, message: &str, tree: &str) {
        let (repo, file) = (Path::new("repo"), self.dir.path().join("statement.txt"));
        std::fs::write(&file, message).expect("a file");
        let (file, key) =
            (file.display().to_string(), format!("user.signingKey={}", self.dir.path().join(who).display()));
        let made = self.git(&["-c", "gpg.format=ssh", "-c", &key, "commit-tree", "-S", "-F", &file, tree], repo);
        let at = self.git(&["for-each-ref", "refs/heads/bc"], repo).lines().count();
        self.git(&["branch", &format!("bc/statements/trust/2/{who}/{at}"), &made], repo);
    }

    fn policy(&self, epoch: u64, prev: &str, more: &str) -> String {
        let (ada, bob) = (self.line("ada"), self.line("bob"));
        format!(
            "policy {{\n    format 1\n    epoch {epoch}\n    {prev}\n}}\n\
             principal \"ada\" {{\n    kind \"human\"\n    roles \"admin\"\n    key \"{ada}\"\n}}\n\
             principal \"bob\" {{\n    kind \"human\"\n    roles \"operator\"\n    key \"{bob}\"\n}}\n\
             path \"**\" {{ roles \"admin\" \"operator\"; }}\n\
             path \"pools/**\" {{ roles \"admin\"; }}\n\
             path \"trust/**\" {{ roles \"admin\"; }}\n\
             trust {{ roles \"admin\"; threshold 1; }}\n{more}"
        )
    }

    /// A fleet whose policy Ada signed.
    fn fleet() -> Option<Self> {
        let world = Self::new()?;
        world.write("fleet.kdl", FLEET);
        world.commit(None, "a fleet");
        world.write("trust/policy.kdl", &world.policy(1, "", ""));
        world.commit(Some("ada"), "trust: who may change what");
        Some(world)
    }

    fn verify(&self) -> Verify {
        Verify {
            dry_run: true,
            place: Place { repo: self.repo(), branch: None, path: None },
            anchor: None,
            format: FormatArg { format: Format::Text },
        }
    }

    /// What is shown, with words for what differs from run to run.
    fn shown(&self, report: &Report) -> String {
        let output =
            Output { format: Format::Text, colour: false, width: None, now: "2026-11-29T12:00:00Z".parse().unwrap() };
        let mut text = report.render(&output);
        let log = self.git(&["log", "--format=%H %T", "--all", "--topo-order", "--reverse"], Path::new("repo"));
        for (at, line) in log.lines().enumerate() {
            let (commit, tree) = line.split_once(' ').expect("two ids");
            text = text.replace(commit, &format!("<commit {at}>")).replace(&commit[..10], &format!("<short {at}>"));
            text = text.replace(tree, "<tree>");
        }
        if let Ok(walked) = &report.outcome {
            text = text.replace(&walked.fleet.to_string(), "<fleet>");
        }
        let mut plain = String::new();
        for part in text.split_inclusive("sha256:") {
            let digits = if plain.ends_with("sha256:") { part.len().min(64) } else { 0 };
            plain.push_str(if digits > 0 { "…" } else { "" });
            plain.push_str(&part[digits..]);
        }
        for who in ["ada", "bob", "eve"] {
            let key = pki::trust::key::TrustKey::from_ssh(&self.line(who)).expect("a key").name();
            plain = plain.replace(&key, &format!("<key of {who}>"));
        }
        plain
    }
}

#[test]
fn a_signed_history_is_shown_commit_by_commit() {
    let Some(world) = World::fleet() else { return };
    world.write("sites/fra1.kdl", "site \"fra1\"\n");
    world.commit(Some("bob"), "sites: fra1");
    let report = world.verify().report().expect("a report");
    assert!(report.counts());
    insta::assert_snapshot!(world.shown(&report));
    let json = report.json();
    assert_eq!(json["counts"], true);
    assert_eq!(json["commits"][1]["signer"]["principal"], "bob");
    assert_eq!(json["verified"], world.git(&["rev-parse", "HEAD"], Path::new("repo")));
}

#[test]
fn what_does_not_count_says_why_and_what_would_mend_it() {
    let Some(world) = World::fleet() else { return };
    world.write("pools/h100.kdl", "pool \"h100\" { site \"fra1\"; profile \"base\"; }\n");
    world.commit(Some("bob"), "pools: h100");
    world.commit(None, "in a hurry");
    world.commit(Some("eve"), "hello");
    world.write("profiles/base.kdl", "profile \"base\" { unit \"a.service\" enabled=#true; }\n");
    world.commit(Some("ada"), "profiles: a unit");
    world.commit(Some("ada"), "on we go");
    let report = world.verify().report().expect("a report");
    assert!(!report.counts());
    insta::assert_snapshot!(world.shown(&report));
}

#[test]
fn a_change_of_the_policy_is_told_what_it_lacks_and_goes_when_it_has_it() {
    let Some(world) = World::fleet() else { return };
    let Ok(first) = world.verify().report().expect("a report").outcome else { panic!("no walk") };
    let prev = format!("prev \"{}\"", first.policy.expect("a policy").digest());
    let eve = format!(
        "principal \"eve\" {{\n    kind \"human\"\n    roles \"operator\"\n    key \"{}\"\n}}\n",
        world.line("eve")
    );
    world.write("trust/policy.kdl", &world.policy(2, &prev, &eve));
    world.commit(Some("ada"), "trust: eve joins");
    let report = world.verify().report().expect("a report");
    let shown = world.shown(&report);
    insta::assert_snapshot!(shown);

    // What it prints is what has to be signed.
    let statement = |who: &str| {
        let output =
            Output { format: Format::Text, colour: false, width: None, now: "2026-11-29T12:00:00Z".parse().unwrap() };
        let text = world.verify().report().expect("a report").render(&output);
        let block = text
            .split("with this message:\n")
            .nth(1)
            .expect("a statement")
            .split("    and push it")
            .next()
            .expect("its end");
        let message: String =
            block.lines().map(|line| format!("{}\n", line.strip_prefix("      ").unwrap_or(line))).collect();
        let nonce = "0123456789abcdef".repeat(2);
        let message = message.replace("NAME", who).replace("32 hexadecimal digits (openssl rand -hex 16)", &nonce);
        world.state(who, &message);
    };
    world.state("ada", "yes\n\nbc-statement: trust/v1\nprincipal: NAME\n");
    let shown = world.shown(&world.verify().report().expect("a report"));
    assert!(shown.contains("bc/statements/trust/2/ada/0 is not heard: "), "{shown}");
    statement("ada");
    statement("eve");
    let report = world.verify().report().expect("a report");
    assert!(report.counts(), "{}", world.shown(&report));
    insta::assert_snapshot!(world.shown(&report));
}

#[test]
fn what_lies_where_nobody_listens_or_is_too_large_is_named() {
    let Some(world) = World::fleet() else { return };
    let repo = Path::new("repo");
    world.state("ada", &format!("{}\n", "so much to say ".repeat(2_000)));
    let head = world.git(&["rev-parse", "HEAD"], repo);
    for name in ["approve/kernel/ada", "approve/kernel/bob", "party/kernel/ada/1"] {
        world.git(&["branch", &format!("bc/statements/{name}"), &head], repo);
    }
    let report = world.verify().report().expect("a report");
    let shown = world.shown(&report);
    let misplaced =
        "refs/heads/bc/statements/approve/kernel/ada and 2 others are not heard: a statement lies at bc/statements/";
    let large = "refs/heads/bc/statements/trust/2/ada/0 is not heard: a statement has at most 16 KiB";
    assert!(shown.contains(misplaced) && shown.contains(large), "{shown}");
    let unheard = report.json()["unheard"].clone();
    let counts: Vec<_> = unheard.as_array().expect("a list").iter().map(|deaf| deaf["count"].as_u64()).collect();
    assert_eq!(counts, [Some(3), Some(1)]);
}

#[test]
fn a_commit_whose_files_are_missing_is_named_and_what_came_before_it_is_shown() {
    let Some(world) = World::fleet() else { return };
    world.commit(Some("bob"), "before");
    world.write("sites/fra1.kdl", "site \"fra1\"\n");
    world.commit(Some("bob"), "sites: fra1");
    let blob = world.git(&["rev-parse", "HEAD:sites/fra1.kdl"], Path::new("repo"));
    std::fs::remove_file(world.repo().join(".git/objects").join(&blob[..2]).join(&blob[2..])).expect("it was there");
    let report = world.verify().report().expect("a report");
    let json = report.json();
    assert_eq!((&json["counts"], &json["commits"][2]["verdict"]), (&false.into(), &"object-broken".into()));
    assert_eq!(json["verified"], world.git(&["rev-parse", "HEAD~1"], Path::new("repo")));
    assert!(world.shown(&report).contains(&blob), "{}", world.shown(&report));
}

#[test]
fn an_anchor_that_is_named_has_to_be_where_the_history_begins() {
    let Some(world) = World::fleet() else { return };
    let anchor = world.git(&["rev-parse", "HEAD"], Path::new("repo"));
    world.git(&["checkout", "-q", "--orphan", "other"], Path::new("repo"));
    world.commit(Some("ada"), "another history");
    let report = Verify { anchor: Some(anchor), ..world.verify() }.report().expect("a report");
    assert!(matches!(report.outcome, Err(Stuck::HistoryDiverged { .. })));
    assert_eq!(report.json()["stuck"]["code"], "history-diverged");
    let bare = World::new().expect("a world");
    bare.write("fleet.kdl", FLEET);
    bare.commit(None, "a fleet");
    let report = bare.verify().report().expect("a report");
    assert!(!report.counts());
    insta::assert_snapshot!(bare.shown(&report));
}

#[test]
fn a_fleet_in_a_folder_is_judged_by_what_is_in_the_folder() {
    let Some(world) = World::new() else { return };
    world.write("infra/fleet.kdl", FLEET);
    world.write("infra/trust/policy.kdl", &world.policy(1, "", ""));
    world.commit(Some("ada"), "a fleet");
    world.write("infra/sites/fra1.kdl", "site \"fra1\"\n");
    world.write("web/pools/index.html", "nobody's rule covers this\n");
    world.commit(Some("bob"), "both");
    let report = Verify { place: Place { repo: world.repo().join("infra"), ..world.verify().place }, ..world.verify() }
        .report()
        .expect("a report");
    assert!(report.counts(), "{}", world.shown(&report));
}

#[test]
fn what_a_repository_says_about_itself_changes_no_verdict() {
    let Some(world) = World::fleet() else { return };
    let repo = Path::new("repo");
    world.commit(None, "nobody signed this");
    let unsigned = world.git(&["rev-parse", "HEAD"], repo);
    world.git(&["checkout", "-q", "--detach", "HEAD^"], repo);
    world.commit(Some("ada"), "somebody signed this");
    let signed = world.git(&["rev-parse", "HEAD"], repo);
    world.git(&["checkout", "-q", "main"], repo);
    world.git(&["replace", &unsigned, &signed], repo);
    world.git(&["config", "gpg.ssh.program", "/bin/true"], repo);
    assert_eq!(world.git(&["log", "-1", "--format=%s"], repo), "somebody signed this", "git shows the other one");
    let report = world.verify().report().expect("a report");
    assert_eq!(report.json()["commits"][1]["verdict"], "unsigned");

    world.write(".git/objects/info/alternates", "/nowhere\n");
    let refused = world.verify().report().expect_err("objects of another repository");
    assert!(refused.message.contains("alternates"), "{refused}");
}

#[test]
fn a_clone_has_the_statements_that_it_fetched_and_a_shallow_one_has_no_history() {
    let Some(world) = World::fleet() else { return };
    world.commit(Some("bob"), "more");
    let from = format!("file://{}", world.repo().display());
    world.git(&["clone", "-q", "--depth", "1", &from, "shallow"], Path::new("."));
    let verify = |dir: &str| {
        Verify { place: Place { repo: world.dir.path().join(dir), ..world.verify().place }, ..world.verify() }
            .report()
            .expect("a report")
    };
    assert_eq!(verify("shallow").json()["stuck"]["code"], "history-incomplete");

    let Ok(first) = world.verify().report().expect("a report").outcome else { panic!("no walk") };
    let (fleet, policy) = (first.fleet, first.policy.expect("a policy"));
    let text = world.policy(2, &format!("prev \"{}\"", policy.digest()), "reseal { roles \"admin\"; threshold 1; }\n");
    let next = pki::trust::policy::check(text.as_bytes()).policy.expect("a policy").digest();
    world.write("trust/policy.kdl", &text);
    world.commit(Some("ada"), "trust: who accepts a rewritten history");
    let nonce = "0f".repeat(16);
    let prev = policy.digest();
    world.state("ada", &format!("yes\n\nbc-statement: trust/v1\ntrust-domain: acme.example\nfleet: {fleet}\nprev: {prev}\nnext: {next}\nepoch: 2\nprincipal: ada\nnonce: {nonce}\n"));
    world.git(&["clone", "-q", &from, "whole"], Path::new("."));
    assert!(verify("whole").counts(), "{}", verify("whole").json());
}
