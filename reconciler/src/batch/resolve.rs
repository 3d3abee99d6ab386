//! From a document and machines to leaves and a header. Pure: the same document and the same machines give the same digest.

use std::collections::{BTreeMap, BTreeSet};

use pki::{
    batch::{BatchApproval, BatchHeader, Flaw, Leaf, Question, approval::STATEMENT_ROOM, judge, merkle},
    trust::{object::ObjectId, policy::Policy, statement::FleetId, statement::Under},
};
use schema::{canonical, command::CommandKind, digest::Digest, fleet::Batch, name::Name, time::Timestamp};
use store::batches::{Machine, NewBatch, NewLeaf, Origin, Signed};

/// Whom people trust: everything that a header binds besides the batch itself.
#[derive(Debug, Clone)]
pub struct Trust {
    /// The trust domain.
    pub trust_domain: String,
    /// The fleet.
    pub fleet: FleetId,
    /// Every policy that was in force, by epoch.
    pub policies: BTreeMap<u64, Policy>,
    /// Keys that statements revoked, by name.
    pub revoked: BTreeSet<String>,
}

impl Trust {
    /// The policy in force.
    #[must_use]
    pub fn present(&self) -> Option<&Policy> {
        self.policies.values().next_back()
    }
}

/// A batch as its document asks for it.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// The document.
    pub batch: &'a Batch,
    /// Its canonical text.
    pub doc: String,
    /// Where it comes from.
    pub origin: Origin,
    /// The commit that introduced its text and that commit's tree; `None` where nobody is trusted.
    pub plan: Option<(ObjectId, ObjectId)>,
    /// Who signed commits that added or changed it.
    pub excluded: BTreeSet<Name>,
    /// Who proposes it, where the document does not say.
    pub proposer: Option<Name>,
    /// Who wrote it down.
    pub created_by: &'a str,
}

/// What a document comes to.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The batch.
    pub batch: NewBatch,
    /// Its machines.
    pub leaves: Vec<NewLeaf>,
    /// Machines that its scope covers and that it leaves out, each with the reason.
    pub left_out: Vec<(Name, &'static str)>,
    /// Why nothing can come of it: a stable word, and the same for people.
    pub flaw: Option<(&'static str, String)>,
}

/// Machines that a document covers: those that can take part, and those that cannot, with the reason.
#[must_use]
pub fn covered<'m>(batch: &Batch, machines: &'m [Machine]) -> (Vec<&'m Machine>, Vec<(Name, &'static str)>) {
    let (mut in_it, mut out) = (Vec::new(), Vec::new());
    for machine in machines {
        if !batch.covers(&machine.name, machine.pool.as_ref(), machine.site.as_ref(), &machine.labels) {
            continue;
        }
        if !machine.vouched {
            out.push((machine.name.clone(), UNVOUCHED));
        } else if machine.journal.is_none() {
            out.push((machine.name.clone(), "it has not reported yet"));
        } else {
            in_it.push(machine);
        }
    }
    for named in &batch.scope.value.nodes {
        if !machines.iter().any(|machine| machine.name == named.value) {
            out.push((named.value.clone(), "it has not joined"));
        }
    }
    in_it.sort_by(|a, b| a.name.cmp(&b.name));
    (in_it, out)
}

/// Why a machine takes part in nothing whose row somebody else wrote.
pub(super) const UNVOUCHED: &str =
    "no process of this control plane wrote its name and its pool as they stand there (place-unproven)";

/// The precondition that a machine is in a boot.
pub const BOOT: &str = "boot";

/// Machines of one batch at most; what needs more is split.
pub const MOST_LEAVES: usize = 20_000;

