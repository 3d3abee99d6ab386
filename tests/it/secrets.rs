//! Secrets from end to end: put, on the machine, another value, and nowhere else.

use std::{fs, io::Write as _, os::unix::fs::MetadataExt as _, path::Path, process::Stdio};

use tests::{Node, Repo, Up, World, until};

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
            let holds = |value: &str| text.windows(value.len()).any(|window| window == value.as_bytes());
            if holds(FIRST) || holds(SECOND) {
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

    for words in [
        &["get", "node", &name, "--format", "json"][..],
        &["drift", &name, "--format", "json"],
        &["plan", "--format", "json"],
    ] {
        let said = up.cli().run(words);
        assert!(!format!("{said:?}").contains("hunter2"), "{words:?}");
    }
    assert!(!one.log().contains("hunter2"));
    let refused = up.cli().run(&["secrets", "delete", "ntp/key"]);
    assert!(format!("{refused:?}").contains("refer"), "{refused:?}");
    let _ = up.cli().ok(&["secrets", "delete", "ntp/key", "--force"]);
    assert_eq!(one.file("/etc/ntp.key").as_deref(), Some(SECOND), "what is there stays");

    one.kill();
    let none: [String; 0] = [];
    assert_eq!(holders(&one.root(), &file), none, "the machine's own files");
    assert_eq!(holders(up.data(), &file), none, "the control plane's files, its database and its logs");
}
