//! Facts about releases as people sign them: with the key that git signs with, in a clone of the fleet.

use std::{os::unix::fs::PermissionsExt as _, process::Command};

use clap::Parser as _;

use super::*;
use crate::{args::Cli, output::Format};

const FLEET: &str = "fleet \"acme\" { format 1; trust-domain \"acme.example\"; }\n";

/// A fleet whose policy lists Ada (SSH), Bob (SSH), Cleo (OpenPGP, where there is `gpg`), and Oscar, who signs no release.
struct World {
    dir: tempfile::TempDir,
    cleo: Option<String>,
}

fn ran(command: &mut Command) -> String {
    let done = command.output().expect("the program runs");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text").trim().to_owned()
}

impl World {
    /// Nothing where `git` or `ssh-keygen` is missing.
    fn new(releases: &str) -> Option<Self> {
        let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !there("git") || !there("ssh-keygen") {
            note("skipped: git and ssh-keygen are needed");
            return None;
        }
        let mut world = Self { dir: tempfile::Builder::new().prefix("r").tempdir().expect("a directory"), cleo: None };
        world.git(&["init", "-q", "-b", "main", "."]);
        let mut policy = "policy { format 1; epoch 1; }\npath \"**\" { roles \"admin\"; changes 0; }\n\
                          trust { roles \"admin\"; threshold 1; }\n"
            .to_owned();
        for (who, roles) in [("ada", "\"admin\" \"release\""), ("bob", "\"release\""), ("oscar", "\"operator\"")] {
            ran(Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-C", who, "-f"])
                .arg(world.path(who)));
            let line = fs::read_to_string(world.path(&format!("{who}.pub"))).expect("a key");
            let key = format!("key \"{}\"", line.trim());
            policy.push_str(&format!("principal \"{who}\" {{ kind \"human\"; roles {roles}; {key}; }}\n"));
        }
        if there("gpg") {
            let (fingerprint, block) = world.ring();
            policy.push_str(&format!(
                "principal \"cleo\" {{ kind \"human\"; roles \"release\"; openpgp \"{fingerprint}\" \"\"\"\n{block}\n\"\"\"; }}\n"
            ));
            world.cleo = Some(fingerprint);
        } else {
            note("skipped: there is no gpg");
        }
        world.is("ada");
        world.commit(&[("fleet.kdl", FLEET), ("trust/policy.kdl", &(policy + releases))], "trust: who may do what");
        world.make();
        Some(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn git(&self, words: &[&str]) -> String {
        let mut git = Command::new("git");
        git.arg("-C").arg(self.dir.path()).args(["-c", "gc.auto=0"]).args(words);
        git.env("HOME", self.dir.path()).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        ran(&mut git)
    }

    /// A key ring behind a program that git is told of; its key, by name and as a block.
    fn ring(&self) -> (String, String) {
        let home = self.path("gnupg");
        fs::create_dir(&home).expect("a directory");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("private");
        let words = format!("--homedir {} --batch --no-tty --pinentry-mode loopback --passphrase ''", home.display());
        fs::write(self.path("gpg"), format!("#!/bin/sh\nexec gpg {words} \"$@\"\n")).expect("written");
        fs::set_permissions(self.path("gpg"), fs::Permissions::from_mode(0o755)).expect("a program");
        let gpg = |words: &[&str]| ran(Command::new(self.path("gpg")).args(words));
        gpg(&["--quiet", "--quick-generate-key", "Cleo <cleo@acme.example>", "ed25519", "sign", "never"]);
        let listed = gpg(&["--with-colons", "--list-keys"]);
        let line = listed.lines().find(|line| line.starts_with("fpr:")).expect("a key");
        (line.split(':').nth(9).expect("a fingerprint").to_owned(), gpg(&["--armor", "--export"]))
    }

    /// Whoever sits here from now on.
    fn is(&self, who: &str) {
        let (format, key) = match self.cleo.as_ref().filter(|_| who == "cleo") {
            Some(fingerprint) => ("openpgp", fingerprint.clone()),
            None => ("ssh", self.path(&format!("{who}.pub")).display().to_string()),
        };
        let program = self.path("gpg").display().to_string();
        for (name, value) in [
            ("gpg.format", format),
            ("gpg.program", &program),
            ("user.signingKey", &key),
            ("user.name", who),
            ("user.email", &format!("{who}@acme.example")),
        ] {
            self.git(&["config", name, value]);
        }
    }

    fn commit(&self, files: &[(&str, &str)], subject: &str) -> String {
        for (path, text) in files {
            let path = self.path(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, text).expect("a file");
        }
        self.git(&["add", "--", "fleet.kdl", "trust"]);
        self.git(&["commit", "-q", "-S", "-m", subject]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Runs a verb of a verb.
    fn say(&self, words: &[&str]) -> Result<Exit, Failure> {
        let words = [&["better-compute"], words, &["-o", "json"]].concat();
        let now = "2026-11-29T12:00:00Z".parse().expect("a time");
        let output = Output { format: Format::Json, colour: false, width: None, now };
        match Cli::try_parse_from(words).expect("a command line").command {
            crate::args::Command::Release(release) => release.run(&output),
            crate::args::Command::Trust(trust) => trust.run(&output),
            _ => panic!("another verb"),
        }
    }

    fn make(&self) {
        let binary = format!("amd64={}", self.path("fleet.kdl").display());
        let out = self.path("release.json").display().to_string();
        self.say(&["release", "make", "--version", "0.2.0", "--binary", &binary, "--out", &out]).expect("made");
    }

    /// A verb about the manifest, in the clone.
    fn about(&self, verb: &str, more: &[&str]) -> Result<Exit, Failure> {
        let (file, repo) = (self.path("release.json").display().to_string(), self.dir.path().display().to_string());
        self.say(&[&["release", verb, &file, "--repo", &repo], more].concat())
    }

    fn sign(&self, who: &str) -> Result<Exit, Failure> {
        self.is(who);
        self.about("sign", &["--yes"])
    }
}

#[track_caller]
fn refused(said: Result<Exit, Failure>, words: &[&str]) {
    let failure = said.expect_err("refused");
    let told = format!("{} {}", failure.message, failure.hint.unwrap_or_default());
    assert!(words.iter().all(|word| told.contains(word)), "{told}");
    assert_eq!(failure.exit, Exit::Refused, "{told}");
}

const TWO: &str = "releases { roles \"release\"; threshold 2; }\n";

#[test]
fn people_sign_a_release_with_the_keys_that_git_signs_with_and_the_clone_says_whether_it_is_enough() {
    let Some(world) = World::new(TWO) else { return };
    refused(world.about("verify", &[]), &["nobody who counts signed it", "asks for 2", "ada, bob"]);
    world.sign("ada").expect("signed");
    world.sign("ada").expect("signed once more");
    refused(world.about("verify", &[]), &["ada signed it", "(release-untrusted)", "who can still sign it", "bob"]);
    let second = if world.cleo.is_some() { "cleo" } else { "bob" };
    world.sign(second).expect("signed");
    assert_eq!(world.about("verify", &[]).expect("believed"), Exit::Ok);
}

#[test]
fn what_would_not_count_is_not_signed() {
    let Some(world) = World::new(TWO) else { return };
    let before = fs::read_to_string(world.path("release.json")).expect("a manifest");
    refused(world.sign("oscar"), &["oscar does not count: `releases` names release", "nothing was signed", "ada, bob"]);
    ran(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(world.path("eve")));
    refused(world.sign("eve"), &["nobody's in the trust policy"]);
    assert_eq!(fs::read_to_string(world.path("release.json")).expect("a manifest"), before);

    let Some(world) = World::new("") else { return };
    refused(world.sign("ada"), &["has no `releases`", "nobody"]);
    refused(world.about("verify", &[]), &["has no `releases`"]);
}

#[test]
fn a_manifest_is_held_against_the_policy_of_the_commit_that_is_named() {
    let Some(world) = World::new(TWO) else { return };
    world.sign("ada").expect("signed");
    let anchor = world.git(&["rev-parse", "HEAD"]);
    let first = fs::read_to_string(world.path("trust/policy.kdl")).expect("a policy");
    let digest = pki::trust::policy::check(first.as_bytes()).policy.expect("a policy").digest();
    let head = format!("policy {{ format 1; epoch 2; prev \"{digest}\"; }}");
    let second = first.replace("policy { format 1; epoch 1; }", &head).replace(TWO, &TWO.replace('2', "1"));
    world.commit(&[("trust/policy.kdl", &second)], "trust: one signs releases");
    refused(world.about("verify", &[]), &["the trust policy of epoch 1 asks for 2"]);

    let repo = world.dir.path().display().to_string();
    world.say(&["trust", "agree", "--repo", &repo, "--yes"]).expect("agreed");
    assert_eq!(world.about("verify", &[]).expect("believed"), Exit::Ok);
    refused(world.about("verify", &["--at", &anchor]), &["the trust policy of epoch 1 asks for 2"]);
    assert!(world.about("verify", &["--anchor", "HEAD"]).is_err(), "another anchor");
}

#[test]
fn a_key_that_somebody_revoked_counts_no_more_in_the_clone_that_heard_it() {
    let Some(world) = World::new(TWO) else { return };
    world.sign("ada").expect("signed");
    world.sign("bob").expect("signed");
    assert_eq!(world.about("verify", &[]).expect("believed"), Exit::Ok);
    let line = fs::read_to_string(world.path("bob.pub")).expect("a key");
    let bob = pki::trust::key::TrustKey::from_ssh(line.trim()).expect("a key").name();
    let repo = world.dir.path().display().to_string();
    // Whoever has a key may give it up.
    let revoke = ["trust", "revoke", &bob, "--reason", "compromised", "--repo", &repo, "--yes"];
    world.say(&revoke).expect("revoked");
    refused(world.about("verify", &[]), &["ada signed it", "bob does not count", "is revoked"]);
    refused(world.sign("bob"), &["bob does not count", "is revoked", "nothing was signed"]);
}
