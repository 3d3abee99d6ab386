//! Whole pages of plans that have everything, at 1, 100 and 10,000 machines.

use serde_json::{Value, json};

use super::{RenderOptions, render, render_against};
use crate::plan::{MARKDOWN_BYTES, Plan, markdown};

mod differs;
mod hostile;
mod reference;

pub(super) fn plan_of(document: Value) -> Plan {
    serde_json::from_value(document).unwrap_or_else(|error| panic!("{error}"))
}

const DIGEST: &str = "sha256:8d5e957f297893487bd98fa830fa6413a3a1e9d3b0a3f2d1c4b5a69788776655";

fn document() -> Value {
    json!({
        "format": 1, "base": "a81be0221e55aa990b1c", "commit": "3f2a91c0d17e0b7a9b1e", "verification": "unverified",
        "inputs": { "observed": "live", "policy": DIGEST, "renderer": "0.1.0", "facts": DIGEST },
        "counts": { "create": 0, "update": 0, "restore": 0, "remove": 0, "retain": 0, "held": 0, "unchanged": 12,
            "machines": 0, "moves": 0, "undeclared": 0, "awaited": 0 },
        "objects": [], "targets": [], "pools": [], "nodes": [], "holds": [], "gates": [], "warnings": [],
    })
}

fn node(name: &str, pool: &str, effect: &str, effects: Option<u32>) -> Value {
    json!({ "node": name, "pool": pool, "profile": "gpu-host", "why": [{ "reason": "target" }], "effect": effect, "effects": effects })
}

fn effects() -> Value {
    json!([
        { "class": "live", "items": [
            { "class": "live", "subject": "file /etc/motd", "action": "write" },
            { "class": "live", "subject": "sysctl vm.swappiness", "action": "set" }] },
        { "class": "service-restart", "items": [
            { "class": "live", "subject": "file /etc/chrony.conf", "action": "write" },
            { "class": "service-restart", "subject": "unit chrony.service", "action": "restart", "cause": "file /etc/chrony.conf" }] },
        { "class": "reboot", "items": [
            { "class": "live", "subject": "file /etc/chrony.conf", "action": "write" },
            { "class": "service-restart", "subject": "unit chrony.service", "action": "restart", "cause": "file /etc/chrony.conf" },
            { "class": "reboot", "subject": "kernel arguments", "action": "stage" }] },
    ])
}

/// A plan of one machine, as most plans are.
fn one() -> Plan {
    let mut document = document();
    document["commit"] = Value::Null;
    document["inputs"]["observed"] = json!("offline");
    document["counts"] = json!({ "create": 0, "update": 1, "restore": 0, "remove": 0, "retain": 0, "held": 0, "unchanged": 12,
        "machines": 1, "moves": 1, "undeclared": 0, "awaited": 1 });
    document["objects"] = json!([{ "object": "node/fra1-r12", "change": "update", "file": "nodes/fra1-r12.kdl", "line": 1,
        "fields": [{ "path": "labels.rack", "before": "r11", "after": "r12", "place": "nodes/fra1-r12.kdl:4" }] }]);
    document["effects"] = json!([effects()[0]]);
    document["nodes"] = json!([{ "node": "fra1-r12", "pool": "h100", "why": [{ "reason": "labels" }], "effect": "live", "effects": 0 }]);
    document["pools"] =
        json!([{ "pool": "h100", "strategy": "immediate", "rollout": "all-at-once", "machines": 1, "moves": 1 }]);
    plan_of(document)
}

