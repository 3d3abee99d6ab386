//! `trust show`: who may do what, and who sits here.

use clap::Args;
use pki::trust::{key::TrustKey, policy::Principal, walk::Walked};
use schema::name::Name;
use serde_json::{Value, json};

use super::Place;
use crate::{
    exit::{Exit, Failure},
    output::{Output, Table},
    statement,
};

/// Show the trust policy in force, and who you are in it.
#[derive(Debug, Args)]
pub struct Show {
    /// Where
    #[command(flatten)]
    pub place: Place,
}

impl Show {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let looked = self.place.look(None)?;
        let policy = looked.policy()?;
        let you = statement::speaker(&looked.dir, policy);
        let anchor = looked.walked.commits.first().map(|judged| judged.id);
        if output.is_json() {
            let value = json!({
                "trustDomain": looked.walked.trust_domain,
                "fleet": looked.walked.fleet,
                "anchor": anchor,
                "policy": { "epoch": policy.epoch(), "digest": policy.digest() },
                "principals": principals(&looked.walked),
                "you": you.ok().map(|you| you.principal.to_string()),
            });
            output.json(&value)?;
            return Ok(Exit::Ok);
        }
        let anchor = anchor.map(|id| id.to_string()).unwrap_or_default();
        let (fleet, domain) = (looked.walked.fleet, &looked.walked.trust_domain);
        let head = format!(
            "fleet   {fleet} of {domain}\nanchor  {anchor}\npolicy  epoch {}, {}",
            policy.epoch(),
            policy.digest()
        );
        output.line(format!("{head}\n\n{}", table(&looked.walked).render(output.width, output.colour)))?;
        output.line(match you {
            Ok(you) => format!("\ngit signs here as {} ({})", you.principal, you.key),
            Err(failure) => format!("\n{}", failure.message),
        })?;
        Ok(Exit::Ok)
    }
}

/// The principals of the policy in force, for people.
pub(super) fn table(walked: &Walked) -> Table {
    let mut table = Table::new(&["principal", "kind", "roles", "keys"]);
    for (name, principal) in walked.policy.iter().flat_map(|policy| policy.principals()) {
        let roles: Vec<&str> = principal.roles.iter().map(|role| role.as_str()).collect();
        let shown = |key| walked.ended(key).map_or_else(|| format!("{key}"), |ended| format!("{key} ({ended})"));
        let keys: Vec<String> = principal.keys.iter().map(shown).collect();
        let cells = [name.to_string(), principal.kind.as_str().to_owned(), roles.join(" "), keys.join(", ")];
        table.row(cells.map(|cell| cell.as_str().into()));
    }
    table
}

/// The same for programs.
fn principals(walked: &Walked) -> Value {
    let one = |(name, principal): (&Name, &Principal)| {
        let key = |key: &TrustKey| {
            let ended = walked.ended(key);
            json!({
                "name": key.name(),
                "class": key.class().as_str(),
                "good": ended.is_none(),
                "ended": ended.map(|ended| ended.to_string()),
            })
        };
        let keys: Vec<Value> = principal.keys.iter().map(key).collect();
        json!({ "name": name, "kind": principal.kind.as_str(), "roles": principal.roles, "keys": keys })
    };
    walked.policy.iter().flat_map(|policy| policy.principals()).map(one).collect()
}
