//! Facts about bundles of logs.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use schema::command::CommandKind;
use serde_json::{Value, json};

use super::*;
use crate::{
    command::Run as _,
    kind::testing::{Lab, body, described, failure, run as run_on, success},
};

const KIND: CommandKind = CommandKind::LogsCollect;

fn entry(bundle: &Path, name: &str) -> String {
    let output = Command::new("tar").arg("-xOf").arg(bundle).arg(name).output().expect("tar runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn part<'a>(result: &'a Value, name: &str) -> &'a Value {
    let parts = result["parts"].as_array().expect("parts");
    parts.iter().find(|part| part["name"] == name).unwrap_or_else(|| panic!("no {name} in {result}"))
}

fn path(result: &Value) -> PathBuf {
    result["path"].as_str().expect("a place").into()
}

#[test]
fn a_bundle_holds_the_journal_and_the_daemons_own_files_and_no_key() {
    let lab = Lab::new();
    lab.program("journalctl", "printf '%s ' \"$@\" >> $LAB/asked; echo >> $LAB/asked; echo 'a line'");
    lab.state().write("identity.json", b"{\"node\":1}\n").expect("written");
    lab.state().write("node.key", b"secret").expect("written");
    let result = success(KIND, lab.run(KIND, json!({"since": "1h"})));
    let bundle = path(&result);
    assert_eq!(entry(&bundle, "journal.txt"), "a line\n");
    assert_eq!(entry(&bundle, "bcd/identity.json"), "{\"node\":1}\n");
    let content = fs::read(&bundle).expect("there");
    assert!(!content.windows(6).any(|bytes| bytes == b"secret"));
    assert_eq!(result["bytes"], json!(content.len()));
    assert_eq!(result["digest"], json!(schema::digest::Digest::of(&content)));
    assert_eq!(fs::metadata(&bundle).expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(bundle.parent().expect("a directory")).expect("there").permissions().mode() & 0o777, 0o700);
    let hour_ago = crate::testing::now().as_second() - 3600;
    assert_eq!(lab.said("asked").trim(), format!("--no-pager --quiet --output=short-iso-precise --since=@{hour_ago}"));
}

#[test]
fn named_units_come_with_the_kernel_and_the_daemon() {
    let lab = Lab::new();
    lab.program("journalctl", "printf '%s ' \"$@\" >> $LAB/asked; echo >> $LAB/asked; echo x");
    let result = success(KIND, lab.run(KIND, json!({"units": ["kubelet.service"]})));
    let asked = lab.said("asked");
    let ends: Vec<&str> = asked.lines().map(|line| line.split_once(" --boot ").expect("this boot").1.trim()).collect();
    assert_eq!(ends, ["--unit=bcd.service", "--dmesg", "--unit=kubelet.service"]);
    for name in ["bcd.txt", "kernel.txt", "journal.txt"] {
        assert_eq!(part(&result, name)["bytes"], json!(2));
    }
}

#[test]
fn a_long_journal_loses_its_oldest_lines() {
    let lab = Lab::new();
    lab.program("journalctl", "seq -f 'line %.0f' 1 200000");
    let result = success(KIND, lab.run(KIND, json!({"maxBytes": 100_000})));
    assert_eq!(result["truncated"], json!(true));
    assert!(result["bytes"].as_u64().is_some_and(|bytes| bytes <= 100_000), "{result}");
    let text = entry(&path(&result), "journal.txt");
    assert!(text.starts_with("line ") && text.ends_with("line 200000\n") && text.len() > 80_000);
    let journal = part(&result, "journal.txt");
    assert_eq!(
        journal["bytes"].as_u64().expect("a number") + journal["leftOut"].as_u64().expect("a number"),
        2_288_895
    );
}

#[test]
fn what_is_not_there_is_said_in_the_bundle() {
    let mut lab = Lab::new();
    let problem = |lab: &Lab| {
        let result = success(KIND, lab.run(KIND, Value::Null));
        (part(&result, "journal.txt")["problem"].as_str().unwrap_or_default().to_owned(), result)
    };
    assert!(problem(&lab).0.starts_with("program-missing"));
    lab.program("journalctl", "echo half; echo 'No journal files were found.' >&2; exit 1");
    let (said, result) = problem(&lab);
    assert_eq!(said, "No journal files were found.");
    assert_eq!(entry(&path(&result), "journal.txt"), "half\n");
    lab.patience(Duration::from_millis(100));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let result = success(KIND, run_on(&described(dir.path(), ""), KIND, Value::Null));
    assert_eq!(part(&result, "journal.txt")["problem"], "a described machine has no journal");
}

#[test]
fn a_few_bundles_are_kept_and_nothing_that_was_interrupted() {
    let lab = Lab::new();
    lab.program("journalctl", "echo x");
    let bundles = lab.dir.path().join("state/bundles");
    fs::create_dir_all(bundles.join("cmd_left.parts/0")).expect("made");
    let made: Vec<PathBuf> = (0..5).map(|_| path(&success(KIND, lab.run(KIND, Value::Null)))).collect();
    let mut kept: Vec<PathBuf> =
        fs::read_dir(&bundles).expect("there").map(|entry| entry.expect("read").path()).collect();
    kept.sort();
    assert_eq!(kept, made[2..]);
}

#[test]
fn a_cancel_ends_the_collection_and_leaves_nothing() {
    let lab = Lab::new();
    lab.program("journalctl", "echo > $LAB/begun; yes");
    let begun = lab.pipe("begun");
    let (context, handle) = Context::for_test(body(KIND, Value::Null));
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| lab.machine().run(&context));
        fs::read(begun).expect("read");
        handle.cancel();
        running.join().expect("ran")
    });
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    assert_eq!(fs::read_dir(lab.dir.path().join("state/bundles")).expect("there").count(), 0);
}

