//! Every diagnostic: its code, its place and its text.

use std::collections::BTreeSet;

use super::support::{found, text, tree};
use crate::{
    diagnostic::{Severity, codes, codes::Code},
    fleet::{Limits, SourceBlob, Sources, load, load_with},
};

const SITE: (&str, &str) = ("s.kdl", "site \"fra1\"\n");
const PROFILE: (&str, &str) = ("base.kdl", "profile \"base\"\n");
const POOL: (&str, &str) = ("h100.kdl", "pool \"h100\" site=\"fra1\" profile=\"base\"\n");

const FREEZE_BACKWARDS: &str = "freeze \"year-end\" {
  scope \"node/n1\"
  reason \"nobody is here\"
  owner \"ops\"
  from \"2027-01-04T06:00:00Z\"
  until \"2026-12-20T18:00:00Z\"
}
node \"n1\"
";

/// A code and the smallest tree that yields it and nothing else.
fn table() -> Vec<(Code, Vec<(&'static str, &'static str)>)> {
    let fleet = |text| vec![("fleet.kdl", text)];
    let one = |path, text| vec![(path, text)];
    let host = |text| vec![("p.kdl", text)];
    vec![
        (codes::SECOND_ROOT, one("eu/fleet.yaml", "kind: fleet\n")),
        (codes::SECOND_ROOT, one("other.kdl", "fleet \"x\" { format 1; trust-domain \"x.example\" }\n")),
        (codes::NO_ROOT, fleet("site \"fra1\"\n")),
        (codes::CONTROL_CHARACTER, one("s.kdl", "site \"fra\u{0}1\"\n")),
        (codes::CONTROL_CHARACTER, one("s.yaml", "kind: site\n\u{feff}name: x\n")),
        (codes::CONTROL_CHARACTER, one("s.kdl", "site \"fra1\" region=\"a\u{202e}b\" {\n  labels a=\"\u{2066}\"\n}\n")),
        (codes::CONTROL_CHARACTER, one("s.yaml", "kind: site\nname: fra1\nregion: a\u{202e}b\n")),
        (codes::CONTROL_CHARACTER, one("s.kdl", "site \"fra1\" // one\u{2028}{ region \"two\"; }\n")),
        (codes::CONTROL_CHARACTER, one("s.yaml", "kind: site # one\rname: fra1\n")),
        (codes::CONTROL_CHARACTER, one("s.kdl", "site \"fra1\" // a\u{200b}b c\u{200d}d\n")),
        (codes::BOM_OR_CRLF, one("s.kdl", "\u{feff}site \"fra1\"\r\n")),
        (codes::LEFT_ALONE, one("trust/policy.kdl", "principal \"x\"\n")),
        (codes::KDL_SYNTAX, one("s.kdl", "site \"fra1\" {\n  region \"x\n}\n")),
        (codes::KDL_SYNTAX, one("s.kdl", "site \"fra1\" {\n")),
        (codes::KDL_SYNTAX, one("s.kdl", "site \"fra\\q1\"\n")),
        (codes::KDL_V1, one("p.kdl", "profile \"p\" {\n  unit \"a.service\" enable=true\n}\n")),
        (codes::KDL_V1, one("p.kdl", "profile \"p\" {\n  file \"/a\" content=r#\"x\"#\n}\n")),
        (codes::YAML_SYNTAX, one("s.yaml", "kind: site\nname: [fra1\n")),
        (codes::YAML_SYNTAX, one("s.yaml", "kind: site\nlabels:\n\track: a\n")),
        (codes::YAML_ANCHOR, one("s.yaml", "kind: site\nname: fra1\nlabels: &l {a: b}\n")),
        (codes::YAML_ANCHOR, one("s.yaml", "kind: site\nname: fra1\nlabels: *l\n")),
        (codes::YAML_ANCHOR, one("s.yaml", "kind: site\nname: &n fra1\nlabels: {a: *n}\nregion: &r !!str eu\n")),
        (codes::YAML_MERGE, one("s.yaml", "kind: site\nname: fra1\nlabels:\n  <<: {a: b}\n")),
        (codes::DUPLICATE_KEY, one("s.yaml", "kind: site\nname: fra1\nregion: a\nregion: b\n")),
        (codes::DUPLICATE_KEY, one("s.kdl", "site \"fra1\" region=\"a\" region=\"b\"\n")),
        (codes::DUPLICATE_KEY, one("s.kdl", "site \"fra1\" region=\"a\" {\n  region \"b\"\n}\n")),
        (codes::DUPLICATE_KEY, host("profile \"p\" {\n  file \"/a\" content=\"\"\n  file \"/a\" content=\"\"\n}\n")),
        (codes::KEY_NOT_TEXT, one("s.yaml", "kind: site\nname: fra1\nlabels:\n  1: one\n")),
        (codes::KEY_NOT_TEXT, one("s.yaml", "kind: site\nname: fra1\nlabels:\n  ? [a]\n  : one\n")),
        (codes::TYPE_ANNOTATION, one("s.kdl", "site (name)\"fra1\"\n")),
        (codes::TYPE_ANNOTATION, one("s.yaml", "kind: site\nname: !secret fra1\n")),
        (codes::NULL, one("s.yaml", "kind: site\nname: fra1\nlabels:\n")),
        (codes::NULL, one("s.kdl", "site \"fra1\" region=#null\n")),
        (codes::UNKNOWN_KIND, one("p.kdl", "tenat \"x\"\n")),
        (codes::UNKNOWN_KIND, one("k.yaml", "kind: Deployment\nname: x\n")),
        (codes::NO_IDENTITY, one("s.kdl", "site\n")),
        (codes::NO_IDENTITY, one("s.yaml", "replicas: 3\n")),
        (codes::NO_IDENTITY, one("s.yaml", "- kind: site\n")),
        (codes::NO_IDENTITY, one("s.yaml", "kind: site\nname: [fra1]\n")),
        (codes::CONFLICT, host("profile \"p\" {\n  file \"/a\" content=\"x\" { secret \"secret://ntp/key\"; }\n}\n")),
        (codes::BAD_VALUE, host("profile \"p\" {\n  file \"/a\" { secret \"hunter2\"; }\n}\n")),
        (codes::BAD_VALUE, host("profile \"p\" {\n  file \"/a\" mode=\"0644\" { secret \"secret://ntp/key\"; }\n}\n")),
        (codes::BAD_VALUE, host("profile \"p\" {\n  file \"/a\" { secret \"secret://ntp//key\"; }\n}\n")),
        (codes::UNKNOWN_KEY, host("profile \"p\" {\n  sysctls { vm.swappiness 1 }\n}\n")),
        (
            codes::UNKNOWN_KEY,
            one("p.yaml", "kind: profile\nname: p\nfile:\n  /etc/motd: {content: x, modus: \"0644\"}\n"),
        ),
        (codes::WRONG_TYPE, one("s.kdl", "site \"fra1\" { region \"a\" \"b\" }\n")),
        (codes::WRONG_TYPE, one("s.yaml", "kind: site\nname: fra1\nregion: [a]\n")),
        (codes::WRONG_TYPE, one("s.yaml", "kind: site\nname: fra1\nregion: {a: b}\n")),
        (codes::WRONG_TYPE, host("profile \"p\" {\n  hugepages { \"2MiB\" \"8\" }\n}\n")),
        (codes::WRONG_TYPE, one("p.yaml", "kind: profile\nname: p\nunit:\n  a.service: {enable: no}\n")),
        (codes::WRONG_TYPE, host("profile \"p\" {\n  sysctl { kernel.dmesg_restrict #true }\n}\n")),
        (codes::QUOTE_IT, one("s.yaml", "kind: site\nname: fra1\nregion: true\n")),
        (codes::QUOTE_IT, one("s.yaml", "kind: site\nname: fra1\nlabels: {version: 1.10}\n")),
        (codes::QUOTE_IT, host("profile \"p\" {\n  file \"/etc/motd\" content=\"\" mode=0644\n}\n")),
        (codes::MISSING_KEY, vec![SITE, PROFILE, ("h.kdl", "pool \"h100\" profile=\"base\"\n")]),
        (codes::MISSING_KEY, fleet("fleet \"t\" { format 1 }\n")),
        (codes::MISSING_KEY, host("profile \"p\" {\n  file \"/etc/motd\" mode=\"0600\"\n}\n")),
        (codes::BAD_NAME, one("s.kdl", "site \"FRA_1\"\n")),
        (codes::BAD_VALUE, host("profile \"p\" {\n  file \"/etc/motd\" content=\"\" mode=\"rw-r--r--\"\n}\n")),
        (codes::BAD_VALUE, one("n.yaml", "kind: node\nname: n1\nmac: [\"$MAC\"]\n")),
        (codes::BAD_VALUE, one("n.kdl", "node \"n1\" {\n  cordon \"x\" owner=\"o\" until=\"2024-02-30\"\n}\n")),
        (codes::BAD_VALUE, host("profile \"p\" {\n  file \"/etc/motd\" content=\"a\\u{0}b\"\n}\n")),
        (codes::BAD_VALUE, one("n.kdl", "node \"n1\" {\n  cordon \"a\\u{202e}b\" owner=\"o\"\n}\n")),
        (codes::BAD_VALUE, fleet("fleet \"t\" { format 1; trust-domain \"t.example\"; ignore \"../other\" \"\" }\n")),
        (codes::OUT_OF_RANGE, one("s.kdl", "site \"fra1\" { network \"a\" cidr=\"10.0.0.0/8\" vlan=5000 }\n")),
        (
            codes::UNKNOWN_WORD,
            vec![SITE, PROFILE, ("h.kdl", "pool \"h100\" site=\"fra1\" profile=\"base\" class=\"metal\"\n")],
        ),
        (
            codes::CONFLICT,
            vec![("t.j2", ""), ("p.kdl", "profile \"p\" {\n  file \"/a\" content=\"\" template=\"t.j2\"\n}\n")],
        ),
        (codes::DUPLICATE_OBJECT, vec![SITE, ("t.yaml", "kind: site\nname: fra1\n")]),
        (codes::UNKNOWN_REFERENCE, vec![SITE, PROFILE, POOL, ("n.kdl", "node \"n1\" pool=\"h1000\"\n")]),
        (
            codes::PROFILE_CYCLE,
            host("profile \"a\" extends=\"b\"\nprofile \"b\" extends=\"c\"\nprofile \"c\" extends=\"a\"\n"),
        ),
        (codes::PROFILE_CYCLE, host("profile \"a\" extends=\"a\"\n")),
        (codes::DECLARED_AND_REMOVED, vec![SITE, ("r.kdl", "removed \"site/fra1\" reason=\"closed\"\n")]),
        (
            codes::DUPLICATE_MACHINE,
            one("n.kdl", "node \"a\" mac=\"3c:ec:ef:00:00:01\"\nnode \"b\" mac=\"3C-EC-EF-00-00-01\"\n"),
        ),
        (codes::DUPLICATE_MACHINE, one("n.kdl", "node \"a\" serial=\"X1\"\nnode \"b\" serial=\"X1\"\n")),
        (codes::BAD_HOST, host("profile \"p\" { file \"/etc/../shadow\" content=\"\" }\n")),
        (codes::BAD_HOST, host("profile \"p\" { file \"/proc/sys/vm/swappiness\" content=\"1\" }\n")),
        (codes::BAD_HOST, host("profile \"p\" { unit \"a.service\" enable=#true content=\"[Service]\" }\n")),
        (
            codes::TEMPLATE_MISSING,
            vec![
                ("templates/motd.j2", "x"),
                ("p.kdl", "profile \"p\" {\n  file \"/etc/motd\" template=\"motd.j2\"\n}\n"),
            ],
        ),
        (codes::BAD_HOST, host("profile \"p\" { file \"/etc/x\" content=\"\"; file \"/etc/x/y\" content=\"\" }\n")),
        (codes::MISSING_KEY, one("s.kdl", "site \"fra1\" { network \"a\" router=\"10.0.0.1\" }\n")),
        (codes::WRONG_TYPE, one("s.kdl", "site \"fra1\" {\n  network cidr=\"10.0.0.0/8\"\n}\n")),
        (codes::WRONG_TYPE, one("s.yaml", "kind: site\nname: fra1\nnetwork: {cidr: 10.0.0.0/8, vlan: 4}\n")),
        (codes::BAD_VALUE, one("s.kdl", "site \"fra1\" { network \"a\" cidr=\"10.0.0.0/24\" router=\"10.0.1.1\" }\n")),
        (codes::BAD_VALUE, host("profile \"p\" { drift { warn \"sysctl.*.x\" } }\n")),
        (codes::BAD_SPAN, one("f.kdl", FREEZE_BACKWARDS)),
        (
            codes::BAD_SPAN,
            fleet(
                "fleet \"t\" {\n  format 1\n  trust-domain \"t.example\"\n  freeze \"n\" { reason \"x\"; owner \"y\"; hours \"06:00\" \"06:00\"; zone \"UTC\" }\n}\n",
            ),
        ),
        (
            codes::BAD_WAVES,
            one(
                "r.kdl",
                "rollout \"w\" {\n  wave nodes=1\n  wave percent=50\n  wave percent=10\n  wave soak=\"1h\"\n}\n",
            ),
        ),
        (
            codes::BAD_WAVES,
            one(
                "r.kdl",
                "rollout \"w\" {\n  wave nodes=5\n  wave { selector canary=\"yes\" }\n  wave nodes=3\n  wave percent=100\n}\n",
            ),
        ),
        (codes::CONFLICT, one("r.kdl", "rollout \"w\" {\n  immediate\n  wave percent=100\n}\n")),
        (
            codes::BAD_MOVE,
            vec![
                SITE,
                PROFILE,
                POOL,
                ("m.kdl", "moved from=\"pool/a\" to=\"pool/h10\"\nmoved from=\"pool/b\" to=\"site/fra1\"\n"),
            ],
        ),
        (
            codes::BAD_MOVE,
            vec![
                SITE,
                PROFILE,
                POOL,
                ("m.kdl", "moved from=\"pool/a\" to=\"pool/b\"\nmoved from=\"pool/b\" to=\"pool/h100\"\n"),
            ],
        ),
        (
            codes::BAD_QUOTA,
            vec![
                SITE,
                PROFILE,
                ("h.kdl", "pool \"h100\" site=\"fra1\" profile=\"base\" {\n  policy { tenants \"research\" }\n}\n"),
                ("t.kdl", "tenant \"research\"\ntenant \"infra\"\nquota \"q\" tenant=\"infra\" pool=\"h100\" gpus=8\n"),
            ],
        ),
        (
            codes::BAD_MIG,
            vec![
                SITE,
                PROFILE,
                (
                    "h.kdl",
                    "pool \"h100\" site=\"fra1\" profile=\"base\" {\n  policy {\n    gpu-sharing \"mig\"\n    mig { \"3g.40gb\" 3 }\n  }\n}\n",
                ),
            ],
        ),
        (
            codes::NOT_INHERITED,
            host(
                "profile \"a\" { unit \"chrony.service\" enable=#true }\nprofile \"p\" extends=\"a\" { without { unit \"chronyd.service\" } }\n",
            ),
        ),
        (codes::POLICY_MISSING, one("a.kdl", "access \"ops\" token=\"oncall\" policy=\"ops.cedar\"\n")),
        (codes::TEMPLATE_MISSING, one("a.j2", "x\n{% include \"b.j2\" %}\n")),
        (codes::TEMPLATE_SYNTAX, one("a.j2", "ok\n{{ site.ntp }\n")),
        (codes::TEMPLATE_UNDEFINED, host_with("role={{ node.labels.role }}\n")),
        (
            codes::TEMPLATE_LIMIT,
            host_with("{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}\n"),
        ),
        (codes::TEMPLATE_FAILED, host_with("{{ pool.name | shout }}\n")),
        (codes::TEMPLATE_FAILED, host_with("{{ '\\u0000' }}\n")),
        (codes::LATER_KEY, one("s.kdl", "site \"fra1\" { bmc { network \"oob\" } }\n")),
        (
            codes::IMMEDIATE_BY_DEFAULT,
            vec![("fleet.kdl", "fleet \"t\" { format 1; trust-domain \"t.example\" }\n"), SITE, PROFILE, POOL],
        ),
        (codes::WAVES_HELD, {
            let rollout = "rollout \"w\" {\n  wave nodes=1 soak=\"30m\"\n  wave percent=100\n}\n";
            let pool = "pool \"h100\" site=\"fra1\" profile=\"base\" rollout=\"w\"\n";
            vec![SITE, PROFILE, ("h.kdl", pool), ("r.kdl", rollout)]
        }),
        (codes::RECORDED_ONLY, host("profile \"p\" { telemetry { interval \"10s\" } }\n")),
    ]
}

