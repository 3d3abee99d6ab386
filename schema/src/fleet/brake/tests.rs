//! When a brake holds, whom it covers, and what is read back from a stored document.

use super::*;
use crate::fleet::tests::support::fleet;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

const TREE: &str = r#"
site "fra1" { suspend "power works" owner="ops" until="2026-12-01T00:00:00Z" }
profile "base"
pool "h100" site="fra1" profile="base" { suspend "firmware" owner="ada" }
node "n1" pool="h100" { pin "debugging" owner="ada"; suspend "x" owner="bob" }
freeze "year-end" {
  scope "pool/h100" "node/n1"
  reason "nobody is here"
  owner "ops"
  from "2026-12-20T00:00:00Z"
  until "2027-01-04T00:00:00Z"
  days "sat" "sun"
  zone "Europe/Berlin"
}
"#;

const ROOT: &str = r#"
fleet "t" {
  format 1
  trust-domain "t.example"
  rollout "now"
  suspend "everything" owner="ops"
  freeze "nights" { reason "sleep"; owner "ops"; hours "22:00" "06:00"; zone "UTC" }
}
rollout "now" { immediate }
"#;

#[test]
fn the_brakes_of_a_tree_are_those_of_its_stored_documents() {
    let fleet = fleet(&[("fleet.kdl", ROOT), ("a.kdl", TREE)]);
    let brakes = fleet.brakes();
    let names: Vec<_> = brakes.iter().map(|brake| format!("{} {}", brake.kind, brake.name)).collect();
    assert_eq!(
        names,
        [
            "suspend fleet/t",
            "freeze freeze/nights",
            "freeze freeze/year-end",
            "pin node/n1",
            "suspend node/n1",
            "suspend pool/h100",
            "suspend site/fra1"
        ]
    );
    assert_eq!(brakes[2].place.as_deref(), Some("a.kdl:6"));
    let mut stored: Vec<Brake> =
        fleet.objects().flat_map(|entry| of_document(entry.object.kind, &entry.object.name, &entry.doc)).collect();
    stored.sort_by(|a, b| (&a.name, a.kind).cmp(&(&b.name, b.kind)));
    let unplaced: Vec<Brake> = brakes.into_iter().map(|brake| Brake { place: None, ..brake }).collect();
    assert_eq!(stored, unplaced);
    for brake in unplaced {
        let text = serde_json::to_value(&brake).expect("it serialises");
        assert_eq!(serde_json::from_value::<Brake>(text).expect("a brake"), brake);
    }
}

#[test]
fn a_brake_holds_from_its_beginning_to_its_end_and_in_its_window() {
    let fleet = fleet(&[("fleet.kdl", ROOT), ("a.kdl", TREE)]);
    let brakes = fleet.brakes();
    let brake = |name: &str| brakes.iter().find(|brake| brake.name == name).expect("a brake");
    let standing = |name: &str, now: &str| {
        let standing = brake(name).standing(at(now));
        (standing.holds, standing.next_edge.map(|edge| edge.to_string()))
    };
    let edge = |text: &str| Some(text.to_owned());
    // 20 December 2026 is a Sunday: it begins inside the window.
    assert_eq!(standing("freeze/year-end", "2026-12-01T00:00:00Z"), (false, edge("2026-12-20T00:00:00Z")));
    assert_eq!(standing("freeze/year-end", "2026-12-20T00:00:00Z"), (true, edge("2026-12-20T23:00:00Z")));
    assert_eq!(standing("freeze/year-end", "2026-12-22T00:00:00Z"), (false, edge("2026-12-25T23:00:00Z")));
    assert_eq!(standing("freeze/year-end", "2027-01-03T22:00:00Z"), (true, edge("2027-01-03T23:00:00Z")));
    assert_eq!(standing("freeze/year-end", "2027-01-03T23:30:00Z"), (false, None), "no weekend comes before its end");
    assert_eq!(standing("site/fra1", "2026-11-30T00:00:00Z"), (true, edge("2026-12-01T00:00:00Z")));
    assert_eq!(standing("site/fra1", "2026-12-01T00:00:00Z"), (false, None));
    assert_eq!(standing("fleet/t", "2026-12-01T00:00:00Z"), (true, None));
}

#[test]
fn a_brake_covers_what_its_scope_names() {
    let fleet = fleet(&[("fleet.kdl", ROOT), ("a.kdl", TREE)]);
    let covered = |node: &str, pool: Option<&str>, site: Option<&str>| -> Vec<String> {
        fleet.brakes().into_iter().filter(|brake| brake.covers(node, pool, site)).map(|brake| brake.name).collect()
    };
    assert_eq!(covered("n9", None, None), ["fleet/t", "freeze/nights"]);
    assert_eq!(
        covered("n9", Some("h100"), Some("fra1")),
        ["fleet/t", "freeze/nights", "freeze/year-end", "pool/h100", "site/fra1"]
    );
    assert_eq!(covered("n1", None, None), ["fleet/t", "freeze/nights", "freeze/year-end", "node/n1", "node/n1"]);
}

#[test]
fn what_another_version_wrote_holds() {
    let name: Name = "h100".parse().expect("a name");
    let of = |kind, doc: Value| of_document(kind, &name, &doc);
    assert_eq!(of(Kind::Pool, serde_json::json!({"suspend": {"reason": "x", "owner": "y"}, "new": [1]})).len(), 1);
    let always =
        |brake: &Brake| brake.standing(at("2026-01-01T00:00:00Z")) == Standing { holds: true, next_edge: None };
    let pool = of(Kind::Pool, serde_json::json!({"suspend": {"why": "x"}}));
    assert!(always(&pool[0]) && pool[0].covers("n", Some("h100"), None) && !pool[0].covers("n", Some("x"), None));
    let freeze = of(Kind::Freeze, serde_json::json!({"scope": ["pool/a"], "reason": 1}));
    assert!(always(&freeze[0]) && freeze[0].covers("n", Some("a"), None) && !freeze[0].covers("n", Some("b"), None));
    assert!(of(Kind::Freeze, serde_json::json!({"scope": ["rack/a"]}))[0].covers("n", None, None));
    // One that cannot be read takes no other with it.
    let rule = serde_json::json!({"reason": "x", "owner": "y", "until": "2026-02-01T00:00:00Z"});
    let fleet =
        of(Kind::Fleet, serde_json::json!({"freeze": {"a": rule, "b": {}}, "suspend": {"reason": "x", "owner": "y"}}));
    let names: Vec<_> = fleet.iter().map(|brake| (brake.name.as_str(), brake.owner.as_str())).collect();
    assert_eq!(names, [("fleet/h100", "y"), ("freeze/a", "y"), ("freeze/b", "unknown")]);
    assert!(of(Kind::Profile, serde_json::json!({"suspend": {}})).is_empty());
}
