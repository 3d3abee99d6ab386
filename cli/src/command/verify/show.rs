//! A verified history for people and for programs.

use pki::trust::{
    statement::Step,
    walk::{Accepted, Judged, Refusal, Stuck, Walked},
};
use schema::{diagnostic::Diagnostic, fleet::trust::PrincipalKind, name::Name};
use serde_json::{Value, json};

use super::{Deaf, Report};
use crate::{
    command::trust::{facts, in_force},
    output::{
        Output, Table,
        table::Cell,
        text::{Style, count, printable},
    },
};

impl Report {
    /// For people.
    pub(super) fn render(&self, output: &Output) -> String {
        let walked = match &self.outcome {
            Ok(walked) => walked,
            Err(stuck) => {
                let bad = Style::Bad.paint(stuck.code(), output.colour);
                return format!("branch {} at {}\n\n{bad}  {stuck}", self.branch, self.tip.short());
            }
        };
        let mut text = self.head(walked, output);
        text.push_str("\n\n");
        text.push_str(&table(walked).render(output.width, output.colour));
        for judged in &walked.commits {
            if let Err(refusal) = &judged.verdict {
                text.push_str("\n\n");
                text.push_str(&self.explain(judged, refusal, walked, output));
            }
        }
        for Deaf { example, count: number, why } in &self.unheard {
            let (example, why) = (printable(example), printable(why));
            text.push_str("\n\n");
            let names = match number.saturating_sub(1) {
                0 => format!("{example} is"),
                others => format!("{example} and {} are", count(others as u64, "other")),
            };
            text.push_str(&output.hanging(&format!("{names} not heard: {why}"), ""));
        }
        text.push_str("\n\n");
        text.push_str(&conclusion(walked, output));
        text
    }

    /// What it comes to, for whoever is shown something else.
    pub(super) fn in_a_line(&self) -> String {
        let walked = match &self.outcome {
            Ok(walked) => walked,
            Err(Stuck::NoPolicy) => {
                return "unverified: the fleet has no trust policy, and nobody's signature is looked at".to_owned();
            }
            Err(stuck) => return format!("unverified ({}): {stuck}", stuck.code()),
        };
        let (verified, all) = (walked.verified(), walked.commits.len());
        let anchor = walked.commits.first().map_or_else(String::new, |anchor| anchor.id.short());
        match walked.refused() {
            None => format!("verified: {} since the anchor {anchor}", count(all as u64, "signed commit")),
            Some((judged, refusal)) => format!(
                "{} does not count ({}), and {verified} of {} since the anchor {anchor} {}; better-compute verify --dry-run says more",
                judged.id.short(),
                refusal.code(),
                count(all as u64, "commit"),
                if verified == 1 { "does" } else { "do" }
            ),
        }
    }

    fn head(&self, walked: &Walked, output: &Output) -> String {
        let anchor = walked.commits.first().map(|anchor| anchor.id.to_string()).unwrap_or_default();
        let confirmed = if self.pinned {
            "as you named it"
        } else {
            "confirm it with the people who made it, then name it with --anchor"
        };
        let rows = [
            ("domain", walked.trust_domain.clone()),
            ("fleet", walked.fleet.to_string()),
            ("branch", self.branch.clone()),
            ("anchor", anchor),
            ("", confirmed.to_owned()),
            ("policy", in_force(walked)),
        ];
        facts(&rows, output)
    }

    /// Why a commit does not count, and what would mend it.
    fn explain(&self, judged: &Judged, refusal: &Refusal, walked: &Walked, output: &Output) -> String {
        let code = Style::Bad.paint(refusal.code(), output.colour);
        let mut lines = vec![format!("{}  {code}", judged.id.short())];
        lines.push(output.indented(&printable(&refusal.to_string()), "  "));
        if let Refusal::PolicyInvalid(diagnostics) = refusal {
            let more = diagnostics.iter().filter(|found| found.is_error()).skip(1);
            let one = |found: &Diagnostic| format!("{}: {} {}", found.at(), found.code, printable(&found.message));
            lines.extend(more.map(|found| output.hanging(&one(found), "  ")));
        }
        if let Some(missing) = self.missing(refusal, walked) {
            let Missing { who, kind, verb, subject, .. } = &missing;
            lines.push(output.hanging(&format!("→ {who}: better-compute trust {verb}"), "  "));
            lines.push("    or by hand, in a signed commit without files, with this message:".to_owned());
            lines.extend(missing.message.lines().map(|line| format!("      {line}").trim_end().to_owned()));
            let empty = judged.id.format().empty_tree();
            // What is typed stays on one line, however long that is.
            lines.push(format!(
                "    and push it: git push origin $(git commit-tree -S -F statement.txt {empty}):refs/heads/bc/statements/{kind}/{subject}/NAME/1"
            ));
        } else if let Some(remedy) = remedy(refusal) {
            lines.push(output.hanging(&format!("→ {remedy}"), "  "));
        }
        lines.join("\n")
    }

