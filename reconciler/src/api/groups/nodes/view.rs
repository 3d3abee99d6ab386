//! What an answer shows of a node.

use std::collections::BTreeMap;

use schema::{
    attested::Attested,
    effect::EffectClass,
    node::{
        Condition, Facts, Hold,
        condition::{ConditionStatus, REBOOT_REQUIRED, SECTION_FAILED},
        schedulable::schedulable,
    },
    report::DriftEntry,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use store::{
    attestations, identities, node_certs, node_holds, node_inventory, node_sections, nodes, outcomes, sessions,
};

use super::drift;
use crate::api::{
    ApiError, App,
    groups::{
        At,
        brakes::{self, HoldView},
        fleet::Problem,
    },
};

/// A node.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct NodeView {
    /// Its id.
    id: String,
    /// Its name.
    name: String,
    /// Its site.
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    /// Its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// What it is to the platform.
    role: String,
    /// Who controls it.
    trust: String,
    /// A document in the fleet repository names it.
    declared: bool,
    /// Its labels.
    labels: BTreeMap<String, String>,
    /// How far it is.
    provision: String,
    /// Whether its session is there.
    connectivity: String,
    /// Since when.
    connectivity_since: At,
    /// Any hold exists.
    cordoned: bool,
    /// Work on it failed or somebody stopped it.
    maintenance: bool,
    /// The newest spec.
    generation: u64,
    /// The newest spec that it attempted.
    applied: u64,
    /// The newest spec that it observed, by its own signature.
    observed: u64,
    /// It is assigned what it should be, observed the spec that was made of it, no section failed, and nothing waits for a boot.
    converged: bool,
    /// New work may be placed on it.
    schedulable: bool,
    /// The first check that keeps new work away.
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<String>,
    /// Every reason not to schedule.
    no_schedule_reasons: Vec<String>,
    /// Typed facts.
    conditions: Vec<Condition>,
    /// What it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// What it was last assigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    assigned: Option<String>,
    /// Pass it to a mutation to be told about changes in between.
    version: u64,
    /// When it was adopted.
    #[serde(skip_serializing_if = "Option::is_none")]
    adopted_at: Option<At>,
}

impl NodeView {
    pub(super) fn of(node: &nodes::Node) -> Self {
        let verdict = schedulable(&Facts {
            role: node.role,
            trust: node.trust,
            // Only the pool's row knows; a tenant's machine is shown as its owner's pool would.
            in_owners_pool: true,
            maintenance: node.maintenance,
            cordoned: node.cordoned,
            provision: node.provision,
            observed: node.observed,
            connectivity: node.connectivity,
            no_schedule: node.no_schedule.clone(),
        });
        let is_assigned = node.target == node.assigned
            && node.target_overlay == node.assigned_overlay
            && node.assigned_name.is_none();
        let is_composed = is_assigned && node.provision.receives_spec() && node.spec_from == node.assignment();
        let holds = |kind: &str| {
            node.conditions.iter().any(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
        };
        Self {
            id: node.id.to_string(),
            name: node.name.to_string(),
            site: node.site.as_ref().map(ToString::to_string),
            pool: node.pool.as_ref().map(ToString::to_string),
            role: node.role.to_string(),
            trust: node.trust.to_string(),
            declared: node.declared,
            labels: node.labels.clone(),
            provision: node.provision.to_string(),
            connectivity: node.connectivity.to_string(),
            connectivity_since: At(node.connectivity_since),
            cordoned: node.cordoned,
            maintenance: node.maintenance,
            generation: node.generation.0,
            applied: node.applied.0,
            observed: node.observed.0,
            converged: is_composed
                && node.generation.0 > 0
                && node.observed >= node.generation
                && !holds(SECTION_FAILED)
                && !holds(REBOOT_REQUIRED),
            schedulable: verdict.is_ok(),
            bucket: verdict.err().map(|bucket| bucket.to_string()),
            no_schedule_reasons: node.no_schedule.iter().map(ToString::to_string).collect(),
            conditions: node.conditions.clone(),
            target: node.target.as_ref().map(ToString::to_string),
            assigned: node.assigned.as_ref().map(ToString::to_string),
            version: node.version.0,
            adopted_at: node.adopted_at.map(At),
        }
    }
}

/// How a section of the spec ended.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct SectionView {
    /// The section.
    section: String,
    /// `converged` or `failed`.
    state: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// At which generation.
    generation: u64,
    /// Since when.
    since: At,
}

/// The latest session.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct SessionView {
    /// Its epoch.
    epoch: u64,
    /// The gateway that holds or held it.
    gateway_id: String,
    /// The daemon's version.
    version: String,
    /// The machine is described by a file and not real.
    described: bool,
    /// When it opened.
    connected_at: At,
    /// When it closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    disconnected_at: Option<At>,
    /// When the node was last heard.
    last_seen: At,
}

