//! What a stored document names, and its new name there: the references that decoders ask for, read from canonical JSON.

use serde_json::Value;

use super::reference::{self, Key, Takes};
use crate::{
    name::Name,
    object::{Kind, ObjectRef},
};

/// The objects that a document of a kind names. What cannot be read as a name is none.
#[must_use]
pub fn refers(kind: Kind, document: &Value) -> Vec<ObjectRef> {
    let mut found = Vec::new();
    each(kind, document, &mut |_, _, object| found.push(object));
    found
}

/// Gives the objects that a document of a kind names their new names; whether one has another.
pub fn rename_references(kind: Kind, document: &mut Value, new_name: impl Fn(&ObjectRef) -> Option<Name>) -> bool {
    let mut renamed = Vec::new();
    each(kind, document, &mut |path, is_address, object| {
        if let Some(name) = new_name(&object) {
            let text = if is_address { ObjectRef::new(object.kind, name).to_string() } else { name.to_string() };
            renamed.push((path.to_owned(), text));
        }
    });
    let changes = !renamed.is_empty();
    for (path, text) in renamed {
        *document.pointer_mut(&path).expect("what was read is there") = text.into();
    }
    changes
}

/// Told of every object that is named: where, as a JSON pointer, and whether by its address.
type Visit<'v> = &'v mut dyn FnMut(&str, bool, ObjectRef);

fn each(kind: Kind, document: &Value, visit: Visit<'_>) {
    keys(&reference::kind(kind).keys, document, &mut String::new(), visit);
    if kind == Kind::Profile {
        // The settings of the daemon are free words; of one is known what it means.
        const RELEASE: &str = "/daemon/release";
        if let Some(release) = document.pointer(RELEASE).and_then(|release| named(Kind::Release, release)) {
            visit(RELEASE, false, release);
        }
    }
}

fn keys(keys: &[Key], members: &Value, path: &mut String, visit: Visit<'_>) {
    for key in keys {
        if let Some(value) = members.get(key.key) {
            below(path, key.key, |path| takes(&key.takes, value, path, visit));
        }
    }
}

fn takes(what: &Takes, value: &Value, path: &mut String, visit: Visit<'_>) {
    let items = || value.as_array().into_iter().flatten().enumerate();
    match what {
        Takes::Reference(kind) => {
            if let Some(object) = named(*kind, value) {
                visit(path, false, object);
            }
        }
        Takes::Address(_) => {
            if let Some(object) = value.as_str().and_then(|text| text.parse().ok()) {
                visit(path, true, object);
            }
        }
        Takes::List(one) => {
            items().for_each(|(at, value)| below(path, &at.to_string(), |path| takes(one, value, path, visit)));
        }
        Takes::Block { keys: inner, .. } => keys(inner, value, path, visit),
        Takes::Blocks { keys: inner } => {
            items().for_each(|(at, value)| below(path, &at.to_string(), |path| keys(inner, value, path, visit)));
        }
        Takes::Named { keys: inner, .. } => {
            for (name, value) in value.as_object().into_iter().flatten() {
                below(path, name, |path| keys(inner, value, path, visit));
            }
        }
        _ => {}
    }
}

/// Does something one step further down.
fn below(path: &mut String, step: &str, go: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(&step.replace('~', "~0").replace('/', "~1"));
    go(path);
    path.truncate(length);
}

fn named(kind: Kind, value: &Value) -> Option<ObjectRef> {
    Some(ObjectRef::new(kind, Name::new(value.as_str()?).ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_names_what_its_decoder_refers_to() {
        let of = |kind, document: Value| -> Vec<String> {
            refers(kind, &document).iter().map(ToString::to_string).collect()
        };
        let pool = json!({"site": "s", "profile": "b", "rollout": "r", "labels": {"site": "x"}, "policy": {"tenants": ["t", "u"]}});
        assert_eq!(of(Kind::Pool, pool), ["site/s", "profile/b", "rollout/r", "tenant/t", "tenant/u"]);
        let batch = json!({"scope": {"nodes": ["n"], "pools": ["p"], "sites": ["s"]}, "command": "node.reboot"});
        assert_eq!(of(Kind::Batch, batch), ["node/n", "pool/p", "site/s"]);
        assert_eq!(of(Kind::Freeze, json!({"scope": ["pool/p", "no address"]})), ["pool/p"]);
        let profile = json!({"extends": "b", "image": "i", "daemon": {"release": "r", "log": "x"}});
        assert_eq!(of(Kind::Profile, profile), ["profile/b", "image/i", "release/r"]);
        assert_eq!(of(Kind::Quota, json!({"tenant": "t", "pool": 1})), ["tenant/t"]);
    }

    #[test]
    fn what_a_document_names_has_its_new_name_wherever_it_stands() {
        let new = |object: &ObjectRef| {
            (object.name.as_str() == "old" && object.kind != Kind::Site).then(|| Name::new("new").expect("a name"))
        };
        let renamed = |kind, mut document: Value| {
            let changes = rename_references(kind, &mut document, new);
            (changes, document)
        };
        let pool =
            json!({"site": "old", "profile": "old", "labels": {"pool": "old"}, "policy": {"tenants": ["a", "old"]}});
        let told =
            json!({"site": "old", "profile": "new", "labels": {"pool": "old"}, "policy": {"tenants": ["a", "new"]}});
        assert_eq!(renamed(Kind::Pool, pool), (true, told));
        let scope = json!({"scope": ["pool/old", "site/old"]});
        assert_eq!(renamed(Kind::Freeze, scope), (true, json!({"scope": ["pool/new", "site/old"]})));
        let batch = json!({"scope": {"nodes": ["old"], "pools": ["old"]}});
        assert_eq!(renamed(Kind::Batch, batch), (true, json!({"scope": {"nodes": ["new"], "pools": ["new"]}})));
        let profile = json!({"daemon": {"release": "old"}});
        assert_eq!(renamed(Kind::Profile, profile), (true, json!({"daemon": {"release": "new"}})));
        let other = json!({"tenant": "other"});
        assert_eq!(renamed(Kind::Quota, other.clone()), (false, other));
    }
}
