//! From an unsigned fleet to a verified one, as a person types it. Without `git` and `ssh-keygen` there is nothing to sign with.

use std::process::Command;

use clap::Parser as _;

use super::*;
use crate::{
    args::Cli,
    output::Format,
    up::keys::KeyDir,
    verified::{Place, Verified},
};

const FLEET: &str = "fleet \"acme\" { format 1; trust-domain \"acme.example\"; }\n";

/// A repository, a remote of it, keys of a control plane, and people.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Option<Self> {
        let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !there("git") || !there("ssh-keygen") {
            crate::output::note("skipped: git and ssh-keygen are needed");
            return None;
        }
        pki::install_provider();
        let world = Self { dir: tempfile::tempdir().expect("a directory") };
        for who in ["ada", "bob"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-C", who, "-f"]).arg(world.dir.path().join(who));
            assert!(make.status().expect("ssh-keygen runs").success());
        }
        world.git(".", &["init", "-q", "--bare", "-b", "main", "hub.git"]);
        world.git(".", &["clone", "-q", "hub.git", "repo"]);
        world.git("repo", &["checkout", "-q", "-B", "main"]);
        world.is("ada");
        std::fs::write(world.repo().join("fleet.kdl"), FLEET).expect("a file");
        world.git("repo", &["add", "-A"]);
        world.git("repo", &["commit", "-q", "-m", "a fleet"]);
        world.git("repo", &["push", "-q", "origin", "main"]);
        let now = "2026-11-29T12:00:00Z".parse().expect("a time");
        let keys = pki::keys::Keys::generate("acme.example", now).expect("keys");
        world.keys().store_control_plane(&keys).expect("stored");
        Some(world)
    }

    fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    fn keys(&self) -> KeyDir {
        KeyDir::at(self.dir.path().join("keys"))
    }

    fn git(&self, dir: &str, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.current_dir(self.dir.path().join(dir)).args(["-c", "gc.auto=0"]).args(args);
        git.env("HOME", self.dir.path()).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        let done = git.output().expect("git runs");
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text").trim().to_owned()
    }

    /// Whoever sits here from now on.
    fn is(&self, who: &str) {
        let key = self.dir.path().join(format!("{who}.pub")).display().to_string();
        let mail = format!("{who}@acme.example");
        for (name, value) in [
            ("gpg.format", "ssh"),
            ("user.signingKey", key.as_str()),
            ("user.name", who),
            ("user.email", mail.as_str()),
        ] {
            self.git("repo", &["config", name, value]);
        }
    }

    /// Runs a verb, without asking.
    fn trust(&self, words: &[&str]) -> Result<Exit, Failure> {
        let repo = self.repo().display().to_string();
        let words = [&["better-compute", "trust"], words, &["--repo", &repo, "-o", "json"]].concat();
        let crate::args::Command::Trust(trust) = Cli::try_parse_from(words).expect("a command line").command else {
            panic!("another verb")
        };
        let now = "2026-11-29T12:00:00Z".parse().expect("a time");
        trust.run(&Output { format: Format::Json, colour: false, width: None, now })
    }

    fn look(&self) -> Verified {
        let place = Place { repo: self.repo(), branch: None, path: None };
        Verified::open(&place, None).expect("a history")
    }

    fn commit(&self, file: &str, text: &str, subject: &str) -> String {
        let path = self.repo().join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(path, text).expect("a file");
        self.git("repo", &["add", "-A"]);
        self.git("repo", &["commit", "-q", "-S", "-m", subject]);
        self.git("repo", &["rev-parse", "HEAD"])
    }
}

/// A page on a terminal of so many columns, with the same names in every run, each as long as the one that it stands for.
fn masked(looked: &Verified, width: usize, page: impl Fn(&Output) -> String) -> String {
    let now = "2026-11-29T12:00:00Z".parse().expect("a time");
    let mut text = page(&Output { format: Format::Text, colour: false, width: Some(width), now });
    let policy = looked.policy().expect("a policy");
    for (name, principal) in policy.principals() {
        for key in &principal.keys {
            text = text.replace(&key.name(), &format!("SHA256:{name:+<43}"));
        }
    }
    let anchor = looked.walked.commits[0].id;
    for (found, shown) in [
        (policy.digest().to_string(), format!("sha256:{:d<64}", "")),
        (looked.walked.fleet.to_string(), "f".repeat(64)),
        (anchor.to_string(), "c".repeat(40)),
        (anchor.short(), "c".repeat(10)),
    ] {
        text = text.replace(&found, &shown);
    }
    text
}

