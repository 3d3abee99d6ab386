//! What differs is shown wherever it stands, once, and what is held is not counted among what moves.

use serde_json::{Value, json};

use super::{DIGEST, document, node, page, plan_of};
use crate::plan::{Plan, RenderOptions, markdown, render};

fn every_form(plan: &Plan) -> [String; 3] {
    [render(plan, RenderOptions::default()), render(plan, RenderOptions::default().unfolded()), markdown(plan, "")]
}

/// Three pools with profiles of their own, on all of which the same differs.
fn of_hosts(before: &Value, after: &Value) -> Plan {
    let mut document = document();
    let target = |pool: &str| {
        json!({ "pool": pool, "profile": format!("{pool}-host"), "before": DIGEST, "after": DIGEST,
            "fields": [{ "path": "templates.motd.j2", "before": before, "after": after, "place": "motd.j2:1" }] })
    };
    document["targets"] = json!([target("h100"), target("h200"), target("l40s")]);
    plan_of(document)
}

#[test]
fn an_edit_far_along_a_line_is_seen_in_every_form_and_once_for_all_pools() {
    let line = |end: &str| json!(format!("hello\n{}is {end}.\nbye\n", "a long line ".repeat(60)));
    let plan = of_hosts(&line("undone"), &line("undone at once"));
    for text in every_form(&plan) {
        let shown = |sign: char, end: &str| {
            text.lines().filter(|line| line.trim_start().starts_with(sign) && line.ends_with(end)).count()
        };
        assert_eq!((shown('-', "undone."), shown('+', "undone at once.")), (1, 1), "{text}");
        assert!(
            text.contains("pool/h100, pool/h200, pool/l40s: hosts with profile/h100-host, profile/h200-host"),
            "{text}"
        );
    }
}

#[test]
fn an_edit_far_along_a_value_an_item_or_a_new_line_is_seen() {
    let long = "console=tty0 ".repeat(30);
    let pairs = [
        (json!(format!("{long}quiet")), json!(format!("{long}mitigations=off"))),
        (json!(["a", format!("{long}quiet")]), json!(["a", format!("{long}mitigations=off")])),
        (json!("one\n"), json!(format!("one\n{long}mitigations=off\n"))),
        (Value::Null, json!(format!("{long}mitigations=off"))),
        (json!([long, "mitigations=off"]), json!(["mitigations=off", long])),
    ];
    for (before, after) in pairs {
        for text in every_form(&of_hosts(&before, &after)) {
            assert!(text.contains("mitigations=off"), "{before}: {text}");
        }
    }
}

#[test]
fn what_changes_alike_in_longer_lists_is_said_with_the_others() {
    let mut document = document();
    let field = |path: &str, with: &[&str]| {
        let after: Vec<&str> = with.iter().copied().chain(["mitigations=off"]).collect();
        json!({ "path": path, "before": with, "after": after })
    };
    let target = |pool: &str, with: &[&str]| json!({ "pool": pool, "profile": pool, "before": DIGEST, "after": DIGEST, "fields": [field("kernelArgs", with)] });
    document["targets"] = json!([target("h100", &["quiet"]), target("h200", &["quiet", "iommu=pt"])]);
    let plan = plan_of(document.clone());
    assert_eq!(page(&plan).matches("+ mitigations=off").count(), 1, "{}", page(&plan));
    assert!(page(&plan).contains("pool/h100, pool/h200: hosts with"), "{}", page(&plan));
    document["objects"] = json!([{ "object": "profile/base", "change": "update", "file": "base.kdl", "line": 2,
        "fields": [field("kernelArgs", &["x", "y"])] }]);
    let plan = plan_of(document);
    assert!(page(&plan).contains("pool/h100, pool/h200: hosts change as the files above say"), "{}", page(&plan));
}

#[test]
fn what_is_held_is_not_counted_among_what_moves() {
    let mut document = document();
    let held = |name: &str, effect: &str, held: bool| {
        let mut node = node(name, "h100", effect, None);
        if held {
            node["held"] = json!([{ "gate": "freeze", "by": "freeze/year-end" }]);
        }
        node
    };
    document["counts"]["machines"] = json!(3);
    document["counts"]["moves"] = json!(3);
    document["nodes"] = json!([held("a", "reboot", true), held("b", "live", true), held("c", "live", true)]);
    let title = |plan: &Plan| markdown(plan, "").lines().nth(1).unwrap_or_default().to_owned();
    let plan = plan_of(document.clone());
    assert_eq!(title(&plan), "### Plan: no machine of 3 moves now, 3 held (up to reboot)");
    assert!(page(&plan).contains("no machine of 3 moves now, 3 are held (1 reboot, 2 live)."), "{}", page(&plan));
    document["nodes"][2]["held"] = json!([]);
    let plan = plan_of(document);
    assert_eq!(title(&plan), "### Plan: 1 of 3 machines moves, live, 2 held (up to reboot)");
    assert!(page(&plan).contains("1 of 3 machines moves (1 live), 2 are held (1 reboot, 1 live)."), "{}", page(&plan));
}

#[test]
fn a_line_to_paste_says_which_files_take_it() {
    let mut document = document();
    document["objects"] = json!([
        { "object": "node/a", "change": "retain", "file": "a.kdl", "line": 1, "paste": "removed \"node/a\" { reason \"why it goes\" }" },
        { "object": "node/b", "change": "retain", "file": "b.yaml", "line": 1, "paste": "{ kind: removed, name: node/b, reason: why it goes }" }]);
    let text = render(&plan_of(document), RenderOptions::default());
    assert!(text.contains("To let it go, paste into a .kdl file and say why:"), "{text}");
    assert!(text.contains("To let it go, paste into a .yaml file, below a line `---` and say why:"), "{text}");
}
