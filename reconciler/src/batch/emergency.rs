//! Break-glass: what people of the emergency tier allow without a batch. It is written down as a batch of its own, goes at once,
//! is told to everybody who follows events, and waits for somebody to look at it afterwards.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use pki::{
    batch::{Approval, BreakglassApproval, Call, Emergency, call as judge, called},
    trust::policy::Policy,
};
use schema::{
    canonical,
    command::CommandKind,
    digest::{Digest, Digester},
    name::Name,
};
use serde_json::json;
use store::{
    batches::{self, BatchState, NewBatch, NewLeaf, Origin, Put},
    outbox,
};

use super::resolve::Trust;
use crate::reconcile::{Context, Failure};

/// The kind of statements that call one.
const BREAKGLASS: &str = "breakglass/v1";

/// So many words are remembered at most; what is beyond is judged anew each time.
const REMEMBERED: usize = 4_096;

/// What became of words: each is verified once, as long as policy and revocations are the same.
#[derive(Debug, Default)]
pub(super) struct Heard {
    under: Option<Digest>,
    words: BTreeMap<Digest, Option<Call>>,
}

impl Heard {
    /// The words of these statements that count, each with its place. Only what is asked about is remembered afterwards.
    fn of(
        &mut self,
        under: Digest,
        raws: &[Vec<u8>],
        mut judge: impl FnMut(&[u8]) -> Option<Call>,
    ) -> Vec<(usize, Call)> {
        let mut known = std::mem::take(&mut self.words);
        if self.under.replace(under) != Some(under) {
            known.clear();
        }
        let mut count = Vec::new();
        for (place, raw) in raws.iter().enumerate() {
            let name = Digest::of(raw);
            let word = known.remove(&name).unwrap_or_else(|| judge(raw));
            count.extend(word.clone().map(|word| (place, word)));
            if self.words.len() < REMEMBERED {
                self.words.insert(name, word);
            }
        }
        count
    }
}

/// What a verdict on a statement rests on besides the statement.
fn under(trust: &Trust, policy: &Policy) -> Digest {
    let mut digest = Digester::new("bc/heard/v1");
    digest.part(trust.trust_domain.as_bytes());
    digest.part(trust.fleet.to_string().as_bytes());
    digest.part(&policy.epoch().to_be_bytes());
    digest.part(policy.digest().as_bytes());
    trust.revoked.iter().for_each(|key| digest.part(key.as_bytes()));
    digest.finish()
}

/// Takes over the emergencies that enough people called, and that are still to begin.
pub(super) async fn take(context: &Context, trust: Option<&Trust>, heard: &Mutex<Heard>) -> Result<(), Failure> {
    let Some((trust, policy)) = trust.and_then(|trust| Some((trust, trust.present()?))) else { return Ok(()) };
    let statements = store::trust::statements_of(context.db(), &[BREAKGLASS], None).await?;
    let raws: Vec<Vec<u8>> = statements.into_iter().map(|statement| statement.raw).collect();
    if raws.is_empty() {
        return Ok(());
    }
    let words = heard.lock().unwrap_or_else(PoisonError::into_inner).of(under(trust, policy), &raws, |raw| {
        judge(raw, &trust.trust_domain, trust.fleet, policy, &trust.revoked).ok()
    });
    let called = called(words.iter().map(|(place, word)| (*place, word)), policy);
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
    // All of them, so that it holds when one of the keys is revoked; no more than it takes where machines would not read them.
    let evidence = [&emergency.evidence, &emergency.carry].map(|places| {
        let statements = places.iter().filter_map(|place| raws.get(*place).cloned()).collect();
        Approval::Breakglass(BreakglassApproval { statements }).to_send()
    });
    let (evidence, unread) = match evidence {
        [Ok(evidence), _] | [Err(_), Ok(evidence)] => (Some(evidence), None),
        [Err(_), Err(why)] => (None, Some(format!("no machine reads what would go to it: {why}"))),
    };
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
        evidence,
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
        let void = match unread.as_deref() {
            Some(why) => Some(("approval-too-large", Some(why))),
            None => leaves.is_empty().then_some(("no-machine", message.as_deref())),
        };
        if let Some((reason, message)) = void
            && let Some(batch) = batches::find_for_update(&mut txn, name.as_str()).await?
        {
            batches::move_to(&mut txn, &batch, BatchState::Void, Some(reason), message, "source").await?;
        }
    }
    txn.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pki::batch::testing::{Fleet, Person, policy};

    use super::*;

    #[test]
    fn a_word_is_verified_once_while_policy_and_revocations_are_the_same_and_is_forgotten_with_its_statement() {
        let (fleet, ada) = (Fleet::new("acme.example"), Person::new("ada"));
        let text = format!(
            "policy {{ format 1; epoch 1; }}\nprincipal \"ada\" {{ kind \"human\"; roles \"admin\"; key \"{}\"; }}\n\
             path \"**\" {{ roles \"admin\"; }}\ntrust {{ roles \"admin\"; threshold 1; }}\n\
             breakglass {{ commands \"node.reboot\"; roles \"admin\"; threshold 1; max-nodes 2; max-ttl \"1h\"; }}\n",
            ada.line()
        );
        let policy = policy(&text);
        let window = ("2026-12-07T08:00:00Z", "2026-12-07T08:30:00Z");
        let window = (window.0.parse().expect("a time"), window.1.parse().expect("a time"));
        let good = fleet.breakglass(&ada, ("node.reboot", "gpu-0"), &policy, window);
        let raws = vec![good, b"no statement".to_vec()];
        let mut trust = Trust {
            trust_domain: fleet.trust_domain.clone(),
            fleet: fleet.id,
            policies: BTreeMap::from([(1, policy.clone())]),
            revoked: BTreeSet::new(),
        };
        let (mut heard, mut verified) = (Heard::default(), 0);
        let mut ask = |trust: &Trust, raws: &[Vec<u8>]| {
            let words = heard.of(under(trust, &policy), raws, |raw| {
                verified += 1;
                judge(raw, &trust.trust_domain, trust.fleet, &policy, &trust.revoked).ok()
            });
            let places: Vec<usize> = words.into_iter().map(|(place, _)| place).collect();
            (places, verified, heard.words.len())
        };
        assert_eq!(ask(&trust, &raws), (vec![0], 2, 2));
        assert_eq!(ask(&trust, &raws), (vec![0], 2, 2), "neither is verified again");
        assert_eq!(ask(&trust, &raws[1..]), (vec![], 2, 1), "what is gone is forgotten");
        assert_eq!(ask(&trust, &raws), (vec![0], 3, 2));
        trust.revoked.insert(ada.key());
        assert_eq!(ask(&trust, &raws), (vec![], 5, 2), "a revocation is heard at once");
        let many: Vec<Vec<u8>> = (0..=REMEMBERED).map(|number| number.to_be_bytes().to_vec()).collect();
        assert_eq!(ask(&trust, &many).2, REMEMBERED);
    }
}
