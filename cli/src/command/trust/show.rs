//! `trust show`: who may do what, and who sits here.

use clap::Args;
use pki::trust::{key::TrustKey, policy::Principal, walk::Walked};
use schema::name::Name;
use serde_json::{Value, json};

use super::{facts, in_force};
use crate::{
    exit::{Exit, Failure},
    output::{Output, Table, table::Cell, text::Style},
    statement,
    verified::{Place, Verified},
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
        let looked = Verified::open(&self.place, None)?;
        let policy = looked.policy()?;
        if output.is_json() {
            let you = statement::speaker(&looked.dir, policy);
            let anchor = looked.walked.commits.first().map(|judged| judged.id);
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
        output.line(page(&looked, output))?;
        Ok(Exit::Ok)
    }
}

/// Everything about it, for people.
pub(super) fn page(looked: &Verified, output: &Output) -> String {
    let anchor = looked.walked.commits.first().map(|judged| judged.id.to_string()).unwrap_or_default();
    let you = looked.policy().and_then(|policy| statement::speaker(&looked.dir, policy));
    let you = you.map_or_else(
        |failure| failure.message,
        |you| format!("{}, by the key with which git signs here: {}", you.principal, you.key),
    );
    let rows = [
        ("domain", looked.walked.trust_domain.clone()),
        ("fleet", looked.walked.fleet.to_string()),
        ("anchor", anchor),
        ("policy", in_force(&looked.walked)),
        ("you", you),
    ];
    format!("{}\n\n{}", facts(&rows, output), table(&looked.walked).render(output.width, output.colour))
}

/// The principals of the policy in force, for people: a line for each key.
pub(super) fn table(walked: &Walked) -> Table {
    let titles = ["principal", "kind", "roles", "key"];
    let mut table = Table::new(&titles).whole(&["principal", "kind"]).words();
    for (name, principal) in walked.policy.iter().flat_map(|policy| policy.principals()) {
        let roles: Vec<&str> = principal.roles.iter().map(|role| role.as_str()).collect();
        let mut cells = [name.to_string(), principal.kind.as_str().to_owned(), roles.join(" ")];
        for key in &principal.keys {
            let ended = walked.ended(key);
            let style = if ended.is_some() { Style::Attention } else { Style::Plain };
            let shown = ended.map_or_else(|| format!("{key}"), |ended| format!("{key} ({ended})"));
            let key = Cell::from(shown).style(style);
            table.row(std::mem::take(&mut cells).map(Cell::from).into_iter().chain([key]));
        }
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
