//! Drift: what something else changes on a machine is put right or left alone, told, and taken over.

use std::fs;

use serde_json::Value;
use tests::{Node, Repo, Up, World, until, until_some};

const PROFILE: &str = "\
profile \"watched\" {
  extends \"h100-host\"
  file \"/etc/ours.conf\" { content \"ours\\n\"; }
  file \"/etc/tuned.conf\" mode=\"0644\" {
    // What operators tune at night.
    content \"depth = 4\\n\" // as shipped
  }
  drift {
    adopt \"files./etc/tuned.conf\"
  }
}
";

struct Scene {
    repo: Repo,
    up: Up,
    one: Node,
    name: String,
    world: World,
}

/// A pool whose profile watches two files, and one machine that has converged on it.
fn scene() -> Scene {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    repo.write("profiles/watched.kdl", PROFILE);
    repo.write("pools/h100.kdl", repo.read("pools/h100.kdl").replace("profile \"h100-host\"", "profile \"watched\""));
    let commit = repo.commit("watched");
    let up = Up::start(&world, "up", repo.dir());
    let one = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&commit, 1);
    let name = up.nodes()[0]["name"].as_str().expect("a name").to_owned();
    Scene { repo, up, one, name, world }
}

impl Scene {
    /// Something else changes a file, while no daemon looks.
    fn foreign(&mut self, path: &str, text: &str) {
        self.one.kill();
        fs::write(self.one.root().join(path.trim_start_matches('/')), text).expect("written");
        self.one.run(&[]);
    }

    fn drift(&self) -> Vec<Value> {
        let found = self.up.cli().json(&["drift", &self.name, "--format", "json"]);
        found["drift"].as_array().cloned().expect("a list")
    }

    fn drift_of(&self, path: &str) -> Value {
        until_some(&format!("{path} is told"), || self.drift().into_iter().find(|entry| entry["path"] == path))
    }

    fn generation(&self) -> u64 {
        self.up.node(&self.name)["node"]["generation"].as_u64().expect("a generation")
    }
}

#[test]
fn what_is_enforced_is_put_right_and_told() {
    let mut scene = scene();
    let cli = scene.up.cli();
    assert_eq!(scene.drift(), Vec::<Value>::new());
    assert_eq!(cli.run(&["drift", "--exit-code"]).code, 0);

    scene.foreign("/etc/ours.conf", "theirs\n");
    let told = scene.drift_of("files./etc/ours.conf.content");
    assert_eq!(scene.one.file("/etc/ours.conf").as_deref(), Some("ours\n"), "{}", scene.one.log());
    assert_eq!((&told["mode"], &told["corrected"], &told["times"]), (&"enforce".into(), &true.into(), &1.into()));
    assert_eq!((&told["observed"], &told["cause"]), (&"theirs\n".into(), &"while-stopped".into()));
    assert!(!scene.one.log().contains("theirs"), "values are not for logs");
    assert!(cli.ok(&["status"]).contains("drift was put right on 1 machine"), "{}", cli.ok(&["status"]));
    assert_eq!(cli.run(&["drift", "--exit-code"]).code, 0, "all is as desired");

    // The word of it outlives the daemon, and the generation has not moved.
    scene.one.kill();
    scene.one.run(&[]);
    until("the daemon is back", || scene.up.status()["nodes"]["connected"] == 1);
    assert_eq!(scene.drift_of("files./etc/ours.conf.content"), told);
    assert_eq!(scene.generation(), 1);
}

