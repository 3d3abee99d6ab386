//! What is written and says nothing is an error where it would mean nothing, or everything; and so is what ends the
//! daemon or the machine's run.

use super::support::{found, text, tree};
use crate::{diagnostic::codes, fleet::load};

const FREEZE: &str = "reason \"x\"; owner \"y\"; from \"2026-12-01T00:00:00Z\"; until \"2026-12-02T00:00:00Z\"";
const BATCH: &str = "command \"node.reimage\"; reason \"x\"; expires \"2027-01-01T00:00:00Z\"";
const IMAGE: &str = "url \"https://i.example/u\"; arch \"amd64\"; digest \"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"";

/// One object in both syntaxes, with one key that is there and empty.
fn cases() -> Vec<(String, String)> {
    let base = "site \"s\"\nprofile \"h\"\n";
    let kdl = |text: String| format!("{base}{text}\n");
    let yaml = |kind: &str, rest: &str| format!("kind: {kind}\nname: x\n{rest}\n");
    let freeze = "reason: x\nowner: y\nfrom: 2026-12-01T00:00:00Z\nuntil: 2026-12-02T00:00:00Z";
    let batch = "command: node.reimage\nreason: x\nexpires: 2027-01-01T00:00:00Z";
    let pool = "site: s\nprofile: h";
    let waves = "wave: [{nodes: 1}, {percent: 100%}]";
    let image = "url: https://i.example/u\narch: amd64\ndigest: sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let mut cases = vec![
        (kdl(format!("freeze \"x\" {{ scope; {FREEZE} }}")), yaml("freeze", &format!("scope: []\n{freeze}"))),
        (
            kdl(format!("freeze \"x\" {{ scope \"site/s\"; days; zone \"UTC\"; {FREEZE} }}")),
            yaml("freeze", &format!("scope: [site/s]\ndays: []\nzone: UTC\n{freeze}")),
        ),
        (
            kdl("access \"x\" issuer=\"https://i.example\" policy=\"a.cedar\" { claims }".to_owned()),
            yaml("access", "issuer: https://i.example\nclaims: {}\npolicy: [a.cedar]"),
        ),
        (kdl("access \"x\" token=\"ci\" { policy }".to_owned()), yaml("access", "token: [ci]\npolicy: []")),
        (kdl("access \"x\" policy=\"a.cedar\" { token }".to_owned()), yaml("access", "token: []\npolicy: [a.cedar]")),
        (
            kdl("rollout \"x\" { wave nodes=1; wave percent=\"100%\"; gate }".to_owned()),
            yaml("rollout", &format!("{waves}\ngate: []")),
        ),
        (
            kdl("rollout \"x\" { wave { selector }; wave percent=\"100%\" }".to_owned()),
            yaml("rollout", "wave: [{selector: {}}, {percent: 100%}]"),
        ),
        (kdl(format!("image \"x\" {{ {IMAGE}; signed-by }}")), yaml("image", &format!("{image}\nsigned-by: []"))),
        (
            kdl("profile \"x\" { file \"/etc/a\" content=\"\" { restart } }".to_owned()),
            yaml("profile", "file: {/etc/a: {content: \"\", restart: []}}"),
        ),
        (kdl("profile \"x\" { drift { warn } }".to_owned()), yaml("profile", "drift: {warn: []}")),
        (kdl("profile \"x\" { without { file } }".to_owned()), yaml("profile", "without: {file: []}")),
    ];
    for key in ["nodes", "pools", "sites", "selector"] {
        let empty = if key == "selector" { "{}" } else { "[]" };
        cases.push((
            kdl(format!("batch \"x\" {{ {BATCH}; scope {{ {key} }} }}")),
            yaml("batch", &format!("{batch}\nscope: {{{key}: {empty}}}")),
        ));
    }
    for (key, empty) in [("tenants", "[]"), ("mig", "{}")] {
        cases.push((
            kdl(format!("pool \"x\" site=\"s\" profile=\"h\" {{ policy {{ {key} }} }}")),
            yaml("pool", &format!("{pool}\npolicy: {{{key}: {empty}}}")),
        ));
    }
    cases
}

#[test]
fn what_is_written_and_empty_is_an_error_in_both_syntaxes() {
    for (kdl, yaml) in cases() {
        for files in [vec![("x.kdl", &*kdl)], vec![("b.kdl", "site \"s\"\nprofile \"h\"\n"), ("x.yaml", &*yaml)]] {
            let loaded = load(&tree(&files));
            let told = loaded.diagnostics.iter().filter(|found| found.code == codes::BAD_VALUE).count();
            assert!(told == 1 && loaded.fleet.is_none(), "{}\n{}", files.last().expect("a file").1, text(&loaded));
        }
    }
}

