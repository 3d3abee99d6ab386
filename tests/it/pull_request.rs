//! The pull request: the script that CI and people run, on real repositories, with and without anybody to tell.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tests::{Forge, Repo, Said, Up, World, forge, process, repo};

/// A pull request: a clone of the base in which the head is there as objects alone.
struct Pull<'w> {
    world: &'w World,
    origin: Repo,
    clone: PathBuf,
}

impl<'w> Pull<'w> {
    /// The example fleet, and a branch of it that is not changed yet.
    fn new(world: &'w World) -> Self {
        let origin = Repo::of_examples(world, "origin");
        origin.git(&["checkout", "--quiet", "-b", "change"]);
        Self { world, origin, clone: world.path("clone") }
    }

    /// What a change of the branch is.
    fn change(&self, path: &str, old: &str, new: &str) {
        self.origin.replace(path, old, new);
        self.origin.commit("a change");
    }

    /// A commit on the base that the branch does not have.
    fn base_moves(&self, path: &str, text: &str) {
        self.origin.git(&["checkout", "--quiet", "main"]);
        self.origin.write(path, text);
        self.origin.commit("somebody else's change");
        self.origin.git(&["checkout", "--quiet", "change"]);
    }

    /// Checks the base out and fetches the head, as the workflow does.
    fn fetch(&self) {
        fs::remove_dir_all(&self.clone).ok();
        let (from, to) = (self.origin.dir().display().to_string(), self.clone.display().to_string());
        git(self.world.path(".").as_path(), &["clone", "--quiet", "--branch", "main", &from, &to]);
        git(&self.clone, &["fetch", "--quiet", "--no-tags", "origin", "+refs/heads/change:refs/plan/head"]);
    }

    /// The script of the base, ready to run.
    fn script(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        for (key, _) in std::env::vars_os() {
            let text = key.to_string_lossy();
            if ["BETTER_COMPUTE_", "GITHUB_", "GITLAB_", "GIT_", "CI_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&key);
            }
        }
        command
            .current_dir(&self.clone)
            .args(["ci/plan.sh", "--base", "HEAD", "--head", "refs/plan/head", "--out"])
            .arg(self.out())
            .args(arguments)
            .env("BETTER_COMPUTE_BIN", process::binary("better-compute"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("NO_COLOR", "1");
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        self.fetch();
        said(self.script(arguments))
    }

    fn out(&self) -> PathBuf {
        self.world.path("out")
    }

    fn comment(&self) -> String {
        fs::read_to_string(self.out().join("plan.md")).unwrap_or_default()
    }

    fn json(&self) -> Value {
        let text = fs::read_to_string(self.out().join("plan.json")).expect("plan.json");
        serde_json::from_str(&text).unwrap_or_else(|error| unreachable!("no JSON ({error}): {text}"))
    }
}

fn git(dir: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(dir).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let (code, out, err) = process::output(command);
    assert_eq!(code, 0, "git {arguments:?}: {out}{err}");
}

fn said(command: Command) -> Said {
    let (code, out, err) = process::output(command);
    Said { code, out, err }
}

fn objects(plan: &Value) -> Vec<&str> {
    plan["objects"].as_array().into_iter().flatten().filter_map(|object| object["object"].as_str()).collect()
}

const SWAPPINESS: (&str, &str, &str) = ("profiles/base.kdl", "  sysctl {", "  sysctl {\n    \"vm.laptop_mode\" \"0\"");

#[test]
fn a_branch_that_changes_nothing_says_so_and_begins_no_conversation() {
    let world = World::new();
    let pull = Pull::new(&world);
    let forge = Forge::start();
    let summary = world.path("summary.md");
    pull.fetch();
    let mut script = pull.script(&["--comment", "--exit-code"]);
    script
        .env("GITHUB_TOKEN", "forge-token")
        .env("GITHUB_REPOSITORY", "acme/fleet")
        .env("GITHUB_API_URL", forge.address())
        .env("PULL_REQUEST", "7")
        .env("GITHUB_STEP_SUMMARY", &summary);
    let said = said(script);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("Nothing changes"), "{}", said.out);
    assert!(fs::read_to_string(summary).expect("a summary").contains("### Plan: nothing changes"));
    assert!(forge.comments().is_empty());
}

#[test]
fn one_comment_is_edited_in_place_and_nobody_elses_is_touched() {
    let world = World::new();
    let pull = Pull::new(&world);
    let forge = Forge::start();
    for number in 0..120 {
        forge.add("someone", &format!("comment {number}"));
    }
    forge.add("mallory", "<!-- better-compute:plan -->\nThis is mine.");
    let post = |pull: &Pull<'_>| {
        pull.fetch();
        let mut script = pull.script(&["--comment"]);
        script
            .env("GITHUB_TOKEN", "forge-token")
            .env("GITHUB_REPOSITORY", "acme/fleet")
            .env("GITHUB_API_URL", forge.address())
            .env("PULL_REQUEST", "7");
        let said = said(script);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    };
    let (path, old, new) = SWAPPINESS;
    pull.change(path, old, new);
    post(&pull);
    let first = forge.comments().last().expect("a comment").clone();
    assert_eq!((first.author.as_str(), forge.comments().len()), (forge::BOT, 122));
    assert!(first.body.starts_with("<!-- better-compute:plan -->\n### Plan: "), "{}", first.body);
    assert!(first.body.contains("vm.laptop_mode"), "{}", first.body);

