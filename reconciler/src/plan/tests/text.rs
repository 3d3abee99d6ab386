//! What people read, as whole pages.

use super::{BASE, FILES, HEAD, QUIET, fleet, in_force, model, node, now};
use crate::plan::{Machines, Observed, Planned, RenderOptions, plan, render};

fn page(planned: Planned) -> String {
    let mut planned = planned.at_commit("3f2a91c0d17e0b7a9b1e");
    planned.plan.base = Some("a81be0221e55aa990b1c".to_owned());
    render(&planned.plan, RenderOptions::default())
}

#[test]
fn nothing_changes() {
    let fleet = fleet(&[]);
    let before = in_force(&fleet, &[("a", "h100")]);
    insta::assert_snapshot!(page(plan(&fleet, &before, now())));
}

#[test]
fn the_first_commit() {
    let planned = plan(&fleet(&[("a.kdl", &node("a", "h100", ""))]), &Observed::nothing(Machines::Joined), now());
    insta::assert_snapshot!(render(&planned.at_commit("3f2a91c0d17e0b7a9b1e").plan, RenderOptions::default()));
}

#[test]
fn one_machine() {
    let before = in_force(&fleet(&[("a.kdl", &node("a", "h100", ""))]), &[("a", "h100")]);
    let after = fleet(&[(
        "a.kdl",
        &node(
            "a",
            "l40s",
            "  labels rack=\"r12\"\n  cordon \"GPU 3 falls off the bus\" owner=\"ada\" until=\"2026-12-01T00:00:00Z\"\n",
        ),
    )]);
    insta::assert_snapshot!(page(plan(&after, &before, now())));
}

#[test]
fn three_machines() {
    let motd = |text: &str| {
        BASE.replace(
            "profile \"base\" {\n",
            &format!("profile \"base\" {{\n  file \"/etc/motd\" {{\n    content \"{text}\"\n  }}\n"),
        )
    };
    let old = fleet(&[
        ("base.kdl", &motd("hello\\none\\nbye\\n")),
        ("old.kdl", "profile \"old\" {\n  sysctl {\n    \"vm.swappiness\" \"1\"\n  }\n}\n"),
    ]);
    let before = in_force(&old, &[("fra1-r1", "h100"), ("fra1-r2", "h100"), ("fra1-r3", "l40s")]);
    let limited = HEAD.replace("}\n", "  prune {\n    max-objects 5\n  }\n}\n");
    let after = fleet(&[
        ("fleet.kdl", &limited),
        ("base.kdl", &motd("hello\\ntwo\\nbye\\n").replace("\"10\"", "\"1\"")),
        ("l40s.kdl", "removed \"pool/l40s\" reason=\"sold to somebody else\"\n"),
    ]);
    insta::assert_snapshot!(page(plan(&after, &before, now())));
}

#[test]
fn ten_thousand_machines() {
    let documents: String =
        (0..9_000).map(|number| node(&format!("r{:03}-u{:02}", number / 40, number % 40), "h100", "")).collect();
    let more: String =
        (9_000..9_040).map(|number| node(&format!("r{:03}-u{:02}", number / 40, number % 40), "h100", "")).collect();
    let mut observed = Observed::nothing(Machines::Joined);
    observed.nodes = (0..10_000)
        .map(|number| {
            model::machine(
                &format!("r{:03}-u{:02}", number / 40, number % 40),
                if number < 9_000 { "h100" } else { "l40s" },
            )
        })
        .collect();
    let old = fleet(&[("nodes.kdl", &documents)]);
    let before = model::apply(&observed, &plan(&old, &observed, now()));
    let after = fleet(&[
        ("nodes.kdl", &documents),
        ("more.kdl", &more),
        ("base.kdl", &BASE.replace("10", "1")),
        ("quiet.kdl", &QUIET.replace("\"3\"", "\"7\"")),
    ]);
    insta::assert_snapshot!(page(plan(&after, &before, now())));
}

#[test]
fn colours_are_only_where_they_are_asked_for() {
    let planned = plan(&fleet(&[]), &Observed::nothing(Machines::Joined), now());
    assert!(!render(&planned.plan, RenderOptions::default()).contains('\u{1b}'));
    let coloured = render(&planned.plan, RenderOptions { colour: true, ..RenderOptions::default() });
    assert!(coloured.contains("\u{1b}[32m+ \u{1b}[0m\u{1b}[32mpool/h100"));
}

#[test]
fn a_text_of_the_repository_cannot_steer_the_terminal() {
    let files: Vec<(&str, String)> = vec![("l40s.kdl", "removed \"pool/l40s\" reason=\"a \\u{202e} b\"\n".to_owned())];
    let before = in_force(&fleet(&[]), &[]);
    let changed = schema::fleet::load(
        &FILES
            .iter()
            .map(|(file, text)| (*file, text.as_bytes().to_vec()))
            .chain(files.iter().map(|(file, text)| (*file, text.clone().into_bytes())))
            .collect(),
    );
    // The language may refuse such a reason by itself; if it does not, the page hides it.
    if let Some(fleet) = changed.fleet {
        assert!(!page(plan(&fleet, &before, now())).contains('\u{202e}'));
    }
}
