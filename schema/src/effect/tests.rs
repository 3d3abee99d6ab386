//! What the classifier promises.

use proptest::prelude::*;

use super::{EffectAction as Action, EffectClass as Class, *};
use crate::spec::{
    AccessKey, DriftMode, DriftRule, HostFile, HostSection, Hugepages, KernelModule, NodeSpec, PackagePin, Unit,
};

fn file(path: &str, content: &str) -> HostFile {
    HostFile {
        path: path.into(),
        content: content.into(),
        mode: "0644".into(),
        owner: "root".into(),
        group: "root".into(),
        ..HostFile::default()
    }
}

fn unit(name: &str, content: &str) -> Unit {
    Unit { name: name.into(), content: content.into(), ..Unit::default() }
}

fn spec(change: impl FnOnce(&mut HostSection)) -> NodeSpec {
    let mut spec = NodeSpec::default();
    change(&mut spec.host);
    spec
}

fn items(before: &NodeSpec, after: &NodeSpec) -> Vec<String> {
    let effects = classify(before, after);
    let mut lines: Vec<String> =
        effects.items.iter().map(|item| format!("{}: {} {}", item.class, item.action, item.subject)).collect();
    lines.sort();
    lines
}

#[test]
fn a_spec_that_stays_has_no_effects() {
    assert_eq!(classify(&NodeSpec::default(), &NodeSpec::default()), Effects::default());
}

#[test]
fn a_kernel_parameter_is_set_at_once_and_kept_in_its_file() {
    let before = spec(|host| drop(host.sysctl.insert("vm.swappiness".into(), "10".into())));
    let after = spec(|host| drop(host.sysctl.insert("vm.swappiness".into(), "1".into())));
    let set = ["live: set sysctl vm.swappiness", "live: write file /etc/sysctl.d/60-better-compute.conf"];
    assert_eq!(items(&before, &after), set);
    let unset = ["live: remove file /etc/sysctl.d/60-better-compute.conf", "live: unset sysctl vm.swappiness"];
    assert_eq!(items(&after, &NodeSpec::default()), unset);
    let cause = |effects: Effects| effects.items.into_iter().find_map(|item| item.cause);
    assert_eq!(cause(classify(&before, &after)).as_deref(), Some("sysctl vm.swappiness"));
}

#[test]
fn what_the_kernel_takes_only_at_boot_is_staged() {
    let args = spec(|host| host.kernel_args.push("iommu=pt".into()));
    let staged = [
        "live: write file /etc/default/grub.d/60-better-compute.cfg",
        "reboot: stage boot loader",
        "reboot: stage kernel arguments",
    ];
    assert_eq!(items(&NodeSpec::default(), &args), staged);
    let giant = spec(|host| host.hugepages.push(Hugepages { size_kib: 1_048_576, count: 4 }));
    assert_eq!(classify(&NodeSpec::default(), &giant).class, Class::Reboot);
    let small = spec(|host| host.hugepages.push(Hugepages { size_kib: 2048, count: 4 }));
    assert_eq!(classify(&NodeSpec::default(), &small).class, Class::Live);
    let by_hand = spec(|host| host.files.push(file("/etc/default/grub.d/50-mine.cfg", "X=1\n")));
    assert_eq!(classify(&NodeSpec::default(), &by_hand).class, Class::Reboot);
}

#[test]
fn a_module_comes_at_once_and_changes_or_goes_at_a_boot() {
    let module = |options: &str, blacklist| {
        spec(|host| {
            host.modules.push(KernelModule { name: "nvidia".into(), options: options.into(), blacklist });
        })
    };
    let nothing = NodeSpec::default();
    let of = |before: &NodeSpec, after: &NodeSpec| -> Vec<(Class, Action)> {
        let effects = classify(before, after).items.into_iter();
        effects.filter(|item| item.subject == "module nvidia").map(|item| (item.class, item.action)).collect()
    };
    assert_eq!(of(&nothing, &module("", false)), [(Class::Live, Action::Load)]);
    assert_eq!(of(&module("", false), &module("a=1", false)), [(Class::Reboot, Action::Stage)]);
    assert_eq!(of(&module("", false), &module("", true)), [(Class::Reboot, Action::Unload)]);
    assert_eq!(of(&module("", false), &nothing), [(Class::Reboot, Action::Unload)]);
    assert_eq!(of(&module("", true), &nothing), [(Class::Reboot, Action::Stage)]);
    assert_eq!(of(&module("", true), &module("", false)), [(Class::Live, Action::Load)]);
}

#[test]
fn a_unit_file_that_changes_restarts_its_unit() {
    let before = spec(|host| host.units.push(unit("a.service", "one\n")));
    let after = spec(|host| host.units.push(unit("a.service", "two\n")));
    let restart = [
        "live: reload systemd",
        "live: write file /etc/systemd/system/a.service",
        "service-restart: restart unit a.service",
    ];
    assert_eq!(items(&before, &after), restart);
    // A word that is being deleted in the same change still counts.
    let drains = spec(|host| host.units.push(Unit { drain: true, ..unit("a.service", "one\n") }));
    assert_eq!(classify(&drains, &after).class, Class::Drain);
    let stopped = spec(|host| host.units.push(Unit { active: Some(false), ..unit("a.service", "one\n") }));
    let still = spec(|host| host.units.push(Unit { active: Some(false), ..unit("a.service", "two\n") }));
    assert_eq!(classify(&stopped, &still).class, Class::Live);
}