/// Resolves a document.
#[must_use]
pub fn resolve(asked: &Asked<'_>, machines: &[Machine], trust: Option<&Trust>, now: Timestamp) -> Resolved {
    let batch = asked.batch;
    let (covered, left_out) = covered(batch, machines);
    let second = |at: Timestamp| Timestamp::from_second(at.as_second()).unwrap_or(at);
    let not_before = second(batch.not_before.as_ref().map_or(now, |at| at.value));
    let expires = second(batch.expires.value);
    let word = batch.command.value.as_str();
    let mut flaw = None;
    let mut payload = batch.payload();
    match batch.kind() {
        None => flaw = Some(("kind-missing", format!("this version has no command {word}"))),
        Some(kind) => match kind.check_payload(&payload) {
            Ok(whole) => payload = whole,
            Err(error) => flaw = Some(("payload", format!("its payload does not fit {word}: {error}"))),
        },
    }
    if covered.is_empty() && flaw.is_none() {
        let why = match left_out.iter().find(|(_, why)| *why == UNVOUCHED) {
            Some((name, why)) => format!("its scope covers no machine that can take part: node/{name}: {why}"),
            None => "its scope covers no machine that has joined".to_owned(),
        };
        flaw = Some(("no-machine", why));
    }
    if covered.len() > MOST_LEAVES {
        flaw = Some(("too-many-nodes", format!("it covers {} machines, and a batch has {MOST_LEAVES}", covered.len())));
    }
    let digest = Leaf::payload(&payload);
    let bytes = canonical::to_vec(&payload).expect("a checked payload is canonical");
    let text = String::from_utf8(bytes).expect("JSON is UTF-8");
    let leaves: Vec<Leaf> =
        (0_u32..).zip(&covered).filter_map(|(index, machine)| leaf(index, machine, word, digest)).collect();
    let mut signed = None;
    if let Some(trust) = trust {
        match header(asked, &leaves, trust, (not_before, expires)) {
            Ok(header) => {
                let judged = look(&header, word, trust, now);
                if flaw.is_none() {
                    flaw = judged.map(|flaw| (flaw.code(), flaw.to_string()));
                }
                flaw = flaw.or_else(|| too_large(&header, leaves.first()?));
                signed = Some(Signed {
                    header: header.to_bytes(),
                    digest: header.digest(),
                    tier: header.tier,
                    trust_epoch: header.under.epoch,
                });
            }
            Err(why) => flaw = flaw.or(Some(why)),
        }
    }
    let new = NewBatch {
        name: batch.name.clone(),
        origin: asked.origin,
        quorum: trust.is_some(),
        kind: word.to_owned(),
        doc: asked.doc.clone(),
        place: Some(format!("{}:{}", batch.at.file, batch.at.line())),
        why: batch.reason.value.clone(),
        plan: asked.plan.map(|(commit, tree)| (commit.to_string(), tree.to_string())),
        signed,
        proposer: proposer(asked).map(ToString::to_string),
        evidence: None,
        created_by: asked.created_by.to_owned(),
        not_before,
        expires,
        max_in_flight: max_in_flight(batch),
        max_failures: max_failures(batch),
        spread: batch.spread.as_ref().map(|key| key.value.clone()),
    };
    let leaves = leaves
        .into_iter()
        .map(|leaf| NewLeaf {
            node_id: leaf.node,
            node: leaf.name.clone(),
            leaf: trust.is_some().then(|| leaf.to_bytes()),
            payload: text.clone(),
        })
        .collect();
    Resolved { batch: new, leaves, left_out, flaw }
}

/// How many of its machines are at it at a time.
#[must_use]
pub fn max_in_flight(batch: &Batch) -> u32 {
    batch.max_in_flight.as_ref().map_or(1, |most| most.value)
}

/// How many failures it tolerates.
#[must_use]
pub fn max_failures(batch: &Batch) -> u32 {
    batch.max_failures.as_ref().map_or(0, |most| most.value)
}

fn proposer<'a>(asked: &'a Asked<'_>) -> Option<&'a Name> {
    asked.batch.proposer.as_ref().map(|name| &name.value).or(asked.proposer.as_ref())
}

/// The text of a hardware key, as leaves and nodes have it.
#[must_use]
pub fn hardware_key(key: Option<Digest>) -> String {
    key.map_or_else(|| "none".to_owned(), |key| key.to_string())
}

fn leaf(index: u32, machine: &Machine, kind: &str, payload: Digest) -> Option<Leaf> {
    Some(Leaf {
        index,
        name: machine.name.clone(),
        node: machine.id,
        identity_generation: machine.identity,
        hardware_key: hardware_key(machine.hardware_key),
        journal: machine.journal?,
        kind: kind.to_owned(),
        payload,
        min_generation: machine.applied,
        preconditions: preconditions(kind, machine),
    })
}

/// What a machine signed about itself, by the words that preconditions use.
#[must_use]
pub fn facts(machine: &Machine) -> BTreeMap<String, String> {
    machine.boot.iter().map(|boot| (BOOT.to_owned(), boot.to_string())).collect()
}

/// What has to be so still when a command of a kind begins. Whatever ends with a boot is asked for of the boot that the machine is
/// in: one that was booted since has had what people approved.
pub(super) fn preconditions(kind: &str, machine: &Machine) -> BTreeMap<String, String> {
    let bound = kind.parse::<CommandKind>().is_ok_and(|kind| kind.row().destructive && !kind.row().retry_safe);
    if bound { facts(machine) } else { BTreeMap::new() }
}

/// Why a machine is not the one of its leaf any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Differs {
    /// It is another machine, in words.
    Machine(&'static str),
    /// It was booted since.
    Boot,
    /// Something else that its leaf presupposes is not so, or not known here.
    Condition,
}

impl Differs {
    /// The stable word.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Machine(_) => "machine-changed",
            Self::Boot => "booted-since",
            Self::Condition => "precondition",
        }
    }
}

impl std::fmt::Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Machine(why) => why,
            Self::Boot => "it was booted since",
            Self::Condition => "something that was presupposed of it is not so",
        })
    }
}

