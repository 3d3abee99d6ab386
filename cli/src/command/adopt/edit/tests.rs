//! Facts about taking values over: adopt then load is exactly what the machine has, and nothing else.

use proptest::prelude::*;
use schema::{
    digest::Digest,
    report::{DriftCause, DriftMode},
};

use super::*;

const FLEET: &str = "fleet {\n  format 1\n  trust-domain \"bc.local\"\n}\n";
const SITE: &str = "site \"fra1\" {\n  region \"eu\"\n}\n";
const POOL: &str = "pool \"h100\" {\n  site \"fra1\"\n  class \"metal-host\"\n  profile \"gpu\"\n}\n";

const KDL: &str = r#"// Hosts with GPUs.
profile "base" {
  sysctl {
    vm.swappiness 1 // swap is for laptops
    net.core.rmem_max "134217728"
  }
  package {
    cuda "12.4*" /* pinned */
  }
}
profile "gpu" {
  extends "base"
  hugepages {
    "2MiB" 128
  }
  file "/etc/motd" {
    // What people see.
    content "hello\n"
    mode "0644"
  }
  file "/etc/long" {
    content """
      one
      two
      """
    owner "root" // as ever
  }
  file "/etc/made" template="made.j2"
  unit "x.service" {
    enable #true
    state "started"
  }
}
"#;

const YAML: &str = r#"# Hosts with GPUs.
kind: profile
name: base
sysctl:
  vm.swappiness: 1 # swap is for laptops
  net.core.rmem_max: "134217728"
package:
  cuda: '12.4*' # pinned
---
kind: profile
name: gpu
extends: base
hugepages:
  2MiB: 128
file:
  /etc/motd:
    # What people see.
    content: "hello\n"
    mode: "0644"
  /etc/long:
    content: |
      one
      two
    owner: root # as ever
  /etc/made: {template: made.j2}
unit:
  x.service:
    enable: true
    state: started
"#;

fn sources(file: &str, profiles: &str) -> Sources {
    let mut sources = Sources::default();
    for (path, text) in [
        ("fleet.kdl", FLEET),
        ("sites/fra1.kdl", SITE),
        ("pools/h100.kdl", POOL),
        (file, profiles),
        ("made.j2", "made for {{ node.name }}\n"),
    ] {
        sources.insert_file(path, text.as_bytes());
    }
    sources
}

fn both() -> [(Sources, &'static str, &'static str); 2] {
    [
        (sources("profiles/gpu.kdl", KDL), "profiles/gpu.kdl", KDL),
        (sources("profiles/gpu.yaml", YAML), "profiles/gpu.yaml", YAML),
    ]
}

fn machine() -> Machine {
    Machine { name: "gpu-1".to_owned(), pool: Some("h100".to_owned()) }
}

fn entry(path: &str, observed: &str) -> DriftEntry {
    DriftEntry {
        path: path.to_owned(),
        mode: DriftMode::Adopt,
        kind: DriftKind::Changed,
        cause: DriftCause::WhileRunning,
        observed: Some(observed.to_owned()),
        observed_digest: Some(Digest::of(observed)),
        observed_bytes: Some(observed.len() as u64),
        desired: None,
        first_seen: "2026-11-29T12:00:00Z".parse().unwrap(),
        last_seen: "2026-11-29T12:00:00Z".parse().unwrap(),
        corrected: false,
        times: 1,
    }
}

fn spec(sources: &Sources) -> NodeSpec {
    let loaded = fleet::load(sources);
    let fleet = loaded.fleet.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    machine().spec(&fleet).expect("composes")
}

fn text(sources: &Sources, file: &str) -> String {
    match sources.get(file) {
        Some(SourceBlob::Bytes(bytes)) => String::from_utf8(bytes.to_vec()).expect("text"),
        _ => panic!("{file}"),
    }
}

/// The spec that says what a machine has is the one that leaves nothing to do.
fn check(before: &Sources, file: &str, path: &str, observed: &str) {
    let mut after = before.clone();
    let edit = adopt(&mut after, &machine(), &entry(path, observed), None)
        .unwrap_or_else(|failure| panic!("{file} {path} {observed:?}: {failure} {:?}", failure.hint));
    assert_eq!(&*edit.file, file);
    let mut wanted = fields(&spec(before));
    assert!(wanted.insert(path.to_owned(), observed.to_owned()).is_some(), "{path} is no field");
    assert_eq!(fields(&spec(&after)), wanted);
    // Every other file is untouched, and so is every comment of this one.
    for (other, blob) in before.iter().filter(|(other, _)| &***other != file) {
        assert_eq!(after.get(other), Some(blob));
    }
    let (was, is) = (text(before, file), text(&after, file));
    for comment in ["Hosts with GPUs.", "swap is for laptops", "pinned", "What people see.", "as ever"] {
        assert!(was.contains(comment) && is.contains(comment), "{comment} is gone:\n{is}");
    }
}

#[test]
fn every_kind_of_value_is_taken_over_in_both_syntaxes() {
    for (sources, file, _) in both() {
        for (path, observed) in [
            ("sysctl.vm.swappiness", "10"),
            ("sysctl.net.core.rmem_max", "4096 87380 6291456"),
            ("packages.cuda", "12.6.1-1"),
            ("hugepages.2MiB", "64"),
            ("files./etc/motd.content", "mine: # \"quoted\" \\ and\n\tmore\n"),
            ("files./etc/motd.content", ""),
            ("files./etc/motd.mode", "0600"),
            ("files./etc/long.content", "one\ntwo\nthree\n"),
            ("files./etc/long.owner", "nobody"),
            // What was the language's own default is written down.
            ("files./etc/long.mode", "0600"),
            ("files./etc/long.group", "adm"),
            ("files./etc/made.mode", "0640"),
            ("units.x.service.enabled", "false"),
            ("units.x.service.state", "stopped"),
        ] {
            check(&sources, file, path, observed);
        }
    }
}

