//! A batch made again from a clone: what the control plane says about it is compared with the commit, the policy, the leaves and
//! what each machine signed.

use std::{collections::BTreeSet, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pki::{
    Realm,
    batch::{BatchHeader, Leaf, Question, Tally, candidates, judge, merkle},
    hardware::{Claims, HardwareKey, IdentifierKind, plain_serial},
    node_key::NodePublicKey,
    report::ReportKind,
    trust::{
        commit::Commit,
        object::ObjectId,
        policy::Policy,
        walk::{History as _, Walked},
    },
};
use reconciler::{
    batch::{
        history::{self, Untraceable},
        resolve::{max_failures, max_in_flight},
    },
    source::{self, GitError, Repo},
};
use schema::{
    digest::Digest,
    fleet::{Batch, Fleet, Node},
    inventory::{Dmi, InventorySection},
    name::Name,
    report::InventoryReport,
    time::{Duration, Moment, Timestamp},
};
use serde_json::{Value, json};
use store::batches::BatchState;

use crate::{
    client::Client,
    exit::{During as _, Failure},
    output::text::printable,
    statement::refused,
    verified::{Place, Verified, git},
};

/// What the control plane says about a batch.
#[derive(Debug)]
pub(super) struct Asked {
    /// The batch.
    pub(super) batch: Value,
    /// Its machines.
    pub(super) machines: Vec<Value>,
    /// How the control plane stands.
    pub(super) status: Value,
    pub(super) realm: Realm,
}

/// A batch that is what the clone says.
#[derive(Debug)]
pub(super) struct Checked {
    /// What is signed.
    pub(super) header: BatchHeader,
    /// The policy in force.
    pub(super) policy: Policy,
    /// The document at the plan commit.
    pub(super) document: Batch,
    /// What every command is told.
    pub(super) payload: Value,
    /// Its machines.
    pub(super) machines: Vec<Machine>,
    /// The kinds of its commands.
    pub(super) kinds: BTreeSet<String>,
    /// What people said, as far as this clone has it.
    pub(super) statements: Vec<Vec<u8>>,
    /// Keys that count no more, by name.
    pub(super) revoked: BTreeSet<String>,
    /// When it was looked at.
    pub(super) now: Timestamp,
    /// What each pool allows to be disturbed at once.
    pub(super) budgets: Vec<(String, usize, Option<String>)>,
    /// What is worth knowing before one signs.
    pub(super) notes: Vec<String>,
}

/// One machine.
#[derive(Debug)]
pub(super) struct Machine {
    /// Its leaf.
    pub(super) leaf: Leaf,
    /// Its serial number, or why that is not known.
    pub(super) serial: Result<String, &'static str>,
    /// The serial number that its document declares, when that is another one.
    pub(super) declared: Option<String>,
    /// Its pool.
    pub(super) pool: Option<String>,
    /// Whether it is there.
    pub(super) connectivity: Option<String>,
    /// Whether it is cordoned.
    pub(super) cordoned: bool,
    /// Whether something waits for a boot on it.
    pub(super) staged: bool,
    /// Why it is not the machine that was resolved any more.
    pub(super) changed: Option<String>,
}

impl Checked {
    /// The question that people's words answer.
    pub(super) fn question(&self) -> Question<'_> {
        Question {
            header: &self.header,
            kinds: &self.kinds,
            statements: &self.statements,
            named: &self.policy,
            present: &self.policy,
            revoked: &self.revoked,
            now: self.now,
        }
    }

    /// How it stands by what this clone knows that people said.
    pub(super) fn tally(&self) -> Tally {
        judge(&self.question())
    }

    /// Who could still approve it.
    pub(super) fn candidates(&self) -> BTreeSet<Name> {
        candidates(&self.question(), &self.tally())
    }
}

