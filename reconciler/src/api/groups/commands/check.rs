//! `commands.check`: what a command would come to on every machine that is meant, before it is queued for any.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::commands;

use super::{MOST, kind, refused};
use crate::api::{
    ApiError, App, Code,
    groups::{
        brakes::{self, HoldView},
        nodes,
    },
};

/// A command that is meant for machines.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Check {
    /// What would be done, such as `node.reboot`.
    kind: String,
    /// The ids or names of the nodes, 200 at most.
    nodes: Vec<String>,
}

/// What it would come to.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Checked {
    /// Each node that was named, in that order.
    nodes: Vec<CheckedNode>,
}

/// What it would come to on one node.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct CheckedNode {
    /// The node, as it was named.
    said: String,
    /// Its id; absent when there is no such node.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Why `commands.run` would refuse it; absent when it would not.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Refused>,
    /// The freezes, suspensions and cordons over it. They do not keep a command away: whoever runs one decides.
    held: Vec<HoldView>,
}

/// Why a command would be refused.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Refused {
    /// The code of the error.
    code: String,
    /// What is wrong.
    message: String,
    /// Why, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Refused {
    fn of(error: &ApiError) -> Self {
        Self {
            code: error.code().as_str().to_owned(),
            message: error.message().to_owned(),
            why: error.reason().map(str::to_owned),
        }
    }
}

pub(in crate::api) async fn check(app: &App, input: Check) -> Result<Checked, ApiError> {
    let kind = kind(&input.kind)?;
    if input.nodes.len() > MOST as usize {
        return Err(ApiError::field("nodes", format!("{MOST} at most")));
    }
    let mut found = Vec::new();
    let mut checked = Vec::new();
    for said in input.nodes {
        let (node, refused) = match nodes::find(app, &said).await {
            Ok(node) => {
                let refused = commands::may_enqueue(&app.db, node.id, kind).await.err().map(refused);
                (Some(node), refused)
            }
            Err(error) => (None, Some(error)),
        };
        let refused = match refused {
            // What broke here says nothing about the machine.
            Some(error) if matches!(error.code(), Code::Internal | Code::Unavailable) => return Err(error),
            refused => refused,
        };
        checked.push(CheckedNode {
            said,
            id: node.as_ref().map(|node| node.id.to_string()),
            name: node.as_ref().map(|node| node.name.to_string()),
            refused: refused.as_ref().map(Refused::of),
            held: Vec::new(),
        });
        found.extend(node);
    }
    let over = brakes::over(app, &found).await?;
    for (one, held) in checked.iter_mut().filter(|one| one.id.is_some()).zip(over) {
        one.held = held;
    }
    Ok(Checked { nodes: checked })
}
