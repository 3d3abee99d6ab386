//! Facts about the shape of a policy.

use super::*;
use crate::diagnostic::{Code, codes};

const GOOD: &str = r#"
policy {
    format 1
    epoch 1
}
principal "ada" {
    kind "human"
    roles "admin" "operator"
    groups "sre"
    key "ssh-ed25519 AAAA ada@laptop"
}
path "**" { roles "admin" }
tier "wipe" {
    commands "disk.wipe"
    roles "admin"
    threshold 2
    groups { sre 1 }
    keys "sk-ed25519"
    max-nodes 4
    max-ttl "4h"
}
trust { roles "admin"; threshold 1 }
"#;

fn codes_of(text: &str) -> Vec<Code> {
    let read = read(FILE, text.as_bytes(), Unknown::Refused);
    assert_eq!(read.document.is_some(), !read.diagnostics.iter().any(Diagnostic::is_error));
    read.diagnostics.into_iter().map(|found| found.code).collect()
}

#[test]
fn every_value_has_its_place() {
    let document = read(FILE, GOOD.as_bytes(), Unknown::Refused).document.expect("a policy");
    let ada = &document.principals[&Name::new("ada").expect("a name")];
    assert_eq!(ada.keys[0].value, "ssh-ed25519 AAAA ada@laptop");
    assert_eq!(ada.keys[0].at.to_string(), "trust/policy.kdl:10:9");
    assert_eq!(document.tiers[0].1.groups["sre"].value, 1);
    assert_eq!(document.tiers[0].1.max_ttl.to_string(), "4h");
}

#[test]
fn tiers_keep_the_order_in_which_they_are_written() {
    let second =
        "tier \"boot\" { commands \"node.reboot\"; roles \"admin\"; threshold 1; max-nodes 1; max-ttl \"1h\"; }\n";
    let document = read(FILE, format!("{GOOD}{second}").as_bytes(), Unknown::Refused).document.expect("a policy");
    let names: Vec<&str> = document.tiers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["wipe", "boot"]);
}

#[test]
fn what_is_not_of_the_shape_is_told_with_its_code() {
    let with = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        codes_of(&GOOD.replace(from, to))
    };
    assert_eq!(with("threshold 2", "threshold 0"), [codes::OUT_OF_RANGE]);
    assert_eq!(with("threshold 2", "threshold -1"), [codes::OUT_OF_RANGE]);
    assert_eq!(with("disk.wipe", "disk.melt"), [codes::UNKNOWN_WORD]);
    assert_eq!(with("kind \"human\"", "kind \"robot\""), [codes::UNKNOWN_WORD]);
    assert_eq!(with("format 1", "format 2"), [codes::OUT_OF_RANGE]);
    assert_eq!(with("epoch 1", "epoch 0"), [codes::OUT_OF_RANGE]);
    assert_eq!(with("trust {", "trusts {"), [codes::UNKNOWN_KEY]);
    assert_eq!(with("groups \"sre\"", "grupos \"sre\""), [codes::UNKNOWN_KEY]);
    assert_eq!(with("path \"**\"", "path \"../x\""), [codes::BAD_VALUE]);
    assert_eq!(with("principal \"ada\"", "principal \"Ada\""), [codes::BAD_NAME]);
    assert_eq!(codes_of(""), [codes::MISSING_KEY, codes::MISSING_KEY, codes::MISSING_KEY]);
    assert_eq!(codes_of(&"a {".repeat(5_000)), [codes::TOO_DEEP]);
    assert_eq!(
        codes_of(&format!("{GOOD}{}", GOOD.split_once("trust {").expect("the end").0)),
        [codes::DUPLICATE_KEY; 4]
    );
}