/// A place that takes one PUT and answers so.
fn place(answer: &'static str) -> (String, thread::JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}/bucket/x?signature=key", listener.local_addr().expect("an address"));
    let taken = thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a peer");
        let mut bytes = Vec::new();
        let mut piece = [0; 65536];
        loop {
            let length = peer.read(&mut piece).expect("read");
            bytes.extend_from_slice(&piece[..length]);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some(end) = text.find("\r\n\r\n") else { continue };
            let head = text[..end].to_ascii_lowercase();
            let long = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
            if bytes.len() >= end + 4 + long.trim().parse::<usize>().expect("a number") {
                write!(peer, "HTTP/1.1 {answer}\r\nContent-Length: 6\r\nConnection: close\r\n\r\nanswer")
                    .expect("written");
                return (text[..end].to_owned(), bytes[end + 4..].to_vec());
            }
        }
    });
    (url, taken)
}

/// Collects a bundle and sends it there, as a command does that names a place over TLS.
fn upload(lab: &Lab, url: &str, during: impl FnOnce(&dyn Fn())) -> Outcome {
    pki::install_provider();
    let result = success(KIND, lab.run(KIND, Value::Null));
    let bundle: LogBundle = serde_json::from_value(result).expect("a bundle");
    let path = PathBuf::from(bundle.path.clone().expect("a place"));
    let (context, handle) = Context::for_test(body(KIND, Value::Null));
    let to = Upload { url: url.to_owned(), max_bytes: None, object: Some("s3://bundles/one.tar".to_owned()) };
    thread::scope(|scope| {
        let sent = scope.spawn(|| send(&context, &path, LogBundle { path: None, ..bundle }, &to));
        during(&|| handle.cancel());
        let outcome = sent.join().expect("ran");
        assert_eq!(handle.effects(), ["upload"]);
        outcome.unwrap_or_else(Outcome::from)
    })
}

#[test]
fn a_bundle_is_uploaded_with_its_length_and_goes_from_the_machine() {
    let lab = Lab::new();
    lab.program("journalctl", "head -c 3000000 /dev/zero | tr '\\0' 'x'");
    let (url, taken) = place("200 OK");
    let result = success(KIND, upload(&lab, &url, |_| {}));
    let (head, content) = taken.join().expect("taken");
    assert!(head.starts_with("PUT /bucket/x?signature=key "), "{head}");
    assert_eq!((&result["uploaded"], result.get("path")), (&json!(true), None));
    assert_eq!(result["object"], json!("s3://bundles/one.tar"));
    assert_eq!(result["digest"], json!(schema::digest::Digest::of(&content)));
    assert_eq!(fs::read_dir(lab.dir.path().join("state/bundles")).expect("there").count(), 0);
}

#[test]
fn a_place_that_does_not_take_it_is_told_without_its_key_and_the_bundle_stays() {
    let lab = Lab::new();
    lab.program("journalctl", "echo x");
    let (url, _taken) = place("403 Forbidden");
    let (reason, message, result) = failure(upload(&lab, &url, |_| {}));
    assert_eq!(reason, Reason::UPLOAD_FAILED);
    assert!(message.contains("403") && !message.contains("signature"), "{message}");
    assert!(path(&result.expect("a result")).exists());
    let (_, message, _) = failure(upload(&lab, "http://127.0.0.1:1/x?signature=key", |_| {}));
    assert!(!message.contains("signature"), "{message}");
}

#[test]
fn a_cancel_ends_an_upload_that_nobody_takes() {
    let lab = Lab::new();
    lab.program("journalctl", "echo x");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}/x", listener.local_addr().expect("an address"));
    let mut peer = None;
    let outcome = upload(&lab, &url, |cancel| {
        peer = listener.accept().ok();
        cancel();
    });
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
}

#[test]
fn a_command_that_names_a_place_without_tls_sends_nothing() {
    let lab = Lab::new();
    lab.program("journalctl", "echo x");
    let mut order = body(KIND, Value::Null);
    order.payload = json!({"maxBytes": 100_000, "units": [], "upload": {"url": "http://127.0.0.1:1/x"}});
    let (context, handle) = Context::for_test(order);
    assert_eq!(failure(lab.machine().run(&context)).0, Reason::FAILED);
    assert!(handle.effects().is_empty());
}
