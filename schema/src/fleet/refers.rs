//! What a stored document names: the references that decoders ask for, read from a document's canonical JSON.

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
    keys(&reference::kind(kind).keys, document, &mut found);
    if kind == Kind::Profile {
        // The settings of the daemon are free words; of one is known what it means.
        found.extend(document.pointer("/daemon/release").and_then(|release| named(Kind::Release, release)));
    }
    found
}

fn keys(keys: &[Key], members: &Value, found: &mut Vec<ObjectRef>) {
    for key in keys {
        if let Some(value) = members.get(key.key) {
            takes(&key.takes, value, found);
        }
    }
}

fn takes(what: &Takes, value: &Value, found: &mut Vec<ObjectRef>) {
    match what {
        Takes::Reference(kind) => found.extend(named(*kind, value)),
        Takes::Address(_) => found.extend(value.as_str().and_then(|text| text.parse().ok())),
        Takes::List(one) => value.as_array().into_iter().flatten().for_each(|value| takes(one, value, found)),
        Takes::Block { keys: inner, .. } => keys(inner, value, found),
        Takes::Blocks { keys: inner } => {
            value.as_array().into_iter().flatten().for_each(|value| keys(inner, value, found));
        }
        Takes::Named { keys: inner, .. } => {
            value.as_object().into_iter().flatten().for_each(|(_, value)| keys(inner, value, found));
        }
        _ => {}
    }
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
}
