//! What a plan says that a change does to each machine.

use schema::effect::EffectClass as Class;

use super::{BASE, fleet, in_force, model, name, node, now};
use crate::plan::{Change, Machines, MoveReason, Observed, RenderOptions, markdown, plan, render};

const KERNEL: &str = "profile \"quiet\" {\n  extends \"base\"\n  kernel {\n    args \"iommu=pt\"\n  }\n}\n";

#[test]
fn machines_of_one_template_are_told_one_list_of_effects() {
    let before = in_force(&fleet(&[]), &[("a", "h100"), ("b", "h100"), ("c", "l40s")]);
    let changed = fleet(&[("base.kdl", &BASE.replace("\"10\"", "\"1\"")), ("quiet.kdl", KERNEL)]);
    let planned = plan(&changed, &before, now()).plan;
    assert_eq!(planned.effects.len(), 2);
    let of = |index: usize| (planned.nodes[index].effect, planned.nodes[index].effects);
    assert_eq!((of(0), of(1), of(2)), ((Class::Live, Some(0)), (Class::Live, Some(0)), (Class::Reboot, Some(1))));
    assert_eq!(planned.classes, [(Class::Live, 2), (Class::Reboot, 1)].into());
    assert!(planned.effects[0].items.iter().any(|item| item.subject == "sysctl vm.swappiness"));
    assert!(planned.nodes.iter().all(|node| node.before_spec.is_some() && node.after_spec.is_some()));
    assert_eq!(planned.nodes[0].before_spec, planned.nodes[1].before_spec);
    let pool = |name: &str| planned.pools.iter().find(|pool| pool.pool.as_str() == name).map(|pool| pool.effect);
    assert_eq!((pool("h100"), pool("l40s")), (Some(Class::Live), Some(Class::Reboot)));
}

#[test]
fn machines_that_a_template_names_are_composed_each() {
    let motd = "profile \"base\" {\n  file \"/etc/motd\" {\n    template \"motd.j2\"\n  }\n}\n";
    let old = fleet(&[("base.kdl", motd), ("motd.j2", "{{ node.name }}\n")]);
    let before = in_force(&old, &[("a", "h100"), ("b", "h100")]);
    let new = fleet(&[("base.kdl", motd), ("motd.j2", "welcome to {{ node.name }}\n")]);
    let planned = plan(&new, &before, now()).plan;
    assert_eq!((planned.nodes.len(), planned.effects.len()), (2, 1));
    assert_ne!(planned.nodes[0].after_spec, planned.nodes[1].after_spec);
    assert_eq!(planned.effects[0].items[0].subject, "file /etc/motd");
}

#[test]
fn a_first_assignment_counts_from_nothing() {
    let fleet = fleet(&[("n.kdl", &node("a", "h100", ""))]);
    let planned = plan(&fleet, &Observed::nothing(Machines::Declared), now()).plan;
    assert_eq!(planned.nodes[0].before_spec, None);
    assert_eq!((planned.nodes[0].effect, planned.effects.len()), (Class::Live, 1));
    assert!(planned.nodes[0].why.contains(&MoveReason::First));
}

#[test]
fn offline_and_live_tell_the_same_effects() {
    let documents = [node("a", "h100", ""), node("b", "l40s", "  labels rack=\"r1\"\n")].concat();
    let base = fleet(&[("n.kdl", &documents)]);
    let head = fleet(&[("n.kdl", &documents), ("quiet.kdl", KERNEL), ("base.kdl", &BASE.replace("10", "1"))]);
    let live = plan(&head, &in_force(&base, &[("a", "h100"), ("b", "l40s")]), now()).plan;
    let offline = plan(&head, &Observed::from_fleet(&base), now()).plan;
    let told = |plan: &crate::plan::Plan| -> Vec<_> {
        plan.nodes.iter().map(|node| (node.node.clone(), node.before_spec, node.after_spec, node.effect)).collect()
    };
    assert_eq!(told(&live), told(&offline));
    assert_eq!(live.effects, offline.effects);
}

#[test]
fn a_template_that_cannot_be_read_is_a_warning_on_the_machine() {
    let mut before = in_force(&fleet(&[]), &[("a", "h100")]);
    before.targets.clear();
    let planned = plan(&fleet(&[("base.kdl", &BASE.replace("10", "1"))]), &before, now()).plan;
    assert_eq!(planned.nodes.len(), 1);
    assert!(planned.warnings.iter().any(|warning| warning.object.to_string() == "node/a"));
    assert_eq!(planned.nodes[0].before_spec, None);
}

#[test]
fn a_template_says_where_its_fields_are_written() {
    let before = in_force(&fleet(&[]), &[]);
    let head = fleet(&[("base.kdl", &BASE.replace("\"10\"", "\"1\""))]);
    let planned = plan(&head, &before, now()).plan;
    let places: Vec<_> = planned.targets.iter().map(|target| target.fields[0].place.as_deref()).collect();
    assert_eq!(places, [Some("base.kdl:3"), Some("base.kdl:3")]);
    assert!(planned.objects.iter().all(|object| object.change == Change::Update));
}

#[test]
fn a_retained_pool_keeps_what_its_machines_are_told() {
    let before = in_force(&fleet(&[]), &[("a", "l40s")]);
    let less = fleet(&[("l40s.kdl", ""), ("quiet.kdl", "")]);
    let planned = plan(&less, &before, now());
    assert!(planned.plan.nodes.is_empty() && planned.plan.effects.is_empty());
    let after = model::apply(&before, &planned);
    assert_eq!(after.nodes[0].pool, Some(name("l40s")));
}

#[test]
fn machines_that_wait_for_a_boot_anyhow_are_told_apart() {
    let machines = [("a", "l40s"), ("b", "l40s"), ("c", "l40s"), ("d", "h100")];
    let known = in_force(&fleet(&[]), &machines);
    let boots = |names: &[&str]| Some(names.iter().map(|one| name(one)).collect());
    let head = fleet(&[("quiet.kdl", KERNEL)]);
    let planned = plan(&head, &Observed { boots: boots(&["a", "d"]), ..known.clone() }, now()).plan;
    assert_eq!(planned.counts.awaiting_boot, Some(2));
    let waits: Vec<bool> = planned.nodes.iter().map(|node| node.awaits_boot).collect();
    assert_eq!(waits, [true, false, false]);
    let said = "2 machines already wait for a boot, 1 of these among them; this plan adds 2";
    let page = render(&planned, RenderOptions::default());
    assert!(page.contains(said) && markdown(&planned, "").contains(said), "{page}");
    // Nothing is said of what is not known, and the number alone where the plan stages nothing.
    let page = |boots, tree: &str| {
        let planned = plan(&fleet(&[("quiet.kdl", tree)]), &Observed { boots, ..known.clone() }, now()).plan;
        render(&planned, RenderOptions::default())
    };
    assert!(!page(None, KERNEL).contains("already"));
    let quiet = page(boots(&["d"]), super::QUIET);
    assert!(quiet.contains("1 waits for a boot already") && !quiet.contains("this plan adds"), "{quiet}");
}