impl Asked {
    /// Who said something, as far as the control plane heard.
    pub(super) fn said(&self, word: &str) -> Vec<&str> {
        let said = self.batch.pointer(&format!("/approvals/{word}")).and_then(Value::as_array);
        said.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// How far the clock here is from the control plane's, when that is far.
    pub(super) fn clock(&self, now: Timestamp) -> Option<String> {
        let theirs: Timestamp = super::text(&self.status, "now").parse().ok()?;
        let ahead = now.as_second() - theirs.as_second();
        let minutes = (ahead.unsigned_abs() + 30) / 60;
        let way = if ahead < 0 { "behind" } else { "ahead of" };
        (minutes > 0).then(|| {
            let far = Duration::from_secs(minutes * 60);
            format!(
                "your clock is {far} {way} the control plane's, which says {}: set the wrong one right",
                Moment(theirs)
            )
        })
    }

    /// Where the control plane reads the fleet.
    pub(super) fn sources(&self) -> impl Iterator<Item = &str> {
        let sources = self.status.get("sources").and_then(Value::as_array).into_iter().flatten();
        sources.filter_map(|source| source.get("url")?.as_str())
    }

    pub(super) async fn get(client: &Client, name: &str) -> Result<Self, Failure> {
        let batch = client.call("commandBatches.get", &json!({ "batch": name })).await?;
        waits_for_people(&batch)?;
        let mut machines = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut input = json!({ "batch": name, "identities": true });
            if let Some(after) = &after {
                input["after"] = after.as_str().into();
            }
            let mut page = client.call("commandBatches.scope", &input).await?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                machines.extend(items);
            }
            after = page.get("next").and_then(Value::as_str).map(str::to_owned);
            if after.is_none() {
                break;
            }
        }
        let status = client.call("fleet.status", &json!({})).await?;
        let realm = Realm::new(super::text(&status, "trustDomain"), super::text(&status, "fleetId"));
        Ok(Self { batch, machines, status, realm })
    }
}

/// Refuses a batch about which nothing that is said counts.
fn waits_for_people(batch: &Value) -> Result<(), Failure> {
    let text = |pointer: &str| batch.pointer(pointer).and_then(Value::as_str);
    let (name, state) = (text("/name").unwrap_or("-"), text("/state").unwrap_or("-"));
    if state.parse::<BatchState>().is_ok_and(BatchState::is_terminal) {
        let why = text("/message").map_or_else(String::new, |why| format!(": {}", printable(why)));
        return Err(refused("batch-over", format!("batch/{name} is {state}, and nothing more is said about it{why}")));
    }
    if batch.get("needsApproval").and_then(Value::as_bool) != Some(true) {
        return Err(refused("no-approval-needed", format!("batch/{name} needs no approval")));
    }
    if batch.get("header").is_none() {
        let (code, why) =
            (text("/waitsFor/reason").unwrap_or("batch-policy"), text("/waitsFor/message").unwrap_or("-"));
        return Err(Failure::refused(code, format!("batch/{name} cannot be approved yet: {}", printable(why)))
            .hint(format!("better-compute why batch/{name}")));
    }
    Ok(())
}

/// Something is not what the clone says.
fn lie(what: impl fmt::Display) -> Failure {
    Failure::refused("not-as-told", what)
        .hint("nothing was signed. If your clone is up to date, the control plane does not tell the truth")
}

/// Makes the batch again.
pub(super) fn check(asked: &Asked, place: &Place, now: Timestamp) -> Result<Checked, Failure> {
    let strange = "the control plane describes the batch strangely";
    let header: BatchHeader =
        serde_json::from_value(asked.batch.get("header").cloned().unwrap_or_default()).during(strange)?;
    let clone = Verified::open(place, None)?;
    let (repo, folder, walked) = (&clone.repo, clone.folder.as_str(), &clone.walked);
    let history = repo.trust_history(folder);
    let policy = policy(&clone, &header)?;
    let plan = header.plan_commit;
    let Ok(Some(raw)) = history.commit(plan) else {
        return Err(Failure::failed(format!("the commit {plan}, which asks for the batch, is not in this clone"))
            .hint("git fetch origin && git pull"));
    };
    let commit = Commit::split(history.format(), &raw).during("the commit that asks for the batch is malformed")?;
    if commit.tree() != header.plan_tree {
        return Err(lie("the batch names another tree than its commit has"));
    }
    let (commits, proposed) = origin(&history, walked, &header, &commit)?;
    let policies: Vec<&Policy> = walked.reached.iter().flat_map(|reached| reached.policies.values()).collect();
    let signers = history::signers(&history, &commits, &policies).map_err(untraceable)?;
    if signers != header.excluded {
        return Err(lie("the batch names others than those who signed its document"));
    }
    let fleet = fleet(repo, folder, &header)?;
    let document = document(&fleet, &header)?;
    let payload = compare(&document, &header, proposed)?;
    let leaves = leaves(asked, &header, &document, &payload)?;
    let mut notes = scope_notes(&document, &leaves);
    let machines = machines(asked, leaves, &fleet, &mut notes);
    let budgets = budgets(&fleet, &machines);
    Ok(Checked {
        kinds: BTreeSet::from([document.command.value.as_str().to_owned()]),
        statements: clone.statements.iter().map(|heard| heard.raw.clone()).collect(),
        revoked: clone.revoked(),
        now,
        header,
        policy,
        document,
        payload,
        machines,
        budgets,
        notes,
    })
}