#[test]
fn what_people_compare_before_they_sign_or_pin_is_whole_at_eighty_columns() {
    let Some(world) = World::new() else { return };
    let bob = format!("bob-of-the-night-shift={}", world.dir.path().join("bob.pub").display());
    world.trust(&["init", "--yes", "--no-pin", "--person", &bob]).expect("a policy");
    let looked = world.look();
    let first = &looked.walked.commits[0];
    let pin =
        pki::keys::TrustPin { commit: first.id, fleet: looked.walked.fleet, digest: looked.walked.epochs[0].digest };
    for width in [80, 160] {
        let show = masked(&looked, width, |output| show::page(&looked, output));
        let pin = masked(&looked, width, |output| pin::page(&looked, pin, first, output));
        for text in [&show, &pin] {
            assert!(text.lines().all(|line| line.chars().count() <= width) && !text.contains('…'), "{text}");
        }
        insta::assert_snapshot!(format!("show_at_{width}"), show);
        insta::assert_snapshot!(format!("pin_at_{width}"), pin);
    }
}

#[test]
fn a_change_of_the_policy_that_no_word_mends_says_why_and_nothing_is_signed() {
    let Some(world) = World::new() else { return };
    let bob = format!("bob={}", world.dir.path().join("bob.pub").display());
    world.trust(&["init", "--yes", "--no-pin", "--person", &bob]).expect("a policy");
    let text = std::fs::read_to_string(world.repo().join("trust/policy.kdl")).expect("a policy");
    world.commit("trust/policy.kdl", &text.replace("threshold 1", "threshold 9"), "trust: nine people");
    let refused = world.trust(&["agree", "--yes"]).expect_err("nine people are not there");
    assert_eq!(refused.exit, Exit::Refused);
    assert!(refused.message.contains("(policy-invalid)") && refused.message.contains("BC0605"), "{refused}");
    world.is("bob");
    let vouched = world.trust(&["vouch", "--yes"]).expect_err("nor does a vouch mend it");
    assert!(vouched.message.contains("(policy-invalid)"), "{vouched}");
    assert_eq!(world.git("repo", &["for-each-ref", "refs/heads/bc"]), "", "nothing was said");
}

#[test]
fn an_unsigned_fleet_becomes_a_verified_one_in_one_step() {
    let Some(world) = World::new() else { return };
    let keys = world.keys().path().display().to_string();
    world.trust(&["init", "--yes", "--push", "--keys", &keys]).expect("a policy");
    let anchor = world.git("repo", &["rev-parse", "HEAD"]);
    assert_eq!(world.git("hub.git", &["rev-parse", "main"]), anchor, "pushed");
    let pin = world.keys().control_plane().expect("opens").expect("keys").trust_pin().expect("a pin");
    assert_eq!((pin.commit.to_string(), pin.fleet), (anchor, world.look().walked.fleet));
    // Again is no mistake, and another anchor is.
    world.trust(&["pin", "--yes", "--keys", &keys]).expect("the same pin");
    assert!(world.trust(&["init", "--yes"]).expect_err("there is one").message.contains("is there already"));
    // Who is alone is not locked out of anything.
    world.commit(
        "profiles/base.kdl",
        "profile \"base\" { unit \"a.service\" { enable #true; } }\n",
        "profiles: a unit",
    );
    assert!(world.look().walked.refused().is_none());
    world.trust(&["show"]).expect("a policy");
}

#[test]
fn a_branch_that_does_not_verify_is_not_pinned() {
    let Some(world) = World::new() else { return };
    let keys = world.keys().path().display().to_string();
    world.trust(&["init", "--yes", "--no-pin"]).expect("a policy");
    world.git("repo", &["commit", "-q", "--allow-empty", "-m", "nobody signed this"]);
    let refused = world.trust(&["pin", "--yes", "--keys", &keys]).expect_err("unsigned");
    assert!(refused.message.contains("does not verify"), "{refused}");
    assert!(world.keys().control_plane().expect("opens").expect("keys").trust_pin().is_none());
}

