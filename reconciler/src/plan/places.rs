//! Where the fields that change are written: each value and each item of a list in the layer that says it.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    diagnostic::SourceRef,
    fleet::{Fleet, Pool, host_path::canonical},
    name::Name,
    object::{Kind, ObjectRef},
};
use serde_json::Value;

use super::FieldChange;

/// Gives every field of a host template the path that it has everywhere, and its place where the new tree has one.
pub(super) fn of_template(fleet: &Fleet, pool: &Pool, profile: &Name, fields: &mut [FieldChange]) {
    let host = fleet.host_places(profile.as_str());
    for field in fields.iter_mut() {
        field.path = canonical(&field.path);
        if field.path.starts_with("units.") && field.path.ends_with(".state") {
            [&mut field.before, &mut field.after].into_iter().flatten().for_each(in_words);
        }
        field.place = items(field, |path| place(fleet, pool, profile, &host, path));
    }
}

/// Gives every field of an object's document its place.
pub(super) fn of_object(fleet: &Fleet, object: &ObjectRef, fields: &mut [FieldChange]) {
    for field in fields.iter_mut() {
        field.place = items(field, |path| fleet.place(object, path).map(in_text));
    }
}

/// Whether a unit runs, in the word of a fleet file.
fn in_words(active: &mut Value) {
    if let Value::Bool(active_) = active {
        *active = if *active_ { "started" } else { "stopped" }.into();
    }
}

/// The place of a field; of a list, the places of the items that come.
fn items(field: &FieldChange, place: impl Fn(&str) -> Option<String>) -> Option<String> {
    let after = field.after.as_ref()?;
    let Value::Array(after) = after else { return place(&field.path) };
    let before: &[Value] = field.before.as_ref().and_then(Value::as_array).map_or(&[], Vec::as_slice);
    let word = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
    let come: Vec<String> = after.iter().filter(|item| !before.contains(item)).map(word).collect();
    let mut places: Vec<String> = come.iter().filter_map(|item| place(&format!("{}.{item}", field.path))).collect();
    let mut seen = BTreeSet::new();
    places.retain(|place| seen.insert(place.clone()));
    (!places.is_empty()).then(|| places.join(", "))
}

fn in_text(at: &SourceRef) -> String {
    format!("{}:{}", at.file, at.line())
}

fn place(fleet: &Fleet, pool: &Pool, profile: &Name, host: &BTreeMap<String, SourceRef>, path: &str) -> Option<String> {
    let (root, rest) = path.split_once('.').unwrap_or((path, ""));
    match root {
        // A template's text is a file of its own.
        "templates" => return Some(format!("{rest}:1")),
        "values" => return value(fleet, pool, profile, host, rest).map(in_text),
        "pool" => return Some(in_text(&pool.at)),
        "profile" => return Some(in_text(&pool.profile.at)),
        _ => {}
    }
    let mut upto = path.len();
    loop {
        if let Some(at) = host.get(&path[..upto]) {
            return Some(in_text(at));
        }
        upto = path[..upto].rfind('.')?;
    }
}

/// Where a value that templates see is written.
fn value<'f>(
    fleet: &'f Fleet,
    pool: &Pool,
    profile: &Name,
    host: &'f BTreeMap<String, SourceRef>,
    path: &str,
) -> Option<&'f SourceRef> {
    let (of, key) = path.split_once('.').unwrap_or((path, ""));
    let object = match of {
        "fleet" => ObjectRef::new(Kind::Fleet, fleet.document.name.clone()),
        "site" => ObjectRef::new(Kind::Site, pool.site.value.clone()),
        "pool" => ObjectRef::new(Kind::Pool, pool.name.clone()),
        // Inherited from the layer that says it.
        "profile" if key.starts_with("sysctl.") => return host.get(key),
        "profile" => ObjectRef::new(Kind::Profile, profile.clone()),
        _ => return None,
    };
    fleet.place(&object, if key == "chain" || key.starts_with("chain.") { "extends" } else { key })
}

#[cfg(test)]
mod tests {
    use schema::fleet::{Sources, load};
    use serde_json::json;

    use super::*;
    use crate::plan::diff;

    const LOW: &str = "profile \"low\" {
  kernel {
    args \"iommu=pt\" \"quiet\"
    modules \"overlay\"
  }
  unit \"a.service\" state=\"started\"
  sysctl { vm.swappiness 1 }
}
";
    const TIP: &str = "site \"s\"
pool \"p\" { site \"s\"; profile \"tip\"; policy { tenants \"a\" \"b\"; }; }
tenant \"a\"
tenant \"b\"
profile \"tip\" extends=\"low\" {
  kernel { args \"debug\" }
}
";

    #[test]
    fn what_is_inherited_has_the_place_of_the_layer_that_says_it() {
        let root =
            "fleet \"t\" { format 1; trust-domain \"t.example\"; rollout \"now\" }\nrollout \"now\" { immediate }\n";
        let files = [("fleet.kdl", root), ("low.kdl", LOW), ("tip.kdl", TIP)];
        let sources: Sources = files.into_iter().map(|(path, text)| (path, text.as_bytes())).collect();
        let fleet = load(&sources).fleet.unwrap();
        let pool = &fleet.pools["p"];
        let told = |before: Value, after: Value| -> Vec<String> {
            let mut fields = diff(&before, &after);
            of_template(&fleet, pool, &pool.profile.value, &mut fields);
            fields.iter().map(|field| format!("{} {}", field.path, field.place.as_deref().unwrap_or("-"))).collect()
        };
        let args = |args: &[&str]| json!({ "kernelArgs": args });
        assert_eq!(told(args(&["iommu=pt", "debug"]), args(&["iommu=pt", "quiet", "debug"])), ["kernelArgs low.kdl:3"]);
        assert_eq!(told(args(&[]), args(&["iommu=pt", "debug"])), ["kernelArgs low.kdl:3, tip.kdl:6"]);
        assert_eq!(told(args(&["iommu=pt", "old"]), args(&["iommu=pt"])), ["kernelArgs -"]);
        let after = json!({
            "modules": [{ "name": "overlay" }],
            "units": [{ "name": "a.service", "active": true }],
            "values": { "profile": { "sysctl": { "vm.swappiness": "1" } } },
        });
        assert_eq!(
            told(json!({ "modules": [], "units": [{ "name": "a.service" }], "values": {} }), after),
            [
                "modules.overlay low.kdl:4",
                "units.a.service.state low.kdl:6",
                "values.profile.sysctl.vm.swappiness low.kdl:7"
            ]
        );
        let mut fields = diff(&json!({"policy": {"tenants": ["a"]}}), &json!({"policy": {"tenants": ["a", "b"]}}));
        of_object(&fleet, &"pool/p".parse().unwrap(), &mut fields);
        assert_eq!(fields[0].place.as_deref(), Some("tip.kdl:2"));
    }
}
