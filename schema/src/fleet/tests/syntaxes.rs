//! KDL and YAML are one language: the same object has the same canonical bytes.

use proptest::prelude::*;

use super::support::{example, fleet, text, tree};
use crate::{
    canonical,
    fleet::{Fleet, Sources, load},
};

/// Every object's address, canonical text and digest.
fn canonical_objects(fleet: &Fleet) -> Vec<(String, String, String)> {
    fleet
        .objects()
        .map(|entry| {
            let bytes = canonical::to_vec(&entry.doc).expect("canonical");
            (entry.object.to_string(), String::from_utf8(bytes).expect("UTF-8"), entry.digest.to_string())
        })
        .collect()
}

const IN_KDL: &str = r##"
site "fra1" region="eu" {
  labels ntp="10.0.0.1" odd.key="x y"
  gateway "gw1.fra1.acme.example:7443" "10.0.0.2:7443"
  network "data" cidr="10.0.0.0/8" mtu=9000
}
pool "h100" {
  site "fra1"
  profile "host"
  class "metal-host"
  hardware {
    gpus 8 model="NVIDIA H100 80GB HBM3" memory="80GiB"
    cpu "Xeon" cores=112
    memory "2048GiB"
  }
  policy { lost-after "90m" }
}
profile "host" {
  sysctl { vm.swappiness 1; net.ipv4.tcp_rmem "4096 87380 134217728" }
  kernel { args "iommu=pt"; modules "overlay"; module "nvidia" options="a=1"; blacklist "nouveau" }
  hugepages { "2MiB" 8; "1GiB" 4 }
  file "/etc/motd" mode="644" owner="root" {
    content """
      hello
        world

      """
  }
  unit "a.service" enable=#true state="started"
  package "nvidia" version="570.*"
  access { key "ada" key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ada" until="2027-01-01T01:00:00+01:00" }
}
image "ubuntu" url="https://images.example/u" digest="sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" arch="amd64" size="1024MiB" {
  use "os" "instance"
}
node "n1" pool="h100" mac="3C-EC-EF-00-00-01" {
  labels rack="r1"
  cordon "broken" owner="ops" until="2027-01-01T00:00:00Z"
}
removed "pool/old" reason="gone"
"##;

const IN_YAML: &str = r#"
kind: site
name: fra1
region: eu
labels: {ntp: 10.0.0.1, odd.key: x y}
gateway: ["gw1.fra1.acme.example:7443", "10.0.0.2:7443"]
network:
  - name: data
    cidr: 10.0.0.0/8
    mtu: 9000
---
kind: pool
name: h100
site: fra1
profile: host
class: metal-host
hardware:
  gpus: {count: 8, model: NVIDIA H100 80GB HBM3, memory: 80GiB}
  cpu: {model: Xeon, cores: 112}
  memory: 2TiB
policy: {lost-after: 1h30m}
---
kind: profile
name: host
sysctl:
  vm.swappiness: 1
  net.ipv4.tcp_rmem: 4096 87380 134217728
kernel:
  args: [iommu=pt]
  module:
    overlay: {}
    nvidia: a=1
    nouveau: {blacklist: true}
hugepages: {2MiB: 8, 1GiB: 4}
file:
  /etc/motd:
    mode: 0644
    owner: root
    content: |
      hello
        world
unit:
  a.service: {enable: true, state: started}
package: {nvidia: 570.*}
access:
  key:
    - name: ada
      key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ
      until: 2027-01-01T00:00:00Z
---
kind: image
name: ubuntu
url: https://images.example/u
digest: sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
arch: amd64
size: 1GiB
use: [os, instance]
---
kind: node
name: n1
pool: h100
mac: ["3c:ec:ef:00:00:01"]
labels: {rack: r1}
cordon: {reason: broken, owner: ops, until: "2027-01-01T00:00:00Z"}
---
kind: removed
name: pool/old
reason: gone
"#;

#[test]
fn an_object_has_the_same_bytes_in_both_syntaxes() {
    let kdl = canonical_objects(&fleet(&[("a.kdl", IN_KDL)]));
    let yaml = canonical_objects(&fleet(&[("a.yaml", IN_YAML)]));
    assert_eq!(kdl, yaml);
    let texts: Vec<&str> = kdl.iter().map(|(_, text, _)| text.as_str()).collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn a_byte_order_mark_and_crlf_change_no_digest() {
    let plain = canonical_objects(&fleet(&[("a.kdl", IN_KDL), ("t.j2", "a\nb\n")]));
    for (path, text) in [("a.kdl", IN_KDL), ("a.yaml", IN_YAML)] {
        let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        assert_eq!(canonical_objects(&fleet(&[(path, &windows)])), plain);
    }
}

#[test]
fn the_canonical_text_of_an_object_is_the_object_again() {
    let loaded = load(&example());
    let first = loaded.fleet.expect("the example loads");
    let mut again: Sources = first
        .objects()
        .map(|entry| {
            let path = if entry.object.kind.as_str() == "fleet" {
                "fleet.yaml".to_owned()
            } else {
                format!("{}.yaml", entry.object).replace('/', "-")
            };
            (path, canonical::to_vec(&entry.doc).expect("canonical"))
        })
        .collect();
    for (path, blob) in example().iter().filter(|(path, _)| path.ends_with(".j2") || path.ends_with(".cedar")) {
        again.insert(path.clone(), blob.clone());
    }
    let second = load(&again);
    let shown = text(&second);
    let second = second.fleet.unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(canonical_objects(&first), canonical_objects(&second));
}

#[test]
fn a_stored_document_reads_back() {
    let fleet = fleet(&[("a.kdl", IN_KDL)]);
    let pool = fleet.objects().find(|entry| entry.object.to_string() == "pool/h100").expect("the pool").doc.clone();
    let mut read: crate::fleet::Pool = serde_json::from_value((*pool).clone()).expect("a pool");
    let written = fleet.pools.values().next().expect("the pool");
    read.at = written.at.clone();
    assert_eq!(read, *written);
}

pub(super) fn quoted_kdl(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
    out + "\""
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_profile_has_the_same_bytes_in_both_syntaxes(
        sysctl in prop::collection::btree_map("[a-z]{1,8}\\.[a-z_]{1,8}", any::<i64>(), 0..5),
        content in "[ -~\\n\\té€]{0,60}",
        args in prop::collection::vec("[a-z]{1,6}=[a-z0-9,.]{0,6}", 0..4),
        labels in prop::collection::btree_map("[a-z0-9./_-]{1,10}", "[ -~]{1,20}", 0..4),
    ) {
        let mut kdl = String::from("profile \"p\" {\n");
        let mut yaml = serde_json::json!({"kind": "profile", "name": "p", "file": {"/etc/x": {"content": content}}});
        if !sysctl.is_empty() {
            let lines: Vec<String> = sysctl.iter().map(|(key, value)| format!("{} {value}", quoted_kdl(key))).collect();
            kdl += &format!("  sysctl {{ {} }}\n", lines.join("; "));
            yaml["sysctl"] = serde_json::json!(sysctl);
        }
        if !args.is_empty() {
            let words: Vec<String> = args.iter().map(|arg| quoted_kdl(arg)).collect();
            kdl += &format!("  kernel {{ args {} }}\n", words.join(" "));
            yaml["kernel"] = serde_json::json!({"args": args});
        }
        kdl += &format!("  file \"/etc/x\" content={}\n}}\n", quoted_kdl(&content));
        let mut site = serde_json::json!({"kind": "site", "name": "s"});
        kdl += "site \"s\" {\n";
        if !labels.is_empty() {
            let words: Vec<String> = labels.iter().map(|(key, value)| format!("{}={}", quoted_kdl(key), quoted_kdl(value))).collect();
            kdl += &format!("  labels {}\n", words.join(" "));
            site["labels"] = serde_json::json!(labels);
        }
        kdl += "}\n";
        let from_kdl = load(&tree(&[("a.kdl", &kdl)]));
        let from_yaml = load(&tree(&[("a.yaml", &format!("---\n{yaml}\n---\n{site}\n"))]));
        prop_assert!(from_kdl.fleet.is_some(), "{}\n{}", kdl, text(&from_kdl));
        prop_assert!(from_yaml.fleet.is_some(), "{}\n{}", yaml, text(&from_yaml));
        prop_assert_eq!(canonical_objects(&from_kdl.fleet.expect("checked")), canonical_objects(&from_yaml.fleet.expect("checked")));
    }
}
