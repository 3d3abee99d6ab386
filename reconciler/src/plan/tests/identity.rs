//! Identity across edits: what keeps its place, what is proposed, and that nothing goes by mistake.

use proptest::prelude::*;
use schema::effect::EffectClass as Class;

use super::{BASE, FILES, HEAD, OTHER, POOL, QUIET, changes, fleet, in_force, model, moved, name, node, now, object};
use crate::plan::{Change, Machines, ObjectStanding, Observed, Planned, plan};

fn removals(planned: &Planned) -> usize {
    planned.delta.objects.iter().filter(|row| row.standing == ObjectStanding::Removed).count()
        + planned.delta.removed_pools.len()
}

#[test]
fn a_pool_under_another_name_keeps_its_machines_and_changes_nothing_on_them() {
    let before = in_force(&fleet(&[]), &[("a", "h100"), ("b", "h100")]);
    let head =
        fleet(&[("h100.kdl", &POOL.replace("h100", "h200")), ("m.kdl", "moved from=\"pool/h100\" to=\"pool/h200\"\n")]);
    let planned = plan(&head, &before, now());
    assert_eq!(changes(&planned.plan), [("pool/h200".to_owned(), Change::Update)]);
    assert_eq!((planned.plan.moved[0].machines, planned.plan.counts.retain, removals(&planned)), (2, 0, 0));
    assert_eq!(planned.delta.moved, [(object("pool/h100"), object("pool/h200"))]);
    assert!(planned.plan.nodes.iter().all(|node| node.effect == Class::None && node.before_spec == node.after_spec));
    let after = model::apply(&before, &planned);
    assert!(after.nodes.iter().all(|node| node.pool == Some(name("h200"))));
    assert_eq!(after.nodes[0].id, before.nodes[0].id);
    let again = plan(&head, &after, now());
    assert!(again.is_settled() && again.plan.nodes.is_empty(), "{:#?}", again.delta);
    assert!(again.plan.warnings.iter().any(|warning| warning.message.contains("can be deleted")));
}

#[test]
fn a_machine_under_another_name_keeps_its_id() {
    let before = in_force(&fleet(&[("n.kdl", &node("a", "h100", ""))]), &[("a", "h100")]);
    let head = fleet(&[("n.kdl", &node("z", "h100", "")), ("m.kdl", "moved from=\"node/a\" to=\"node/z\"\n")]);
    let planned = plan(&head, &before, now());
    assert_eq!((planned.plan.counts.retain, planned.plan.counts.create, planned.plan.counts.awaited), (0, 0, 0));
    let after = model::apply(&before, &planned);
    assert_eq!((after.nodes[0].id, &after.nodes[0].name), (before.nodes[0].id, &name("z")));
    assert!(plan(&head, &after, now()).is_settled());
}

#[test]
fn a_profile_and_a_site_under_another_name_move_no_machine() {
    let documents = node("a", "h100", "  profile \"quiet\"\n");
    let before = in_force(&fleet(&[("n.kdl", &documents)]), &[("a", "h100"), ("b", "l40s")]);
    let head = fleet(&[
        ("n.kdl", &documents.replace("quiet", "silent")),
        ("quiet.kdl", &QUIET.replace("\"quiet\"", "\"silent\"")),
        ("l40s.kdl", &OTHER.replace("quiet", "silent").replace("fra1", "fra2")),
        ("h100.kdl", &POOL.replace("fra1", "fra2")),
        ("sites.kdl", &super::SITE.replace("fra1", "fra2")),
        ("m.kdl", "moved from=\"profile/quiet\" to=\"profile/silent\"\nmoved from=\"site/fra1\" to=\"site/fra2\"\n"),
    ]);
    let planned = plan(&head, &before, now());
    assert_eq!((planned.plan.counts.retain, planned.plan.counts.create, removals(&planned)), (0, 0, 0));
    assert!(planned.plan.nodes.iter().all(|node| node.effect == Class::None && node.held.is_empty()));
    let after = model::apply(&before, &planned);
    let again = plan(&head, &after, now());
    assert!(again.is_settled() && again.plan.nodes.is_empty(), "{again:#?}");
}

