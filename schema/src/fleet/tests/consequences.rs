//! What is wrong is said once: an error that only follows from another one is not shown, and no error hides another.

use super::support::{text, tree};
use crate::{
    diagnostic::{Code, codes},
    fleet::{Limits, load, load_with},
};

/// The errors of a tree, in order.
fn errors(files: &[(&str, &str)]) -> Vec<Code> {
    let loaded = load(&tree(files));
    loaded.diagnostics.iter().filter(|found| found.is_error()).map(|found| found.code).collect()
}

const AROUND: (&str, &str) = (
    "around.kdl",
    r#"
pool "h100" {
  site "fra1"
  profile "base"
  hardware { gpus 8 model="H100" }
  policy { tenants "research" }
}
quota "q" { tenant "research"; pool "h100"; gpus 8 }
quota "model" { tenant "research"; gpu-model "H200"; gpus 8 }
pool "h200" { site "fra1"; profile "base"; hardware { gpus 8 model="H200" }; }
node "n1" pool="h100" { labels rack="r1" }
batch "b" {
  command "node.reboot"; reason "x"; expires "2026-12-01T00:00:00Z"; spread "racks"
  scope { pools "h100"; nodes "h200-0011aabb" "n2"; selector zone="z1" }
}
moved from="tenant/old" to="tenant/research"
"#,
);
const SITE: (&str, &str) = ("site.kdl", "site \"fra1\"\n");
const PROFILE: (&str, &str) = ("base.kdl", "profile \"base\"\n");
const TENANT: (&str, &str) = ("tenant.kdl", "tenant \"research\"\n");
const NODE: (&str, &str) = ("node.kdl", "node \"n2\" pool=\"h200\" { labels zone=\"z1\" racks=\"r2\" }\n");
const RIGHT: [(&str, &str); 5] = [AROUND, SITE, PROFILE, TENANT, NODE];

#[test]
fn a_misspelt_kind_makes_one_error() {
    assert_eq!(errors(&RIGHT), []);
    for (path, text, wrong) in [
        ("tenant.kdl", TENANT.1, "tenat \"research\"\n"),
        ("tenant.kdl", TENANT.1, "Tenant \"research\"\n"),
        ("tenant.kdl", TENANT.1, "customer \"research\"\n"),
        ("site.kdl", SITE.1, "stie \"fra1\"\n"),
        ("base.kdl", PROFILE.1, "profil \"base\"\n"),
        ("node.kdl", NODE.1, "nodes \"n2\" pool=\"h200\" { labels zone=\"z1\" racks=\"r2\" }\n"),
        ("node.kdl", NODE.1, "machine \"n2\" { labels zone=\"z1\" racks=\"r2\" }\n"),
    ] {
        let wrong = RIGHT.map(|(at, right)| (at, if at == path { wrong } else { right }));
        assert_eq!(errors(&wrong), [codes::UNKNOWN_KIND], "{text}");
    }
    let pools = AROUND.1.replace("pool \"h200\" {", "pols \"h200\" {").replace("pool \"h100\" {", "poool \"h100\" {");
    let wrong = RIGHT.map(|(at, right)| (at, if at == "around.kdl" { pools.as_str() } else { right }));
    assert_eq!(errors(&wrong), [codes::UNKNOWN_KIND, codes::UNKNOWN_KIND]);
    assert_eq!(
        errors(&[("fleet.kdl", "fleat \"t\" { format 1; trust-domain \"t.example\"; }\n")]),
        [codes::UNKNOWN_KIND]
    );
}

#[test]
fn a_document_that_cannot_be_read_is_not_missed() {
    for (path, wrong, code) in [
        ("tenant.kdl", "tenant \"research\" { wieght 3 }\n", codes::UNKNOWN_KEY),
        ("tenant.kdl", "tenant \"Research\"\n", codes::BAD_NAME),
        ("tenant.kdl", "tenant { weight 3; }\n", codes::NO_IDENTITY),
        ("tenant.yaml", "kind: tenant\nname: research\nweight: heavy\n", codes::WRONG_TYPE),
        ("tenant.yaml", "kind: tenant\nname: research\nweight: [\n", codes::YAML_SYNTAX),
        ("tenant.yaml", "name: research\nweight: 3\n", codes::NO_IDENTITY),
        ("tenant.yaml", "- kind: tenant\n  name: research\n", codes::NO_IDENTITY),
        ("site.kdl", "site \"fra1\" { gateway \"nowhere\" }\n", codes::BAD_VALUE),
        ("base.kdl", "profile \"base\" { sysctl { vm.swappiness #true } }\n", codes::WRONG_TYPE),
        ("node.kdl", "node \"n2\" pool=\"h200\" { labels zone=\"z1\" racks=2 }\n", codes::QUOTE_IT),
        ("node.kdl", "node \"N2\" pool=\"h200\" { labels zone=\"z1\" racks=\"r2\" }\n", codes::BAD_NAME),
    ] {
        let stem = path.split('.').next().expect("a stem");
        let right = RIGHT.iter().filter(|(at, _)| !at.starts_with(&format!("{stem}."))).copied();
        let files: Vec<(&str, &str)> = right.chain([(path, wrong)]).collect();
        let loaded = load(&tree(&files));
        let found: Vec<Code> =
            loaded.diagnostics.iter().filter(|found| found.is_error()).map(|found| found.code).collect();
        assert!(!found.is_empty() && found.iter().all(|found| *found == code), "{wrong}\n{}", text(&loaded));
    }
    let pool = AROUND.1.replace("hardware { gpus 8 model=\"H200\" }", "hardware { gpus 8 modl=\"H200\" }");
    let wrong = RIGHT.map(|(at, right)| (at, if at == "around.kdl" { pool.as_str() } else { right }));
    assert_eq!(errors(&wrong), [codes::UNKNOWN_KEY]);
}