fn untraceable(error: Untraceable<GitError>) -> Failure {
    Failure::because("where the batch comes from cannot be told from this clone", &error)
}

/// The policy in force in the clone, when the batch is to be approved under it.
fn policy(clone: &Verified, header: &BatchHeader) -> Result<Policy, Failure> {
    let (policy, walked) = (clone.policy()?.clone(), &clone.walked);
    if walked.fleet != header.fleet || walked.trust_domain != header.trust_domain {
        let why = format!(
            "the batch is of the fleet {} of {}, and this clone is the fleet {} of {}",
            header.fleet, header.trust_domain, walked.fleet, walked.trust_domain
        );
        return Err(refused("other-fleet", why));
    }
    if (policy.epoch(), policy.digest()) != (header.under.epoch, header.under.digest) {
        let why = format!(
            "the batch is to be approved under the trust policy of epoch {}, and this clone has epoch {}",
            header.under.epoch,
            policy.epoch()
        );
        return Err(Failure::refused("other-policy", why)
            .hint("git pull; a batch from before a change of the policy is void, and needs another name"));
    }
    Ok(policy)
}

/// The commits that added or changed the document, and whether a service proposes it beside the branch.
fn origin(
    history: &source::TrustHistory<'_>,
    walked: &Walked,
    header: &BatchHeader,
    commit: &Commit<'_>,
) -> Result<(Vec<ObjectId>, bool), Failure> {
    let verified: Vec<ObjectId> = walked.commits.iter().take(walked.verified()).map(|judged| judged.id).collect();
    let (plan, anchor) = (header.plan_commit, verified.first().copied());
    if verified.contains(&plan) {
        let tip = *verified.last().unwrap_or(&plan);
        let origin = history::trace(history, tip, anchor, &header.name).map_err(untraceable)?;
        if origin.plan != plan {
            let why = format!("the text of batch/{} changed since, in {}", header.name, origin.plan);
            return Err(Failure::refused("other-batch", why).hint(
                "what is signed for the old text does not count any more; wait until the control plane has the new one",
            ));
        }
        return Ok((origin.commits, false));
    }
    match commit.parents() {
        [parent] if verified.contains(parent) => Ok((vec![plan], true)),
        _ => Err(Failure::failed(format!("the commit {plan} is not verified in this clone"))
            .hint("git pull; better-compute verify --dry-run says what it concludes about each commit")),
    }
}

/// The fleet at the commit that asks for the batch.
fn fleet(repo: &Repo, folder: &str, header: &BatchHeader) -> Result<Fleet, Failure> {
    let sources = source::read_tree(repo, &header.plan_commit.to_string(), folder)
        .map_err(git("cannot read the commit that asks for the batch"))?;
    let fleet = schema::fleet::load(&sources).fleet;
    fleet.ok_or_else(|| Failure::failed("the commit that asks for the batch is no fleet to this version"))
}

fn document(fleet: &Fleet, header: &BatchHeader) -> Result<Batch, Failure> {
    let batch = fleet.batches.get(&header.name).cloned();
    batch.ok_or_else(|| lie(format!("the commit {} asks for no batch/{}", header.plan_commit, header.name)))
}

/// The payload, when the header says what the document does.
fn compare(document: &Batch, header: &BatchHeader, proposed: bool) -> Result<Value, Failure> {
    let second = |at: Timestamp| at.as_second();
    if document.reason.value != header.reason {
        return Err(lie("the batch gives another reason than its document"));
    }
    if second(document.expires.value) != second(header.expires)
        || document.not_before.as_ref().is_some_and(|at| second(at.value) != second(header.not_before))
    {
        return Err(lie("the batch has another window than its document"));
    }
    let pace =
        (max_in_flight(document), max_failures(document), document.spread.as_ref().map(|key| key.value.as_str()));
    if pace != (header.max_in_flight, header.max_failures, header.spread.as_deref()) {
        return Err(lie("the batch has another pace than its document"));
    }
    let said = document.proposer.as_ref().map(|name| &name.value);
    if said.is_some() && said != header.proposer.as_ref() || (said.is_none() && header.proposer.is_some() && !proposed)
    {
        return Err(lie("the batch names another proposer than its document"));
    }
    let kind = document.kind();
    let kind =
        kind.ok_or_else(|| Failure::failed(format!("this version has no command {}", document.command.value)))?;
    kind.check_payload(&document.payload()).during("the payload of the document does not fit its command")
}