#[test]
fn what_looks_like_a_rename_is_proposed_as_a_line_to_paste() {
    let before = in_force(&fleet(&[]), &[("a", "l40s")]);
    let head = fleet(&[("l40s.kdl", &OTHER.replace("l40s", "l40")), ("quiet.kdl", QUIET)]);
    let planned = plan(&head, &before, now());
    let retained = planned.plan.objects.iter().find(|object| object.change == Change::Retain).expect("a retained one");
    assert_eq!(retained.renamed_to, Some(object("pool/l40")));
    assert_eq!(retained.paste.as_deref(), Some("moved from=\"pool/l40s\" to=\"pool/l40\""));
    assert!(planned.plan.nodes.is_empty(), "a proposal is no rename");
}

#[test]
fn a_rename_with_a_small_edit_is_proposed_and_an_ambiguous_one_is_not() {
    let rich = |name: &str, swap: &str| {
        format!(
            "profile \"{name}\" {{\n  sysctl {{\n    \"vm.swappiness\" \"{swap}\"\n    \"vm.overcommit_memory\" \"1\"\n    \"kernel.panic\" \"10\"\n  }}\n}}\n"
        )
    };
    let before = in_force(&fleet(&[("p.kdl", &rich("one", "10"))]), &[]);
    let head = fleet(&[("p.kdl", &rich("uno", "11"))]);
    let find = |planned: &Planned| {
        planned
            .plan
            .objects
            .iter()
            .find(|object| object.change == Change::Retain)
            .and_then(|one| one.renamed_to.clone())
    };
    assert_eq!(find(&plan(&head, &before, now())), Some(object("profile/uno")));
    let two = fleet(&[("p.kdl", &[rich("uno", "11"), rich("due", "11")].concat())]);
    assert_eq!(find(&plan(&two, &before, now())), None);
}

#[test]
fn swapped_names_are_edits() {
    let base = fleet(&[("n.kdl", &[node("a", "h100", ""), node("b", "l40s", "")].concat())]);
    let before = in_force(&base, &[("a", "h100"), ("b", "l40s")]);
    let head = fleet(&[
        ("n.kdl", &[node("b", "h100", ""), node("a", "l40s", "")].concat()),
        ("h100.kdl", &OTHER.replace("l40s", "h100")),
        ("l40s.kdl", &POOL.replace("h100", "l40s")),
    ]);
    let planned = plan(&head, &before, now());
    assert_eq!((removals(&planned), planned.plan.counts.retain, planned.plan.counts.create), (0, 0, 0));
    assert_eq!(moved(&planned.plan).len(), 2);
}

#[test]
fn a_name_that_is_taken_is_not_given_away() {
    let before = in_force(&fleet(&[]), &[("a", "h100")]);
    let head = fleet(&[("h100.kdl", ""), ("m.kdl", "moved from=\"pool/h100\" to=\"pool/l40s\"\n")]);
    let planned = plan(&head, &before, now());
    assert!(planned.delta.moved.is_empty() && removals(&planned) == 0);
    assert!(planned.plan.warnings.iter().any(|warning| warning.message.contains("is in force already")));
    assert_eq!(planned.plan.counts.retain, 1);
}

/// A mistaken edit of the small fleet's files.
#[derive(Debug, Clone)]
enum Mistake {
    Lose(usize),
    Swap,
    Rename(usize),
    Key,
    Fold,
    FleetName,
}

fn mistakes() -> impl Strategy<Value = Vec<Mistake>> {
    prop::collection::vec(
        prop_oneof![
            (1..8_usize).prop_map(Mistake::Lose),
            Just(Mistake::Swap),
            (1..6_usize).prop_map(Mistake::Rename),
            Just(Mistake::Key),
            Just(Mistake::Fold),
            Just(Mistake::FleetName),
        ],
        1..4,
    )
}