fn host_with(template: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![SITE, POOL, ("p.kdl", "profile \"base\" {\n  file \"/etc/x\" template=\"x.j2\"\n}\n"), ("x.j2", template)]
}

#[test]
fn each_mistake_has_its_code_and_no_other() {
    for (code, files) in table() {
        let loaded = load(&tree(&files));
        let found: BTreeSet<Code> = loaded.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
        // What is only recorded is noted besides.
        let found: BTreeSet<Code> =
            found.into_iter().filter(|other| *other != codes::RECORDED_ONLY || *other == code).collect();
        assert_eq!(found, BTreeSet::from([code]), "{files:?}\n{}", text(&loaded));
        assert_eq!(loaded.fleet.is_none(), code.severity() == Severity::Error, "{code}");
    }
}

#[test]
fn each_mistake_reads_as_its_snapshot() {
    let shown: Vec<String> = table().iter().map(|(_, files)| text(&load(&tree(files)))).collect();
    insta::assert_snapshot!(shown.join("----\n"));
}

#[test]
fn what_cannot_be_read_has_its_code() {
    let blobs = [
        (codes::SYMLINK, "pools/x.kdl", SourceBlob::Symlink),
        (codes::SYMLINK, "pools", SourceBlob::Symlink),
        (codes::SUBMODULE, "vendor", SourceBlob::Submodule),
        (codes::FILE_TOO_LARGE, "nodes.yaml", SourceBlob::TooLarge { bytes: 50 << 20 }),
        (codes::UNREADABLE, "nodes.yaml", SourceBlob::Unreadable { reason: "object 3f2a is missing".to_owned() }),
        (codes::NOT_UTF8, "s.yaml", SourceBlob::Bytes(b"kind: site\nregion: M\xfcnchen\n".as_slice().into())),
        (codes::BAD_PATH, "a/../../b.kdl", SourceBlob::Bytes(b"".as_slice().into())),
        (codes::BAD_PATH, "a\\b.kdl", SourceBlob::Bytes(b"".as_slice().into())),
        (codes::BAD_PATH, "a\nb.kdl", SourceBlob::Bytes(b"".as_slice().into())),
    ];
    let mut shown = Vec::new();
    for (code, path, blob) in blobs {
        let mut sources = tree(&[]);
        sources.insert(path, blob);
        let loaded = load(&sources);
        assert_eq!(loaded.diagnostics.iter().map(|diagnostic| diagnostic.code).collect::<Vec<_>>(), [code], "{path}");
        assert!(loaded.fleet.is_none());
        shown.push(text(&loaded));
    }
    let mut sources = tree(&[]);
    sources.insert_raw(b"caf\xe9.kdl", SourceBlob::Bytes(b"".as_slice().into()));
    assert_eq!(load(&sources).diagnostics[0].code, codes::BAD_PATH);
    insta::assert_snapshot!(shown.join("----\n"));
}

