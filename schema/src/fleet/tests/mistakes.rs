//! Every mistake of a file at once: what an author of each kind is told, by kind and syntax.

use super::support::tree;
use crate::fleet::load;

/// What the documents below may speak of.
const AROUND: &str = r#"
site "s"
profile "below" { unit "below.service" enable=#true }
pool "p" site="s" profile="below"
tenant "research"
node "n" pool="p" { labels rack="r1" }
"#;

const WRONG: [(&str, &str); 16] = [
    (
        "fleet",
        r#"fleet "t" {
  format 2
  trust-domain "not a domain"
  rollout "now"
  apply { bind "rebot" }
  suspend owner="x"
  freeze "Week End" { reason "x"; owner "y"; days "saturday"; hours "22" "6:00"; zone "Europe/berlin" }
  freeze "n" { reason "x"; owner "y" }
  prune { max-objects "5"; max-nodes-percent 101 }
  drift { warn "x" }
}
rollout "now" { immediate }
"#,
    ),
    (
        "site",
        r#"site "x" {
  network { data cidr="10.0.0.0/8"; cidr "10.0.0.0/8" }
  network "a" cidr="10.0.0.0/33" router="10.0.0.1" vlan=0
  gateway "gw1" "gw2:0"
  protect #true
  suspend "x" owner="a" until="tomorrow"
  bmc "x"
}
"#,
    ),
    (
        "pool",
        r#"pool "x" {
  site "ss"
  profil "below"
  class "metal"
  hardware { gpus model="x"; cpu "a" "b"; memory "2 TB" }
  attest "tmp" { only "sha256:00" }
  attest "aws" { roots "not PEM"; only "*" }
  attest "gcp" { only; keys "{}" }
  attest "tpm"
  attest "x509" { keys "{\"keys\": [{}]}" }
  policy {
    acceptance "diag.nvlm" level=9
    acceptance "diag.nvml" level=1
    tenants "reserch" "Research"
    mig { "1g.10gb" 8 }
    disruption-budget "many"
  }
}
"#,
    ),
    (
        "pool with mig",
        "pool \"x\" site=\"s\" profile=\"below\" {\n  policy {\n    gpu-sharing \"none\"\n    mig { \"1g.10g\" 2 }\n  }\n}\n",
    ),
    (
        "profile",
        r#"profile "x" extends="blow" {
  file "/etc/x" content="" restart="chrony"
  file "/proc/x" content="" template="x.j2"
  unit "a" drain="yes" state="running"
  without { file 1; sysctls "x" }
  drift { warn "etc/motd" "kernelArgs.0" "sysctl.*"; adopt "sysctl.*" }
  daemon { release "BCD 2" }
  sysctl { vm.swappiness #true }
}
"#,
    ),
    (
        "profile with layers",
        r#"profile "x" extends="below" {
  without { unit "blow.service"; file "/etc/y"; sysctl "vm.swappiness" }
  file "/etc/y" content=""
  file "/etc/y/z" content=""
}
profile "root" { without { unit "below.service" } }
"#,
    ),
    ("image", "image \"x\" url=\"ftp://x\" digest=\"md5:1\" arch=\"x86\" { use \"disk\"; size 3 }\n"),
    (
        "release",
        "release \"x\" {\n  version \"v1\"\n  artifact \"x86\" url=\"ftp://x\"\n  artifact \"arm64\"\n}\nrelease \"y\"\n",
    ),
    (
        "rollout",
        r#"rollout "x" {
  wave 1
  wave percent="10%" nodes=1
  wave percent="120%"
  wave percent=0
  gate "health"
  window { days "mon" }
  on-failure "rolback"
  max-unavailable "x"
  spread "a b"
}
rollout "y"
rollout "z" { immediate #false; partial }
"#,
    ),
    (
        "node",
        r#"node "x" pool="pp" {
  mac "$MAC"
  attested "tpm:ABCD" "aws:123456789012"
  pin "x"
  taint "a b" "c"
  taint reason="x"
  suspend { reason "x"; owner "y"; forever #true }
  cordon
}
"#,
    ),
    ("tenant", "tenant \"x\" wieght=3 weight=0 contact=1\n"),
    (
        "quota",
        "quota \"x\" { tenant \"researc\"; pool \"pp\" }\nquota \"y\" tenant=\"research\" gpus=\"8\" max-length=\"a week\"\nquota \"z\" gpus=8\n",
    ),
    (
        "access",
        r#"access "x" { issuer "http://x"; policy "x.txt" "y.cedar"; roles "a" }
access "y" token="x" issuer="https://x"
access "z"
"#,
    ),
    (
        "batch",
        r#"batch "x" { command "reboot"; scope { node "n" }; expires "2026-13-01"; payload { x 1.5 }; max-in-flight 0 }
batch "y" command="node.reboot" reason="x" expires="2026-12-01T00:00:00Z" not-before="2026-12-01T00:00:00Z" {
  scope { nodes "nn" "p-00000000" "q-00000000" }
}
batch "z" command="node.reboot" reason="x" expires="2026-12-01T00:00:00Z" spread="rak" {
  scope { pools "p"; selector rack="r2" }
}
"#,
    ),
    (
        "freeze",
        r#"freeze "x" { scope "pools/p" "profile/below" "pool/pp" p; reason "x"; owner "o"; hours "22:00" }
freeze "y" scope="pool/p" reason="x" owner="o" from="2026-06-01T00:00:00Z" until="2026-06-03T00:00:00Z" {
  days "sat"
  zone "UTC"
}
"#,
    ),
    (
        "moved and removed",
        r#"moved from="pool/p" to="pool/p"
moved from="x" to="freeze/f"
moved "pool/a" "pool/b"
moved from="pool/o1" to="pool/p"
moved from="pool/o2" to="pool/p"
moved from="site/s" to="site/t"
moved from="node/a" to="node/b"
moved from="node/b" to="node/a"
removed "moved/x" reason="y"
removed "pool/gone"
removed "site/s" reason="y"
"#,
    ),
];

#[test]
fn every_mistake_of_a_file_is_told_at_once() {
    let mut shown = String::new();
    for (what, text) in WRONG {
        let (path, around) = if what == "fleet" { ("fleet.kdl", "") } else { ("x.kdl", AROUND) };
        shown += &format!("# {what}\n");
        for found in load(&tree(&[(path, text), ("around.kdl", around)])).diagnostics {
            let help = found.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
            shown += &format!("{} {} {}{help}\n", found.at(), found.code, found.message);
        }
    }
    insta::assert_snapshot!(shown);
}
