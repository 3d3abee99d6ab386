//! `nodespec`: composes what a node should be, signs it, and stores it. Key: the node's id.
//!
//! The spec is made from the target that the node was last *assigned*, never from the newest one, by the contributors in
//! their order. A new generation is written if and only if the canonical bytes differ; the one exception is a node that
//! reports a spec that we never wrote (a restored database), past which the next one jumps. Signing happens outside the
//! transaction, and only of what a signed manifest names ([`custody`](crate::custody)); the result is stored by
//! compare-and-swap on the generation, and the node's gateway is poked after the commit. A stored spec whose worker
//! certificate is past half of its life is signed again under the same generation.

mod contribute;
mod step;
mod stored;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use async_trait::async_trait;
use schema::{
    effect::{self, EffectClass},
    fleet::{self, ComposeError, HostTemplate, NodeOverlay},
    id::NodeId,
    node::{Condition, ConditionStatus, ProvisionState},
    secret::SecretName,
    spec,
    time::Timestamp,
};
use serde_json::json;
use store::{
    Txn, audit, node_sections,
    nodes::{self, SpecError},
    pools,
    queue::{self, Kind},
    secrets,
};

pub use contribute::{Contributor, Input};
use step::Step;
pub(super) use step::is_other;
pub(crate) use stored::decode as decode_signature;
pub(super) use stored::encode as encode_signature;

use super::{Context, Failure, Outcome, Reconciler, ShardBy, WaitReason};
use crate::custody::{Assigned, Unproven, Who};

/// The spec could not be composed; the last good one stays in force.
pub const SPEC_INVALID: &str = "SpecInvalid";

/// The reconciler, with its contributors.
#[derive(Debug)]
pub struct NodeSpec {
    contributors: Vec<Contributor>,
}

impl NodeSpec {
    /// With every contributor there is, in their order.
    #[must_use]
    pub fn standard() -> Self {
        Self { contributors: vec![contribute::HOST, contribute::ACCESS] }
    }
}

/// What has to happen before a node has a spec.
#[derive(Debug)]
enum Missing {
    Adoption(ProvisionState),
    Assignment,
    Composition(ComposeError),
    Unproven(Unproven),
    Secret(SecretName),
}

impl WaitReason for Missing {
    fn code(&self) -> &'static str {
        match self {
            Self::Adoption(_) => "not-adopted",
            Self::Assignment => "nothing-assigned",
            Self::Composition(_) => "compose-failed",
            Self::Unproven(unproven) => unproven.code(),
            Self::Secret(_) => "secret-missing",
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adoption(state) => write!(f, "the node is {state}; it gets a spec once it is adopted or deployed"),
            Self::Assignment => f.write_str("no target was assigned to the node; its pool is in no applied revision"),
            Self::Composition(error) => {
                write!(f, "the spec cannot be composed: {error}; the last good one stays in force")
            }
            Self::Unproven(unproven) => unproven.fmt(f),
            Self::Secret(name) => {
                write!(
                    f,
                    "there is no secret {name}; put it with `better-compute secrets put {name}`, and the spec goes"
                )
            }
        }
    }
}