    /// The statement that is missing, and who has to make it.
    fn missing(&self, refusal: &Refusal, walked: &Walked) -> Option<Missing> {
        let (kind, (who, verb, subject), fields, last) = match refusal {
            Refusal::NotVouched { base, tree, may, .. } => {
                let policy = walked.policy.as_ref()?;
                policy.change()?;
                let who = if may.is_empty() {
                    "nobody else may vouch for it".to_owned()
                } else {
                    format!("who may vouch for it, {}, says so", list(may))
                };
                let under = format!("trust-epoch: {}\ntrust-digest: {}\n", policy.epoch(), policy.digest());
                let fields = format!("branch: {}\nbase: {base}\ntree: {tree}\n{under}", self.branch);
                ("change", (who, "vouch", base.to_string()), fields, "expires: YYYY-MM-DDThh:mm:ssZ\n")
            }
            Refusal::TrustThreshold { step, .. } => (
                "trust",
                ("people who may change the policy say so".to_owned(), "agree", step.epoch.to_string()),
                fields(*step),
                "",
            ),
            Refusal::NotProven { step, .. } => (
                "possess",
                ("their holders say so, with these keys".to_owned(), "agree", step.epoch.to_string()),
                fields(*step),
                "",
            ),
            _ => return None,
        };
        let (domain, fleet) = (&walked.trust_domain, walked.fleet);
        let head = format!("a line for people\n\nbc-statement: {kind}/v1\ntrust-domain: {domain}\nfleet: {fleet}\n");
        let foot = format!("principal: NAME\nnonce: 32 hexadecimal digits (openssl rand -hex 16)\n{last}");
        Some(Missing { kind, who, verb, subject, message: format!("{head}{fields}{foot}") })
    }

    /// For programs: the same facts.
    pub(super) fn json(&self) -> Value {
        let walked = match &self.outcome {
            Ok(walked) => walked,
            Err(stuck) => {
                let stuck = json!({ "code": stuck.code(), "why": stuck.to_string() });
                return json!({ "branch": self.branch, "tip": self.tip, "counts": false, "stuck": stuck, "commits": [] });
            }
        };
        let verified = walked.verified();
        let commits: Vec<Value> =
            walked.commits.iter().enumerate().map(|(at, judged)| one(judged, at < verified)).collect();
        let policy = walked.policy.as_ref().map(|policy| json!({ "epoch": policy.epoch(), "digest": policy.digest() }));
        json!({
            "trustDomain": walked.trust_domain,
            "fleet": walked.fleet.to_string(),
            "branch": self.branch,
            "tip": self.tip,
            "anchor": { "commit": walked.commits.first().map(|anchor| anchor.id), "pinned": self.pinned },
            "policy": policy,
            "counts": self.counts(),
            "unheard": self.unheard.iter().map(|deaf| json!({ "reference": deaf.example, "count": deaf.count, "why": deaf.why })).collect::<Vec<_>>(),
            "verified": verified.checked_sub(1).map(|last| walked.commits[last].id),
            "commits": commits,
        })
    }
}

/// A statement that somebody has to make.
struct Missing {
    kind: &'static str,
    /// Who says it, in a sentence.
    who: String,
    /// How the command line calls it.
    verb: &'static str,
    /// What it is about, in the name of its branch.
    subject: String,
    message: String,
}

fn fields(step: Step) -> String {
    format!("prev: {}\nnext: {}\nepoch: {}\n", step.prev, step.next, step.epoch)
}

/// What would mend a commit that does not count, where that is not somebody's word.
pub(in crate::command) const fn remedy(refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::Signature(_) => "make it again, signed by a key that the policy lists (git commit --amend -S)",
        Refusal::Malformed(_) => "make the commit again with git, and sign it",
        Refusal::NotVouched { .. } => {
            "no `change` rule says who may vouch: add one, or write `changes 0` in a path rule"
        }
        Refusal::PathNotGranted { .. } => {
            "let somebody who may change it sign it, or grant the path in trust/policy.kdl"
        }
        Refusal::TrustRemoved => "put trust/policy.kdl back as it was",
        Refusal::TrustMixed(_) => "make two commits of it: one for trust/policy.kdl alone",
        Refusal::KeyRetired(_) | Refusal::KeyCompromised { .. } => "let its owner sign it again with another key",
        Refusal::KeyRevoked { .. } => "let somebody else sign it again: the key was revoked before",
        Refusal::Unfit(_) => "make it again without that file",
        Refusal::Lacking(_) => "fetch what is missing (git fsck names it), and look again",
        Refusal::PolicyInvalid(_) => {
            "`better-compute check` says all that is wrong; commit it anew (git commit --amend -S)"
        }
        Refusal::Epoch { .. } | Refusal::Prev { .. } => {
            "write the next `epoch`, and as `prev` the digest that `better-compute trust show` prints as policy"
        }
        Refusal::StrayTrustFile(_) => "take that file out: trust/ holds policy.kdl and nothing else",
        Refusal::ForgeCannotPropose(_) => "sign a change of batches yourself, on your machine",
        _ => return None,
    })
}