#[test]
fn a_tree_without_a_fleet_file_says_only_that() {
    for files in [vec![], vec![("pools/a.kdl", "pool \"broken")]] {
        let sources: Sources = files.into_iter().map(|(path, text): (&str, &str)| (path, text.as_bytes())).collect();
        let loaded = load(&sources);
        assert_eq!(loaded.diagnostics.iter().map(|diagnostic| diagnostic.code).collect::<Vec<_>>(), [codes::NO_ROOT]);
    }
}

#[test]
fn a_fleet_file_with_a_misspelt_name_is_pointed_at() {
    let help = |path: &str| {
        let sources: Sources =
            [(path, &b"fleet \"t\" { format 1; trust-domain \"t.example\"; }"[..])].into_iter().collect();
        load(&sources).diagnostics[0].help.clone().unwrap_or_default()
    };
    assert!(help("flet.kdl").starts_with("is flet.kdl meant to be it?"), "{}", help("flet.kdl"));
    for other in ["pools.kdl", "sub/flet.kdl", "fleet.md"] {
        assert!(help(other).starts_with("write fleet.kdl"), "{other}: {}", help(other));
    }
}

#[test]
fn bounds_are_kept() {
    let files: Vec<(String, String)> = (0..10).map(|n| (format!("s{n}.kdl"), format!("site \"s{n}\"\n"))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    for limits in [
        Limits { objects: 5, ..Limits::default() },
        Limits { files: 5, ..Limits::default() },
        Limits { bytes: 50, ..Limits::default() },
    ] {
        let loaded = load_with(&tree(&files), limits);
        assert!(
            loaded.fleet.is_none() && loaded.diagnostics.iter().any(|diagnostic| diagnostic.code == codes::TOO_MANY),
            "{limits:?}"
        );
    }
}

#[test]
fn one_pass_reports_every_error_by_file_and_line() {
    let found = load(&tree(&[
        ("a.kdl", "site \"fra1\" { regio \"x\"; labels a=1 }\npool \"p\" site=\"fra2\"\n"),
        ("b.yaml", "kind: node\nname: n1\npool: nowhere\nmac: [zz]\n"),
        ("c.kdl", "pool \"broken\n"),
        ("t.j2", "{{ x\n"),
    ]));
    let places: Vec<String> =
        found.diagnostics.iter().map(|diagnostic| format!("{} {}", diagnostic.at(), diagnostic.code)).collect();
    assert_eq!(
        places,
        [
            "a.kdl:1:15 BC0203",
            "a.kdl:1:35 BC0205",
            "a.kdl:2:1 BC0206",
            "a.kdl:2:15 BC0302",
            "b.yaml:3:7 BC0302",
            "b.yaml:4:7 BC0208",
            "c.kdl:1:6 BC0101",
            "t.j2:1:4 BC0402"
        ]
    );
    assert!(found.fleet.is_none());
}

fn places(files: &[(&str, &str)]) -> Vec<String> {
    load(&tree(files)).diagnostics.iter().map(|found| format!("{} {}", found.at(), found.code)).collect()
}

#[test]
fn every_value_that_templates_miss_is_told_at_once() {
    let profile = "profile \"base\" {\n  file \"/a\" template=\"a.j2\"\n  file \"/b\" template=\"b.j2\"\n  file \"/c\" template=\"c.j2\"\n  file \"/d\" template=\"d.j2\"\n  unit \"e.service\" template=\"e.j2\"\n}\n";
    let found = places(&[
        SITE,
        POOL,
        ("p.kdl", profile),
        ("a.j2", "{{ node.labels.rack }} {{ nodee.name }}\n{% for x in site.netwrk %}{{ x }}{% endfor %}\n{{ z }}\n"),
        ("b.j2", "{% if pool.labls.a == 'b' %}x{% endif %}\n"),
        ("c.j2", "{% include 'gone.j2' %}\n"),
        ("d.j2", "{% if %}\n"),
        ("e.j2", "{{ site.nam.b + 1 }}\n"),
    ]);
    assert_eq!(
        found,
        [
            "a.j2:1:4 BC0403",
            "a.j2:1:27 BC0403",
            "a.j2:2:13 BC0403",
            "a.j2:3:4 BC0403",
            "b.j2:1:11 BC0403",
            "c.j2:1:13 BC0401",
            "d.j2:1:7 BC0402",
            "e.j2:1:8 BC0403"
        ]
    );
}

#[test]
fn a_template_that_is_named_by_a_value_is_told_once_for_all_machines() {
    let machines = "node \"a\" pool=\"h100\" serial=\"1\"\nnode \"b\" pool=\"h100\" serial=\"2\"\n";
    let mut files = host_with("{% include node.name %}\n");
    files.push(("n.kdl", machines));
    assert_eq!(places(&files), ["x.j2:1:4 BC0401"]);
}

#[test]
fn the_trust_domain_is_known_whatever_is_wrong_elsewhere() {
    let domain = |files: &[(&str, &str)]| load(&tree(files)).trust_domain;
    assert_eq!(domain(&[("s.kdl", "site {"), ("p.kdl", "pol \"x\"\n")]).as_deref(), Some("t.example"));
    assert_eq!(domain(&[("fleet.kdl", "fleet \"t\" {\n")]), None);
}

#[test]
fn an_object_without_a_name_or_with_one_that_is_taken_is_looked_at_too() {
    let found = places(&[SITE, ("t.kdl", "site { regio \"x\" }\nsite \"fra1\" {\n  labels a=1\n}\n")]);
    assert_eq!(found, ["t.kdl:1:1 BC0202", "t.kdl:1:8 BC0203", "t.kdl:2:6 BC0301", "t.kdl:3:12 BC0205"]);
}

#[test]
fn an_object_in_a_file_that_does_not_parse_is_not_missed_as_well() {
    let broken = ("broken.kdl", "profile \"base\" {\n  sysctl {\n");
    assert_eq!(found(&[SITE, POOL, broken]), [codes::KDL_SYNTAX]);
    assert_eq!(found(&[SITE, POOL, ("broken.yaml", "kind: profile\nname: base\nsysctl: [\n")]), [codes::YAML_SYNTAX]);
    assert_eq!(found(&[SITE, POOL, ("p.kdl", "profile \"base\" { nope 1 }\n")]), [codes::UNKNOWN_KEY]);
}

fn said(file: (&str, &str)) -> Vec<String> {
    let told = load(&tree(&[file])).diagnostics;
    told.iter()
        .map(|one| format!("{} {}: {} ({})", one.at(), one.code, one.message, one.help.as_deref().unwrap_or("-")))
        .collect()
}

#[test]
fn an_unknown_key_is_pointed_at_where_it_is_written_and_told_once() {
    let units = "kind: profile\nname: base\nunitz:\n  - name: a.service\n  - name: b.service\n";
    assert_eq!(said(("p.yaml", units)), ["p.yaml:3:1 BC0203: profile has no key `unitz` (did you mean `unit`?)"]);
    let nameless = "kind: site\nnme: fra1\n";
    assert_eq!(said(("s.yaml", nameless)), ["s.yaml:2:1 BC0203: site has no key `nme` (did you mean `name`?)"]);
}

#[test]
fn what_is_nearly_right_is_told_what_is_missing() {
    let freeze = |until: &str| {
        let text =
            format!("freeze \"x\" {{\n  scope \"fleet\"\n  owner \"ada\"\n  reason \"x\"\n  until \"{until}\"\n}}\n");
        said(("f.kdl", &text)).pop().expect("one finding")
    };
    assert!(freeze("2027-06-31").ends_with("(there is no day 2027-06-31)"), "{}", freeze("2027-06-31"));
    assert!(freeze("2027-06-30").ends_with("are missing: 2027-06-30T00:00:00Z)"), "{}", freeze("2027-06-30"));
    assert!(freeze("2027-06-30T10:00:00").contains("its zone is missing"), "{}", freeze("2027-06-30T10:00:00"));
    let comma = said(("p.kdl", "profile \"base\" {\n  sysctl {\n    vm.swappiness ,10\n  }\n}\n"));
    assert!(comma[0].starts_with("p.kdl:3:19 BC0101: a comma belongs to this value"), "{comma:?}");
    assert_eq!(comma.len(), 1);
    let yaml = said(("s.yaml", "kind: a: site\nname: fra1\n"));
    assert!(yaml[0].ends_with("(a text that has `: ` is quoted; a key begins a line of its own)"), "{yaml:?}");
}

#[test]
fn all_codes_are_exercised() {
    let elsewhere = [
        codes::FILE_TOO_LARGE,
        codes::NOT_UTF8,
        codes::SYMLINK,
        codes::SUBMODULE,
        codes::BAD_PATH,
        codes::TOO_MANY,
        codes::UNREADABLE,
        codes::TOO_DEEP,
    ];
    let exercised: BTreeSet<Code> = table().into_iter().map(|(code, _)| code).chain(elsewhere).collect();
    // What a trust policy means is judged in `pki`.
    let here = codes::ALL.iter().map(|entry| entry.code).filter(|code| !code.as_str().starts_with("BC06"));
    let all: BTreeSet<Code> = here.collect();
    assert_eq!(all.difference(&exercised).collect::<Vec<_>>(), Vec::<&Code>::new());
}