fn leaves(asked: &Asked, header: &BatchHeader, document: &Batch, payload: &Value) -> Result<Vec<Leaf>, Failure> {
    let strange = "the control plane describes a machine of the batch strangely";
    let mut leaves = Vec::with_capacity(asked.machines.len());
    for machine in &asked.machines {
        let leaf: Leaf = serde_json::from_value(machine.get("leaf").cloned().unwrap_or_default()).during(strange)?;
        leaves.push(leaf);
    }
    let hashes: Vec<Digest> = leaves.iter().map(Leaf::hash).collect();
    if leaves.len() != header.leaves as usize || merkle::root(&hashes) != header.root {
        return Err(lie("the machines that are shown are not those of the batch"));
    }
    let digest = Leaf::payload(payload);
    let kind = document.command.value.as_str();
    if let Some(odd) = leaves.iter().find(|leaf| leaf.kind != kind || leaf.payload != digest) {
        return Err(lie(format!("node/{} would do something else than the document says", odd.name)));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = leaves.iter().find(|leaf| !names.insert(&leaf.name)) {
        return Err(lie(format!("node/{} is in the batch twice", twice.name)));
    }
    let scope = &document.scope.value;
    let by_name_alone = scope.pools.is_empty() && scope.sites.is_empty() && !scope.nodes.is_empty();
    let named = |leaf: &&Leaf| scope.nodes.iter().any(|node| node.value == leaf.name);
    if by_name_alone && let Some(odd) = leaves.iter().find(|leaf| !named(leaf)) {
        return Err(lie(format!("node/{} is in the batch, and the document does not name it", odd.name)));
    }
    Ok(leaves)
}

fn scope_notes(document: &Batch, leaves: &[Leaf]) -> Vec<String> {
    let scope = &document.scope.value;
    let mut notes = Vec::new();
    let absent: Vec<&str> = scope
        .nodes
        .iter()
        .map(|node| node.value.as_str())
        .filter(|node| !leaves.iter().any(|leaf| leaf.name.as_str() == *node))
        .collect();
    if !absent.is_empty() {
        notes.push(format!("the document names {}, which the batch leaves out", absent.join(", ")));
    }
    if !(scope.pools.is_empty() && scope.sites.is_empty() && scope.selector.is_empty()) {
        notes.push(
            "which machines are in the pools, sites and labels of its scope is what the control plane says".to_owned(),
        );
    }
    notes
}

fn machines(asked: &Asked, leaves: Vec<Leaf>, fleet: &Fleet, notes: &mut Vec<String>) -> Vec<Machine> {
    let mut machines = Vec::with_capacity(leaves.len());
    for (leaf, machine) in leaves.into_iter().zip(&asked.machines) {
        let text = |name: &str| machine.get(name).and_then(Value::as_str).map(str::to_owned);
        let flag = |name: &str| machine.get(name).and_then(Value::as_bool).unwrap_or(false);
        let shown = hardware(&asked.realm, &leaf, machine.get("identity"));
        let document = fleet.nodes.get(&leaf.name);
        machines.push(Machine {
            declared: shown.as_ref().ok().zip(document).and_then(|(shown, document)| declared(document, shown)),
            serial: shown
                .and_then(|(dmi, _)| dmi.serial.or(dmi.board_serial).ok_or("its firmware has no serial number")),
            pool: text("pool"),
            connectivity: text("connectivity"),
            cordoned: flag("cordoned"),
            staged: flag("staged"),
            changed: text("changed"),
            leaf,
        });
    }
    let unproven = machines.iter().filter(|machine| machine.serial.is_err()).count();
    if unproven > 0 {
        notes.push(format!(
            "of {unproven} of them no serial number is proven: know them by another way, or do not approve"
        ));
    }
    let other = machines.iter().filter(|machine| machine.declared.is_some()).count();
    if other > 0 {
        notes.push(format!(
            "{other} of them signed another serial number than their document declares: look which machines those are, or do not approve"
        ));
    }
    machines
}

/// The hardware that a machine signed, when it is the machine of the leaf: what it is recognised by is made again from what
/// it says.
fn hardware(realm: &Realm, leaf: &Leaf, identity: Option<&Value>) -> Result<(Dmi, HardwareKey), &'static str> {
    let identity = identity.ok_or("it signed no inventory yet")?;
    let bytes = |value: Option<&Value>| value.and_then(Value::as_str).and_then(|text| STANDARD.decode(text).ok());
    let payload = bytes(identity.get("payload")).ok_or("its inventory is unreadable")?;
    let signature = bytes(identity.get("signature")).ok_or("its inventory is unreadable")?;
    let keys = identity.get("keys").and_then(Value::as_array).ok_or("its keys are unknown")?;
    let signed = keys.iter().filter_map(|key| bytes(Some(key))).any(|key| {
        let key = NodePublicKey::from_bytes(&key);
        key.verify_report(realm, ReportKind::Inventory, leaf.node, &payload, &signature).is_ok()
    });
    if !signed {
        return Err("none of its keys signed its inventory");
    }
    let report: InventoryReport = serde_json::from_slice(&payload).map_err(|_| "its inventory is unreadable")?;
    if report.node_id != leaf.node {
        return Err("its inventory is another machine's");
    }
    let dmi = report.sections.get(&InventorySection::Dmi).ok_or("its inventory names no serial number")?;
    let dmi: Dmi = serde_json::from_value(dmi.clone()).map_err(|_| "its inventory is unreadable")?;
    let key = HardwareKey::derive(&Claims::of_dmi(&dmi));
    if key.digest.map(|digest| digest.to_string()).as_deref() != Some(leaf.hardware_key.as_str()) {
        return Err("its inventory is of other hardware than the batch binds");
    }
    Ok((dmi, key))
}