#[test]
fn a_quota_in_a_pool_that_does_not_exist_is_not_held_against_others() {
    let quota = "quota \"x\" { tenant \"research\"; pool \"h900\"; gpu-model \"H900\"; gpus 8 }\n";
    let files: Vec<(&str, &str)> = RIGHT.into_iter().chain([("x.kdl", quota)]).collect();
    assert_eq!(errors(&files), [codes::UNKNOWN_REFERENCE]);
}

#[test]
fn what_nobody_looked_at_is_not_missed() {
    let loaded = load_with(&tree(&RIGHT), Limits { objects: 3, ..Limits::default() });
    let found: Vec<Code> = loaded.diagnostics.iter().filter(|found| found.is_error()).map(|found| found.code).collect();
    assert_eq!(found, [codes::TOO_MANY]);
}

#[test]
fn a_policy_file_that_cannot_be_read_is_not_missed() {
    let mut sources = tree(&[("a.kdl", "access \"a\" { token \"x\"; policy \"a.cedar\" }\n")]);
    sources.insert("a.cedar", crate::fleet::SourceBlob::Symlink);
    let found: Vec<Code> =
        load(&sources).diagnostics.iter().filter(|found| found.is_error()).map(|found| found.code).collect();
    assert!(!found.contains(&codes::POLICY_MISSING), "{found:?}");
}

#[test]
fn a_misspelt_key_is_not_missed_as_well() {
    let wrong = [("x.kdl", "pool \"x\" { sit \"fra1\"; profile \"base\"; }\n"), SITE, PROFILE];
    assert_eq!(errors(&wrong), [codes::UNKNOWN_KEY]);
    let missing = [("x.kdl", "pool \"x\" { profile \"base\"; }\n"), SITE, PROFILE];
    assert_eq!(errors(&missing), [codes::MISSING_KEY]);
}

#[test]
fn one_mistake_in_a_line_is_one_error() {
    for (line, code) in [
        ("moved \"pool/a\" \"pool/b\"", codes::WRONG_TYPE),
        ("rollout \"r\" { wave 1; wave percent=\"100%\"; }", codes::WRONG_TYPE),
        ("rollout \"r\" { wave percnt=\"100%\"; }", codes::UNKNOWN_KEY),
        ("rollout \"r\" { imediate; }", codes::UNKNOWN_KEY),
        ("rollout \"r\" { wav percent=\"100%\"; }", codes::UNKNOWN_KEY),
        (
            "batch \"b\" { command \"node.reboot\"; reason \"x\"; expires \"2026-12-01T00:00:00Z\"; scope pool=\"p\"; }",
            codes::UNKNOWN_KEY,
        ),
        ("site \"s\" {\n  labels {\n    rack = \"x\"\n  }\n}", codes::KDL_SYNTAX),
        ("site \"s\" { labels { rack: r12; }; }", codes::BAD_VALUE),
        ("site \"s\" {\n  region \"\"\"\n  a\n    \"\"\"\n}", codes::KDL_SYNTAX),
        ("site \"s\" { region \"x\", labels a=\"b\"; }", codes::KDL_SYNTAX),
        ("pool \"p\" { site \"fra1\"; profile \"base\"; hardware { memory 2TiB; }; }", codes::KDL_SYNTAX),
    ] {
        assert_eq!(errors(&[("x.kdl", &format!("{line}\n")), SITE, PROFILE]), [code], "{line}");
    }
}

#[test]
fn what_else_is_wrong_under_a_misspelt_kind_is_told_too() {
    let wrong = "pol \"x\" { site \"fra1\"; profile \"nowhere\"; class \"metal\"; }\n";
    assert_eq!(errors(&[("x.kdl", wrong), SITE]), [codes::UNKNOWN_KIND, codes::UNKNOWN_REFERENCE, codes::UNKNOWN_WORD]);
    // Keys of something else say that it is something else.
    let deployment = "kind: Node\nname: x\napiVersion: v1\nspec: {podCIDR: 5}\n";
    assert_eq!(errors(&[("x.yaml", deployment)]), [codes::UNKNOWN_KIND]);
}

