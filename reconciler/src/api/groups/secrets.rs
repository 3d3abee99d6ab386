//! `secrets`: values that go in and never come out here.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pki::secret::Address;
use schema::{
    object::Kind,
    secret::{MAX_SECRET_BYTES, SecretName},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use store::{
    queue,
    revisions::{self, ObjectState, StoredObject},
    secrets,
};

use super::{At, Nothing, PageOf, UnreadableView};
use crate::api::{ApiError, App, Code, table::Mutation};

/// The member of a request that holds a value.
pub(in crate::api) const VALUE: &str = "value";

/// A value on its way in: base64. What is wrong with it is said without it.
pub(in crate::api) struct Hidden(Vec<u8>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden(..)")
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let decoded = match Value::deserialize(deserializer) {
            Ok(Value::String(text)) => STANDARD.decode(text).ok(),
            _ => None,
        };
        decoded.map(Self).ok_or_else(|| serde::de::Error::custom("the value is a text in base64, with padding"))
    }
}

impl JsonSchema for Hidden {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SecretValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "contentEncoding": "base64", "writeOnly": true })
    }
}

/// A value to keep.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Put {
    /// The secret's name, as documents write it after `secret://`.
    name: String,
    /// The value, 1 to 65536 bytes, in base64. It is sealed at once and never shown.
    value: Hidden,
}

/// What was put.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Stored {
    /// The secret's name.
    name: String,
    /// Its newest version.
    version: u64,
}

/// A secret, without its value.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct SecretView {
    /// Its name.
    name: String,
    /// Its newest version.
    version: u64,
    /// The versions that are kept, newest first.
    versions: Vec<u64>,
    /// Who put the newest one.
    created_by: String,
    /// When.
    created_at: At,
}

/// Which secret goes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Delete {
    /// The secret's name.
    name: String,
    /// Also while machines refer to it: they keep the value that they have, and their spec waits.
    #[serde(default)]
    force: bool,
}

/// What was deleted.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Deleted {
    /// The secret's name.
    name: String,
}

pub(in crate::api) async fn put(mutation: Mutation<'_>, input: Put) -> Result<Stored, ApiError> {
    let Mutation { app, txn, caller, after, .. } = mutation;
    let name: SecretName = super::parse("name", &input.name)?;
    let Hidden(value) = &input.value;
    if !(1..=MAX_SECRET_BYTES).contains(&value.len()) {
        return Err(ApiError::field(VALUE, format!("a secret has 1 to {MAX_SECRET_BYTES} bytes")));
    }
    let version = secrets::next_version(txn, &name).await?;
    let envelope = app.secrets.seal(Address { name: &name, version, tenant: None }, value);
    secrets::put(txn, &name, version, &envelope, &caller.identity).await?;
    let nodes = secrets::used_by(txn, &name).await?;
    queue::enqueue(txn, &queue::NODESPEC, nodes).await?;
    after.audit = Some(json!({ "name": name, "version": version }));
    Ok(Stored { name: input.name, version })
}

pub(in crate::api) async fn list(app: &App, _: Nothing) -> Result<PageOf<SecretView>, ApiError> {
    let found = secrets::list(&app.db).await?;
    let items = found.items.into_iter().map(|secret| SecretView {
        name: secret.name.to_string(),
        version: secret.version,
        versions: secret.versions,
        created_by: secret.created_by,
        created_at: At(secret.created_at),
    });
    Ok(PageOf { items: items.collect(), next: None, unreadable: UnreadableView::all(found.unreadable) })
}

pub(in crate::api) async fn delete(mutation: Mutation<'_>, input: Delete) -> Result<Deleted, ApiError> {
    let name: SecretName = super::parse("name", &input.name)?;
    let txn = mutation.txn;
    if !secrets::delete(txn, &name).await? {
        return Err(ApiError::new(Code::NotFound, format!("there is no secret {name}")));
    }
    let nodes = secrets::used_by(txn, &name).await?;
    if !input.force
        && let Some(who) = referring(&documents(mutation.app, &name).await?, nodes.len())
    {
        return Err(ApiError::new(Code::InvalidState, format!("{who} to {}", name.reference())).why(
            "take the reference out of the fleet first; with force machines keep what they have and get nothing new",
        ));
    }
    queue::enqueue(txn, &queue::NODESPEC, nodes).await?;
    Ok(Deleted { name: input.name })
}

/// The documents in force that refer to a secret, each with its place, whether a machine has them yet or not.
async fn documents(app: &App, name: &SecretName) -> Result<Vec<String>, ApiError> {
    let reference = name.reference();
    let objects = revisions::objects_of(&app.db, Kind::Profile).await?.whole()?;
    let refers = |object: &StoredObject| {
        object.state != ObjectState::Removed
            && serde_json::from_str(&object.doc).is_ok_and(|document| contains(&document, &reference))
    };
    let named = |object: StoredObject| format!("{} ({}:{})", object.object, object.file, object.line);
    Ok(objects.into_iter().filter(refers).map(named).collect())
}

fn contains(document: &Value, text: &str) -> bool {
    match document {
        Value::String(found) => found == text,
        Value::Array(items) => items.iter().any(|item| contains(item, text)),
        Value::Object(members) => members.values().any(|item| contains(item, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Who refers to a secret, up to the verb; `None` when nobody does.
fn referring(documents: &[String], nodes: usize) -> Option<String> {
    const MOST: usize = 3;
    let named = documents.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    let named = match documents.len().saturating_sub(MOST) {
        0 => named,
        more => format!("{named} and {more} more"),
    };
    let machines = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
    match (documents.len(), nodes) {
        (0, 0) => None,
        (0, 1) => Some(format!("{machines} refers")),
        (0, _) => Some(format!("{machines} refer")),
        (1, 0) => Some(format!("{named} refers")),
        (_, 0) => Some(format!("{named} refer")),
        (..) => Some(format!("{named}, and by that {machines}, refer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_refers_to_a_secret_is_named() {
        let one = ["profile/keyed (profiles/keyed.kdl:3)".to_owned()];
        assert_eq!(referring(&[], 0), None);
        assert_eq!(referring(&[], 2).as_deref(), Some("2 nodes refer"));
        assert_eq!(referring(&one, 0).as_deref(), Some("profile/keyed (profiles/keyed.kdl:3) refers"));
        let words = referring(&one, 1).expect("words");
        assert_eq!(words, "profile/keyed (profiles/keyed.kdl:3), and by that 1 node, refer");
        let many: Vec<String> = (0..5).map(|n| format!("profile/{n}")).collect();
        assert_eq!(referring(&many, 0).as_deref(), Some("profile/0, profile/1, profile/2 and 2 more refer"));
    }
}
