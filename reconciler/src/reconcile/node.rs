//! `node`: takes over what a node signed, and judges what follows from it. Key: the node's id.
//!
//! ```text
//! node_reports ──▶ verify (signature, node, sequence) ──▶ observed, sections, conditions, inventory
//!                                                                      │
//! pool's document, connectivity ──────────────────────────────────────▶ judge ──▶ conditions, noScheduleReasons,
//!                                                                                 adoption, what it still waits for
//! ```
//!
//! Reports are believed only under the key of the node's own certificate. `observed` is raised and never lowered. The
//! judgement is a pure function, made first from what was read; when it changes nothing, nothing is written and no row is
//! locked. Otherwise it is made again on the locked row and written with its causes in one transaction.

mod acceptance;
mod judge;
mod reports;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, time::Duration};

use async_trait::async_trait;
use schema::{
    generation::Generation,
    id::NodeId,
    inventory::InventorySection,
    node::ProvisionEvent,
    report::{SectionStatus, StatusReport},
    spec::Section,
    time::Timestamp,
};
use store::{
    Txn, batches, commands, identities, joins, node_drift, node_inventory, node_reports,
    node_sections::{self, NodeSection},
    nodes, pools,
    queue::{self, Kind},
    trust,
};

use self::{
    acceptance::Acceptance,
    judge::{Facts, Judgement},
    reports::Taken,
};
use super::{Context, Failure, Outcome, Reconciler, ShardBy, WaitReason, nodespec};

pub use judge::{HARDWARE_CHANGED, INVENTORY_INCOMPLETE, OWN_CONDITIONS, REPORT_REFUSED};

/// The reconciler.
#[derive(Debug)]
pub struct Node;

/// What a node waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Waiting {
    /// It has no pool, so nothing says what it should be.
    NoPool,
    /// Its pool is in no applied revision.
    PoolUnknown(String),
    /// These sections of its inventory are missing, and it cannot be adopted before.
    Inventory(Vec<InventorySection>),
    /// It has not observed its newest spec yet.
    Convergence { generation: Generation, observed: Generation },
    /// These sections ended in failure.
    Sections(Vec<Section>),
    /// The checks of its pool are not through.
    Checks(String),
    /// A check failed, or somebody has to look for another reason.
    NotAccepted(String),
}

impl WaitReason for Waiting {
    fn code(&self) -> &'static str {
        match self {
            Self::NoPool => "no-pool",
            Self::PoolUnknown(_) => "pool-unknown",
            Self::Inventory(_) => "inventory-incomplete",
            Self::Convergence { .. } => "converging",
            Self::Sections(_) => "section-failed",
            Self::Checks(_) => "acceptance-running",
            Self::NotAccepted(_) => "acceptance-failed",
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |words: Vec<&'static str>| words.join(", ");
        match self {
            Self::NoPool => f.write_str("the node has no pool"),
            Self::PoolUnknown(pool) => write!(f, "pool {pool} is in no applied revision"),
            Self::Inventory(missing) => {
                write!(f, "the inventory lacks {}", list(missing.iter().map(|section| section.as_str()).collect()))
            }
            Self::Convergence { generation, observed } => {
                write!(f, "the node has observed generation {observed} of {generation}")
            }
            Self::Checks(what) => f.write_str(what),
            Self::NotAccepted(why) => {
                write!(f, "the machine was not accepted: {why}")
            }
            Self::Sections(failed) => {
                write!(
                    f,
                    "the node could not converge {}",
                    list(failed.iter().map(|section| section.as_str()).collect())
                )
            }
        }
    }
}

/// What one run reads.
struct Read {
    taken: Taken,
    pool: Option<schema::fleet::Pool>,
    inventory: judge::Inventory,
    sections: BTreeMap<Section, SectionStatus>,
    other_spec: Option<Generation>,
    wanted: Vec<InventorySection>,
    /// Looked at once nothing else keeps the machine from being adopted.
    acceptance: Option<Acceptance>,
}

#[async_trait]
impl Reconciler for Node {
    fn kind(&self) -> &'static Kind {
        &queue::NODE
    }

    fn shard_by(&self) -> ShardBy {
        ShardBy::Node
    }

    async fn run(&self, context: &Context, key: &str) -> Result<Outcome, Failure> {
        let id: NodeId = key.parse().map_err(|e| Failure::new("bad-key", e))?;
        let Some(node) = nodes::find(context.db(), id).await? else { return Ok(Outcome::done()) };
        let mut read = read(context, &node).await?;
        let now = context.now().await?;
        let judgement = judge::judge(&node, &read.facts(), now);
        if let (true, Some(pool)) = (judgement.adopt, &read.pool) {
            read.acceptance = Some(acceptance::look(context, &node, pool, now).await?);
        }
        let checking = matches!(read.acceptance, Some(Acceptance::Running(_) | Acceptance::Resting { .. }));
        if read.taken.is_empty() && (judgement.changes_nothing(&node) || (checking && judgement.adopts_only(&node))) {
            return Ok(ended(&read, &judgement, now));
        }

        let mut txn = context.begin().await?;
        let Some(node) = nodes::lock(&mut txn, id).await? else { return Ok(Outcome::done()) };
        let judgement = judge::judge(&node, &read.facts(), now);
        write(&mut txn, &node, &read, &judgement).await?;
        txn.commit().await?;
        Ok(ended(&read, &judgement, now))
    }
}

