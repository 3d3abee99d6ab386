//! What a fleet means: layers, templates, composition, provenance.

use super::support::{example, fleet, found};
use crate::{
    diagnostic::codes,
    fleet::{Fleet, HostTemplate, NodeOverlay, Strategy, compose, load},
};

const CHAIN: &str = r#"
site "s" { labels ntp="10.0.0.1" }
pool "p" site="s" profile="tip"
profile "root" {
  sysctl { vm.swappiness 60; vm.max_map_count 1 }
  kernel { args "a=1" "b"; module "nvidia" options="x=1" }
  file "/etc/motd" content="root" mode="0600"
  unit "a.service" enable=#true
}
profile "tip" extends="root" {
  sysctl { vm.swappiness 1 }
  kernel { args "b" "c"; module "nvidia" options="y=2" }
  file "/etc/motd" content="tip"
}
node "n1" pool="p" labels { rack "r1" }
node "n2" pool="p" profile="root"
"#;

fn chain() -> Fleet {
    fleet(&[("a.kdl", &CHAIN.replace("labels { rack \"r1\" }", "{ labels rack=\"r1\" }"))])
}

#[test]
fn a_later_layer_takes_the_place_of_a_value_and_of_a_named_thing_as_a_whole() {
    let fleet = chain();
    let host = compose(&fleet.host_template("p", "tip").expect("a template"), &NodeOverlay::default(), "p-00000000")
        .expect("composed")
        .host;
    assert_eq!(host.sysctl.get("vm.swappiness").map(String::as_str), Some("1"));
    assert_eq!(host.sysctl.get("vm.max_map_count").map(String::as_str), Some("1"));
    assert_eq!(host.kernel_args, ["a=1", "b", "c"]);
    assert_eq!((host.modules.len(), host.modules[0].options.as_str()), (1, "y=2"));
    let motd = &host.files[0];
    assert_eq!((motd.content.as_str(), motd.mode.as_str(), motd.owner.as_str()), ("tip\n", "0644", "root"));
    assert_eq!((host.units[0].enabled, host.units[0].active), (Some(true), None));
}

#[test]
fn a_layer_leaves_out_what_it_does_not_want_of_those_below() {
    let text = CHAIN.replace("labels { rack \"r1\" }", "").replace(
        "profile \"tip\" extends=\"root\" {",
        "profile \"tip\" extends=\"root\" {\n  without { sysctl \"vm.max_map_count\"; unit \"a.service\"; args \"a=1\" }\n  drift { warn \"sysctl.*\" }\n",
    );
    let fleet = fleet(&[("a.kdl", &text)]);
    let host = |profile| {
        let template = fleet.host_template("p", profile).expect("a template");
        compose(&template, &NodeOverlay::default(), "p-00000000").expect("composed").host
    };
    let (tip, root) = (host("tip"), host("root"));
    assert_eq!(tip.sysctl.keys().collect::<Vec<_>>(), ["vm.swappiness"]);
    assert_eq!((tip.units.len(), root.units.len()), (0, 1));
    assert_eq!(
        (tip.kernel_args.as_slice(), root.kernel_args.as_slice()),
        (["b", "c"].map(str::to_owned).as_slice(), ["a=1", "b"].map(str::to_owned).as_slice())
    );
    assert_eq!((tip.drift.len(), root.drift.len()), (1, 0));
    assert!(fleet.explain_pool("p", Some("host.units")).expect("a pool").is_empty());
}

#[test]
fn a_chain_of_profiles_is_bounded() {
    let chain = |length: usize| -> String {
        let below = |n: usize| format!("profile \"p{n}\" extends=\"p{}\"\n", n - 1);
        format!("profile \"p0\"\n{}", (1..length).map(below).collect::<String>())
    };
    assert_eq!(found(&[("p.kdl", &chain(32))]), []);
    assert_eq!(found(&[("p.kdl", &chain(34))]), [codes::TOO_DEEP, codes::TOO_DEEP]);
}