/// Why a machine is not the one of its leaf any more.
#[must_use]
pub fn differs(leaf: &Leaf, machine: &Machine) -> Option<Differs> {
    let facts = facts(machine);
    let broken = leaf.preconditions.iter().find(|(word, wanted)| facts.get(*word) != Some(wanted));
    if machine.name != leaf.name {
        Some(Differs::Machine("it has another name"))
    } else if machine.identity != leaf.identity_generation {
        Some(Differs::Machine("it has another identity"))
    } else if hardware_key(machine.hardware_key) != leaf.hardware_key {
        Some(Differs::Machine("it has other hardware"))
    } else if machine.journal != Some(leaf.journal) {
        Some(Differs::Machine("it has another journal"))
    } else {
        broken.map(|(word, _)| if word == BOOT { Differs::Boot } else { Differs::Condition })
    }
}

fn header(
    asked: &Asked<'_>,
    leaves: &[Leaf],
    trust: &Trust,
    (not_before, expires): (Timestamp, Timestamp),
) -> Result<BatchHeader, (&'static str, String)> {
    let policy = trust.present().ok_or_else(|| ("no-policy", "the trust policy is not known here yet".to_owned()))?;
    let word = asked.batch.command.value.as_str();
    let tier = policy.tiers().iter().find(|tier| tier.commands.contains(word));
    let tier = tier.ok_or_else(|| ("no-tier", Flaw::NoTier(word.to_owned()).to_string()))?;
    let (plan_commit, plan_tree) = asked.plan.ok_or_else(|| ("no-plan", "no verified commit brought it".to_owned()))?;
    let hashes: Vec<Digest> = leaves.iter().map(Leaf::hash).collect();
    Ok(BatchHeader {
        trust_domain: trust.trust_domain.clone(),
        fleet: trust.fleet,
        name: asked.batch.name.clone(),
        tier: tier.name.clone(),
        proposer: proposer(asked).cloned(),
        excluded: asked.excluded.clone(),
        not_before,
        expires,
        plan_commit,
        plan_tree,
        under: Under { epoch: policy.epoch(), digest: policy.digest() },
        reason: asked.batch.reason.value.clone(),
        max_in_flight: max_in_flight(asked.batch),
        max_failures: max_failures(asked.batch),
        spread: asked.batch.spread.as_ref().map(|key| key.value.clone()),
        leaves: u32::try_from(leaves.len()).unwrap_or(u32::MAX),
        root: merkle::root(&hashes),
    })
}

/// A header that leaves no room for approvals in what goes to a machine.
fn too_large(header: &BatchHeader, leaf: &Leaf) -> Option<(&'static str, String)> {
    let why = BatchApproval::fits(header, leaf, vec![vec![0; STATEMENT_ROOM]]).err()?;
    Some(("too-large", format!("its reason leaves no room for approvals in what goes to a machine: {why}")))
}

/// What is wrong with a batch, whoever will approve it.
fn look(header: &BatchHeader, kind: &str, trust: &Trust, now: Timestamp) -> Option<Flaw> {
    let policy = trust.present()?;
    let kinds = BTreeSet::from([kind.to_owned()]);
    let question = Question {
        header,
        kinds: &kinds,
        statements: &[],
        named: policy,
        present: policy,
        revoked: &trust.revoked,
        now,
    };
    judge(&question).flaw
}

#[cfg(test)]
mod tests {
    use pki::batch::testing::{Fleet, object};
    use schema::{
        generation::{Generation, IdentityGeneration},
        id::{JournalId, NodeId},
    };

    use super::*;

    #[test]
    fn a_batch_that_leaves_no_room_for_its_approvals_is_none() {
        let (fleet, name) = (Fleet::new("acme.example"), |text: &str| Name::new(text).expect("a name"));
        let leaf = Leaf {
            index: 0,
            name: name("n0"),
            node: NodeId::generate(),
            identity_generation: IdentityGeneration(1),
            hardware_key: hardware_key(None),
            journal: JournalId::generate(),
            kind: "node.reboot".to_owned(),
            payload: Digest::of("{}"),
            min_generation: Generation(0),
            preconditions: BTreeMap::new(),
        };
        let header = |reason: String| BatchHeader {
            trust_domain: fleet.trust_domain.clone(),
            fleet: fleet.id,
            name: name("kernel"),
            tier: name("reboot"),
            proposer: None,
            excluded: BTreeSet::new(),
            not_before: Timestamp::UNIX_EPOCH,
            expires: Timestamp::UNIX_EPOCH,
            plan_commit: object("plan"),
            plan_tree: object("tree"),
            under: Under { epoch: 1, digest: Digest::of("policy") },
            reason,
            max_in_flight: 1,
            max_failures: 0,
            spread: None,
            leaves: 1,
            root: Digest::of("root"),
        };
        assert_eq!(too_large(&header("a kernel".repeat(1_000)), &leaf), None);
        let (code, why) = too_large(&header("a kernel".repeat(10_000)), &leaf).expect("too large");
        assert!(code == "too-large" && why.contains("leaves no room for approvals"), "{why}");
    }
}
