//! Break-glass: what people of the emergency tier allow without a batch. It is written down as a batch of its own, goes at once,
//! is told to everybody who follows events, and waits for somebody to look at it afterwards.

use pki::batch::{Approval, BreakglassApproval, Emergency, emergencies};
use schema::{canonical, command::CommandKind, digest::Digest, name::Name};
use serde_json::json;
use store::{
    batches::{self, BatchState, NewBatch, NewLeaf, Origin, Put},
    outbox,
};

use super::resolve::Trust;
use crate::reconcile::{Context, Failure};

/// The kind of statements that call one.
const BREAKGLASS: &str = "breakglass/v1";

/// Takes over the emergencies that enough people called, and that are still to begin.
pub(super) async fn take(context: &Context, trust: Option<&Trust>) -> Result<(), Failure> {
    let Some((trust, policy)) = trust.and_then(|trust| Some((trust, trust.present()?))) else { return Ok(()) };
    let statements = store::trust::statements_of(context.db(), &[BREAKGLASS], None).await?;
    let raws: Vec<Vec<u8>> = statements.into_iter().map(|statement| statement.raw).collect();
    if raws.is_empty() {
        return Ok(());
    }
    let (called, _refused) = emergencies(&raws, &trust.trust_domain, trust.fleet, policy, &trust.revoked);
    let now = context.now().await?;
    for emergency in called.into_iter().filter(|emergency| emergency.permits(now)) {
        for (number, kind) in emergency.kinds.iter().enumerate() {
            call(context, &emergency, number, kind, &raws).await?;
        }
    }
    Ok(())
}

/// What an emergency is called here: the same words have the same name, whoever says them.
#[must_use]
fn name_of(emergency: &Emergency, number: usize) -> Option<Name> {
    let words = json!({
        "kinds": emergency.kinds, "nodes": emergency.nodes, "reason": emergency.reason,
        "notBefore": emergency.not_before.to_string(), "expires": emergency.expires.to_string(),
    });
    let digest = canonical::digest(&words).ok()?;
    let suffix = if number == 0 { String::new() } else { format!("-{}", number + 1) };
    Name::new(format!("breakglass-{}{suffix}", digest.short())).ok()
}

/// What a command is told in an emergency: the reason where its kind takes one.
fn payload(kind: CommandKind, reason: &str) -> Option<serde_json::Value> {
    let reason: String = reason.chars().take(200).collect();
    kind.check_payload(&json!({ "reason": reason })).or_else(|_| kind.check_payload(&json!({}))).ok()
}

async fn call(
    context: &Context,
    emergency: &Emergency,
    number: usize,
    kind: &str,
    raws: &[Vec<u8>],
) -> Result<(), Failure> {
    let Some(name) = name_of(emergency, number) else { return Ok(()) };
    if let Some(known) = batches::find(context.db(), name.as_str()).await? {
        if known.new.origin != Origin::Breakglass {
            tracing::error!(batch = %name, origin = %known.new.origin, "an emergency does not go: its name is somebody else's");
        }
        return Ok(());
    }
    let told = kind.parse::<CommandKind>().ok().and_then(|kind| payload(kind, &emergency.reason));
    let Some(told) = told else {
        tracing::warn!(kind, "an emergency names a kind that needs to be told more than a reason");
        return Ok(());
    };
    let statements = emergency.evidence.iter().filter_map(|place| raws.get(*place).cloned()).collect();
    let evidence = Approval::Breakglass(BreakglassApproval { statements }).to_bytes();
    let people: Vec<&str> = emergency.people.iter().map(Name::as_str).collect();
    let mut txn = context.begin().await?;
    let machines = batches::named(&mut txn, &emergency.nodes).await?.items;
    let text =
        |value: &serde_json::Value| String::from_utf8(canonical::to_vec(value).unwrap_or_default()).unwrap_or_default();
    let doc = json!({ "kind": kind, "nodes": emergency.nodes, "reason": emergency.reason, "people": people });
    let new = NewBatch {
        name: name.clone(),
        origin: Origin::Breakglass,
        quorum: true,
        kind: kind.to_owned(),
        doc: text(&doc),
        place: None,
        why: emergency.reason.clone(),
        plan: None,
        signed: None,
        proposer: None,
        evidence: Some(evidence),
        created_by: people.join(", "),
        not_before: emergency.not_before,
        expires: emergency.expires,
        max_in_flight: u32::try_from(machines.len()).unwrap_or(u32::MAX).max(1),
        max_failures: u32::MAX >> 1,
        spread: None,
    };
    let leaves: Vec<NewLeaf> = machines
        .iter()
        .map(|machine| NewLeaf { node_id: machine.id, node: machine.name.clone(), leaf: None, payload: text(&told) })
        .collect();
    let there = |node: &&Name| machines.iter().any(|machine| machine.name == **node);
    let strangers: Vec<&str> = emergency.nodes.iter().filter(|node| !there(node)).map(Name::as_str).collect();
    let message = (!strangers.is_empty()).then(|| format!("no machine is called {}", strangers.join(", ")));
    if let Put::Fresh(id) = batches::put(&mut txn, &new, &leaves, message.as_deref()).await? {
        tracing::warn!(batch = %name, kind, nodes = ?emergency.nodes, people = ?people, reason = %emergency.reason, "BREAK GLASS: people called an emergency");
        let doc = json!({
            "batchId": id, "name": name, "kind": kind, "nodes": emergency.nodes, "people": people, "reason": emergency.reason,
            "evidence": Digest::of(new.evidence.as_deref().unwrap_or_default()),
        });
        outbox::append(&mut txn, &[outbox::NewEvent::new(outbox::BREAKGLASS, format!("batch/{name}"), doc.clone())])
            .await?;
        store::audit::append(&mut txn, &people.join(", "), "breakglass.called", &format!("batch/{name}"), &doc).await?;
        if leaves.is_empty()
            && let Some(batch) = batches::find_for_update(&mut txn, name.as_str()).await?
        {
            batches::move_to(&mut txn, &batch, BatchState::Void, Some("no-machine"), message.as_deref(), "source")
                .await?;
        }
    }
    txn.commit().await?;
    Ok(())
}