/// The serial number that a document declares, when it is none of the machine's, held against them as a join does.
fn declared(document: &Node, (dmi, key): &(Dmi, HardwareKey)) -> Option<String> {
    let chassis = key.survivors.get(&IdentifierKind::ChassisSerial);
    let wanted = [
        (&document.serial, [dmi.serial.as_ref(), chassis]),
        (&document.board_serial, [dmi.board_serial.as_ref(), None]),
    ];
    wanted.into_iter().find_map(|(wanted, found)| {
        let wanted = &wanted.as_ref()?.value;
        let is = |found: &String| plain_serial(found).is_some_and(|found| Some(found) == plain_serial(wanted));
        (!found.into_iter().flatten().any(is)).then(|| wanted.clone())
    })
}

/// How many machines of each pool, and what the pool allows.
fn budgets(fleet: &Fleet, machines: &[Machine]) -> Vec<(String, usize, Option<String>)> {
    let pools: BTreeSet<&String> = machines.iter().filter_map(|machine| machine.pool.as_ref()).collect();
    pools
        .into_iter()
        .map(|pool| {
            let count = machines.iter().filter(|machine| machine.pool.as_ref() == Some(pool)).count();
            let document = fleet.pools.get(pool.as_str());
            let budget = document.and_then(|pool| pool.policy.as_ref()?.disruption_budget.as_ref());
            (pool.clone(), count, budget.map(|budget| budget.value.clone()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use schema::fleet::{Sources, load};

    use super::*;

    #[test]
    fn a_serial_number_that_a_document_declares_is_held_against_what_the_machine_signed() {
        let told = |document: &str, dmi: &Dmi| {
            let mut sources = Sources::default();
            sources.insert_file("fleet.kdl", b"fleet \"acme\" { format 1; trust-domain \"acme.example\"; }".to_vec());
            let text = format!(
                "site \"fra1\"\nprofile \"base\"\npool \"h100\" {{ site \"fra1\"; profile \"base\"; }}\n\
                 node \"n0\" {{ pool \"h100\"; {document}; }}\n"
            );
            sources.insert_file("pools/h100.kdl", text.into_bytes());
            let loaded = load(&sources);
            let fleet = loaded.fleet.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
            declared(&fleet.nodes["n0"], &(dmi.clone(), HardwareKey::derive(&Claims::of_dmi(dmi))))
        };
        let dmi = Dmi { serial: Some("J7Q2X11".into()), board_serial: Some("BOARD17".into()), ..Dmi::default() };
        assert_eq!(told("serial \" j7q2x11\"", &dmi), None, "as a join compares them");
        assert_eq!(told("board-serial \"BOARD17\"", &dmi), None);
        assert_eq!(told("serial \"OTHER99\"", &dmi).as_deref(), Some("OTHER99"));
        assert_eq!(told("board-serial \"OTHER99\"", &dmi).as_deref(), Some("OTHER99"));
        assert_eq!(told("serial \"J7Q2X11\"", &Dmi::default()).as_deref(), Some("J7Q2X11"));
        assert_eq!(told("mac \"aa:bb:cc:dd:ee:ff\"", &dmi), None, "it declares none");
    }
}