#[test]
fn what_may_differ_is_left_alone_and_taken_over_without_a_surprise() {
    let mut scene = scene();
    let cli = scene.up.cli();
    scene.foreign("/etc/tuned.conf", "depth = 8\n");
    let path = "files./etc/tuned.conf.content";
    let told = scene.drift_of(path);
    assert_eq!((&told["mode"], &told["corrected"]), (&"adopt".into(), &false.into()));
    assert_eq!(scene.one.file("/etc/tuned.conf").as_deref(), Some("depth = 8\n"));
    assert_eq!(cli.run(&["drift", "--pool", "h100", "--exit-code"]).code, 2);
    assert!(cli.ok(&["status"]).contains("1 machine has drifted"));

    // Looking again makes it no younger.
    scene.one.kill();
    scene.one.run(&[]);
    until("the daemon is back", || scene.up.status()["nodes"]["connected"] == 1);
    assert_eq!(scene.drift_of(path)["firstSeen"], told["firstSeen"]);
    assert_eq!(scene.generation(), 1);

    // The edit is one line, and keeps the comments.
    let dir = scene.repo.dir().display().to_string();
    let adopt = ["adopt", &format!("node/{}", scene.name), "files./etc/tuned.conf", &dir];
    let diff = cli.ok(&adopt);
    assert!(diff.contains("-    content \"depth = 4\\n\" // as shipped"), "{diff}");
    assert!(diff.contains("+    content \"depth = 8\\n\" // as shipped"), "{diff}");
    assert_eq!(scene.repo.read("profiles/watched.kdl"), PROFILE, "nothing was written");
    assert!(cli.ok(&[&adopt[..], &["--write"]].concat()).contains("changed profiles/watched.kdl"));
    assert_eq!(scene.repo.read("profiles/watched.kdl"), PROFILE.replace("depth = 4", "depth = 8"));

    let commit = scene.repo.commit("what the night shift found");
    scene.up.wait_converged(&commit, 1);
    assert_eq!(scene.generation(), 2);
    until("nothing has drifted", || scene.drift().is_empty());
    assert_eq!(scene.one.file("/etc/tuned.conf").as_deref(), Some("depth = 8\n"));
    assert!(
        !scene.one.log().contains("wrote /etc/tuned.conf\n")
            || scene.one.log().matches("wrote /etc/tuned.conf").count() == 1
    );

    // Without the rule the file is enforced again.
    scene.repo.write(
        "profiles/watched.kdl",
        scene.repo.read("profiles/watched.kdl").replace("adopt ", "warn \"files./etc/none\" // "),
    );
    scene.up.wait_converged(&scene.repo.commit("enforced again"), 1);
    scene.foreign("/etc/tuned.conf", "depth = 9\n");
    assert_eq!(scene.drift_of(path)["corrected"], true);
    assert_eq!(scene.one.file("/etc/tuned.conf").as_deref(), Some("depth = 8\n"));
}

#[test]
fn a_daemon_says_whether_it_runs_and_both_programs_end_with_the_same_numbers() {
    let mut scene = scene();
    let (code, words) = scene.one.said(&["status"]);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("daemon          running, process "), "{words}");
    assert_eq!(scene.one.said(&["diff", "--exit-code"]).0, 0);
    scene.one.kill();
    let (_, words) = scene.one.said(&["status"]);
    assert!(words.contains("daemon          not running"), "{words}");
    fs::write(scene.one.root().join("etc/ours.conf"), "theirs\n").expect("written");
    fs::write(scene.one.root().join("etc/tuned.conf"), "theirs\n").expect("written");
    let (code, words) = scene.one.said(&["diff", "--exit-code"]);
    assert_eq!(code, 2, "{words}");
    assert!(words.contains("+ours") && words.contains("left alone: files./etc/tuned.conf.content (adopt)"), "{words}");

    let stranger = Node::new(&scene.world, "stranger");
    assert_eq!(stranger.said(&["status"]).0, 6, "no identity");
    let nobody = "https://127.0.0.1:9";
    let join = ["join", nobody, "--pin", &scene.up.pin(), "--token-file", "/dev/null", "--timeout", "1s"];
    assert_eq!(stranger.said(&join).0, 1, "an empty token is no token");
    let answer = scene.up.cli().command(&["status"]).env("BETTER_COMPUTE_URL", nobody).output().expect("runs");
    assert_eq!(answer.status.code(), Some(5));
    let token = scene.world.write("token", scene.up.token("h100", 1));
    let join =
        ["join", nobody, "--pin", &scene.up.pin(), "--token-file", &token.display().to_string(), "--timeout", "1s"];
    assert_eq!(stranger.said(&join).0, 5);
}