#[test]
fn a_unit_of_its_own_that_is_new_disturbs_nobody() {
    let new = spec(|host| {
        host.units.push(Unit {
            enabled: Some(true),
            active: Some(true),
            ..unit("a.service", "[Install]\nWantedBy=multi-user.target\n")
        });
    });
    let effects = [
        "live: enable unit a.service",
        "live: reload systemd",
        "live: start unit a.service",
        "live: write file /etc/systemd/system/a.service",
    ];
    assert_eq!(items(&NodeSpec::default(), &new), effects);
    let gone = [
        "live: disable unit a.service",
        "live: reload systemd",
        "live: remove file /etc/systemd/system/a.service",
        "service-restart: stop unit a.service",
    ];
    assert_eq!(items(&new, &NodeSpec::default()), gone);
}

#[test]
fn a_unit_of_a_package_is_enabled_by_links_that_systemd_reads() {
    let wanted = |enabled| spec(|host| host.units.push(Unit { enabled, ..unit("chrony.service", "") }));
    let enabled = ["live: enable unit chrony.service", "live: reload systemd"];
    assert_eq!(items(&wanted(None), &wanted(Some(true))), enabled);
    assert_eq!(items(&wanted(Some(false)), &wanted(None)), ["live: reload systemd", "live: unset unit chrony.service"]);
}

#[test]
fn a_file_restarts_what_it_says_whether_it_comes_changes_or_goes() {
    let conf = |content: &str| {
        spec(|host| {
            host.files.push(HostFile { restart: vec!["chrony.service".into()], ..file("/etc/chrony.conf", content) })
        })
    };
    let restart = ["live: write file /etc/chrony.conf", "service-restart: restart unit chrony.service"];
    assert_eq!(items(&NodeSpec::default(), &conf("a\n")), restart);
    assert_eq!(items(&conf("a\n"), &conf("b\n")), restart);
    let gone = ["live: remove file /etc/chrony.conf", "service-restart: restart unit chrony.service"];
    assert_eq!(items(&conf("a\n"), &NodeSpec::default()), gone);
    let quiet = spec(|host| host.files.push(file("/etc/chrony.conf", "a\n")));
    assert_eq!(items(&quiet, &conf("a\n")), ["none: set file /etc/chrony.conf"]);
}

#[test]
fn a_drop_in_is_read_and_restarts_nothing() {
    let drop_in = spec(|host| host.files.push(file("/etc/systemd/system/a.service.d/x.conf", "x\n")));
    let effects = ["live: reload systemd", "live: write file /etc/systemd/system/a.service.d/x.conf"];
    assert_eq!(items(&NodeSpec::default(), &drop_in), effects);
}

#[test]
fn a_key_is_granted_and_revoked() {
    let key = |text: &str| {
        let key = AccessKey { principal: "ada".into(), account: "root".into(), key: text.into(), until: None };
        NodeSpec { access: crate::spec::AccessSection { keys: vec![key] }, ..NodeSpec::default() }
    };
    let granted = [
        "live: grant key ada for root",
        "live: reload unit ssh.service",
        "live: write file /etc/ssh/better-compute/authorized_keys.d/root",
        "live: write file /etc/ssh/sshd_config.d/00-better-compute.conf",
    ];
    assert_eq!(items(&NodeSpec::default(), &key("ssh-ed25519 AAAA")), granted);
    let replaced = [
        "live: grant key ada for root",
        "live: revoke key ada for root",
        "live: write file /etc/ssh/better-compute/authorized_keys.d/root",
    ];
    assert_eq!(items(&key("ssh-ed25519 AAAA"), &key("ssh-ed25519 BBBB")), replaced);
}

#[test]
fn a_space_changes_the_words_and_not_the_host() {
    let one = spec(|host| drop(host.sysctl.insert("vm.swappiness".into(), "1".into())));
    let two = spec(|host| drop(host.sysctl.insert("vm.swappiness".into(), "1 ".into())));
    assert_eq!(items(&one, &two), ["none: set spec"]);
}