fn ended(read: &Read, judgement: &Judgement, now: Timestamp) -> Outcome {
    match &judgement.waiting {
        _ if read.taken.more => Outcome::again(Duration::ZERO, "more-reports"),
        Some(waiting) => Outcome::wait(waiting),
        None if judgement.adopt => match &read.acceptance {
            // It became ready between the look and the lock.
            None => Outcome::again(Duration::ZERO, "ready-to-be-adopted"),
            Some(Acceptance::Passed) => Outcome::done(),
            Some(failed @ Acceptance::Failed { .. }) => Outcome::wait(&Waiting::NotAccepted(failed.to_string())),
            Some(resting @ Acceptance::Resting { until, .. }) => {
                let rest = schema::time::Duration::between(now, *until);
                Outcome::wait_for(&Waiting::Checks(resting.to_string()), rest.to_std())
            }
            Some(checking) => Outcome::wait(&Waiting::Checks(checking.to_string())),
        },
        None => Outcome::done(),
    }
}

async fn read(context: &Context, node: &nodes::Node) -> Result<Read, Failure> {
    let db = context.db();
    let taken = reports::take(context, node).await?;
    let pool = match &node.pool {
        Some(name) => pools::find(db, name.as_str()).await?,
        None => None,
    };
    let pool = match pool {
        Some(pool) => Some(serde_json::from_value(pool.policy).map_err(|e| Failure::new("pool-unreadable", e))?),
        None => None,
    };
    let stored = node_inventory::list(db, node.id).await?;
    let mut inventory = judge::Inventory::new(
        stored.into_iter().map(|(name, section)| (name, (section.digest, section.doc))).collect(),
    );
    let wanted = inventory.update(&taken.inventory);
    let sections: Vec<NodeSection> = match &taken.status {
        Some(status) => status.sections.iter().map(|(name, ended)| attempted(*name, ended, status)).collect(),
        None => node_sections::list(db, node.id).await?,
    };
    let spec = nodes::find_spec(db, node.id).await?;
    let other_spec = spec.filter(|spec| nodespec::is_other(spec, &sections)).map(|spec| spec.generation);
    let sections = sections.into_iter().map(|row| (row.section, row.status)).collect();
    Ok(Read { taken, pool, inventory, sections, other_spec, wanted, acceptance: None })
}

fn attempted(section: Section, ended: &SectionStatus, status: &StatusReport) -> NodeSection {
    NodeSection { section, status: ended.clone(), generation: status.applied, since: status.at }
}

impl Read {
    fn facts(&self) -> Facts<'_> {
        Facts {
            pool: self.pool.as_ref(),
            status: self.taken.status.as_ref(),
            highest: self.taken.highest,
            other_spec: self.other_spec,
            refused: self.taken.refused.as_deref(),
            heard: !self.taken.accepted.is_empty(),
            inventory: &self.inventory,
            sections: &self.sections,
        }
    }
}

async fn write(txn: &mut Txn, node: &nodes::Node, read: &Read, judgement: &Judgement) -> Result<(), Failure> {
    let id = node.id;
    if let Some(status) = &read.taken.status {
        let (applied, observed) = read.taken.highest;
        nodes::observe(txn, id, applied, observed).await?;
        node_sections::replace(txn, id, status.applied, &status.sections).await?;
        node_drift::replace(txn, id, &status.drift).await?;
        if let Some(version) = status.trust_version {
            identities::set_trust_version(txn, id, version).await?;
        }
        if let Some(held) = &status.policy {
            trust::set_held(txn, id, held).await?;
        }
        commands::witness(txn, id, status.boot_id, status.journal_id, status.at).await?;
        if status.binds {
            commands::binds(txn, id).await?;
        }
    }
    node_inventory::upsert(txn, id, &read.inventory.changed()).await?;
    node_inventory::remove(txn, id, read.inventory.gone()).await?;
    if let Some((payload, signature)) = &read.taken.identity {
        batches::keep_identity(txn, id, payload, signature).await?;
    }
    if !read.taken.inventory.is_empty() {
        nodes::set_inventory_wanted(txn, id, &read.wanted).await?;
    }
    for mark in &read.taken.accepted {
        node_reports::set_mark(txn, id, mark).await?;
    }
    node_reports::remove(txn, &read.taken.seen).await?;
    nodes::set_conditions(txn, id, &judgement.conditions).await?;
    let (add, remove) = judgement.no_schedule_change(node);
    nodes::change_no_schedule(txn, id, &add, &remove).await?;
    let adopted = match &read.acceptance {
        Some(acceptance) if judgement.adopt => accept(txn, node, acceptance).await?,
        _ => false,
    };
    if adopted || judgement.ahead {
        queue::enqueue(txn, &queue::NODESPEC, [id]).await?;
    }
    Ok(())
}

/// Takes the next step of a machine's acceptance; whether that adopted it.
async fn accept(txn: &mut Txn, node: &nodes::Node, acceptance: &Acceptance) -> Result<bool, Failure> {
    match acceptance {
        Acceptance::Passed => {
            nodes::adopt(txn, node).await.map_err(|e| Failure::new("not-adoptable", e))?;
            tracing::info!(node_id = %node.id, node = %node.name, "the node is adopted");
            return Ok(true);
        }
        Acceptance::Begin { checks, again } => acceptance::begin(txn, node.id, checks, *again).await?,
        Acceptance::Running(_) | Acceptance::Resting { .. } => {}
        Acceptance::Failed { .. } => {
            let why = acceptance.to_string();
            nodes::set_provision(txn, node, ProvisionEvent::Fail).await.map_err(|e| Failure::new("not-failable", e))?;
            nodes::set_maintenance(txn, node.id, Some(&why)).await?;
            joins::note(txn, node.id, &format!("{} joined and was not accepted: {why}", node.name)).await?;
            tracing::warn!(node_id = %node.id, node = %node.name, "the node is not accepted: {why}");
        }
    }
    Ok(false)
}
