//! `breakglass`: destructive work without a batch, by people of the emergency tier: few kinds, a short while, loud, once.

mod machines;

use clap::{Args, Subcommand};
use pki::{
    batch::{emergencies, may_call},
    trust::{
        policy::{Policy, Tier},
        statement::{Body, Statement, Under},
    },
};
use schema::{
    command::CommandKind,
    name::Name,
    time::{Duration, Moment, Timestamp},
};
use serde_json::json;

use super::{owner::Owner, token::once};
use crate::{
    args::{FormatArg, Sure},
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{
        Output, note,
        text::{Style, count, printable},
    },
    statement,
    verified::{Place, Verified},
};

const EXAMPLES: &str = "\
Examples:
  better-compute breakglass node/fra1-r12-u04 --kind node.reboot --reason \"it hangs, and the rack burns\"
  better-compute breakglass close breakglass-91aa4c0f3e22 --note \"a fan failed; OPS-4190\"

Each machine does it once. Everybody who follows events is told, and it waits to be reviewed until somebody closes it.";

/// Have destructive work done in an emergency, without a batch.
///
/// Signs a statement of the policy's emergency tier and pushes it. When more than one person is needed, the others say exactly the same:
/// this prints the line for them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Breakglass {
    /// What else can be done
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// The machines
    #[arg(value_name = "node/NAME", required = true)]
    pub nodes: Vec<String>,
    /// What is done
    #[arg(long, value_name = "KIND", required = true)]
    pub kind: Option<String>,
    /// Why; everybody reads it
    #[arg(long, value_name = "TEXT", required = true)]
    pub reason: Option<String>,
    /// For how long it holds; as long as the policy allows when nothing is said
    #[arg(long, value_name = "LENGTH", conflicts_with = "until")]
    pub r#for: Option<Duration>,
    /// From when on, as whoever said it first said it
    #[arg(long, value_name = "TIME", requires = "until")]
    pub from: Option<Timestamp>,
    /// Until when, as whoever said it first said it
    #[arg(long, value_name = "TIME", requires = "from")]
    pub until: Option<Timestamp>,
    /// Whether somebody is asked
    #[command(flatten)]
    pub sure: Sure,
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// What can be done about an emergency afterwards.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Say what was found, so that it is not to be reviewed any more
    Close {
        /// The emergency
        #[arg(value_name = "NAME")]
        name: String,
        /// What was found
        #[arg(long, value_name = "TEXT")]
        note: String,
        /// Who answers for it
        #[command(flatten)]
        owner: Owner,
    },
}

