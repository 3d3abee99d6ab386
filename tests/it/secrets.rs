//! Secrets from end to end: put, on the machine, another value, and nowhere else.

use std::{fs, io::Write as _, os::unix::fs::MetadataExt as _, path::Path, process::Stdio};

use tests::{Apart, Node, Repo, Up, World, process, until};

const FIRST: &str = "hunter2-hunter2-one";
const SECOND: &str = "hunter2-hunter2-two";
pub(crate) const PROFILE: &str = "\
profile \"keyed\" {
  extends \"h100-host\"
  file \"/etc/ntp.key\" { secret \"secret://ntp/key\"; }
}
";

pub(crate) fn put(up: &Up, name: &str, value: &str) {
    let mut command = up.cli().command(&["secrets", "put", name]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
    child.stdin.take().expect("piped").write_all(value.as_bytes()).expect("written");
    assert!(child.wait().expect("ended").success());
}

fn holds(bytes: &[u8]) -> bool {
    [FIRST, SECOND].iter().any(|value| bytes.windows(value.len()).any(|window| window == value.as_bytes()))
}

fn has_bundle(dir: &Path) -> bool {
    fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() { has_bundle(&path) } else { path.extension().is_some_and(|end| end == "tar") }
    })
}

/// Every file below a directory that holds one of the values, but the one that it is for.
fn holders(dir: &Path, but: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            found.extend(holders(&path, but));
        } else if kind.is_file() && path != but {
            let text = fs::read(&path).unwrap_or_default();
            if holds(&text) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn a_secret_gets_to_its_machine_and_nowhere_else() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    repo.write("profiles/keyed.kdl", PROFILE);
    repo.write("pools/h100.kdl", repo.read("pools/h100.kdl").replace("profile \"h100-host\"", "profile \"keyed\""));
    let commit = repo.commit("keyed");
    let up = Up::start(&world, "up", repo.dir());
    let mut one = Node::running(&world, "one", &up, "h100");
    up.wait_applied(&commit);
    let name = up.nodes()[0]["name"].as_str().expect("a name").to_owned();
    until("the spec waits for the secret", || up.node(&name).to_string().contains("secret-missing"));

    put(&up, "ntp/key", FIRST);
    up.wait_converged(&commit, 1);
    let file = one.root().join("etc/ntp.key");
    assert_eq!(one.file("/etc/ntp.key").as_deref(), Some(FIRST));
    assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o600);

    put(&up, "ntp/key", SECOND);
    until("the next value is there", || one.file("/etc/ntp.key").as_deref() == Some(SECOND));

    // What something else wrote is put right, with a value that is asked for again.
    one.kill();
    fs::write(&file, "mine").expect("written");
    one.run(&[]);
    until("it is put right", || one.file("/etc/ntp.key").as_deref() == Some(SECOND));

    let node = format!("node/{name}");
    for words in [
        &["get", "node", &name, "--format", "json"][..],
        &["drift", &name, "--format", "json"],
        &["why", &node],
        &["plan", "--format", "json"],
        &["api", "events.list"],
        &["secrets", "list"],
    ] {
        let said = up.cli().run(words);
        assert!(!format!("{said:?}").contains("hunter2"), "{words:?}");
    }
    let mut diff = process::command("bcd");
    diff.arg("diff").arg("--state").arg(one.state()).arg("--root").arg(one.root());
    let (code, out, err) = process::output(diff);
    assert!(!format!("{out}{err}").contains("hunter2"), "{code}: {out}{err}");
    assert!(!out.is_empty(), "{code}: {err}");
    let said = up.cli().ok(&["run", "logs.collect", &name]);
    assert!(!said.contains("hunter2"), "{said}");
    assert!(has_bundle(&one.state()), "a bundle stays on its machine: {said}");
    assert!(!one.log().contains("hunter2"));
    let refused = up.cli().run(&["secrets", "delete", "ntp/key"]);
    assert!(format!("{refused:?}").contains("refer"), "{refused:?}");
    let _ = up.cli().ok(&["secrets", "delete", "ntp/key", "--force"]);
    assert_eq!(one.file("/etc/ntp.key").as_deref(), Some(SECOND), "what is there stays");

    one.kill();
    let none: [String; 0] = [];
    assert_eq!(holders(&one.root(), &file), none, "the machine's own files");
    assert_eq!(holders(&one.state(), &file), none, "its journal, its state and its bundles of logs");
    assert_eq!(holders(up.data(), &file), none, "the control plane's files, its database and its logs");
}

#[test]
fn a_gateway_apart_carries_what_it_cannot_read() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    repo.write("profiles/keyed.kdl", PROFILE);
    repo.write("pools/h100.kdl", repo.read("pools/h100.kdl").replace("profile \"h100-host\"", "profile \"keyed\""));
    repo.commit("keyed");
    let apart = Apart::start(&world, &repo, 1);
    let mut command = apart.cli().command(&["secrets", "put", "ntp/key"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
    child.stdin.take().expect("piped").write_all(FIRST.as_bytes()).expect("written");
    assert!(child.wait().expect("ended").success());
    let mut node = Node::new(&world, "one");
    let url = format!("https://{}", apart.gateways[0].address);
    let (code, words) = node.join(&url, &apart.pin(), &apart.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    node.run(&[]);
    until("the value is there", || node.file("/etc/ntp.key").as_deref() == Some(FIRST));
    assert!(!apart.gateways[0].process.log().contains("hunter2"));
}
