//! Running every decoder on nothing, and putting docstrings to what it asked for.

use std::sync::Arc;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use super::{Key, KindDoc, Naming, Takes};
use crate::{
    diagnostic::{SourceRef, Span},
    fleet::{
        decode::{Fields, Findings, Subject},
        doc::{Arg, Entry, Form, Scalar},
        kind as kinds,
    },
    name::Name,
    object::Kind,
};

/// Keys that have no field of their own in the model, and what they say.
const SPELLINGS: [(&str, &str); 3] = [
    ("profile.kernel.modules", "Modules to load, by name alone."),
    ("profile.kernel.blacklist", "Modules that are kept from loading, by name alone."),
    ("profile.package.version", "The version that is kept, with `*` for the rest of it."),
];

/// Forms of texts that the decoders look at by code. Each takes at least what they take.
pub(super) const FORMS: [(&str, &str); 17] = [
    ("fleet.trust-domain", "^[a-z0-9-]+(\\.[a-z0-9-]+)*$"),
    ("fleet.freeze.hours", CLOCK),
    ("freeze.hours", CLOCK),
    ("rollout.window.hours", CLOCK),
    ("site.gateway", ":[0-9]{1,5}$"),
    ("site.network.cidr", "^[0-9A-Fa-f:.]+/[0-9]{1,3}$"),
    ("site.network.router", "^[0-9A-Fa-f:.]+$"),
    ("profile.file.mode", "^[0-7]{3,4}$"),
    ("profile.file.restart", UNIT),
    ("profile.kernel.args", "^[!-~]+$"),
    ("image.url", "^https?://"),
    ("release.artifact.url", "^https?://"),
    ("release.signature", "^https://"),
    ("access.issuer", "^https://"),
    ("access.policy", "\\.cedar$"),
    ("node.attested", "^(x509|tpm|aws|gcp|azure):."),
    ("node.mac", "^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$"),
];

/// Forms of the names of blocks.
pub(super) const NAMES: [(&str, &str); 7] = [
    ("fleet.freeze", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
    ("profile.file", "^/."),
    ("profile.unit", UNIT),
    ("profile.package", "^[A-Za-z0-9][A-Za-z0-9._+-]*$"),
    ("pool.attest", "^(x509|tpm|aws|gcp|azure)$"),
    ("pool.policy.acceptance", "^diag\\.(nvml|dcgm)$"),
    ("release.artifact", "^(amd64|arm64)$"),
];

const CLOCK: &str = "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$";
const UNIT: &str = "^[A-Za-z0-9_:.@\\\\-]+\\.(service|socket|timer|mount|path|target|slice|automount)$";

/// A kind, its keys and its example.
pub(super) fn kind(kind: Kind) -> KindDoc {
    macro_rules! decoded {
        ($module:ident, $type:ty) => {
            (schema::<$type>(), asked(kind, |subject, findings| drop(kinds::$module::decode(subject, findings))))
        };
    }
    macro_rules! line {
        ($module:ident, $type:ty) => {
            (
                schema::<$type>(),
                asked(kind, |subject, findings| drop(kinds::$module::keys(&mut subject.fields, findings))),
            )
        };
    }
    let (schema, mut keys) = match kind {
        Kind::Fleet => decoded!(fleet_doc, kinds::FleetDocument),
        Kind::Site => decoded!(site, kinds::Site),
        Kind::Pool => decoded!(pool, kinds::Pool),
        Kind::Profile => decoded!(profile, kinds::Profile),
        Kind::Image => decoded!(image, kinds::Image),
        Kind::Release => decoded!(release, kinds::Release),
        Kind::Rollout => decoded!(rollout, kinds::Rollout),
        Kind::Node => decoded!(node, kinds::Node),
        Kind::Tenant => decoded!(tenant, kinds::Tenant),
        Kind::Quota => decoded!(quota, kinds::Quota),
        Kind::Access => decoded!(access, kinds::ApiAccess),
        Kind::Batch => decoded!(batch, kinds::Batch),
        Kind::Freeze => decoded!(freeze, kinds::Freeze),
        Kind::Moved => line!(moved, kinds::Moved),
        Kind::Removed => line!(removed, kinds::Removed),
    };
    describe(&mut keys, &schema, &schema, kind.as_str());
    let (doc, file, kdl) = about(kind);
    let naming = match kind {
        Kind::Fleet => Naming::Optional,
        Kind::Moved => Naming::Nameless,
        Kind::Removed => Naming::Address,
        _ => Naming::Name,
    };
    KindDoc { kind, doc: doc.to_owned(), file, kdl, naming, keys }
}

fn asked(kind: Kind, decode: impl FnOnce(&mut Subject<'_>, &mut Findings<'_>)) -> Vec<Key> {
    let mut found = Vec::new();
    let probes = probes();
    let mut findings = Findings::new(Arc::from(""), "", &mut found);
    let name = Name::new("probe").expect("a DNS label");
    let fields = Fields::recording(kind.as_str(), &probes);
    let mut subject = Subject { name, at: SourceRef::default(), fields };
    decode(&mut subject, &mut findings);
    subject.fields.asked()
}

/// Entries that a mapping of free keys is tried with: which of them it takes tells what it takes.
fn probes() -> Vec<Entry> {
    let values = [Scalar::Bool(true), Scalar::Int(1), Scalar::Text("a".to_owned())];
    let entry = |key: &str, value: &Scalar, form| {
        let arg = Arg { value: value.clone(), span: Span::START };
        Entry { key: key.to_owned(), span: Span::START, args: vec![arg], fields: Vec::new(), form }
    };
    let of = |key| {
        let singles = values.iter().map(move |value| entry(key, value, Form::Single));
        singles.chain([entry(key, &values[2], Form::List)])
    };
    ["a.b", "2MiB", "1g.10gb"].into_iter().flat_map(of).collect()
}

fn schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    serde_json::to_value(generator.into_root_schema_for::<T>()).unwrap_or_default()
}

