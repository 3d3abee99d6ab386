//! A node's inventory for people: one line per device, and links counted. `--format json` has all of it. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The document of a node with its inventory said briefly; any other document as it is.
#[must_use]
pub(super) fn shortened(document: Value) -> Value {
    let mut document = named(document);
    let Some(inventory) = document.get_mut("inventory").and_then(Value::as_object_mut) else { return document };
    for kind in ["gpus", "nics", "disks"] {
        if let Some(devices) = inventory.get_mut(kind).and_then(Value::as_array_mut) {
            devices.iter_mut().for_each(on_one_line);
        }
    }
    if let Some(links) = inventory.get_mut("links") {
        let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
        for link in links.as_array().into_iter().flatten() {
            *kinds.entry(link.get("kind").and_then(Value::as_str).unwrap_or("unknown").to_owned()).or_default() += 1;
        }
        *links = kinds.into_iter().map(|(kind, pairs)| json!(format!("{kind}: {pairs} pairs"))).collect();
    }
    document
}

/// The members of a node as people look for them; others stand before the inventory.
const ORDER: [&str; 9] =
    ["node", "waits", "changes held by", "cordons", "session", "sections", "drift", "identity", "inventory"];

/// The document with members under the words that people know: a cordon keeps work away from a machine, and what holds a
/// change back keeps it from its target.
fn named(document: Value) -> Value {
    let Value::Object(members) = document else { return document };
    let is_node = members.contains_key("node");
    let word = |key: String| match key.as_str() {
        "holds" if is_node => "cordons".to_owned(),
        "held" if is_node => "changes held by".to_owned(),
        _ => key,
    };
    let mut members: Vec<(String, Value)> = members.into_iter().map(|(key, value)| (word(key), value)).collect();
    if is_node {
        members.iter_mut().filter(|(key, _)| key == "waits").for_each(|(_, waits)| told(waits));
        // What keeps it from something comes first, and what it is made of last.
        let place = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len() - 1);
        members.sort_by_key(|(key, _)| place(key));
    }
    Value::Object(members.into_iter().collect())
}

/// Without the places in the program: `--format json` has them.
fn told(waits: &mut Value) {
    for wait in waits.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        wait.retain(|key, _| matches!(key.as_str(), "reason" | "message" | "since"));
    }
}

fn on_one_line(device: &mut Value) {
    let Some(fields) = device.as_object() else { return };
    let words: Vec<String> = fields
        .iter()
        .filter(|(key, _)| *key != "seenBy")
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key} {text}"),
            other => format!("{key} {other}"),
        })
        .collect();
    *device = words.join(", ").into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_waits_for_comes_first_and_without_places_in_the_program() {
        let node = json!({ "node": { "name": "gpu-1" }, "inventory": {}, "sections": [],
            "waits": [{ "reconciler": "node", "key": "node_1", "state": "wait", "reason": "no-pool", "message": "the node has no pool", "place": "a.rs:1" }] });
        let shown = shortened(node);
        let keys: Vec<&String> = shown.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["node", "waits", "sections", "inventory"]);
        assert_eq!(shown["waits"], json!([{ "reason": "no-pool", "message": "the node has no pool" }]));
    }

    #[test]
    fn a_device_takes_one_line_and_links_are_counted() {
        let link = json!({ "a": "GPU-1", "b": "GPU-2", "kind": "NV18" });
        let node = json!({ "inventory": { "gpus": [{ "model": "H100", "numaNode": 0, "seenBy": ["nvml"] }], "links": [link, link] } });
        let want = json!({ "inventory": { "gpus": ["model H100, numaNode 0"], "links": ["NV18: 2 pairs"] } });
        assert_eq!(shortened(node), want);
    }
}