    pull.change(path, "\"vm.laptop_mode\" \"0\"", "\"vm.laptop_mode\" \"5\"");
    post(&pull);
    let second = forge.comments().last().expect("a comment").clone();
    assert_eq!(forge.comments().len(), 122);
    assert_ne!(first.body, second.body);
    assert_eq!(forge.comments()[120].body, "<!-- better-compute:plan -->\nThis is mine.");
    let issues = "/repos/acme/fleet/issues";
    assert_eq!(forge.changes(), [format!("POST {issues}/7/comments"), format!("PATCH {issues}/comments/121")]);
}

#[test]
fn gitlab_gets_one_note_too() {
    let world = World::new();
    let pull = Pull::new(&world);
    let forge = Forge::start();
    let (path, old, new) = SWAPPINESS;
    pull.change(path, old, new);
    for _ in 0..2 {
        pull.fetch();
        let mut script = pull.script(&["--comment"]);
        script
            .env("GITLAB_TOKEN", "forge-token")
            .env("CI_API_V4_URL", forge.address())
            .env("CI_PROJECT_ID", "3")
            .env("CI_MERGE_REQUEST_IID", "7");
        let said = said(script);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    }
    let notes = "/projects/3/merge_requests/7/notes";
    assert_eq!(forge.changes(), [format!("POST {notes}"), format!("PUT {notes}/0")]);
    assert_eq!(forge.comments().len(), 1);
}

#[test]
fn the_same_branch_has_the_same_bytes_and_exit_codes_are_for_pipelines() {
    let world = World::new();
    let pull = Pull::new(&world);
    let (path, old, new) = SWAPPINESS;
    pull.change(path, old, new);
    pull.base_moves("notes.txt", "not the fleet's\n");
    let first = (pull.run(&[]).code, pull.comment());
    let second = (pull.run(&["--exit-code"]).code, pull.comment());
    assert_eq!((first.0, second.0), (0, 2));
    assert!(first.1.len() > 200 && first.1 == second.1, "{}\n---\n{}", first.1, second.1);
    assert_eq!(pull.json()["inputs"]["observed"], "offline");
}