fn words(accepted: &Accepted) -> (&'static str, String) {
    match accepted {
        Accepted::Anchor => ("anchor", "the history begins here".to_owned()),
        Accepted::Granted => ("ok", "its signer may change it".to_owned()),
        Accepted::Vouched(by) => ("ok", format!("vouched for by {}", list(by))),
        Accepted::Resealed(by) => ("resealed", format!("a rewritten history, accepted by {}", list(by))),
        Accepted::TrustChange { epoch, by } => ("trust", format!("policy of epoch {epoch}, agreed to by {}", list(by))),
    }
}

fn list(names: &[Name]) -> String {
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Who signed, for people.
fn by(judged: &Judged) -> String {
    judged.signer.as_ref().map_or_else(
        || "-".to_owned(),
        |signer| {
            let kind = if signer.kind == PrincipalKind::Human { "" } else { signer.kind.as_str() };
            format!("{} {kind}", signer.principal).trim_end().to_owned()
        },
    )
}

fn table(walked: &Walked) -> Table {
    let titles = ["commit", "verdict", "signed by", "subject", "why"];
    let mut table = Table::new(&titles).whole(&["commit", "verdict", "signed by"]).words();
    let verified = walked.verified();
    for (at, judged) in walked.commits.iter().enumerate() {
        let (verdict, why) = match &judged.verdict {
            Ok(accepted) if at < verified => {
                let (word, why) = words(accepted);
                (Cell::from(word).style(Style::Good), why)
            }
            Ok(_) => {
                (Cell::from("behind").style(Style::Attention), "it follows a commit that does not count".to_owned())
            }
            // Said in full below the table.
            Err(refusal) => (Cell::from(refusal.code()).style(Style::Bad), String::new()),
        };
        let why = Cell::from(why).style(Style::Dim);
        table.row([judged.id.short().into(), verdict, by(judged).into(), judged.subject.as_str().into(), why]);
    }
    table
}

fn conclusion(walked: &Walked, output: &Output) -> String {
    let (verified, all) = (walked.verified(), walked.commits.len());
    let of = |number: usize| count(number as u64, "commit");
    match walked.commits.get(verified.wrapping_sub(1)) {
        Some(tip) if verified == all => {
            Style::Good.paint(&format!("verified: {} up to {}", of(all), tip.id.short()), output.colour)
        }
        Some(last) => {
            Style::Bad.paint(&format!("verified up to {}: {} of {}", last.id.short(), verified, of(all)), output.colour)
        }
        None => Style::Bad.paint("nothing is verified: the anchor does not count", output.colour),
    }
}

fn one(judged: &Judged, counts: bool) -> Value {
    let signer = judged.signer.as_ref().map(|signer| {
        json!({
            "principal": signer.principal,
            "kind": signer.kind.as_str(),
            "key": signer.key.name(),
            "class": signer.key.class().as_str(),
        })
    });
    let (verdict, why, by) = match &judged.verdict {
        Ok(accepted) => {
            let word = match accepted {
                Accepted::Anchor => "anchor",
                Accepted::Granted => "granted",
                Accepted::Vouched(_) => "vouched",
                Accepted::Resealed(_) => "resealed",
                Accepted::TrustChange { .. } => "trust-change",
            };
            let by = match accepted {
                Accepted::Vouched(by) | Accepted::Resealed(by) | Accepted::TrustChange { by, .. } => by.as_slice(),
                Accepted::Anchor | Accepted::Granted => &[],
            };
            (word, words(accepted).1, by)
        }
        Err(refusal) => (refusal.code(), refusal.to_string(), &[][..]),
    };
    json!({
        "commit": judged.id,
        "subject": judged.subject,
        "verdict": verdict,
        "accepted": judged.verdict.is_ok(),
        "counts": counts,
        "why": why,
        "signer": signer,
        "vouchedBy": by,
        "epoch": judged.epoch,
    })
}
