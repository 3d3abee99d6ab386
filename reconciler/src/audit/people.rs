//! Lines about people: what somebody said, and whose signatures brought commits and policies into force. Each names its people
//! as they were judged, so that the log is found by them.

use std::collections::BTreeSet;

use pki::trust::walk::{Accepted, Judged, Walked};
use schema::name::Name;
use serde_json::json;
use store::{
    audit::{NewEntry, PEOPLE},
    trust::NewStatement,
};

/// So many commits of a look are named one by one, the newest of them.
const NAMED: usize = 100;

/// Somebody whose key a policy lists said something. Whether it is enough for anything is another line.
pub(crate) fn said(statement: &NewStatement) -> NewEntry {
    let NewStatement { digest, kind, subject, principal, commit, .. } = statement;
    let word = kind.split('/').next().unwrap_or_default();
    NewEntry {
        actor: principal.clone(),
        action: format!("statements.{word}"),
        subject: match word {
            "approve" | "reject" | "withdraw" => format!("batch/{subject}"),
            "trust" | "possess" => policy(subject),
            _ => subject.clone(),
        },
        detail: json!({ "statement": digest, "commit": commit, PEOPLE: [principal] }),
    }
}

/// How far the history of a source counts, and the policies that came into force on the way.
pub(crate) fn verified(source: &str, walked: &Walked) -> Vec<NewEntry> {
    let counted = &walked.commits[..walked.verified()];
    let Some(last) = counted.last() else { return Vec::new() };
    let named = counted.iter().skip(counted.len().saturating_sub(NAMED)).map(|judged| {
        let signer = judged.signer.as_ref().map(|signer| &signer.principal);
        json!({ "commit": judged.id, "signedBy": signer, "agreedBy": agreed(judged) })
    });
    let by_source = |action: &str, subject: String, detail| NewEntry {
        actor: "source".to_owned(),
        action: action.to_owned(),
        subject,
        detail,
    };
    let mut lines = vec![by_source(
        "history.verified",
        source.to_owned(),
        json!({
            "commit": last.id, "count": counted.len(), "commits": named.collect::<Vec<_>>(),
            PEOPLE: counted.iter().flat_map(people).collect::<BTreeSet<_>>(),
        }),
    )];
    for epoch in &walked.epochs {
        let brought = counted.iter().find(|judged| judged.id == epoch.commit);
        let people: BTreeSet<&Name> = brought.into_iter().flat_map(people).collect();
        let detail = json!({ "epoch": epoch.epoch, "digest": epoch.digest, "commit": epoch.commit, PEOPLE: people });
        lines.push(by_source("trust.policy", policy(&epoch.epoch.to_string()), detail));
    }
    lines
}

fn policy(epoch: &str) -> String {
    format!("policy/{epoch}")
}

/// Whoever signed a commit, and whoever agreed to it.
fn people(judged: &Judged) -> impl Iterator<Item = &Name> {
    judged.signer.iter().map(|signer| &signer.principal).chain(agreed(judged))
}

fn agreed(judged: &Judged) -> &[Name] {
    match &judged.verdict {
        Ok(Accepted::Vouched(by) | Accepted::Resealed(by) | Accepted::TrustChange { by, .. }) => by,
        Ok(Accepted::Anchor | Accepted::Granted) | Err(_) => &[],
    }
}