#[test]
fn a_value_knows_its_place_its_layer_and_whom_it_beat() {
    let fleet = chain();
    let swappiness = fleet.explain("n1", Some("host.sysctl.vm.swappiness")).expect("declared");
    assert_eq!(swappiness.len(), 1);
    assert_eq!(
        (swappiness[0].value.as_str(), swappiness[0].layer.as_str(), swappiness[0].at.line()),
        ("1", "profile/tip", 11)
    );
    assert_eq!(swappiness[0].beaten.iter().map(|at| at.to_string()).collect::<Vec<_>>(), ["a.kdl:5:26"]);
    let profile = fleet.explain("n2", Some("profile")).expect("declared");
    assert_eq!((profile[0].value.as_str(), profile[0].layer.as_str()), ("root", "node/n2"));
    assert_eq!(fleet.explain("n2", Some("host.sysctl.vm")).expect("declared").len(), 2);
    assert!(fleet.explain("n3", None).is_none());
    let undeclared = fleet.explain_pool("p", Some("host.sysctl")).expect("a pool");
    assert_eq!((undeclared.len(), undeclared[1].layer.as_str()), (2, "profile/tip"));
}

#[test]
fn the_provenance_of_an_example_machine_is_its_snapshot() {
    let fleet = load(&example()).fleet.expect("the example loads");
    let lines: Vec<String> = fleet
        .explain("fra1-r12-u04", None)
        .expect("declared")
        .iter()
        .map(|one| {
            let template = one.template.as_ref().map(|at| format!(" by {at}")).unwrap_or_default();
            let reads: String = one
                .reads
                .iter()
                .map(|read| {
                    format!("\n  reads {} at {} {:?}", read.value, read.at, read.from.as_ref().map(ToString::to_string))
                })
                .collect();
            let beaten: String = one.beaten.iter().map(|at| format!(" over {at}")).collect();
            format!("{} = {} [{} at {}{template}]{beaten}{reads}", one.path, one.value, one.layer, one.at)
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_example_machines_compose_as_their_snapshot() {
    let fleet = load(&example()).fleet.expect("the example loads");
    let template = fleet.host_template("h100", "h100-host").expect("a template");
    let composed =
        compose(&template, &fleet.overlay("fra1-r12-u04").expect("declared"), "fra1-r12-u04").expect("composed");
    insta::assert_json_snapshot!((composed.host, composed.access));
}

#[test]
fn moving_lines_moves_no_target_and_a_value_does() {
    let with = |extra: &str, value: &str| {
        let text = format!(
            "{extra}site \"s\"\npool \"p\" site=\"s\" profile=\"b\"\n{extra}profile \"b\" {{\n{extra} sysctl {{ vm.swappiness {value} }}\n}}\n"
        );
        fleet(&[("a.kdl", &text)]).host_template("p", "b").expect("a template").digest()
    };
    assert_eq!(with("", "1"), with("\n\n// a comment\n", "1"));
    assert_ne!(with("", "1"), with("", "2"));
}

#[test]
fn a_target_moves_only_with_values_that_a_template_reads() {
    let with = |region: &str, template: &str| {
        let text = format!(
            "site \"s\" region=\"{region}\"\npool \"p\" site=\"s\" profile=\"b\"\nprofile \"b\" {{ file \"/x\" template=\"x.j2\" }}\n"
        );
        fleet(&[("a.kdl", &text), ("x.j2", template), ("unused.j2", "{{ site.region }}")])
            .host_template("p", "b")
            .expect("a template")
            .digest()
    };
    assert_eq!(with("eu", "{{ node.name }}"), with("us", "{{ node.name }}"));
    assert_ne!(with("eu", "{{ site.region }}"), with("us", "{{ site.region }}"));
}

#[test]
fn a_stored_template_composes_to_the_same_host() {
    let fleet = load(&example()).fleet.expect("the example loads");
    let template = fleet.host_template("h200", "h200-host").expect("a template");
    let bytes = crate::canonical::to_vec(&template).expect("canonical");
    let again = HostTemplate::from_value(serde_json::from_slice(&bytes).expect("JSON")).expect("a template");
    assert_eq!(again.digest(), template.digest());
    let overlay = fleet.overlay("ams1-a03-u20").expect("declared");
    assert_eq!(compose(&again, &overlay, "ams1-a03-u20"), compose(&template, &overlay, "ams1-a03-u20"));
}

#[test]
fn templates_include_each_other_and_see_labels_of_a_machine() {
    let files = [
        (
            "a.kdl",
            "site \"s\"\npool \"p\" site=\"s\" profile=\"b\"\nprofile \"b\" { file \"/x\" template=\"t/x.j2\" }\nnode \"n\" pool=\"p\" { labels rack=\"r1\" }\n",
        ),
        ("t/x.j2", "{% include \"t/y.j2\" %}rack {{ node.labels.rack | default(\"none\") }}"),
        ("t/y.j2", "{{ node.name }} in {{ pool.name }}\n"),
    ];
    let fleet = fleet(&files);
    let template = fleet.host_template("p", "b").expect("a template");
    let text = |overlay: &NodeOverlay, name| {
        compose(&template, overlay, name).expect("composed").host.files[0].content.clone()
    };
    assert_eq!(text(&fleet.overlay("n").expect("declared"), "n"), "n in p\nrack r1\n");
    assert_eq!(text(&NodeOverlay::default(), "p-00000000"), "p-00000000 in p\nrack none\n");
}

#[test]
fn a_strict_fleet_is_not_rendered_for_machines_without_a_document() {
    let tail = "rollout \"now\" { immediate }\nsite \"s\"\npool \"p\" site=\"s\" profile=\"b\"\nprofile \"b\" { file \"/x\" template=\"x.j2\" }\nnode \"n\" pool=\"p\" { labels rack=\"r1\" }\n";
    let with = |admission: &str| {
        format!(
            "fleet \"t\" {{ format 1; trust-domain \"t.example\"; rollout \"now\"; admission \"{admission}\" }}\n{tail}"
        )
    };
    let template = ("x.j2", "{{ node.labels.rack }}");
    assert_eq!(found(&[("fleet.kdl", &with("strict")), template]), []);
    assert_eq!(found(&[("fleet.kdl", &with("token")), template]), [codes::TEMPLATE_UNDEFINED]);
}

#[test]
fn ignored_and_hidden_paths_are_left_alone() {
    let root = "fleet \"t\" { format 1; trust-domain \"t.example\"; ignore \"docs\" \"**/*.yml\" }\n";
    let files = [
        ("fleet.kdl", root),
        ("docs/x.kdl", "not kdl {{{"),
        ("a/b.yml", "kind: Deployment"),
        (".github/x.yaml", "on: push"),
        ("a/.x/y.kdl", "{"),
        ("README.md", "{"),
    ];
    assert_eq!(found(&files), []);
}

#[test]
fn a_pools_strategy_names_the_rollout_that_says_it() {
    let fleet = load(&example()).fleet.expect("the example loads");
    for pool in fleet.pools.values() {
        assert_eq!(fleet.strategy(pool), Strategy::Immediate { rollout: Some("all-at-once".parse().expect("a name")) });
    }
}

#[test]
fn every_key_of_an_object_has_a_place() {
    let fleet = load(&example()).fleet.expect("the example loads");
    let place =
        |object: &str, path: &str| fleet.place(&object.parse().expect("an address"), path).map(ToString::to_string);
    assert_eq!(place("profile/base", "sysctl.vm.swappiness").as_deref(), Some("profiles/base.kdl:9:19"));
    assert_eq!(place("profile/base", "file./etc/motd.mode").as_deref(), Some("profiles/base.kdl:24:54"));
    assert_eq!(place("pool/h100", "hardware.gpus.model").as_deref(), Some("pools/h100.kdl:9:18"));
    assert_eq!(place("pool/h200", "hardware.gpus.model").as_deref(), Some("pools/h200.yaml:13:12"));
    assert_eq!(
        place("profile/h200-host", "unit.nvidia-fabricmanager.service.enable").as_deref(),
        Some("profiles/h200-host.yaml:23:13")
    );
    assert_eq!(place("profile/base", "nothing"), None);
}

const LAYERS: [(&str, &str); 3] = [
    (
        "fleet.kdl",
        "fleet \"t\" { format 1; trust-domain \"t.example\"; rollout \"now\" }\nrollout \"now\" { immediate }\nsite \"s\"\npool \"p\" site=\"s\" profile=\"tip\"\nnode \"n\" pool=\"p\"\n",
    ),
    (
        "low.kdl",
        r#"profile "low" {
  kernel {
    args "iommu=pt"
    args "quiet"
    modules "overlay"
    module "nvidia" options="A=1"
    blacklist "nouveau"
  }
  hugepages { "2048KiB" 64 }
  unit "a.service" enable=#true state="started"
  file "/etc/x" content="x" mode="0600" { restart "a.service" "b.service" }
  access { key "ada" { key "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp" } }
}
"#,
    ),
    (
        "tip.kdl",
        r#"profile "tip" extends="low" {
  kernel { args "debug"; modules "br_netfilter" }
  unit "a.service" enable=#false
  drift { warn "host.hugepages[2MiB].count" }
}
"#,
    ),
];

#[test]
fn every_item_of_a_list_has_the_place_of_its_own_layer() {
    let fleet = fleet(&LAYERS);
    let said = |path: &str| -> Vec<String> {
        let found = fleet.explain("n", Some(path)).expect("declared");
        found.iter().map(|one| format!("{} {}", one.path, one.at)).collect()
    };
    let args = ["kernelArgs.iommu=pt low.kdl:3:10", "kernelArgs.quiet low.kdl:4:10", "kernelArgs.debug tip.kdl:2:17"];
    assert_eq!(said("kernelArgs"), args);
    assert_eq!(said("modules.overlay"), ["modules.overlay low.kdl:5:13"]);
    assert_eq!(said("modules.nvidia.options"), ["modules.nvidia.options low.kdl:6:29"]);
    assert_eq!(said("files./etc/x.restart.b.service"), ["files./etc/x.restart.b.service low.kdl:11:63"]);
    let places = fleet.host_places("tip");
    for (path, place) in [
        ("kernelArgs.quiet", "low.kdl:4:10"),
        ("modules.br_netfilter", "tip.kdl:2:34"),
        ("modules.nvidia", "low.kdl:6:12"),
        ("hugepages.2MiB", "low.kdl:9:25"),
        ("units.a.service.enabled", "tip.kdl:3:27"),
        ("access.ada.key", "low.kdl:12:28"),
    ] {
        assert_eq!(places.get(path).map(ToString::to_string).as_deref(), Some(place), "{path}");
    }
}

#[test]
fn a_word_that_won_is_held_against_the_same_word_below() {
    let fleet = fleet(&LAYERS);
    let enabled = fleet.explain("n", Some("units.a.service.enabled")).expect("declared");
    assert_eq!(enabled[0].beaten.iter().map(ToString::to_string).collect::<Vec<_>>(), ["low.kdl:10:27"]);
}

#[test]
fn one_value_is_found_by_all_its_names_and_told_by_one() {
    let fleet = fleet(&LAYERS);
    for name in ["hugepages.2MiB", "host.hugepages.2MiB", "hugepages[2MiB].count"] {
        let found = fleet.explain("n", Some(name)).expect("declared");
        assert_eq!(found.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["hugepages.2MiB"], "{name}");
    }
    let template = fleet.host_template("p", "tip").expect("a template");
    assert_eq!(template.drift[0].path, "hugepages.2MiB");
}

#[test]
fn keys_of_a_document_are_found_where_they_stand() {
    let fleet = fleet(&LAYERS);
    let place = |path: &str| fleet.place(&"profile/low".parse().expect("an address"), path).map(ToString::to_string);
    for (path, at) in [
        ("kernel.module.overlay", "low.kdl:5:13"),
        ("kernel.module.nouveau", "low.kdl:7:15"),
        ("kernel.module.nvidia.options", "low.kdl:6:29"),
        ("kernel.args.quiet", "low.kdl:4:10"),
        ("hugepages.2MiB", "low.kdl:9:25"),
        ("file./etc/x.restart.b.service", "low.kdl:11:63"),
    ] {
        assert_eq!(place(path).as_deref(), Some(at), "{path}");
    }
}