#[async_trait]
impl Reconciler for NodeSpec {
    fn kind(&self) -> &'static Kind {
        &queue::NODESPEC
    }

    fn shard_by(&self) -> ShardBy {
        ShardBy::Node
    }

    async fn run(&self, context: &Context, key: &str) -> Result<Outcome, Failure> {
        let id: NodeId = key.parse().map_err(|e| Failure::new("bad-key", e))?;
        let Some(node) = nodes::find(context.db(), id).await? else { return Ok(Outcome::done()) };
        if !node.provision.receives_spec() {
            return Ok(Outcome::wait(&Missing::Adoption(node.provision)));
        }
        let mut composed = match self.compose(context, &node).await? {
            Ok(composed) => composed,
            Err(missing) => return refuse(context, &node, missing).await,
        };
        let names = names_of(&composed);
        let versions = secrets::newest(context.db(), &names).await?;
        if let Some(missing) = resolve(&mut composed, &versions) {
            return wait_for_secret(context, &node, names, missing).await;
        }
        let wanted = composed.to_bytes();
        let now = context.now().await?;
        let stored = nodes::find_spec(context.db(), id).await?;
        let sections = node_sections::list(context.db(), id).await?;
        let step = step::decide(
            &node,
            stored.as_ref(),
            &sections,
            &wanted,
            |signature| context.signer().is_current(signature),
            now,
        );
        let valid = !node.conditions.iter().any(|condition| condition.kind == SPEC_INVALID);
        let from = node.assignment().expect("what was composed was assigned");
        if step == Step::Nothing && valid && node.spec_from.as_ref() == Some(&from) {
            return Ok(Outcome::done());
        }
        let effect = effect_of(stored.as_ref(), &composed);
        let signed = match step {
            Step::Nothing => None,
            Step::SignAgain => Some(node.generation),
            Step::Store { to } => Some(to),
        };
        let sign = |generation| stored::encode(context.signer().sign_spec(id, generation, &wanted, now));
        let signed = signed.map(sign);

        let mut txn = context.begin().await?;
        match (step, &signed) {
            (Step::Store { to }, Some(signature)) => {
                // First, for a put takes the same rows in this order.
                if secrets::newest_held(&mut txn, &names).await? != versions {
                    return Err(Failure::new("secret-moved", "a secret got another version meanwhile"));
                }
                secrets::set_uses(&mut txn, id, &names).await?;
                let spec = nodes::NewSpec { generation: to, bytes: &wanted, signature, from: &from, effect };
                store_spec(&mut txn, &node, &spec).await?;
            }
            (_, Some(signature)) => {
                nodes::resign_spec(&mut txn, id, node.generation, signature).await?;
                nodes::confirm_spec(&mut txn, id, node.generation, &from).await?;
            }
            (_, None) => {
                nodes::confirm_spec(&mut txn, id, node.generation, &from).await?;
            }
        }
        if !valid {
            set_invalid(&mut txn, id, None).await?;
        }
        txn.commit().await?;
        Ok(Outcome::done())
    }
}

/// How hard the new spec is for the machine: by the classifier that made the plan. A spec that this version cannot read is
/// taken as none.
fn effect_of(stored: Option<&nodes::StoredSpec>, wanted: &spec::NodeSpec) -> EffectClass {
    let before = stored.and_then(|stored| spec::NodeSpec::from_bytes(&stored.bytes).ok()).unwrap_or_default();
    effect::classify(&before, wanted).class
}

fn names_of(spec: &spec::NodeSpec) -> BTreeSet<SecretName> {
    spec.secrets().into_iter().map(|secret| secret.name).collect()
}

/// Puts the newest versions in. The first secret that there is not.
fn resolve(spec: &mut spec::NodeSpec, versions: &BTreeMap<SecretName, u64>) -> Option<SecretName> {
    for secret in spec.host.files.iter_mut().filter_map(|file| file.secret.as_mut()) {
        match versions.get(&secret.name).and_then(|version| u32::try_from(*version).ok()) {
            Some(version) => secret.version = version,
            None => return Some(secret.name.clone()),
        }
    }
    None
}

/// Whoever puts the secret wakes the node; what its spec in force refers to stays noted.
async fn wait_for_secret(
    context: &Context,
    node: &nodes::Node,
    mut names: BTreeSet<SecretName>,
    missing: SecretName,
) -> Result<Outcome, Failure> {
    let stored = nodes::find_spec(context.db(), node.id).await?;
    let stored = stored.and_then(|stored| spec::NodeSpec::from_bytes(&stored.bytes).ok());
    names.extend(stored.iter().flat_map(names_of));
    let mut txn = context.begin().await?;
    secrets::set_uses(&mut txn, node.id, &names).await?;
    txn.commit().await?;
    if secrets::newest(context.db(), &BTreeSet::from([missing.clone()])).await?.is_empty() {
        return refuse(context, node, Missing::Secret(missing)).await;
    }
    Err(Failure::new("secret-moved", "a secret was put meanwhile"))
}