#[test]
fn a_branch_that_is_behind_takes_nothing_back() {
    let world = World::new();
    let pull = Pull::new(&world);
    let (path, old, new) = SWAPPINESS;
    pull.change(path, old, new);
    pull.base_moves("profiles/extra.kdl", "profile \"extra\" {\n}\n");
    let said = pull.run(&[]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert_eq!(objects(&pull.json()), ["profile/base"]);
}

#[test]
fn a_conflict_is_named() {
    let world = World::new();
    let pull = Pull::new(&world);
    pull.origin.write("profiles/base.kdl", "profile \"base\" {\n}\n");
    pull.origin.commit("mine");
    pull.base_moves("profiles/base.kdl", "profile \"base\" {\n  sysctl {\n    \"vm.swappiness\" \"5\"\n  }\n}\n");
    let said = pull.run(&[]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("conflict") && said.err.contains("profiles/base.kdl"), "{}", said.err);
}

#[test]
fn a_broken_fleet_has_no_plan_and_says_every_error() {
    let world = World::new();
    let pull = Pull::new(&world);
    pull.origin.replace("pools/h100.kdl", "site \"fra1\"", "site \"fra9\"");
    pull.change("profiles/base.kdl", "  sysctl {", "  sysclt {");
    pull.fetch();
    let mut script = pull.script(&[]);
    script.env("GITHUB_ACTIONS", "true");
    let said = said(script);
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    let comment = pull.comment();
    assert!(comment.contains("### Plan: none, the fleet has 2 errors"), "{comment}");
    assert!(comment.contains("pools/h100.kdl:") && comment.contains("did you mean `sysctl`"), "{comment}");
    assert!(said.out.contains("::error file=pools/h100.kdl"), "{}", said.out);
    // What the repository says stands where no line is a command.
    let (before, fenced) = said.out.split_once("::stop-commands::").expect("a fence");
    let fence = fenced.lines().next().expect("its word");
    let inside = fenced.split(&format!("\n::{fence}::\n")).next().expect("its end");
    assert!(before.is_empty() && fence.len() == 32 && inside.contains("did you mean `sysctl`"), "{}", said.out);
    assert_eq!(pull.json()["errors"], 2);
}

#[test]
fn nothing_of_a_fork_is_executed_or_written() {
    let world = World::new();
    let pull = Pull::new(&world);
    let loot = world.path("loot");
    pull.origin.write("ci/plan.sh", format!("#!/bin/sh\ntouch {}\n", loot.display()));
    pull.origin.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
    pull.origin.write(".gitconfig", format!("[filter \"evil\"]\n  smudge = touch {}\n", loot.display()));
    let (path, old, new) = SWAPPINESS;
    pull.change(path, old, new);
    pull.base_moves("notes.txt", "so that there is something to merge\n");
    let said = pull.run(&["--comment"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("profile/base"), "{}", said.out);
    assert!(said.err.contains("no token to comment with"), "{}", said.err);
    assert!(!loot.exists());
    assert!(!pull.clone.join(".gitattributes").exists());
}

#[test]
fn a_branch_is_planned_once_whatever_it_is_written_as() {
    let world = World::new();
    let pull = Pull::new(&world);
    let (calls, counted) = (world.path("calls"), world.path("counted"));
    let tool = process::binary("better-compute");
    fs::write(&counted, format!("#!/bin/sh\necho \"$1\" >>{}\nexec {} \"$@\"\n", calls.display(), tool.display()))
        .and_then(|()| fs::set_permissions(&counted, fs::Permissions::from_mode(0o755)))
        .expect("a program");
    let (path, old, new) = SWAPPINESS;
    pull.change(path, old, new);
    pull.fetch();
    let mut script = pull.script(&[]);
    script.env("BETTER_COMPUTE_BIN", &counted);
    let said = said(script);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert_eq!(fs::read_to_string(calls).expect("calls"), "plan\n");
    assert!(said.out.contains("vm.laptop_mode") && pull.comment().contains("vm.laptop_mode"));
    assert_eq!(objects(&pull.json()), ["profile/base"]);
}

#[test]
fn where_there_is_nothing_to_plan_it_says_so_and_of_what_is_not_committed_it_warns() {
    let world = World::new();
    let pull = Pull::new(&world);
    pull.fetch();
    let run = || {
        let mut command = Command::new("sh");
        command
            .current_dir(&pull.clone)
            .arg("ci/plan.sh")
            .env("BETTER_COMPUTE_BIN", process::binary("better-compute"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null");
        said(command)
    };
    let nothing = run();
    assert_eq!((nothing.code, nothing.out.as_str()), (0, ""), "{}", nothing.err);
    assert!(
        nothing.err.contains("there is nothing to plan") && !nothing.err.contains("not committed"),
        "{}",
        nothing.err
    );
    fs::write(pull.clone.join("notes.kdl"), "// mine\n").expect("written");
    let edited = run();
    assert!(edited.err.contains("changed and not committed"), "{}", edited.err);
}

#[test]
fn the_workflows_run_nothing_of_the_pull_request() {
    let github = fs::read_to_string(repo::examples().join(".github/workflows/plan.yml")).expect("a workflow");
    let gitlab = fs::read_to_string(repo::examples().join(".gitlab-ci.yml")).expect("a pipeline");
    let words =
        |text: &str| text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n");
    let github = words(&github);
    assert!(github.contains("\n  pull_request:\n") && !github.contains("pull_request_target"));
    assert!(github.contains("ref: ${{ github.event.pull_request.base.ref }}") && github.contains("permissions: {}"));
    // What a stranger writes (titles, branch names) is never put into a script.
    for line in github.lines().filter(|line| line.contains("run:") || line.trim_start().starts_with("git ")) {
        assert!(!line.contains("${{"), "{line}");
    }
    assert!(words(&gitlab).contains("refs/plan/base:ci/plan.sh"));
}

#[test]
fn a_token_that_can_only_plan_shows_the_machines_there_are_and_changes_nothing() {
    let world = World::new();
    let pull = Pull::new(&world);
    pull.origin.git(&["checkout", "--quiet", "main"]);
    let up = Up::start(&world, "up", pull.origin.dir());
    let _node = tests::Node::running(&world, "one", &up, "h100");
    let head = pull.origin.head();
    up.wait_converged(&head, 1);
    pull.origin.git(&["checkout", "--quiet", "change"]);
    let (path, old, new) = SWAPPINESS;
    pull.change(path, old, new);
    pull.origin.git(&["checkout", "--quiet", "main"]);

    let token = up.cli().json(&["token", "api", "create", "--plan-only", "--format", "json"]);
    let token = token["token"].as_str().expect("a token").to_owned();
    let client: Value =
        serde_json::from_str(&fs::read_to_string(up.data().join("client.json")).expect("client.json")).expect("json");
    let live = |script: &mut Command| {
        script
            .env("BETTER_COMPUTE_URL", client["url"].as_str().expect("a url"))
            .env("BETTER_COMPUTE_TOKEN", &token)
            .env("BETTER_COMPUTE_CA_PEM", client["ca"].as_str().expect("certificates"));
    };
    pull.fetch();
    let mut script = pull.script(&[]);
    live(&mut script);
    let answer = said(script);
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let plan = pull.json();
    assert_eq!(plan["inputs"]["observed"], "live", "{}", answer.err);
    assert_eq!(objects(&plan), ["profile/base"]);
    assert_eq!(plan["counts"]["moves"], 1);
    assert_eq!(up.cli().json(&["status", "--format", "json"])["sources"][0]["applied"]["commit"], head.as_str());

    let mut refused = process::command("better-compute");
    refused.args(["get", "nodes"]);
    refused.env("BETTER_COMPUTE_URL", client["url"].as_str().expect("a url")).env("BETTER_COMPUTE_TOKEN", &token);
    refused.env("BETTER_COMPUTE_CA", world.write("ca.pem", client["ca"].as_str().expect("certificates")));
    assert_eq!(said(refused).code, 4);

    drop(up);
    let mut script = pull.script(&[]);
    live(&mut script);
    let answer = said(script);
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("this is the offline plan"), "{}", answer.err);
    assert!(pull.comment().contains("The control plane could not be asked"), "{}", pull.comment());
    assert_eq!(pull.json()["inputs"]["observed"], "offline");
}