/// A plan of a hundred machines in which everything happens at once.
pub(super) fn hundred() -> Plan {
    let mut document = document();
    let mut nodes = Vec::new();
    for number in 1..=40 {
        let mut node = node(&format!("fra1-r12-n{number:02}"), "h100", "reboot", Some(2));
        if number < 3 {
            node["awaitsBoot"] = json!(true);
        }
        if number > 36 {
            node["held"] = json!([{ "gate": "bind", "by": "no plan is named" }]);
        }
        nodes.push(node);
    }
    for number in 1..=36 {
        let mut node = node(&format!("ams1-n{number}"), "l40s", "service-restart", Some(1));
        if number <= 12 {
            node["held"] = json!([{ "gate": "freeze", "by": "freeze/year-end", "until": "2027-01-02T08:00:00Z" }]);
        }
        nodes.push(node);
    }
    nodes.push(json!({ "node": "fra1-r09", "pool": "h100", "effect": "none",
        "why": [{ "reason": "membership", "from": "l40s", "to": "h100" }, { "reason": "declaration", "declared": true }] }));
    document["nodes"] = nodes.into();
    document["effects"] = effects();
    document["counts"] = json!({ "create": 1, "update": 2, "restore": 0, "remove": 1, "retain": 2, "held": 1, "unchanged": 104,
        "machines": 100, "moves": 77, "undeclared": 8, "awaited": 3, "waiting": 16, "moved": 1, "awaitingBoot": 3 });
    document["objects"] = json!([
        { "object": "profile/gpu-host", "change": "update", "file": "profiles/gpu-host.kdl", "line": 3, "fields": [
            { "path": "hugepages", "before": [{ "size": "1GiB", "count": 16 }], "after": [{ "size": "1GiB", "count": 64 }, { "size": "2MiB", "count": 512 }] },
            { "path": "kernel.args", "before": ["quiet"], "after": ["quiet", "iommu=pt"], "place": "profiles/gpu-host.kdl:9" },
            { "path": "sysctl.vm.swappiness", "before": "10", "after": "1", "place": "profiles/gpu-host.kdl:5" }] },
        { "object": "pool/a100", "change": "remove", "file": "pools/a100.kdl", "line": 1, "reason": "sold" },
        { "object": "pool/v100", "change": "hold", "file": "pools/v100.kdl", "line": 1, "reason": "sold too" },
        { "object": "profile/old", "change": "retain", "file": "profiles/old.kdl", "line": 1, "paste": "removed \"profile/old\" { reason \"why it goes\" }" },
        { "object": "rollout/slow", "change": "retain", "file": "rollouts/slow.kdl", "line": 1, "renamedTo": "rollout/cautious",
            "paste": "moved from=\"rollout/slow\" to=\"rollout/cautious\"" },
        { "object": "rollout/cautious", "change": "create", "file": "rollouts/cautious.kdl", "line": 1 },
    ]);
    document["moved"] = json!([{ "from": "pool/h100-old", "to": "pool/h100", "machines": 40, "place": "moved.kdl:1" }]);
    let chrony = json!([{ "path": "files[/etc/chrony.conf].content.text", "before": "server a\npool b\nrtcsync\n", "after": "server a\npool c\nrtcsync\n" },
        { "path": "sysctl.vm.swappiness", "before": "10", "after": "1" }]);
    document["targets"] = json!([
        { "pool": "h100", "profile": "gpu-host", "before": DIGEST, "after": DIGEST, "fields": chrony },
        { "pool": "l40s", "profile": "gpu-host", "before": DIGEST, "after": DIGEST, "fields": chrony }]);
    document["pools"] = json!([
        { "pool": "h100", "strategy": "waves", "rollout": "cautious", "machines": 41, "moves": 41, "held": 4, "effect": "reboot", "waves": [
            { "index": 1, "machines": ["fra1-r12-n01"], "count": 1, "effect": "reboot", "soak": "30m" },
            { "index": 2, "machines": ["fra1-r12-n02", "fra1-r12-n03", "fra1-r12-n04", "fra1-r12-n05"], "count": 4, "effect": "reboot", "soak": "1h", "gates": ["health"], "earliest": "2026-11-30T22:00:00Z" },
            { "index": 3, "machines": ["fra1-r12-n06", "fra1-r12-n07"], "count": 36, "effect": "reboot" }] },
        { "pool": "l40s", "strategy": "immediate", "machines": 36, "moves": 36, "held": 12, "effect": "service-restart" }]);
    document["gates"] = json!([{ "objects": ["pool/v100"], "wait": { "for": "dependents", "neededBy": ["node/fra1-v1"], "count": 1 } }]);
    document["brakes"] = json!([
        { "kind": "freeze", "name": "freeze/year-end", "scope": ["pool/l40s"], "owner": "ada", "reason": "nobody watches", "active": true,
            "until": "2027-01-02T08:00:00Z", "place": "fleet.kdl:12", "machines": 36, "returns": { "service-restart": 12 } },
        { "kind": "suspend", "name": "site/ams1", "owner": "bob", "reason": "power works", "active": false, "next": "2026-12-05T22:00:00Z", "machines": 36, "returns": {} },
        { "kind": "pin", "name": "node/fra1-x", "owner": "eve", "reason": "a bench", "active": true, "machines": 1, "returns": {} }]);
    document["bind"] = json!({ "class": "reboot", "held": 4, "trailer": format!("bc-plan: {DIGEST}") });
    document["holds"] = json!([{ "node": "fra1-r09", "holds": true, "owner": "ada", "reason": "GPU 3 falls off the bus", "until": "2026-12-01T00:00:00Z", "place": "nodes/fra1-r09.kdl:4" }]);
    document["warnings"] = json!([{ "object": "pool/gone", "message": "nothing of this name is in force, so that its `removed` does nothing and can be deleted", "place": "removed.kdl:1" }]);
    plan_of(document)
}

