//! `get`: lists of things as tables, one thing as its document.

mod columns;
mod inventory;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{batches, joins, plan};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{Output, Table},
};

const EXAMPLES: &str = "\
Examples:
  better-compute get nodes
  better-compute get nodes --pool h100
  better-compute get node fra1-r12-u04     everything known about one machine
  better-compute get pools
  better-compute get plan plan_01k9m2v7t3c4w8d5e6f7g8h9ja
  better-compute get batch 2026-12-kernel
  better-compute get joins --format json";

/// List things, or show one.
///
/// Lists nodes, pools, sites, plans, joins, tokens or batches, or shows everything known about one of them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Get {
    /// What to list; the singular works too
    #[arg(value_enum, value_name = "KIND")]
    pub kind: Kind,
    /// Name or id of one of them
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Only nodes of this pool
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: Option<u32>,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Machines
    #[value(alias = "node")]
    Nodes,
    /// Machines that are booked together
    #[value(alias = "pool")]
    Pools,
    /// Places with machines
    #[value(alias = "site")]
    Sites,
    /// Computed plans
    #[value(alias = "plan")]
    Plans,
    /// Attempts to join
    #[value(alias = "join")]
    Joins,
    /// Join tokens
    #[value(alias = "token")]
    Tokens,
    /// Batches of destructive commands
    #[value(alias = "batch")]
    Batches,
}

impl Kind {
    const fn group(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pools => "pools",
            Self::Sites => "sites",
            Self::Plans => "plans",
            Self::Joins => "joins",
            Self::Tokens => "tokens",
            Self::Batches => "commandBatches",
        }
    }

    /// The field of the input that names one of them.
    const fn key(self) -> Option<&'static str> {
        match self {
            Self::Nodes => Some("node"),
            Self::Pools | Self::Sites => Some("name"),
            Self::Plans | Self::Joins => Some("id"),
            Self::Tokens => None,
            Self::Batches => Some("batch"),
        }
    }
}

impl Get {
    /// Asks and shows.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.target)?;
        if self.pool.is_some() && self.kind != Kind::Nodes {
            return Err(Failure::usage("--pool chooses among nodes").hint("better-compute get nodes --pool POOL"));
        }
        let Some(name) = &self.name else { return self.list(&client, output).await };
        let Some(key) = self.kind.key() else {
            return Err(Failure::usage("a token cannot be shown; its secret was printed once, when it was made"));
        };
        let document = client.call(&format!("{}.get", self.kind.group()), &json!({ key: name })).await?;
        match self.kind {
            _ if output.is_json() => output.json(&document)?,
            Kind::Plans => plan::show_stored(&document, output)?,
            Kind::Joins => joins::show(&document, output)?,
            Kind::Batches => batches::show_one(&client, name, output).await?,
            _ => output.line(output.outline(&inventory::shortened(document), 0))?,
        }
        Ok(Exit::Ok)
    }

    async fn list(&self, client: &Client, output: &Output) -> Result<Exit, Failure> {
        let items = list(client, self.kind, self.pool.as_deref(), self.limit).await?;
        if output.is_json() {
            output.json(&json!({ self.kind.group(): items }))?;
            return Ok(Exit::Ok);
        }
        if self.kind == Kind::Batches {
            output.table(&batches::table(&items, output), "no batch was asked for")?;
            return Ok(Exit::Ok);
        }
        output.table(&table(self.kind, &items, output), &format!("no {}", self.kind.group()))?;
        Ok(Exit::Ok)
    }
}

/// Every item of a list, page after page.
///
/// # Errors
/// When a call fails.
pub async fn list(client: &Client, kind: Kind, pool: Option<&str>, limit: Option<u32>) -> Result<Vec<Value>, Failure> {
    let wanted = limit.map_or(usize::MAX, |limit| limit as usize);
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut input = Map::new();
        if let Some(pool) = pool {
            input.insert("pool".into(), pool.into());
        }
        if let Some(cursor) = &cursor {
            let key = if kind == Kind::Batches { "before" } else { "after" };
            input.insert(key.into(), cursor.as_str().into());
        }
        let mut page = client.call(&format!("{}.list", kind.group()), &Value::Object(input)).await?;
        items.extend(page.get_mut("items").map(Value::take).and_then(into_list).unwrap_or_default());
        cursor = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if cursor.is_none() || items.len() >= wanted {
            items.truncate(wanted);
            return Ok(items);
        }
    }
}

/// The table of a list.
#[must_use]
pub fn table(kind: Kind, items: &[Value], output: &Output) -> Table {
    let columns = columns::of(kind);
    let titles: Vec<&str> = columns.iter().map(|column| column.title).collect();
    let mut table = Table::new(&titles).whole(&["id", "name"]).words();
    for item in items {
        table.row(columns.iter().map(|column| (column.cell)(item, output)));
    }
    table
}

fn into_list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_token_shows_what_it_is_bound_to() {
        let token = |more: Value| {
            let mut token = json!({ "id": "jt_1", "pool": "h100", "uses": 1, "usesLeft": 1 });
            token.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            token
        };
        let bound = json!({ "expect": { "serial": ["A5"] }, "reclaim": true, "kinds": ["diag.nvml", "logs.collect"] });
        let output = Output {
            format: crate::output::Format::Text,
            colour: false,
            width: None,
            now: "2026-11-29T12:00:00Z".parse().expect("a time"),
        };
        let table = table(Kind::Tokens, &[token(bound), token(json!({}))], &output).render(None, false);
        assert!(table.contains("serial A5; reclaims; only diag.nvml,logs.collect"), "{table}");
    }

    #[test]
    fn a_site_shows_its_region_and_its_pools() {
        let site = json!({ "name": "fra1", "pools": ["h100", "l40s"], "document": { "file": "fra1.kdl", "line": 1,
            "state": "declared", "document": { "name": "fra1", "region": "eu-central" } } });
        let output = Output {
            format: crate::output::Format::Text,
            colour: false,
            width: Some(80),
            now: "2026-11-29T12:00:00Z".parse().expect("a time"),
        };
        let table = table(Kind::Sites, &[site], &output).render(Some(80), false);
        assert!(table.contains("eu-central") && table.contains("h100, l40s"), "{table}");
    }
}