#[test]
fn an_empty_brake_of_the_fleet_is_an_error() {
    for brake in ["prune", "apply"] {
        let kdl = format!("fleet \"t\" {{ format 1; trust-domain \"t.example\"; {brake} }}\n");
        assert_eq!(found(&[("fleet.kdl", &kdl)]), [codes::BAD_VALUE], "{brake}");
        let yaml = format!("kind: fleet\nname: t\nformat: 1\ntrust-domain: t.example\n{brake}: {{}}\n");
        assert_eq!(found(&[("fleet.yaml", &yaml)]), [codes::BAD_VALUE], "{brake}");
    }
}

/// Things with names that have none.
#[test]
fn an_empty_mapping_by_name_is_an_error() {
    let base = ("b.kdl", "site \"s\"\nprofile \"h\"\n");
    for text in [
        "kind: pool\nname: x\nsite: s\nprofile: h\npolicy: {acceptance: {}}\n",
        "kind: pool\nname: x\nsite: s\nprofile: h\npolicy: {acceptance: []}\n",
        "kind: release\nname: x\nversion: 0.1.0\nsignature: https://r.example/s\nartifact: {}\n",
    ] {
        assert_eq!(found(&[base, ("x.yaml", text)]), [codes::WRONG_TYPE], "{text}");
    }
    let root = "kind: fleet\nname: t\nformat: 1\ntrust-domain: t.example\nfreeze: {}\n";
    assert_eq!(found(&[("fleet.yaml", root)]), [codes::WRONG_TYPE]);
}

/// A freeze ends, and a window is a time of the week.
#[test]
fn a_zone_alone_is_no_window() {
    let in_kdl = [
        "freeze \"x\" { scope \"site/s\"; reason \"x\"; owner \"y\"; zone \"Europe/Berlin\" }\n".to_owned(),
        format!("freeze \"x\" {{ scope \"site/s\"; zone \"Europe/Berlin\"; {FREEZE} }}\n"),
        "rollout \"x\" { wave percent=\"100%\"; window { zone \"UTC\" } }\n".to_owned(),
    ];
    for text in in_kdl {
        assert_eq!(found(&[("x.kdl", &format!("site \"s\"\n{text}"))]), [codes::MISSING_KEY], "{text}");
    }
    let in_yaml = [
        "kind: freeze\nname: x\nscope: [site/s]\nreason: x\nowner: y\nzone: Europe/Berlin\n",
        "kind: rollout\nname: x\nwave: [{percent: 100%}]\nwindow: {zone: UTC}\n",
    ];
    for text in in_yaml {
        assert_eq!(found(&[("b.kdl", "site \"s\"\n"), ("x.yaml", text)]), [codes::MISSING_KEY], "{text}");
    }
}

/// What was wrong is told once, and not missed as well.
#[test]
fn a_wrong_value_is_not_an_empty_key() {
    let text = format!("freeze \"x\" {{ scope \"bogus\"; {FREEZE} }}\n");
    assert_eq!(found(&[("x.kdl", &text)]), [codes::BAD_VALUE]);
    let text = "pool \"x\" site=\"s\" profile=\"h\" { policy { tenants 5 } }\nsite \"s\"\nprofile \"h\"\n";
    assert_eq!(found(&[("x.kdl", text)]), [codes::QUOTE_IT]);
}

#[test]
fn what_ends_the_daemon_or_the_run_is_refused_in_both_syntaxes() {
    for unit in ["bcd.service", "reboot.target", "poweroff.target", "rescue.target", "systemd-reboot.service"] {
        let kdl = [
            format!("unit \"{unit}\" state=\"started\""),
            format!("unit \"{unit}\" enable=#true"),
            format!("unit \"{unit}\" content=\"x\""),
            format!("file \"/etc/a\" content=\"x\" {{ restart \"{unit}\" }}"),
        ];
        for text in kdl {
            assert_eq!(found(&[("x.kdl", &format!("profile \"x\" {{ {text} }}\n"))]), [codes::BAD_HOST], "{text}");
        }
        let yaml = [
            format!("unit: {{{unit}: {{state: started}}}}"),
            format!("file: {{/etc/a: {{content: x, restart: [{unit}]}}}}"),
        ];
        for text in yaml {
            assert_eq!(found(&[("x.yaml", &format!("kind: profile\nname: x\n{text}\n"))]), [codes::BAD_HOST], "{text}");
        }
    }
    let text = "profile \"x\" { file \"/etc/systemd/system/bcd.service\" content=\"x\" }\n";
    assert_eq!(found(&[("x.kdl", text)]), [codes::BAD_HOST]);
}