#[test]
fn what_must_be_looked_at_twice_is_seen_wherever_it_stands() {
    let file = |text: &'static str| Some(text.as_bytes());
    let profile = file("profile \"p\" {\n  sysctl { vm.swappiness \"10\"; }\n  unit \"a.service\" enabled=#true\n}\n");
    let calm =
        file("// moved\nprofile \"p\" {\n  sysctl { vm.swappiness \"60\"; }\n  unit \"a.service\" enabled=#true\n}\n");
    let loud = file("profile \"p\" {\n  sysctl { vm.swappiness \"10\"; }\n  unit \"b.service\" enabled=#true\n}\n");
    let hosts = Touched { hosts: true, ..Touched::default() };
    assert_eq!(touched("pools/x.kdl", profile, calm), Touched::default());
    assert_eq!(touched("pools/x.kdl", profile, loud), hosts);
    assert_eq!(touched("pools/x.kdl", None, profile), hosts);
    assert_eq!(touched("x.yaml", None, file("kind: profile\nname: p\nkernel:\n  modules: [a]\n")), hosts);
    assert_eq!(touched("t/motd.j2", file("a"), file("b")), hosts);
    assert_eq!(
        touched("x.yaml", None, file("kind: batch\nname: b\n")),
        Touched { batches: true, ..Touched::default() }
    );
    assert_eq!(touched("x.kdl", file("release \"r\""), None), Touched { releases: true, ..Touched::default() });
    assert_eq!(touched("x.kdl", None, file("site \"a\" {")), Touched::ALL, "what cannot be read may be anything");
    assert_eq!(touched("README.md", None, file("profile")), Touched::default());
}

#[test]
fn a_machine_that_is_older_than_its_policy_keeps_words_that_it_does_not_know() {
    let text = GOOD.replace("\"disk.wipe\"", "\"disk.wipe\" \"node.defrost\"");
    assert_ne!(text, GOOD);
    assert!(read(FILE, text.as_bytes(), Unknown::Refused).document.is_none());
    let document = read(FILE, text.as_bytes(), Unknown::Kept).document.expect("a policy");
    let commands: Vec<&str> =
        document.tiers.iter().flat_map(|(_, tier)| &tier.commands).map(|command| command.as_str()).collect();
    assert!(commands.contains(&"node.defrost"), "{commands:?}");
}

#[test]
fn a_later_format_is_known_as_one_whatever_it_holds() {
    let later = format!("{}\nwhatever \"x\" {{ comes later; }}\n", GOOD.replace("format 1", "format 2"));
    for unknown in [Unknown::Refused, Unknown::Kept] {
        let read = read(FILE, later.as_bytes(), unknown);
        assert_eq!(read.later_format, Some(2));
        assert!(read.document.is_none());
    }
    assert_eq!(read(FILE, GOOD.as_bytes(), Unknown::Refused).later_format, None);
}

#[test]
fn a_batch_is_found_however_its_name_is_written() {
    let kdl =
        |name: &str, reason: &str| format!("batch \"{name}\" {{ command \"node.reboot\"; reason \"{reason}\"; }}\n");
    let yaml = |name: &str| format!("kind: batch\nname: {name}\ncommand: node.reboot\nreason: a\n");
    let look = |path: &str, before: Option<&str>, after: Option<&str>| {
        let found = batch_touched(path, "kernel", before.map(str::as_bytes), after.map(str::as_bytes));
        (found.before, found.after, found.differs)
    };
    assert_eq!(look("b.kdl", None, Some(&kdl("k\\u{65}rnel", "a"))), (false, true, true));
    assert_eq!(look("b.kdl", Some(&kdl("k\\u{65}rnel", "a")), Some(&kdl("kernel", "a"))), (true, true, false));
    assert_eq!(look("b.kdl", Some(&kdl("k\\u{65}rnel", "a")), Some(&kdl("kernel", "b"))), (true, true, true));
    assert_eq!(look("b.yaml", None, Some(&yaml("\"\\x6bernel\""))), (false, true, true));
    assert_eq!(look("b.yaml", Some(&yaml("kernel")), None), (true, false, true));
    assert_eq!(look("b.kdl", Some(&kdl("other", "a")), Some(&kdl("other", "b"))), (false, false, false));
    assert_eq!(look("b.kdl", Some("batch \"kernel"), Some(&kdl("other", "b"))), (true, true, true), "unreadable");
    assert_eq!(look("b.txt", None, Some(&kdl("kernel", "a"))), (false, false, false));
}