/// A plan that reaches ten thousand machines in forty pools.
pub(super) fn ten_thousand() -> Plan {
    let mut document = document();
    let (mut nodes, mut pools, mut objects) = (Vec::new(), Vec::new(), Vec::new());
    for pool in 0..40 {
        for number in 0..250 {
            let name = format!("p{pool:02}-r{:02}-n{:02}", number / 25, number % 25);
            let (effect, index) = if pool < 30 {
                ("live", 0)
            } else if number < 25 {
                ("reboot", 2)
            } else {
                ("service-restart", 1)
            };
            nodes.push(node(&name, &format!("gpu-{pool:02}"), effect, Some(index)));
            if number < 10 {
                objects.push(json!({ "object": format!("node/{name}"), "change": "create", "file": format!("nodes/{name}.kdl"), "line": 1 }));
            }
        }
        pools.push(json!({ "pool": format!("gpu-{pool:02}"), "strategy": "immediate", "machines": 250, "moves": 250, "effect": "live" }));
    }
    document["counts"] = json!({ "create": 400, "update": 0, "restore": 0, "remove": 0, "retain": 0, "held": 0, "unchanged": 9800,
        "machines": 10_000, "moves": 10_000, "undeclared": 120, "awaited": 40 });
    document["nodes"] = nodes.into();
    document["pools"] = pools.into();
    document["objects"] = objects.into();
    document["effects"] = effects();
    plan_of(document)
}

fn page(plan: &Plan) -> String {
    let page = render(plan, RenderOptions::default());
    assert!(!page.contains(['{', '}']) || page.contains("{ reason"), "raw JSON:\n{page}");
    page
}

#[test]
fn nothing_takes_two_lines_and_a_verdict() {
    let mut plan = plan_of(document());
    plan.counts.machines = 100;
    insta::assert_snapshot!(page(&plan));
}

#[test]
fn one_machine() {
    insta::assert_snapshot!(page(&one()));
    insta::assert_snapshot!("one_machine_comment", markdown(&one(), ""));
}

#[test]
fn a_hundred_machines_with_everything() {
    insta::assert_snapshot!(page(&hundred()));
    insta::assert_snapshot!("a_hundred_machines_comment", markdown(&hundred(), "eu"));
}

#[test]
fn ten_thousand_machines_fit_on_two_screens() {
    let page = page(&ten_thousand());
    assert!(page.lines().count() <= 100, "{} lines", page.lines().count());
    insta::assert_snapshot!(page);
    let comment = markdown(&ten_thousand(), "");
    assert!(comment.len() <= MARKDOWN_BYTES / 4, "{} bytes", comment.len());
    insta::assert_snapshot!("ten_thousand_machines_comment", comment);
}

#[test]
fn unfolded_nothing_is_counted_away() {
    let page = render(&ten_thousand(), RenderOptions::default().unfolded());
    assert!(!page.contains(" more"), "{page}");
    assert!(page.contains("node/p39-r00-n09"));
}