impl Breakglass {
    /// Signs and pushes, or closes.
    ///
    /// # Errors
    /// When the policy has no such tier, nobody agrees, or git does not sign.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        if let Some(Verb::Close { name, note: found, owner }) = &self.verb {
            let client = Client::new(&self.target)?;
            let owner = owner.said(&client);
            let input = json!({ "batch": name, "note": found, "owner": owner, "idempotencyKey": once() });
            let batch = client.call("commandBatches.close", &input).await?;
            if output.is_json() {
                output.json(&batch)?;
            } else {
                output.line(format!("batch/{} is reviewed", printable(name.trim_start_matches("batch/"))))?;
            }
            return Ok(Exit::Ok);
        }
        let clone = Verified::open(&self.place, None)?;
        let (policy, walked, tip) = (clone.policy()?, &clone.walked, clone.tip);
        let speaker = statement::speaker(&self.place.repo, policy)?;
        let tier = may_call(policy, &clone.revoked(), &speaker.principal, &speaker.key);
        let tier = tier.map_err(|why| statement::refused(why.code(), format!("your word does not count: {why}")))?;
        let body = self.body(policy, tier, output.now())?;
        let Body::Breakglass { kinds, nodes, reason, not_before, expires, .. } = &body else {
            return Err(Failure::failed("not an emergency"));
        };
        machines::look_up(&self.target, nodes).await?;
        let raws: Vec<Vec<u8>> = clone.statements.iter().map(|heard| heard.raw.clone()).collect();
        let (called, _) = emergencies(&raws, &walked.trust_domain, walked.fleet, policy, &clone.revoked());
        let same = called.into_iter().find(|other| {
            (&other.kinds, &other.nodes, &other.reason) == (kinds, nodes, reason)
                && (other.not_before, other.expires) == (*not_before, *expires)
        });
        let mut people = same.map(|same| same.people).unwrap_or_default();
        people.insert(speaker.principal.clone());
        let others = (tier.rule.threshold as usize).saturating_sub(people.len());
        if !output.is_json() {
            let names: Vec<String> = nodes.iter().map(|node| format!("node/{node}")).collect();
            output.line(format!(
                "{}  {} on {}\n  why     {}\n  window  {} to {}\n  It goes without a batch, everybody is told, and it is to be reviewed afterwards.",
                Style::Bad.paint("BREAK GLASS", output.colour),
                kinds.join(", "),
                names.join(", "),
                printable(reason),
                Moment(*not_before),
                Moment(*expires),
            ))?;
        }
        if !self.sure.ask(output, &format!("Break glass as {}?", speaker.principal), "nothing was signed")? {
            return Ok(Exit::Failed);
        }
        let nonce: [u8; 16] = rand::random();
        let line = format!("break glass: {} on {}", kinds.join(", "), count(nodes.len() as u64, "machine"));
        let again = format!(
            "better-compute breakglass {} --kind {} --reason {} --from {not_before} --until {expires}",
            nodes.iter().map(|node| format!("node/{node}")).collect::<Vec<_>>().join(" "),
            kinds.join(","),
            quoted(reason),
        );
        let said = Statement::new(&walked.trust_domain, walked.fleet, speaker.principal.clone(), nonce, body.clone())
            .during("the statement cannot be written")?;
        let nothing = statement::empty_tree(&self.place.repo)?;
        let written = statement::write_and_push(&self.place.repo, (tip, nothing), &line, &said, policy, true)?;
        if output.is_json() {
            return output
                .json(&json!({
                    "principal": speaker.principal, "commit": written.commit.to_string(), "reference": written.reference,
                    "remote": written.pushed_to(), "others": others, "theySay": again,
                }))
                .map(|()| Exit::Ok);
        }
        output.line(format!("glass broken by {}", speaker.principal))?;
        written.tell(false, output)?;
        if others == 0 {
            output.line("  enough people say it: it goes as soon as a control plane hears it")?;
        } else {
            note(format!("{others} more of the emergency tier have to say the same, each with their own key: {again}"));
        }
        Ok(Exit::Ok)
    }

    fn body(&self, policy: &Policy, tier: &Tier, now: Timestamp) -> Result<Body, Failure> {
        let kind = self.kind.as_deref().unwrap_or_default();
        let allowed: Vec<&str> = tier.commands.iter().map(String::as_str).collect();
        if !tier.commands.contains(kind) {
            let why = format!("the emergency tier has no {}", printable(kind));
            return Err(Failure::refused("emergency-kind", why).hint(format!("it has {}", allowed.join(", "))));
        }
        let reason = self.reason.clone().unwrap_or_default();
        let told = kind.parse::<CommandKind>().ok().is_some_and(|kind| {
            kind.check_payload(&json!({ "reason": reason })).or_else(|_| kind.check_payload(&json!({}))).is_ok()
        });
        if !told {
            let why = format!("{kind} has to be told more than a reason, which an emergency cannot say");
            return Err(statement::refused("emergency-kind", why));
        }
        let mut nodes: Vec<Name> = Vec::new();
        for said in &self.nodes {
            let name = said.strip_prefix("node/").unwrap_or(said);
            nodes.push(Name::new(name).during(format!("{} is no machine's name", printable(said)))?);
        }
        nodes.sort();
        nodes.dedup();
        if nodes.len() > tier.max_nodes as usize {
            let why = format!("an emergency is about {} at most", count(u64::from(tier.max_nodes), "machine"));
            return Err(statement::refused("emergency-nodes", why));
        }
        let (not_before, expires) = match (self.from, self.until) {
            (Some(from), Some(until)) if from >= until || tier.max_ttl.after(from) < until => {
                let why = format!(
                    "an emergency lasts for {} at most, and {from} to {until} is longer or nothing",
                    tier.max_ttl
                );
                return Err(statement::refused("window", why));
            }
            (Some(_), Some(until)) if until < now => {
                return Err(statement::refused("expired", format!("the emergency was over at {until}")));
            }
            (Some(from), Some(until)) => (from, until),
            _ => {
                let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
                let most = self.r#for.map_or(tier.max_ttl, |length| length.min(tier.max_ttl));
                (now, most.after(now))
            }
        };
        let under = Under { epoch: policy.epoch(), digest: policy.digest() };
        Ok(Body::Breakglass { kinds: vec![kind.to_owned()], nodes, reason, under, not_before, expires })
    }
}

/// A text as a shell reads it back.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_survives_a_shell() {
        assert_eq!(quoted("it's on fire"), r"'it'\''s on fire'");
    }
}