/// A node with everything that hangs off it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct NodeDetail {
    /// The node.
    node: NodeView,
    /// What keeps new work away on purpose.
    holds: Vec<Hold>,
    /// How the sections of its spec ended.
    sections: Vec<SectionView>,
    /// What something else than its daemon changed on it.
    drift: Vec<DriftEntry>,
    /// The class of what its newest spec did to it, from `none` to `wipe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    spec_effect: Option<EffectClass>,
    /// What it is made of, by section.
    inventory: BTreeMap<String, Value>,
    /// Sections of the inventory that were asked for and have not come.
    inventory_wanted: Vec<String>,
    /// Its latest session.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<SessionView>,
    /// Who it is.
    identity: IdentityView,
    /// What it waits for, by reconciler.
    waits: Vec<Problem>,
    /// What keeps it from what it should be: freezes, pins, suspensions and gates.
    held: Vec<HoldView>,
}

/// What a node is known by.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct IdentityView {
    /// Counts the identities that it has had.
    generation: u64,
    /// SHA-256 over its normalised identifiers.
    #[serde(skip_serializing_if = "Option::is_none")]
    hardware_key: Option<String>,
    /// Two independent identifiers stand behind the key.
    hardware_key_trusted: bool,
    /// What it proved to be when it joined, such as `tpm:sha256:…`; empty when a token alone vouched for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attested: Vec<Attested>,
    /// When its newest certificate ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_ends: Option<At>,
    /// The version of the trust bundle that it believes, by its own signature.
    trust_version: u64,
    /// The kinds of commands that it accepts, as the token by which it joined said; absent for every kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    kinds: Option<Vec<String>>,
    /// That it has none any more, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked: Option<RevokedView>,
}

/// The end of an identity.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RevokedView {
    /// When.
    at: At,
    /// Why, as whoever revoked it said.
    reason: String,
}

async fn identity(
    app: &App,
    node: &nodes::Node,
    revoked: Option<&node_certs::Revocation>,
) -> Result<IdentityView, ApiError> {
    Ok(IdentityView {
        generation: node.identity_generation.0,
        hardware_key: node.hardware_key.map(|key| key.to_string()),
        hardware_key_trusted: node.hardware_key_trusted,
        certificate_ends: node_certs::newest_end(&app.db, node.id).await?.map(At),
        attested: attestations::of_node(&app.db, node.id).await?,
        trust_version: identities::trust_version(&app.db, node.id).await?,
        // An identity that ended accepts nothing, which it says itself.
        kinds: match revoked {
            Some(_) => None,
            None => node_certs::allowed_kinds(&app.db, node.id).await?,
        },
        revoked: revoked.map(|revocation| RevokedView { at: At(revocation.at), reason: revocation.reason.clone() }),
    })
}

pub(super) async fn detail(app: &App, node: &nodes::Node) -> Result<NodeDetail, ApiError> {
    let id = node.id;
    let holds = node_holds::list(&app.db, id).await?;
    let sections = node_sections::list(&app.db, id).await?;
    let drift = drift::of_node(app, id).await?;
    let spec = nodes::find_spec(&app.db, id).await?;
    let inventory = node_inventory::list(&app.db, id).await?;
    let session = sessions::find(&app.db, id).await?;
    let outcomes = outcomes::of_key(&app.db, &id.to_string()).await?;
    let revoked = node_certs::revocation(&app.db, id).await?;
    let document = |doc: &str| serde_json::from_str(doc).map_err(ApiError::internal);
    Ok(NodeDetail {
        node: NodeView::of(node),
        holds: holds.items.into_iter().map(|stored| stored.hold).collect(),
        sections: sections
            .into_iter()
            .map(|section| SectionView {
                section: section.section.to_string(),
                state: section.status.state.to_string(),
                reason: section.status.reason,
                generation: section.generation.0,
                since: At(section.since),
            })
            .collect(),
        drift,
        spec_effect: spec.and_then(|spec| spec.effect),
        inventory: inventory
            .iter()
            .map(|(name, section)| Ok((name.to_string(), document(&section.doc)?)))
            .collect::<Result<_, ApiError>>()?,
        inventory_wanted: node.inventory_wanted.iter().map(ToString::to_string).collect(),
        session: session.map(|session| SessionView {
            epoch: session.epoch.0,
            gateway_id: session.gateway_id.to_string(),
            version: session.version,
            described: session.described,
            connected_at: At(session.connected_at),
            disconnected_at: session.disconnected_at.map(At),
            last_seen: At(session.last_seen),
        }),
        identity: identity(app, node, revoked.as_ref()).await?,
        waits: outcomes
            .items
            .iter()
            .filter(|outcome| outcome.state != "done")
            .map(|outcome| Problem::of_node(outcome, revoked.as_ref()))
            .collect(),
        held: brakes::of_node(app, node).await?,
    })
}