#[test]
fn colours_change_no_character() {
    let plain = render(&hundred(), RenderOptions::default());
    let mut coloured = render(&hundred(), RenderOptions { colour: true, ..RenderOptions::default() });
    assert!(coloured.contains("\u{1b}[31m"));
    for code in [0, 1, 2, 31, 32, 33] {
        coloured = coloured.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_eq!(coloured, plain);
}

#[test]
fn a_plan_is_held_against_the_one_that_was_shown() {
    let (shown, mut plan) = (hundred(), hundred());
    assert_eq!(render_against(&shown, &plan, RenderOptions::default()).lines().nth(1), Some("  It says the same."));
    plan.inputs.facts = schema::digest::Digest::of("others");
    plan.nodes.remove(3);
    for node in plan.nodes.iter_mut().take(12) {
        node.effect = schema::effect::EffectClass::Wipe;
    }
    plan.nodes[70].after_spec = Some(schema::digest::Digest::of("another"));
    plan.nodes[71].node = "ams1-n99".parse().expect("a name");
    plan.objects[0].fields.remove(0);
    plan.objects.remove(2);
    insta::assert_snapshot!(render_against(&shown, &plan, RenderOptions::default()));
}

/// A plan in which the documents of many machines are gone.
fn many_retained() -> Plan {
    let mut document = document();
    let objects: Vec<Value> = (0..40)
        .map(|number| {
            let name = format!("node/fra1-u{number:02}");
            json!({ "object": name, "change": "retain", "file": format!("nodes/r{}.kdl", number / 20), "line": number + 1,
                "paste": format!("removed \"{name}\" {{ reason \"why it goes\" }}") })
        })
        .collect();
    document["counts"]["retain"] = json!(40);
    document["objects"] = objects.into();
    document["warnings"] =
        json!([{ "object": "access/people", "message": "recorded only", "place": "people.kdl:2", "note": true }]);
    document["brakes"] = json!([{ "kind": "freeze", "name": "freeze/year-end", "owner": "ada", "reason": "nobody watches", "active": false,
        "next": "2026-12-19T16:00:00Z", "machines": 1, "returns": {} }]);
    plan_of(document)
}

#[test]
fn many_retained_objects_are_folded_and_what_is_left_out_is_counted_alike_everywhere() {
    let (page, comment) = (page(&many_retained()), markdown(&many_retained(), ""));
    insta::assert_snapshot!(page);
    for text in [&page, &comment] {
        assert!(text.contains("40 nodes: fra1-u[00-39]"), "{text}");
        assert!(text.contains("and 28 more lines; `better-compute plan --all` writes all of them"), "{text}");
        assert!(!text.contains("recorded only"), "what is no news is not told: {text}");
        assert!(text.contains("nothing of this plan waits for: freeze/year-end (begins 2026-12-19 16:00Z)"), "{text}");
    }
    let all = render(&many_retained(), RenderOptions::default().unfolded());
    assert_eq!(all.matches("removed \"node/").count(), 40);
    assert!(all.contains("recorded only") && all.contains("nobody watches"));
}

#[test]
fn a_package_is_held_and_not_installed() {
    let mut document = document();
    document["counts"]["machines"] = json!(1);
    document["counts"]["moves"] = json!(1);
    document["nodes"] = json!([node("a", "h100", "live", Some(0))]);
    document["effects"] = json!([{ "class": "live", "items": [
        { "class": "live", "subject": "package cuda", "action": "pin" }, { "class": "live", "subject": "package nccl", "action": "unpin" }] }]);
    let page = page(&plan_of(document));
    assert!(
        page.contains("hold, without installing: package cuda") && page.contains("hold no longer: package nccl"),
        "{page}"
    );
}

#[test]
fn a_list_that_changed_unfolds() {
    let mut document = document();
    document["objects"] = json!([{ "object": "profile/base", "change": "update", "file": "base.kdl", "line": 2, "fields": [
        { "path": "kernel.args", "before": ["quiet"], "after": ["quiet", "iommu=pt"] }] }]);
    let text = render(&plan_of(document), RenderOptions::default().unfolded());
    assert!(text.contains("+ iommu=pt"), "{text}");
}

#[test]
fn the_head_and_the_end_of_a_plan_fit_a_narrow_terminal() {
    let plan = hundred();
    let page = render(&plan, RenderOptions { width: 60, ..RenderOptions::default() });
    let (head, end) =
        (page.lines().take_while(|line| !line.is_empty()), page.lines().rev().take_while(|line| !line.is_empty()));
    let lines: Vec<&str> = head.chain(end).collect();
    assert!(lines.len() > 4 && lines.iter().all(|line| line.chars().count() <= 60), "{lines:#?}");
}