async fn store_spec(txn: &mut Txn, node: &nodes::Node, spec: &nodes::NewSpec<'_>) -> Result<(), Failure> {
    match nodes::set_spec(txn, node.id, node.generation, spec).await {
        Ok(()) => Ok(queue::enqueue(txn, &queue::NODE, [node.id]).await?),
        Err(SpecError::Db(error)) => Err(error.into()),
        Err(error @ (SpecError::Moved { .. } | SpecError::NotForward { .. })) => Err(Failure::new("spec-moved", error)),
    }
}

impl NodeSpec {
    async fn compose(&self, context: &Context, node: &nodes::Node) -> Result<Result<spec::NodeSpec, Missing>, Failure> {
        let Some(assigned) = &node.assigned else { return Ok(Err(Missing::Assignment)) };
        let target = pools::find_target(context.db(), assigned).await?;
        let target = target
            .ok_or_else(|| Failure::new("target-gone", format!("the assigned target {assigned} is not stored")))?;
        let who = Who { id: node.id, name: node.name.as_str(), pool: node.pool.as_deref() };
        let says = Assigned {
            target: *assigned,
            doc: &target.doc,
            overlay: &node.assigned_overlay,
            former_name: node.assigned_name.as_deref(),
        };
        if let Err(unproven) = context.custody().prove(context.db(), who, &says).await? {
            return Ok(Err(Missing::Unproven(unproven)));
        }
        let template: HostTemplate =
            serde_json::from_str(&target.doc).map_err(|e| Failure::new("target-unreadable", e))?;
        let overlay: NodeOverlay =
            serde_json::from_str(&node.assigned_overlay).map_err(|e| Failure::new("overlay-unreadable", e))?;
        let composed =
            match fleet::compose(&template, &overlay, node.assigned_name.as_ref().unwrap_or(&node.name).as_str()) {
                Ok(composed) => composed,
                Err(error) => return Ok(Err(Missing::Composition(error))),
            };
        Ok(Ok(contribute::merge(&self.contributors, &Input { node, composed: &composed })))
    }
}

/// How soon a machine whose rows prove nothing is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

async fn refuse(context: &Context, node: &nodes::Node, missing: Missing) -> Result<Outcome, Failure> {
    let told = match &missing {
        Missing::Composition(error) => Some(("ComposeFailed", error.to_string())),
        Missing::Unproven(unproven) => Some(("Unproven", unproven.to_string())),
        Missing::Adoption(_) | Missing::Assignment | Missing::Secret(_) => None,
    };
    if let Some((reason, message)) = told {
        let told =
            node.conditions.iter().any(|condition| condition.kind == SPEC_INVALID && condition.message == message);
        if !told {
            let now = context.now().await?;
            let mut txn = context.begin().await?;
            if let Missing::Unproven(unproven) = &missing {
                tracing::error!(node_id = %node.id, name = %node.name, code = unproven.code(), "{unproven}");
                let detail = json!({ "code": unproven.code(), "message": message, "name": node.name });
                audit::append(&mut txn, "nodespec", "nodes.specRefused", &node.id.to_string(), &detail).await?;
            }
            set_invalid(&mut txn, node.id, Some((reason, message, now))).await?;
            txn.commit().await?;
        }
    }
    Ok(match &missing {
        // Whoever puts a row right in the database wakes nobody.
        Missing::Unproven(_) => Outcome::wait_for(&missing, LOOK_AGAIN),
        _ => Outcome::wait(&missing),
    })
}

async fn set_invalid(txn: &mut Txn, id: NodeId, invalid: Option<(&str, String, Timestamp)>) -> Result<(), Failure> {
    let Some(node) = nodes::lock(txn, id).await? else { return Ok(()) };
    let mut conditions = node.conditions;
    conditions.retain(|condition| condition.kind != SPEC_INVALID);
    conditions.extend(invalid.map(|(reason, message, since)| Condition {
        kind: SPEC_INVALID.to_owned(),
        status: ConditionStatus::True,
        reason: reason.to_owned(),
        message,
        since,
    }));
    conditions.sort_by(|a, b| a.kind.cmp(&b.kind));
    Ok(nodes::set_conditions(txn, id, &conditions).await?)
}