fn mistaken(mistakes: &[Mistake]) -> std::collections::BTreeMap<String, String> {
    let documents = [node("a", "h100", ""), node("b", "l40s", "  profile \"base\"\n")].concat();
    let mut files: std::collections::BTreeMap<String, String> =
        FILES.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
    files.insert("n.kdl".to_owned(), documents);
    for mistake in mistakes {
        let names: Vec<String> = files.keys().filter(|file| *file != "fleet.kdl").cloned().collect();
        match mistake {
            Mistake::Lose(index) => {
                for file in names.iter().skip(*index % names.len().max(1)) {
                    files.remove(file);
                }
            }
            Mistake::Swap => {
                for text in files.values_mut() {
                    *text = text.replace("h100", "\u{1}").replace("l40s", "h100").replace('\u{1}', "l40s");
                }
            }
            Mistake::Rename(index) => {
                let word = ["h100", "l40s", "base", "quiet", "fra1"][index % 5];
                for text in files.values_mut() {
                    *text = text.replace(&format!("\"{word}\""), &format!("\"{word}x\""));
                }
            }
            Mistake::Key => {
                for text in files.values_mut() {
                    *text = text.replace("pool \"h100\" {", "pol \"h100\" {");
                }
            }
            Mistake::Fold => {
                files = files
                    .into_iter()
                    .map(|(file, text)| (if file == "fleet.kdl" { file } else { format!("moved/{file}") }, text))
                    .collect();
            }
            Mistake::FleetName => {
                for text in files.values_mut() {
                    *text = text.replace("fleet \"test\"", "fleet \"other\"");
                }
            }
        }
    }
    files
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_mistake_removes_anything(mistakes in mistakes()) {
        let documents = [node("a", "h100", ""), node("b", "l40s", "  profile \"base\"\n")].concat();
        let base = fleet(&[("n.kdl", &documents)]);
        let before = in_force(&base, &[("a", "h100"), ("b", "l40s")]);
        let files = mistaken(&mistakes);
        let sources = files.iter().map(|(file, text)| (file.as_str(), text.as_bytes().to_vec()));
        // A tree with an error in it is no fleet, and cannot be planned at all.
        if let Some(head) = schema::fleet::load(&sources.collect::<schema::fleet::Sources>()).fleet {
            for observed in [&before, &Observed::from_fleet(&base)] {
                let planned = plan(&head, observed, now());
                prop_assert_eq!(removals(&planned), 0);
                prop_assert_eq!(planned.plan.counts.remove, 0);
                let after = model::apply(observed, &planned);
                prop_assert_eq!(after.nodes.len(), observed.nodes.len());
                let keeps = after.nodes.iter().zip(&observed.nodes).all(|(after, before)| {
                    after.id == before.id && (before.assigned.is_none() || after.assigned.is_some())
                });
                prop_assert!(keeps);
            }
        }
    }

    #[test]
    fn only_what_is_told_to_go_goes_and_what_goes_was_shown(pools in prop::collection::vec(any::<bool>(), 2), limit in 0..3_u32) {
        let limited = HEAD.replace("}\n", &format!("  prune {{\n    max-objects {limit}\n  }}\n}}\n"));
        let limited = if limit == 0 { HEAD.to_owned() } else { limited };
        let before = in_force(&fleet(&[("fleet.kdl", &limited)]), &[]);
        let mut lines = String::new();
        let mut head = vec![("fleet.kdl", limited.as_str())];
        for (index, gone) in pools.iter().enumerate() {
            let (file, pool) = [("h100.kdl", "h100"), ("l40s.kdl", "l40s")][index];
            if *gone {
                lines.push_str(&format!("removed \"pool/{pool}\" reason=\"sold\"\n"));
                head.push((file, ""));
            }
        }
        head.push(("r.kdl", &lines));
        let asked = pools.iter().filter(|gone| **gone).count();
        let planned = plan(&fleet(&head), &before, now());
        let allowed = if limit != 0 && asked > limit as usize { 0 } else { asked };
        prop_assert_eq!(planned.plan.counts.remove, allowed);
        prop_assert_eq!(planned.plan.counts.held, asked - allowed);
        let shown: Vec<_> = planned.plan.objects.iter().filter(|object| object.change == Change::Remove).map(|object| &object.object).collect();
        let done: Vec<_> = planned.delta.objects.iter().filter(|row| row.standing == ObjectStanding::Removed).map(|row| &row.object).collect();
        prop_assert_eq!(shown, done);
    }
}

