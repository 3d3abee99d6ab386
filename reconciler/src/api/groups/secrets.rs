//! `secrets`: values that go in and never come out here.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pki::secret::Address;
use schema::secret::{MAX_SECRET_BYTES, SecretName};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use store::{queue, secrets};

use super::{At, Nothing, PageOf};
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
    let items = secrets::list(&app.db).await?.into_iter().map(|secret| SecretView {
        name: secret.name.to_string(),
        version: secret.version,
        versions: secret.versions,
        created_by: secret.created_by,
        created_at: At(secret.created_at),
    });
    Ok(PageOf { items: items.collect(), next: None })
}

pub(in crate::api) async fn delete(mutation: Mutation<'_>, input: Delete) -> Result<Deleted, ApiError> {
    let name: SecretName = super::parse("name", &input.name)?;
    let txn = mutation.txn;
    if !secrets::delete(txn, &name).await? {
        return Err(ApiError::new(Code::NotFound, format!("there is no secret {name}")));
    }
    let nodes = secrets::used_by(txn, &name).await?;
    if !nodes.is_empty() && !input.force {
        let count = nodes.len();
        return Err(ApiError::new(Code::InvalidState, format!("{count} nodes refer to {}", name.reference())).why(
            "take the reference out of the fleet first; with force they keep what they have and get nothing new",
        ));
    }
    queue::enqueue(txn, &queue::NODESPEC, nodes).await?;
    Ok(Deleted { name: input.name })
}