/// A fleet whose templates read everything that there is to read, and each something that is not there.
const TEMPLATES: [(&str, &str); 8] = [
    (
        "fleet.kdl",
        "fleet \"t\" { format 1; trust-domain \"t.example\"; rollout \"now\" }\nrollout \"now\" { immediate }\n",
    ),
    ("site.kdl", "site \"s\" { labels a=\"1\" }\n"),
    ("pool.kdl", "pool \"p\" { site \"s\"; profile \"tip\"; labels b=\"2\" }\nnode \"n\" pool=\"p\"\n"),
    (
        "tip.kdl",
        "profile \"tip\" { extends \"low\"; file \"/n\" template=\"n.j2\"; file \"/s\" template=\"s.j2\"; file \"/p\" template=\"p.j2\"; file \"/f\" template=\"f.j2\" }\n",
    ),
    ("low.kdl", "profile \"low\" { sysctl { vm.swappiness 1 } }\n"),
    ("n.j2", "{{ node.labels.nothing }}\n"),
    ("s.j2", "{{ site.labels.nothing }}\n"),
    ("p.j2", "{{ pool.labels.nothing }}{{ profile.sysctl.nothing }}\n"),
];

#[test]
fn templates_are_rendered_although_other_documents_are_wrong() {
    let with = |path: &str, wrong: &str| -> Vec<String> {
        let mut files: Vec<(&str, &str)> =
            TEMPLATES.iter().map(|(at, right)| (*at, if *at == path { wrong } else { *right })).collect();
        files.push(("f.j2", "{{ fleet.nothing }}\n"));
        let loaded = load(&tree(&files));
        loaded
            .diagnostics
            .iter()
            .filter(|found| found.is_error())
            .map(|found| format!("{} {}", found.code, found.file))
            .collect()
    };
    let all = ["BC0403 f.j2", "BC0403 n.j2", "BC0403 p.j2", "BC0403 p.j2", "BC0403 s.j2"];
    assert_eq!(with("", ""), all);
    let unread = |file: &str, code: &str, hidden: &str| -> Vec<String> {
        let mut expected: Vec<String> =
            all.iter().filter(|one| !one.ends_with(hidden)).map(|one| (*one).to_owned()).collect();
        expected.push(format!("{code} {file}"));
        expected.sort_by_key(|one| one.split(' ').next_back().map(str::to_owned));
        expected
    };
    assert_eq!(with("site.kdl", "site \"s\" { labls a=\"1\" }\n"), unread("site.kdl", "BC0203", "s.j2"));
    let pool = TEMPLATES[2].1.replace("labels b", "labls b");
    assert_eq!(with("pool.kdl", &pool), unread("pool.kdl", "BC0203", "p.j2"));
    assert_eq!(with("low.kdl", "profile \"low\" { sysctls { a.b 1 } }\n"), unread("low.kdl", "BC0203", "p.j2"));
    assert_eq!(with("low.kdl", "profile \"lowest\"\n"), unread("tip.kdl", "BC0302", "p.j2"));
    let fleet = TEMPLATES[0].1.replace("format 1", "format 1; frmat 2");
    assert_eq!(with("fleet.kdl", &fleet), unread("fleet.kdl", "BC0203", "f.j2"));
    let site = TEMPLATES[2].1.replace("site \"s\"", "site \"t\"");
    assert_eq!(with("pool.kdl", &site), unread("pool.kdl", "BC0302", "s.j2"));
}

#[test]
fn a_template_that_is_wrong_makes_no_error_in_those_that_are_right() {
    let right =
        "{{ fleet.name }}{{ site.name }}{{ pool.name }}{{ profile.name }}{{ node.name }}{% include 'in.j2' %}\n";
    let profile = "profile \"p\" {\n  file \"/a\" template=\"a.j2\"\n  file \"/b\" template=\"b.j2\"\n}\n";
    for (wrong, code) in [
        ("{% if x %}", codes::TEMPLATE_SYNTAX),
        ("{{ site.name }\n", codes::TEMPLATE_SYNTAX),
        ("{{ [1] * 9 }}\n", codes::TEMPLATE_LIMIT),
        ("{% include 'gone.j2' %}\n", codes::TEMPLATE_MISSING),
    ] {
        let pool = "site \"s\"\npool \"h100\" { site \"s\"; profile \"p\"; }\n";
        let files =
            [("p.kdl", profile), ("pool.kdl", pool), ("a.j2", right), ("in.j2", "{{ site.name }}\n"), ("b.j2", wrong)];
        assert_eq!(errors(&files), [code], "{wrong}");
    }
}