#[test]
fn people_vouch_agree_and_revoke_by_a_word_each() {
    let Some(world) = World::new() else { return };
    let bob = format!("bob={}", world.dir.path().join("bob.pub").display());
    world.trust(&["init", "--yes", "--no-pin", "--push", "--person", &bob]).expect("a policy");
    assert!(world.trust(&["vouch", "--yes"]).is_err(), "nothing waits");

    world.commit(
        "profiles/base.kdl",
        "profile \"base\" { unit \"a.service\" { enable #true; } }\n",
        "profiles: a unit",
    );
    assert_eq!(world.look().walked.refused().map(|(_, refusal)| refusal.code()), Some("not-vouched"));
    let own = world.trust(&["vouch", "--yes"]).expect_err("ada signed it");
    assert!(own.message.contains("nobody vouches for an own change"), "{own}");
    assert_eq!(world.git("repo", &["for-each-ref", "refs/heads/bc"]), "", "nothing was said");
    world.is("bob");
    world.trust(&["vouch", "--yes"]).expect("a word");
    assert!(world.look().walked.refused().is_none());
    let pushed = world.git("hub.git", &["for-each-ref", "--format=%(refname)", "refs/heads/bc/statements/change"]);
    assert!(pushed.ends_with(|letter: char| letter.is_ascii_hexdigit()) && pushed.contains("/bob/"), "{pushed}");

    let before = world.look().walked.policy.expect("a policy");
    let text = std::fs::read_to_string(world.repo().join("trust/policy.kdl")).expect("a policy");
    let next = text.replace("epoch 1", &format!("epoch 2\n    prev \"{}\"", before.digest()));
    world.commit("trust/policy.kdl", &next, "trust: the same again");
    assert_eq!(world.look().walked.refused().map(|(_, refusal)| refusal.code()), Some("trust-threshold"));
    world.trust(&["agree", "--yes", "--no-push"]).expect("a word");
    assert_eq!(world.look().walked.policy.expect("a policy").epoch(), 2);

    let key = |who: &str| before.principals()[&schema::name::Name::new(who).expect("a name")].keys[0].name();
    let (ada, bob_key) = (key("ada"), key("bob"));
    world.trust(&["revoke", &ada, "--reason", "compromised", "--yes"]).expect("a word");
    world.is("ada");
    world.commit("sites/a.kdl", "site \"a\" { region \"eu\"; }\n", "sites: a");
    assert_eq!(world.look().walked.refused().map(|(_, refusal)| refusal.code()), Some("key-revoked"));
    let again = world.trust(&["revoke", &ada, "--reason", "compromised", "--yes"]).expect_err("once is enough");
    assert!(again.message.contains("is revoked by bob already"), "{again}");
    let shown = show::table(&world.look().walked).render(None, false);
    assert!(shown.contains("(revoked by bob)"), "{shown}");
    let gone = world.trust(&["revoke", &bob_key, "--reason", "compromised", "--yes"]).expect_err("ada is nobody");
    assert!(gone.message.contains("is revoked by bob: nobody hears it"), "{gone}");
    assert!(world.trust(&["revoke", "SHA256:nobody", "--reason", "compromised", "--yes"]).is_err());
}

#[test]
fn a_commit_does_not_take_its_own_place() {
    let Some(world) = World::new() else { return };
    world.trust(&["init", "--yes", "--no-pin"]).expect("a policy");
    let head = world.git("repo", &["rev-parse", "HEAD"]);
    for (old, new) in [(head.as_str(), head.as_str()), (head.as_str(), "HEAD"), ("main", &head[..12])] {
        let refused = world.trust(&["reseal", old, new, "--yes", "--no-push"]).expect_err("the same commit twice");
        assert!(refused.message.contains("are the same commit"), "{old} {new}: {refused}");
    }
    assert_eq!(world.git("repo", &["for-each-ref", "refs/heads/bc"]), "", "nothing was said");
}

#[test]
fn a_policy_that_was_taken_away_is_missed_by_check() {
    let Some(world) = World::new() else { return };
    let repo = world.repo();
    let check = || {
        let words = ["better-compute", "check", repo.to_str().expect("a path"), "--format", "json"];
        let crate::args::Command::Check(check) = Cli::try_parse_from(words).expect("a command line").command else {
            panic!("another verb")
        };
        let now = "2026-11-29T12:00:00Z".parse().expect("a time");
        check.run(&Output { format: Format::Json, colour: false, width: None, now }).expect("it is read")
    };
    assert_eq!(check(), Exit::Ok, "nobody has a policy yet");
    world.trust(&["init", "--yes", "--no-pin"]).expect("a policy");
    assert_eq!(check(), Exit::Ok);
    std::fs::remove_dir_all(repo.join("trust")).expect("removed");
    assert_eq!(check(), Exit::InvalidFleet, "in the working tree");
    world.git("repo", &["add", "-A"]);
    world.git("repo", &["commit", "-q", "-m", "who needs trust"]);
    world.git("repo", &["commit", "-q", "--allow-empty", "-m", "and on it goes"]);
    assert_eq!(check(), Exit::InvalidFleet, "and behind the commit that did it");
    world.git("repo", &["checkout", "-q", "HEAD~2", "--", "trust/policy.kdl"]);
    assert_eq!(check(), Exit::Ok);
}