#[test]
fn an_edit_reads_as_a_person_would_have_written_it() {
    let [(kdl, kdl_file, was), (yaml, yaml_file, was_yaml)] = both();
    let edited = |sources: &Sources, file: &str, path: &str, observed: &str| {
        let mut after = sources.clone();
        adopt(&mut after, &machine(), &entry(path, observed), None).unwrap();
        text(&after, file)
    };
    let motd = "files./etc/motd.content";
    assert_eq!(edited(&kdl, kdl_file, motd, "mine\n"), was.replace("hello", "mine"));
    assert_eq!(edited(&yaml, yaml_file, motd, "mine\n"), was_yaml.replace("hello", "mine"));
    let long = "files./etc/long.content";
    assert_eq!(edited(&kdl, kdl_file, long, "one\n2\n"), was.replace("      two\n", "      2\n"));
    assert_eq!(edited(&yaml, yaml_file, long, "one\n2\n"), was_yaml.replace("      two\n", "      2\n"));
    let swap = "sysctl.vm.swappiness";
    assert_eq!(edited(&kdl, kdl_file, swap, "10"), was.replace("swappiness 1 ", "swappiness 10 "));
    assert_eq!(edited(&yaml, yaml_file, swap, "10"), was_yaml.replace("swappiness: 1 ", "swappiness: 10 "));
}

#[test]
fn a_value_of_a_lower_layer_is_edited_where_it_is_written() {
    for (sources, _, _) in both() {
        let mut after = sources.clone();
        let edit = adopt(&mut after, &machine(), &entry("sysctl.vm.swappiness", "10"), None).unwrap();
        assert_eq!(edit.layer, "profile/base");
        adopt(&mut sources.clone(), &machine(), &entry("sysctl.vm.swappiness", "10"), Some("profile/base")).unwrap();
        let refused =
            adopt(&mut sources.clone(), &machine(), &entry("sysctl.vm.swappiness", "10"), Some("profile/gpu"));
        assert!(refused.unwrap_err().message.contains("profile/base says"));
    }
}

fn refused(sources: &Sources, entry: &DriftEntry) -> (String, String) {
    let mut after = sources.clone();
    let failure = adopt(&mut after, &machine(), entry, None).unwrap_err();
    assert_eq!(&after, sources, "a refusal changes nothing");
    (failure.message, failure.hint.unwrap_or_default())
}

#[test]
fn what_cannot_be_taken_over_says_where_a_person_can() {
    for (sources, file, _) in both() {
        let (message, hint) = refused(&sources, &entry("files./etc/made.content", "x"));
        assert!(message.contains("made by the template made.j2") && message.contains(file), "{message}");
        assert!(hint.contains("change made.j2"), "{hint}");

        let gone = DriftEntry { kind: DriftKind::Removed, observed: None, ..entry("files./etc/motd", "") };
        let (message, hint) = refused(&sources, &gone);
        assert!(message.contains("is gone on gpu-1") && hint.contains(file), "{message} {hint}");

        let secret = DriftEntry { observed: None, ..entry("files./etc/motd.content", "x") };
        assert!(refused(&sources, &secret).0.contains("only its digest"));
        // The language ends every text with a line end.
        let unended = refused(&sources, &entry("files./etc/long.content", "no end of line"));
        assert!(unended.0.contains("cannot be said by a fleet file"), "{}", unended.0);
        assert!(refused(&sources, &entry("sysctl", "x")).0.contains("nothing in the fleet repository says"));
    }
}

#[test]
fn a_machine_that_the_files_do_not_know_is_said() {
    let (sources, _, _) = &both()[0];
    let stranger = Machine { name: "x".to_owned(), pool: Some("other".to_owned()) };
    let failure = adopt(&mut sources.clone(), &stranger, &entry("sysctl.vm.swappiness", "1"), None).unwrap_err();
    assert!(failure.message.contains("neither a machine x nor its pool"), "{failure}");
}

fn text_of_a_file() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", " ", "\n", "\n\n", "\t", "  x", "#", ": ", "\"", "'", "\\", "\"\"\"", "---\n", "{{ x }}", "é", "|", "- ",
        "//", "/*", "#\"", "%", "&", "*", "!", "@", "\r\n", "null", "true", "0644", "1e3",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Adopt then load is the observed value, whatever it is, or a refusal that changes nothing.
    #[test]
    fn what_is_adopted_is_what_is_loaded(observed in text_of_a_file(), long in any::<bool>()) {
        let path = if long { "files./etc/long.content" } else { "files./etc/motd.content" };
        for (sources, file, _) in both() {
            let mut after = sources.clone();
            match adopt(&mut after, &machine(), &entry(path, &observed), None) {
                Ok(_) => check(&sources, file, path, &observed),
                Err(failure) => {
                    prop_assert_eq!(&after, &sources);
                    // Line ends of another kind, and none at the end, are all that a fleet file cannot hold.
                    let holds = !observed.contains('\r') && (observed.is_empty() || observed.ends_with('\n'));
                    prop_assert!(!holds, "{}: {:?}", failure.message, observed);
                }
            }
        }
    }
}