#[test]
fn a_moved_folder_changes_nothing_but_places() {
    let before = in_force(&fleet(&[]), &[("a", "h100")]);
    let mut changes: Vec<(&str, &str)> =
        FILES.iter().filter(|(file, _)| *file != "fleet.kdl").map(|(file, _)| (*file, "")).collect();
    changes.extend([
        ("x/sites.kdl", super::SITE),
        ("x/base.kdl", BASE),
        ("x/quiet.kdl", QUIET),
        ("x/h100.kdl", POOL),
        ("x/l40s.kdl", OTHER),
    ]);
    let planned = plan(&fleet(&changes), &before, now());
    assert!(planned.plan.objects.is_empty() && planned.plan.nodes.is_empty());
    assert_eq!(planned.delta.objects.len(), 5);
    assert_eq!(plan(&fleet(&changes), &Observed::nothing(Machines::Joined), now()).plan.counts.create, 6);
}

#[test]
fn going_back_over_renames_takes_the_old_names_back() {
    let old = fleet(&[("n.kdl", &node("a", "h100", ""))]);
    let before = in_force(&old, &[("a", "h100"), ("b", "h100")]);
    let head = fleet(&[
        ("h100.kdl", &POOL.replace("h100", "h200")),
        ("n.kdl", &node("z", "h200", "")),
        ("m.kdl", "moved from=\"pool/h100\" to=\"pool/h200\"\nmoved from=\"node/a\" to=\"node/z\"\n"),
    ]);
    let renamed = model::apply(&before, &plan(&head, &before, now()));
    assert_eq!(plan(&old, &renamed, now()).plan.counts.retain, 2, "by the files alone the old names are new ones");

    let names = [("pool/h200", "pool/h100"), ("node/z", "node/a")];
    let back = names.map(|(now, had)| (object(now), object(had))).to_vec();
    let going = Observed { back: back.clone(), ..renamed };
    let planned = plan(&old, &going, now());
    assert_eq!((planned.plan.counts.retain, planned.plan.counts.create, planned.plan.counts.awaited), (0, 0, 0));
    assert_eq!((planned.delta.moved.clone(), removals(&planned)), (back, 0));
    let after = Observed { back: Vec::new(), ..model::apply(&going, &planned) };
    assert!(after.nodes.iter().all(|node| node.pool == Some(name("h100"))));
    assert_eq!((after.nodes[0].id, &after.nodes[0].name), (before.nodes[0].id, &name("a")));
    assert!(plan(&old, &after, now()).is_settled());
}

#[test]
fn a_name_goes_back_only_where_it_is_free_and_wanted() {
    let both = fleet(&[("h200.kdl", &POOL.replace("h100", "h200"))]);
    let observed = in_force(&both, &[("a", "h200")]);
    let back = |from: &str, to: &str| Observed { back: vec![(object(from), object(to))], ..observed.clone() };
    // The files that come have both; the old name is taken; nothing has the new one; the old one is not wanted.
    for (tree, going) in [
        (both, back("pool/h200", "pool/h100")),
        (fleet(&[]), back("pool/h200", "pool/h100")),
        (fleet(&[]), back("pool/gone", "pool/other")),
        (fleet(&[]), back("pool/h200", "pool/other")),
    ] {
        assert!(plan(&tree, &going, now()).plan.moved.is_empty());
    }
}