fn some_spec() -> impl Strategy<Value = NodeSpec> {
    let sysctl = prop::collection::btree_map(
        prop::sample::select(vec!["vm.swappiness", "vm.nr_hugepages"]).prop_map(str::to_owned),
        prop::sample::select(vec!["1", "1 ", "2"]).prop_map(str::to_owned),
        0..3,
    );
    let module = (prop::sample::select(vec!["a", "b"]), prop::sample::select(vec!["", "x=1"]), any::<bool>())
        .prop_map(|(name, options, blacklist)| KernelModule { name: name.into(), options: options.into(), blacklist });
    let pages = (prop::sample::select(vec![2048_u32, 1_048_576, 64]), 0..3_u32)
        .prop_map(|(size_kib, count)| Hugepages { size_kib, count });
    let paths =
        ["/etc/motd", "/etc/systemd/system/a.service", "/etc/default/grub.d/x.cfg", "/etc/ssh/sshd_config.d/x.conf"];
    let files = (
        prop::sample::select(paths.to_vec()),
        prop::sample::select(vec!["x\n", "y\n"]),
        prop::sample::select(vec!["0644", "0600"]),
        prop::sample::select(vec!["root", "0", "slurm"]),
        prop::sample::select(vec![vec![], vec!["b.service".to_owned()]]),
    )
        .prop_map(|(path, content, mode, owner, restart)| HostFile {
            mode: mode.into(),
            owner: owner.into(),
            restart,
            ..file(path, content)
        });
    let units = (
        prop::sample::select(vec!["a.service", "b.service"]),
        prop::sample::select(vec!["", "[Install]\nWantedBy=x.target\n", "[Install]\nWantedBy=y.target\n"]),
        any::<Option<bool>>(),
        any::<Option<bool>>(),
        any::<bool>(),
    )
        .prop_map(|(name, content, enabled, active, drain)| Unit { enabled, active, drain, ..unit(name, content) });
    let pins = prop::sample::select(vec!["1", "2"])
        .prop_map(|version| PackagePin { name: "nvidia-driver".into(), version: version.into() });
    let drift = (prop::sample::select(vec!["sysctl.*", "files./etc/motd"]), any::<bool>()).prop_map(|(path, warn)| {
        DriftRule { path: path.into(), mode: if warn { DriftMode::Warn } else { DriftMode::Adopt } }
    });
    let keys = (prop::sample::select(vec!["root", "ops"]), prop::sample::select(vec!["k1", "k2"]), any::<bool>())
        .prop_map(|(account, key, ends)| AccessKey {
            principal: "ada".into(),
            account: account.into(),
            key: key.into(),
            until: ends.then(|| "2027-01-01T00:00:00Z".parse().expect("a time")),
        });
    let args = prop::sample::select(vec![vec![], vec!["a".to_owned()], vec!["a".to_owned(), "b".to_owned()]]);
    (
        sysctl,
        prop::collection::vec(module, 0..2),
        prop::collection::vec(pages, 0..2),
        prop::collection::vec(files, 0..3),
        prop::collection::vec(units, 0..2),
        prop::collection::vec(pins, 0..1),
        prop::collection::vec(drift, 0..2),
        prop::collection::vec(keys, 0..2),
        args,
    )
        .prop_map(|(sysctl, modules, hugepages, files, units, packages, drift, keys, kernel_args)| NodeSpec {
            host: HostSection { sysctl, modules, kernel_args, hugepages, files, units, packages, drift },
            access: crate::spec::AccessSection { keys },
        })
}

fn unique(mut spec: NodeSpec) -> NodeSpec {
    let host = &mut spec.host;
    host.modules.sort_by(|a, b| a.name.cmp(&b.name));
    host.modules.dedup_by(|a, b| a.name == b.name);
    host.files.sort_by(|a, b| a.path.cmp(&b.path));
    host.files.dedup_by(|a, b| a.path == b.path);
    host.units.sort_by(|a, b| a.name.cmp(&b.name));
    host.units.dedup_by(|a, b| a.name == b.name);
    spec
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_happens_to_what_stays_and_something_to_what_does_not(one in some_spec(), two in some_spec()) {
        prop_assert!(classify(&one, &one).is_empty());
        prop_assert_eq!(classify(&one, &two).is_empty(), one == two);
    }

    #[test]
    fn the_class_is_the_hardest_item(one in some_spec(), two in some_spec()) {
        let effects = classify(&one, &two);
        let hardest = effects.items.iter().map(|item| item.class).max().unwrap_or(Class::None);
        prop_assert_eq!(effects.class, hardest);
        prop_assert!(effects.items.is_sorted());
    }

    #[test]
    fn the_order_of_a_spec_does_not_matter(one in some_spec(), two in some_spec()) {
        let (one, two) = (unique(one), unique(two));
        let mut turned = two.clone();
        turned.host.files.reverse();
        turned.host.units.reverse();
        if one != two && one != turned {
            prop_assert_eq!(classify(&one, &two), classify(&one, &turned));
        }
    }

    #[test]
    fn the_way_back_is_about_the_same_files(one in some_spec(), two in some_spec()) {
        let (one, two) = (unique(one), unique(two));
        let files = |effects: Effects| -> Vec<String> {
            let mut files: Vec<String> = effects
                .items
                .into_iter()
                .filter(|item| matches!(item.action, Action::Write | Action::Remove))
                .map(|item| item.subject)
                .collect();
            files.sort();
            files
        };
        prop_assert_eq!(files(classify(&one, &two)), files(classify(&two, &one)));
    }
}