/// Puts descriptions and patterns to keys.
fn describe(keys: &mut [Key], schema: &Value, root: &Value, path: &str) {
    for key in keys {
        let path = format!("{path}.{}", key.key);
        let property = member(schema, key.key, root);
        if let Some(property) = property {
            let said = property.get("description").or_else(|| resolve(property, root).get("description"));
            key.doc = said.and_then(Value::as_str).unwrap_or_default().replace('\n', " ");
        }
        if let Some((_, doc)) = SPELLINGS.iter().find(|(spelling, _)| *spelling == path) {
            (*doc).clone_into(&mut key.doc);
        }
        let value = property.map_or(&Value::Null, |property| resolve(property, root));
        let inner = match &key.takes {
            Takes::List(_) | Takes::Blocks { .. } => value.get("items"),
            Takes::Table(_) | Takes::Named { .. } => value.get("additionalProperties"),
            _ => Some(value),
        };
        let inner = inner.map_or(&Value::Null, |inner| resolve(inner, root));
        let form = FORMS.iter().find(|(form, _)| *form == path).map(|(_, pattern)| *pattern);
        key.pattern = form.or_else(|| inner.get("pattern").and_then(Value::as_str)).map(str::to_owned);
        key.named = NAMES.iter().find(|(named, _)| *named == path).map(|(_, pattern)| *pattern);
        match &mut key.takes {
            Takes::Block { keys, .. } | Takes::Blocks { keys } | Takes::Named { keys, .. } => {
                describe(keys, inner, root, &path);
            }
            Takes::Table(values) => bounds(values, inner),
            _ => {}
        }
    }
}

/// The numbers that the type of a mapping's values holds.
fn bounds(values: &mut [Takes], schema: &Value) {
    for value in values {
        if let (Takes::Integer(least, most), Some(minimum)) = (value, schema.get("minimum").and_then(Value::as_i64)) {
            (*least, *most) = (i128::from(minimum), i128::from(u32::MAX));
        }
    }
}

/// A property of a schema, also of one that it is put together from.
fn member<'v>(schema: &'v Value, key: &str, root: &'v Value) -> Option<&'v Value> {
    let own = schema.get("properties").and_then(|properties| properties.get(key));
    own.or_else(|| {
        let parts = ["anyOf", "allOf", "oneOf"].iter().filter_map(|part| schema.get(part)?.as_array()).flatten();
        parts.map(|part| resolve(part, root)).find_map(|part| member(part, key, root))
    })
}

/// What a schema refers to, or the one alternative that is not null.
fn resolve<'v>(schema: &'v Value, root: &'v Value) -> &'v Value {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let target = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(schema, |target| resolve(target, root));
    }
    let alternatives = schema.get("anyOf").and_then(Value::as_array);
    let some = alternatives.filter(|all| all.len() == 2 && all[1].get("type").is_some_and(|kind| kind == "null"));
    some.map_or(schema, |all| resolve(&all[0], root))
}

/// What a kind is for, the file that usually holds it, and an object of it. The objects together are a fleet.
const fn about(kind: Kind) -> (&'static str, &'static str, &'static str) {
    macro_rules! example {
        ($name:literal) => {
            include_str!(concat!("example/", $name, ".kdl"))
        };
    }
    match kind {
        Kind::Fleet => ("Who the fleet is, and its brakes. One per repository.", "fleet.kdl", example!("fleet")),
        Kind::Site => ("A place with machines and gateways.", "sites/fra1.kdl", example!("site")),
        Kind::Pool => ("Machines that are alike and are booked together.", "pools/h100.kdl", example!("pool")),
        Kind::Profile => (
            "What a host looks like: one layer, which may extend another.",
            "profiles/gpu-host.kdl",
            example!("profile"),
        ),
        Kind::Image => ("Bytes for a disk, named by digest.", "images/ubuntu-24.04.yaml", example!("image")),
        Kind::Release => ("A version of the node daemon.", "releases/bcd-0.2.0.kdl", example!("release")),
        Kind::Rollout => ("How a change travels: at once, or in waves.", "rollouts/cautious.kdl", example!("rollout")),
        Kind::Node => ("One machine that needs a word of its own.", "nodes/fra1-r12.kdl", example!("node")),
        Kind::Tenant => ("Who books.", "tenants/research.kdl", example!("tenant")),
        Kind::Quota => ("How much a tenant books.", "tenants/research.kdl", example!("quota")),
        Kind::Access => ("Who may call the API, by a policy.", "access/operators.kdl", example!("access")),
        Kind::Batch => {
            ("Destructive commands that wait for their approvals.", "batches/2026-11-kernel.kdl", example!("batch"))
        }
        Kind::Freeze => ("No change here for a time, or in a window of every week.", "freezes.kdl", example!("freeze")),
        Kind::Moved => (
            "An object that keeps its identity under another name. It may be deleted once it was applied.",
            "moved.kdl",
            example!("moved"),
        ),
        Kind::Removed => (
            "An object that is to go; without such a line nothing goes. It may be deleted once it was applied.",
            "removed.kdl",
            example!("removed"),
        ),
    }
}
