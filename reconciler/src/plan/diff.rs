//! What differs between two documents, field by field.

use std::collections::BTreeMap;

use schema::fleet::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One field that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// The field, for example `sysctl.vm.swappiness` or `files./etc/motd.mode`.
    pub path: String,
    /// What it was; absent when it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What it becomes; absent when it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// Where the new value is written, as `file:line`, when that is known; several, parted by `, `, for what comes into a
    /// list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// The members by which the items of a list are told apart.
const KEYS: [&str; 5] = ["path", "name", "package", "principal", "sizeKib"];

/// Every field that differs, ordered by path. Items of a list that have a `path`, a `name` or a size are compared by it,
/// other documents in a list by their place, from 1.
#[must_use]
pub fn diff(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    walk("", Some(before), Some(after), &mut changes);
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

fn walk(path: &str, before: Option<&Value>, after: Option<&Value>, out: &mut Vec<FieldChange>) {
    if before == after {
        return;
    }
    if let (Some(Value::Object(old)), Some(Value::Object(new))) = (before, after) {
        let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            walk(&path, old.get(key), new.get(key), out);
        }
        return;
    }
    // What is new is told field by field; what goes is told by its name.
    if let (None, Some(Value::Object(new))) = (before, after)
        && !new.is_empty()
    {
        let named = path.ends_with(']');
        let told = new.iter().filter(|(key, _)| !(named && KEYS.contains(&key.as_str())));
        // What has nothing but its name is told by that.
        if told.clone().next().is_none() {
            out.push(FieldChange { path: path.to_owned(), before: None, after: after.cloned(), place: None });
        }
        for (key, value) in told {
            walk(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, None, Some(value), out);
        }
        return;
    }
    if let (Some(Value::Array(old)), Some(Value::Array(new))) = (before, after)
        && let (Some(old), Some(new)) = (keyed(old), keyed(new))
    {
        let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            walk(&format!("{path}[{key}]"), old.get(key).copied(), new.get(key).copied(), out);
        }
        return;
    }
    if let (Some(Value::Array(old)), Some(Value::Array(new))) = (before, after)
        && old.iter().chain(new).all(Value::is_object)
    {
        for index in 0..old.len().max(new.len()) {
            walk(&format!("{path}[{}]", index + 1), old.get(index), new.get(index), out);
        }
        return;
    }
    out.push(FieldChange { path: path.to_owned(), before: before.cloned(), after: after.cloned(), place: None });
}

/// The items by the member that names them; `None` when they have no such member, or share it.
fn keyed(items: &[Value]) -> Option<BTreeMap<String, &Value>> {
    let key = KEYS.into_iter().find(|key| items.iter().all(|item| item.get(key).is_some_and(is_key)))?;
    let named: BTreeMap<String, &Value> =
        items.iter().filter_map(|item| Some((words(item.get(key)?)?, item))).collect();
    (named.len() == items.len()).then_some(named)
}

fn is_key(value: &Value) -> bool {
    value.is_string() || value.is_u64()
}

/// A key as people write it; a number is a size in KiB.
fn words(key: &Value) -> Option<String> {
    match key {
        Value::String(text) => Some(text.clone()),
        number => Some(ByteSize(number.as_u64()? << 10).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(before: &Value, after: &Value) -> Vec<String> {
        diff(before, after).into_iter().map(|change| change.path).collect()
    }

    #[test]
    fn only_what_differs_is_named() {
        let before = json!({"a": 1, "b": {"c": "x", "d": [1, 2]}, "gone": true});
        let after = json!({"a": 1, "b": {"c": "y", "d": [1, 3]}, "new": null});
        assert_eq!(paths(&before, &after), ["b.c", "b.d", "gone", "new"]);
        assert!(diff(&before, &before).is_empty());
    }

    #[test]
    fn huge_pages_are_told_by_their_size_and_waves_by_their_place() {
        let before = json!({"hugepages": [{"sizeKib": 2048, "count": 1}], "wave": [{"nodes": 1}, {"percent": "50%"}]});
        let after = json!({"hugepages": [{"sizeKib": 2048, "count": 2}, {"sizeKib": 1_048_576, "count": 4}], "wave": [{"nodes": 1}, {"percent": "60%"}]});
        assert_eq!(paths(&before, &after), ["hugepages[1GiB].count", "hugepages[2MiB].count", "wave[2].percent"]);
    }

    #[test]
    fn named_items_are_compared_by_their_name() {
        let before = json!({"files": [{"path": "/a", "mode": "0644"}, {"path": "/b", "mode": "0644"}]});
        let after = json!({"files": [{"path": "/b", "mode": "0600"}, {"path": "/c", "mode": "0644"}]});
        assert_eq!(paths(&before, &after), ["files[/a]", "files[/b].mode", "files[/c].mode"]);
        let (none, one) = (json!({"modules": []}), json!({"modules": [{"name": "overlay"}]}));
        assert_eq!(
            (paths(&none, &one), paths(&one, &none)),
            (vec!["modules[overlay]".into()], vec!["modules[overlay]".into()])
        );
    }
}
